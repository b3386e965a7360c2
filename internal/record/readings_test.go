package record_test

// What steps read beside the request stands in the recording, redacted, and within bounds.

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"code.cloudfoundry.org/eirinix/internal/chain"
	"code.cloudfoundry.org/eirinix/internal/reads"
	"code.cloudfoundry.org/eirinix/internal/record"
	"code.cloudfoundry.org/eirinix/internal/snapshots"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
)

// cluster is what the step "volumes" can read.
type cluster struct {
	set     *reads.Set
	objects []*unstructured.Unstructured
	fails   func(reads.Declaration) error
}

// newCluster holds objects, of which the step declares the ConfigMaps and Secrets.
func newCluster(keep func(client.Object), objects ...string) *cluster {
	GinkgoHelper()
	set := Must(reads.New(clientgoscheme.Scheme, []reads.Step{{Name: "volumes", Reads: []reads.Declaration{
		{Object: &corev1.ConfigMap{}, Kind: corev1.SchemeGroupVersion.WithKind("ConfigMap"), Transform: keep},
		{Object: &corev1.Secret{}, Kind: corev1.SchemeGroupVersion.WithKind("Secret"), Transform: keep},
	}}}, logr.Discard(), nil))
	c := &cluster{set: set}
	for _, o := range objects {
		c.objects = append(c.objects, &unstructured.Unstructured{Object: members(o)})
	}
	return c
}

// reader returns what the step reads with in a call.
func (c *cluster) reader(ctx context.Context) *reads.Reader {
	var turn reads.Turn
	turn.From(ctx, "volumes", func(first func() any) any { return first() }, func(ctx context.Context) *reads.Snapshot {
		return snapshots.Fill(ctx, c.set, c.objects, c.fails)
	})
	return turn.Reader()
}

// listing is a step that lists all ConfigMaps and Secrets.
func (c *cluster) listing(ctx context.Context, _ admission.Request) admission.Response {
	r := c.reader(ctx)
	for _, list := range []client.ObjectList{&corev1.ConfigMapList{}, &corev1.SecretList{}} {
		if err := r.List(ctx, list); err != nil {
			return admission.Errored(500, err)
		}
	}
	return admission.Allowed("")
}

func configMapNamed(name, data string) string {
	return `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"cf","name":"` + name + `"},"data":{"host":"` + data + `"}}`
}

var secretWithCopy = `{"apiVersion":"v1","kind":"Secret","metadata":{"namespace":"cf","name":"db","annotations":{` + lastApplied + `}},"data":{"password":"` + inBase64 + `"}}`

