package audit

// Specs of the requests that steps are asked with, of steps that are played, and of the answers.

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-logr/logr"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	kjson "sigs.k8s.io/json"

	"code.cloudfoundry.org/eirinix/internal/chain"
	"code.cloudfoundry.org/eirinix/internal/hang"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
)

var _ = DescribeTable("An object that is created again lacks what the cluster has added, and nothing else", func(stored, expected string) {
	typed := func(text string) string {
		return strings.TrimSuffix(`{"apiVersion":"v1","kind":"A",`+text[1:len(text)-1], ",") + "}"
	}
	_, created := resource{}.texts([]byte(typed(stored)))
	Expect(created).To(MatchJSON(typed(expected)))
	for _, member := range []string{`"n":12345678901234567890`, `"f":1.0`, `"t":"<a>\u00e9\/é"`} {
		if strings.Contains(stored, member) {
			Expect(string(created)).To(ContainSubstring(member), "its text stays as it is")
		}
	}
},
	Entry("the members of metadata",
		`{"metadata":{"name":"a","uid":"1","resourceVersion":"2","generation":3,"creationTimestamp":"x","deletionTimestamp":"x","deletionGracePeriodSeconds":4,"managedFields":[{}],"selfLink":"/","labels":{"uid":"kept"},"generateName":"g","finalizers":["f"],"ownerReferences":[{"uid":"kept"}]}}`,
		`{"metadata":{"finalizers":["f"],"generateName":"g","labels":{"uid":"kept"},"name":"a","ownerReferences":[{"uid":"kept"}]}}`),
	Entry("the status", `{"status":{"phase":"x"},"spec":{"status":{"kept":1}}}`, `{"spec":{"status":{"kept":1}}}`),
	Entry("numbers and texts stay as they are", `{"spec":{"n":12345678901234567890,"f":1.0,"t":"<a>\u00e9\/é"},"metadata":null}`, `{"metadata":null,"spec":{"n":12345678901234567890,"f":1.0,"t":"<a>\u00e9\/é"}}`),
	Entry("odd names", `{"a\"b":1,"<":2}`, `{"<":2,"a\"b":1}`),
	Entry("metadata that is a text", `{"metadata":"x"}`, `{"metadata":"x"}`),
	Entry("nothing", `{}`, `{}`),
)

var _ = DescribeTable("A request carries the namespace", func(group, resources, namespace, expected string) {
	o := &object{target: &target{resource: resource{GroupVersionResource: schema.GroupVersionResource{Group: group, Version: "v1", Resource: resources}}}, head: &head{}}
	o.head.Metadata.Name, o.head.Metadata.Namespace = "x", namespace
	Expect(o.request(admissionv1.Create).Namespace).To(Equal(expected))
},
	Entry("of the object", "", "pods", "a", "a"),
	Entry("that the object is", "", "namespaces", "", "x"),
	Entry("of no object of another group", "shop.example.org", "namespaces", "", ""),
)

var _ = Describe("An answer", func() {
	denied := func(message string) Verdict { return Verdict{Denied: &metav1.Status{Message: message}} }
	failed := func(text string) Verdict { return Verdict{Err: errors.New(text)} }
	patched := func(patch string) Verdict { return Verdict{Patch: []byte(patch)} }
	panicked := Verdict{Err: &hang.PanicError{Value: "x"}}

	DescribeTable("is the same for two users", func(a, b Verdict, same bool) {
		Expect(alike(a, b)).To(Equal(same))
		Expect(alike(b, a)).To(Equal(same))
	},
		Entry("if both admit", Verdict{}, Verdict{}, true),
		Entry("if both deny for the same reason", denied("no"), denied("no"), true),
		Entry("not if one denies", denied("no"), Verdict{}, false),
		Entry("not if the reasons differ", denied("no"), denied("not you"), false),
		Entry("if both make the same patch", patched("[1]"), patched("[1]"), true),
		Entry("not if the patches differ", patched("[1]"), patched("[2]"), false),
		Entry("not if one makes no patch", patched("[1]"), Verdict{}, false),
		Entry("if both fail, for any reason", failed("port 1"), failed("port 2"), true),
		Entry("not if one fails", failed("no"), denied("no"), false),
		Entry("not if one panics", failed("no"), panicked, false),
	)

	DescribeTable("holds", func(v Verdict, result Result, message string, paths ...string) {
		a := answerOf(v)
		Expect(a.Result).To(Equal(result))
		Expect(a.Message).To(Equal(message))
		Expect(strings.Join(a.Paths, " ")).To(Equal(strings.Join(paths, " ")))
	},
		Entry("nothing", Verdict{}, Passed, ""),
		Entry("the denial's message", denied("no"), Denied, "no"),
		Entry("the failure's text", failed("down"), Failed, "down"),
		Entry("a part of a long text, which stays UTF-8", failed(strings.Repeat("é", 600)), Failed, strings.Repeat("é", 500)+"..."),
		Entry("the panic's value", panicked, Failed, "it panicked: x. Later panics of the step are only counted"),
		Entry("paths in order, each once", patched(`[{"op":"add","path":"/b","value":"s3cret"},{"op":"remove","path":"/a"},{"op":"test","path":"/t"},{"op":"add","path":"/b"}]`), Drift, "it would change the object", "/a", "/b"),
		Entry("both ends of a move", patched(`[{"op":"move","from":"/a","path":"/c"},{"op":"copy","from":"/x","path":"/d"}]`), Drift, "it would change the object", "/a", "/c", "/d"),
	)

	It("names the field that does not decode, but no value", func() {
		var into struct {
			Spec struct {
				Replicas int `json:"replicas"`
			} `json:"spec"`
		}
		err := kjson.UnmarshalCaseSensitivePreserveInts([]byte(`{"spec":{"replicas":"hunter2"}}`), &into)
		Expect(err).To(HaveOccurred())
		a := answerOf(Verdict{Err: fmt.Errorf("%w: %w", chain.ErrUnreadable, err)})
		Expect(a.Message).To(Equal("the object does not decode into the type of the step: the field spec.replicas is no int"))
		a = answerOf(Verdict{Err: fmt.Errorf("%w: hunter2", chain.ErrUnreadable)})
		Expect(a.Message).To(Equal("the object does not decode into the type of the step"))
	})
})