var _ = Describe("What steps read", func() {
	It("is recorded once, by declaration, as it was kept", func() {
		c := newCluster(nil, configMapNamed("a", "a.example.com"), configMapNamed("b", "b.example.com"))
		w := newWorld(func(ctx context.Context, _ admission.Request) admission.Response {
			r, found := c.reader(ctx), &corev1.ConfigMap{}
			for _, name := range []string{"a", "a", "none"} {
				_ = r.Get(ctx, client.ObjectKey{Namespace: "cf", Name: name}, found)
			}
			return admission.Allowed("")
		})
		w.allowed(review(pod))
		got := w.read()[0]
		Expect(got.Reads).To(HaveExactElements(And(
			HaveField("Declaration", "eirinix.Read{Object: &v1.ConfigMap{}}"), HaveField("Steps", []string{"volumes"}), HaveField("Failed", BeEmpty()),
			HaveField("Objects", HaveExactElements(HaveKeyWithValue("data", map[string]any{"host": "a.example.com"}))))))
		Expect(got.ReadsLeftOut).To(BeEmpty())
	})

	It("is an empty list if they read nothing, and is missing if they cannot read", func() {
		c := newCluster(nil)
		able := newWorld(func(ctx context.Context, _ admission.Request) admission.Response {
			c.reader(ctx)
			return admission.Allowed("")
		})
		able.allowed(review(pod))
		Expect(able.only()).To(ContainSubstring(`"reads":[]`))
		Expect(able.read()[0].Reads).To(And(BeEmpty(), Not(BeNil())))
		unable := newWorld(allow)
		unable.allowed(review(pod))
		Expect(unable.read()[0].Reads).To(BeNil())
	})

	It("says which reads failed, without a value that a function of the program has quoted", func() {
		c := newCluster(func(o client.Object) {
			if s, ok := o.(*corev1.Secret); ok {
				panic(string(s.Data["password"]))
			}
		}, secretWithCopy)
		c.fails = func(d reads.Declaration) error {
			if d.Kind.Kind == "ConfigMap" {
				return errors.New("they are too old")
			}
			return nil
		}
		w := newWorld(func(ctx context.Context, _ admission.Request) admission.Response {
			r := c.reader(ctx)
			_, _ = r.List(ctx, &corev1.ConfigMapList{}), r.List(ctx, &corev1.SecretList{})
			return admission.Allowed("")
		})
		w.allowed(review(pod))
		Expect(leaks(w.only())).To(BeFalse())
		got := w.read()[0].Reads
		Expect(got).To(HaveLen(2))
		Expect(got[0].Failed).To(Equal(map[string]string{"volumes": "they are too old"}))
		Expect(got[1].Failed).To(HaveKeyWithValue("volumes", ContainSubstring("Read.Transform or Read.Index of eirinix.Read{Object: &v1.Secret{}} fails")))
	})

	DescribeTable("is redacted as the objects of the request are, and wherever the answer repeats it", func(say func(value string) admission.Response) {
		c := newCluster(nil, secretWithCopy, configMapNamed("copy", "https://user:"+marker+"@db"))
		w := newWorld(func(ctx context.Context, _ admission.Request) admission.Response {
			r, secret := c.reader(ctx), &corev1.Secret{}
			if err := errors.Join(r.Get(ctx, client.ObjectKey{Namespace: "cf", Name: "db"}, secret), r.List(ctx, &corev1.ConfigMapList{})); err != nil {
				return admission.Errored(500, err)
			}
			return say(string(secret.Data["password"]))
		})
		_, answer := w.post(review(pod))
		Expect(leaks(answer)).To(BeTrue(), "the answer must hold the value, or nothing is shown: %s", answer)
		text := w.only()
		Expect(leaks(text)).To(BeFalse(), text)
		got := w.read()[0]
		Expect(got.Reads).To(HaveLen(2))
		Expect(got.Reads[0].Objects[0]["data"]).To(Equal(map[string]any{"password": "cmVkYWN0ZWQ="}))
		Expect(got.Reads[0].Objects[0]["metadata"]).To(HaveKeyWithValue("annotations", BeEmpty()), "the one was a copy")
		Expect(got.Reads[1].Objects[0]["data"]).To(Equal(map[string]any{"host": "https://user:redacted@db"}))
		Expect(got.Redacted).To(ContainElements("eirinix.reads[0].objects[0].data", "eirinix.reads[1].objects[0].data (repeated a secret)"))
	},
		Entry("in a failure", func(value string) admission.Response { return admission.Errored(500, errors.New("not with "+value)) }),
		Entry("in an annotation for the audit log", func(value string) admission.Response {
			r := admission.Allowed("")
			r.AuditAnnotations = map[string]string{"used": value, value: "used"}
			return r
		}),
	)

	It("is shown to the program's hook, which sees no value of a Secret", func() {
		c := newCluster(nil, configMapNamed("a", marker), secretWithCopy)
		var seen []string
		w := newWorld(c.listing, func(o *record.Options) {
			o.Redact = func(o map[string]any) {
				if seen = append(seen, fmt.Sprint(o["kind"])); o["kind"] == "ConfigMap" {
					delete(o, "data")
				} else if data, ok := o["data"].(map[string]any); ok && data["password"] == inBase64 {
					seen = append(seen, "a value")
				}
			}
		})
		w.allowed(review(pod))
		text := w.only()
		Expect(leaks(text)).To(BeFalse(), text)
		Expect(seen).To(Equal([]string{"Pod", "ConfigMap", "Secret"}))
		Expect(w.read()[0].Redacted).To(ContainElement("eirinix.reads[0].objects[0] (by Redact)"))
	})

	DescribeTable("is left out of the recording if it is too much", func(objects int, data string, budget int64, reason string) {
		var all []string
		for i := range objects {
			all = append(all, configMapNamed(fmt.Sprint("c-", i), data))
		}
		w := newWorld(newCluster(nil, all...).listing)
		if budget > 0 {
			w.budget = budget
			w.recorder.SetBudget(budget)
		}
		w.allowed(review(pod))
		got := w.read()[0]
		if reason == "" {
			Expect(got.Reads[0].Objects).To(HaveLen(objects))
		} else {
			Expect(got.Reads).To(BeNil())
		}
		Expect(got.ReadsLeftOut).To(Equal(reason))
		Expect(got.Review.Response.Allowed).To(BeTrue())
	},
		Entry("not at the limit", 1000, "x", int64(0), ""),
		Entry("of objects", 1001, "x", int64(0), "the steps read more than 1000 objects"),
		Entry("of bytes", 11, strings.Repeat("x", 100<<10), int64(0), "the steps read more than 1048576 bytes"),
		Entry("of the memory of the calls that wait", 2, strings.Repeat("x", 100<<10), int64(128<<10), "more calls came than could be written"),
	)

	It("ends with the answer: a step that was left behind changes nothing", func() {
		change, began, release := blocking()
		c := newCluster(nil, configMapNamed("a", "early"), configMapNamed("b", "late"))
		late, done := make(chan struct{}), make(chan struct{})
		var step chain.HandleFunc = func(ctx context.Context, _ admission.Request) admission.Response {
			r := c.reader(ctx)
			Expect(r.Get(ctx, client.ObjectKey{Namespace: "cf", Name: "a"}, &corev1.ConfigMap{})).To(Succeed())
			go func() {
				defer GinkgoRecover()
				defer close(done)
				<-late
				Expect(r.Get(context.WithoutCancel(ctx), client.ObjectKey{Namespace: "cf", Name: "b"}, &corev1.ConfigMap{})).To(Succeed())
			}()
			return admission.Allowed("")
		}
		w := newWorld(step, change)
		DeferCleanup(release)
		w.allowed(review(pod))
		Eventually(began).Should(BeClosed())
		close(late) // while the call waits to be written
		Eventually(done).Should(BeClosed())
		release()
		Expect(w.only()).To(And(ContainSubstring("early"), Not(ContainSubstring("late"))))
	})
})