var _ = Describe("A step that is played", func() {
	const pod = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web-0","namespace":"cf"},"spec":{"containers":[{"name":"web"}]}}`
	// sent is the API server's request for a pod, after changes.
	sent := func(changes ...func(*admissionv1.AdmissionRequest)) *admissionv1.AdmissionRequest {
		req := &admissionv1.AdmissionRequest{
			Operation: admissionv1.Create, Namespace: "cf", Name: "web-0", Object: runtime.RawExtension{Raw: []byte(pod)},
			Kind:     metav1.GroupVersionKind{Version: "v1", Kind: "Pod"},
			Resource: metav1.GroupVersionResource{Version: "v1", Resource: "pods"},
		}
		for _, change := range changes {
			change(req)
		}
		return req
	}
	newPod := func() runtime.Object { return &corev1.Pod{} }
	play := func(s chain.Step) Verdict {
		return NewPlayer(s, logr.Discard()).Play(context.Background(), sent())
	}
	check := func(name string, decide func() error) chain.Step {
		return chain.Step{Name: name, New: newPod, Run: func(context.Context, *chain.Call, runtime.Object, runtime.Object) error { return decide() }}
	}
	refuse := check("refuse", func() error { return apierrors.NewForbidden(corev1.Resource("pods"), "web-0", errors.New("too large")) })

	It("can change nothing", func() {
		v := play(chain.Step{Name: "nothing", New: newPod, Mutates: true, Run: func(context.Context, *chain.Call, runtime.Object, runtime.Object) error { return nil }})
		Expect(v).To(BeZero())
		Expect(chain.Paths(v.Patch)).To(BeEmpty())
		Expect(v.Changed([]byte(pod))).To(BeEquivalentTo(pod))
	})

	It("distinguishes a panic, and an object that does not decode", func() {
		v := play(check("panics", func() error { panic("no") }))
		panicked, ok := errors.AsType[*hang.PanicError](v.Err)
		Expect(ok).To(BeTrue())
		Expect(panicked.Value).To(Equal("no"))
		Expect(string(panicked.Stack)).To(ContainSubstring("play_test.go"))
		v = NewPlayer(refuse, logr.Discard()).Play(context.Background(), sent(func(r *admissionv1.AdmissionRequest) {
			r.Object.Raw = []byte(`{"spec":{"containers":5}}`)
		}))
		Expect(v.Err).To(And(MatchError(chain.ErrUnreadable), MatchError(ContainSubstring("*v1.Pod"))))
	})

	It("ends at the step's timeout, and with its caller's context", func() {
		s := check("hangs", nil)
		s.Run = func(ctx context.Context, _ *chain.Call, _, _ runtime.Object) error { <-ctx.Done(); return ctx.Err() }
		s.Timeout = 20 * time.Millisecond
		Expect(play(s).Err).To(MatchError(context.DeadlineExceeded))
		s.Timeout = time.Hour
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		Expect(NewPlayer(s, logr.Discard()).Play(ctx, sent()).Err).To(HaveOccurred())
	})

	It("leaves the request as it was, even if the step writes into its text", func() {
		req := sent()
		was := bytes.Clone(req.Object.Raw)
		p := NewPlayer(chain.Step{Name: "writes", Pods: &chain.Pods{}, Handle: func(_ context.Context, r admission.Request) admission.Response {
			clear(r.Object.Raw)
			return admission.Allowed("")
		}}, logr.Discard())
		for range 2 {
			Expect(p.Play(context.Background(), req)).To(BeZero())
			Expect(req.Object.Raw).To(Equal(was))
		}
	})

	It("wants the requests of its Matcher, but for an object that a controller of Kubernetes can have made, if the step leaves it alone", func() {
		matcher := Must(chain.NewMatcher([]admissionregistrationv1.RuleWithOperations{ruleFor("*", "*", "*")}, nil, nil))
		set := sent(func(r *admissionv1.AdmissionRequest) {
			r.Resource = metav1.GroupVersionResource{Group: "apps", Version: "v1", Resource: "replicasets"}
			r.Object.Raw = []byte(`{"metadata":{"ownerReferences":[{"apiVersion":"apps/v1","kind":"Deployment","controller":true}]}}`)
		})
		s := refuse
		s.Matcher = matcher
		wants := func(r *admissionv1.AdmissionRequest) bool { return NewPlayer(s, logr.Discard()).Wants(r) }
		Expect(wants(sent(func(r *admissionv1.AdmissionRequest) { r.Operation = "UPDATE" }))).To(BeFalse())
		Expect(wants(set)).To(BeTrue())
		matcher.Leave(false)
		Expect(wants(set)).To(BeFalse())
		Expect(wants(sent())).To(BeTrue())
		s.Matcher = nil
		Expect(wants(set)).To(BeTrue(), "a nil Matcher matches every request")
	})
})
