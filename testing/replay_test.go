package eirinixtest_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/internal/reads"
	"code.cloudfoundry.org/eirinix/internal/snapshots"
	"code.cloudfoundry.org/eirinix/offline"
	"code.cloudfoundry.org/eirinix/recording"
	eirinixtest "code.cloudfoundry.org/eirinix/testing"

	. "code.cloudfoundry.org/eirinix/internal/spectest"
)

// inProduction returns the steps of a program in production. It labels pods, refuses some, and looks at Secrets.
func inProduction(label string) []any {
	return []any{
		eirinix.Mutation[*corev1.Pod]{ID: "pods", Apply: func(_ context.Context, c *eirinix.Call, pod *corev1.Pod) error {
			switch {
			case pod.Name == "naughty":
				return eirinix.Deny("no %s here", pod.Name)
			case pod.Name == "broken":
				return errors.New("out of order")
			}
			c.Warn("seen by %s", c.UserInfo.Username)
			c.Annotate("who", c.UserInfo.Username)
			metav1.SetMetaDataLabel(&pod.ObjectMeta, "by", label)
			return nil
		}},
		eirinix.Validation[*corev1.Secret]{ID: "secrets", Update: func(_ context.Context, _ *eirinix.Call, was, is *corev1.Secret) error {
			if len(was.Data) != len(is.Data) {
				return eirinix.Deny("no new keys")
			}
			return nil
		}},
	}
}

var _ = Describe("Recorded traffic", func() {
	// recorded records the requests that are sent through a harness of these parts, into a folder.
	recorded := func(ctx context.Context, send func(*eirinixtest.Harness), parts ...any) string {
		GinkgoHelper()
		h, dir := eirinixtest.NewHarness(GinkgoTB(), parts...), GinkgoT().TempDir()
		stop := Must(recording.Start(h.Manager(), recording.Options{Dir: dir}))
		send(h)
		Expect(stop(ctx)).To(Succeed())
		send(h) // no recording is in progress any more
		return dir
	}
	pods := func(h *eirinixtest.Harness) {
		for _, name := range []string{"nice", "naughty", "broken"} {
			h.Create(podOf(name, nil), eirinixtest.AsUser("jane"))
		}
	}

	DescribeTable("is played again, each call as it was", func(ctx SpecContext, version string) {
		dir := recorded(ctx, pods, append(inProduction("a"), func(o *eirinixtest.HarnessOptions) { o.ReviewVersion = version })...)
		h := eirinixtest.NewHarness(GinkgoTB(), inProduction("a")...)
		calls := h.Replay(dir)
		Expect(calls).To(HaveLen(3))
		Expect(calls[0]).To(And(eirinixtest.BeAllowed(), eirinixtest.HaveWarned("seen by jane"), eirinixtest.HaveAudited("who", "jane"), eirinixtest.HaveRun("pods")))
		Expect(calls[0].Was).To(And(eirinixtest.BeAllowed(), Not(eirinixtest.HaveRun("pods"))))
		Expect(eirinixtest.As[*corev1.Pod](calls[0].Was).Labels).To(HaveKeyWithValue("by", "a"))
		Expect(calls[0].Path).To(HavePrefix("/mutate/"))
		Expect(calls[0].Took).To(BeNumerically(">", 0))
		Expect(calls[1]).To(eirinixtest.BeDenied().WithMessage("no naughty here"))
		Expect(calls[2]).To(eirinixtest.HaveFailed("out of order"))
		for _, c := range calls {
			Expect(c.Difference()).To(BeEmpty(), c.File)
			Expect(c.String()).To(And(ContainSubstring(c.File), HaveSuffix("answered as it was\n")))
		}
		h.CheckReplay(dir)
	},
		Entry("of API servers that ask in v1", "v1"),
		Entry("of API servers that ask in v1beta1", "v1beta1"),
	)

	It("shows the differences of a changed program", func(ctx SpecContext) {
		dir := recorded(ctx, pods, inProduction("a")...)
		h := eirinixtest.NewHarness(GinkgoTB(), inProduction("b")...)
		calls := h.Replay(dir)
		Expect(calls[0].Difference()).To(And(ContainSubstring("-    by: a"), ContainSubstring("+    by: b")))
		Expect(calls[0].String()).To(ContainSubstring("answered otherwise than it was"))
		Expect(calls[1].Difference()).To(BeEmpty())
		message := failureOf(func(t *fakeTest) {
			eirinixtest.NewHarness(t, inProduction("b")...).CheckReplay(dir)
		})
		Expect(message).To(And(ContainSubstring(calls[0].File+" is answered otherwise than it was"), Not(ContainSubstring(calls[1].File))))

		lenient := eirinix.Mutation[*corev1.Pod]{ID: "pods", Apply: func(context.Context, *eirinix.Call, *corev1.Pod) error { return nil }}
		for i, now := range []string{"by: a", "-# denied with 403 Forbidden: no naughty here", "-# failed"} {
			Expect(eirinixtest.NewHarness(GinkgoTB(), lenient).Replay(dir)[i].Difference()).To(ContainSubstring(now))
		}
	})

	It("goes to the webhook that was called, whatever the selectors are now", func(ctx SpecContext) {
		dir := recorded(ctx, func(h *eirinixtest.Harness) { h.Create(podOf("nice", nil)) }, inProduction("a")...)
		elsewhere := func(o *eirinixtest.HarnessOptions) { o.Manager.Namespace = "elsewhere" }
		h := eirinixtest.NewHarness(GinkgoTB(), append(inProduction("a"), elsewhere)...)
		Expect(h.Create(podOf("nice", nil), eirinixtest.InNamespace("default"))).NotTo(eirinixtest.HaveRun("pods"))
		h.CheckReplay(dir)
	})

	It("is answered alike by a step that repeats the data of a Secret, as the same placeholder stands for them everywhere", func(ctx SpecContext) {
		echo := eirinix.Mutation[*corev1.Secret]{ID: "echo", Apply: func(_ context.Context, c *eirinix.Call, s *corev1.Secret) error {
			password := string(s.Data["password"])
			c.Warn("it is %s, or %x", password, password)
			c.Annotate("bytes", fmt.Sprint([]byte("is "+password)))
			metav1.SetMetaDataAnnotation(&s.ObjectMeta, "header", "Basic "+base64.StdEncoding.EncodeToString([]byte("user:"+password)))
			metav1.SetMetaDataAnnotation(&s.ObjectMeta, "known", fmt.Sprint(s.Labels["known"] == password))
			return nil
		}}
		dir := recorded(ctx, func(h *eirinixtest.Harness) {
			h.Create(`{apiVersion: v1, kind: Secret, metadata: {name: s, labels: {known: correct-horse}}, stringData: {password: correct-horse}}`)
		}, echo)
		call := eirinixtest.NewHarness(GinkgoTB(), echo).Replay(dir)[0]
		Expect(call).To(eirinixtest.HaveWarned("it is redacted, or 7265646163746564"))
		Expect(eirinixtest.As[*corev1.Secret](call.Was).Annotations).To(HaveKeyWithValue("known", "true"))
		Expect(call.Difference()).To(BeEmpty())
	})

	It("of a webhook that is gone, or has another path, goes to those that want it now", func(ctx SpecContext) {
		dir := recorded(ctx, pods, inProduction("a")...)
		selected := inProduction("a")
		step := selected[0].(eirinix.Mutation[*corev1.Pod])
		step.Settings.Namespaces = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "off", Operator: metav1.LabelSelectorOpDoesNotExist}}}
		h := eirinixtest.NewHarness(GinkgoTB(), step)
		calls := h.Replay(dir)
		Expect(calls).To(HaveLen(3))
		Expect(calls[0].Moved).To(BeTrue())
		Expect(calls[0]).To(eirinixtest.HaveRun("pods"))
		Expect(calls[0].String()).To(ContainSubstring("no webhook is called on " + calls[0].Path + " any more"))
		h.CheckReplay(dir)

		h = eirinixtest.NewHarness(GinkgoTB(), inProduction("a")[1])
		calls = h.Replay(dir)
		Expect(calls[0]).NotTo(eirinixtest.HaveRun("pods"))
		Expect(calls[0].Difference()).To(ContainSubstring("-    by: a"))
	})

	DescribeTable("may be a review that another tool has kept", func(version, response string, was, difference OmegaMatcher) {
		file := filepath.Join(GinkgoT().TempDir(), "review.json")
		Expect(os.WriteFile(file, []byte(`{"apiVersion": "admission.k8s.io/`+version+`", "kind": "AdmissionReview", "request": {"uid": "1", "operation": "CREATE",
			"kind": {"group": "", "version": "v1", "kind": "Pod"}, "resource": {"group": "", "version": "v1", "resource": "pods"}, "namespace": "default", "name": "naughty",
			"userInfo": {"username": "jane"}, "object": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "naughty", "namespace": "default"}}}`+response+`}`), 0o600)).To(Succeed())
		calls := eirinixtest.NewHarness(GinkgoTB(), inProduction("a")...).Replay(file)
		Expect(calls).To(ConsistOf(eirinixtest.BeDenied()))
		Expect(calls[0].Was).To(was)
		Expect(calls[0].Difference()).To(difference)
	},
		Entry("with another answer", "v1", `, "response": {"uid": "1", "allowed": true}`, eirinixtest.BeAllowed(), ContainSubstring("+# denied with 403")),
		Entry("without the answer", "v1", "", BeNil(), BeEmpty()),
		Entry("of v1beta1, which is lax", "v1beta1", `, "response": {"allowed": false, "status": {"message": "no naughty here", "code": 403, "reason": "Forbidden"}}`,
			eirinixtest.BeDenied(), BeEmpty()),
	)

	DescribeTable("that cannot be played fails with the reason", func(ctx SpecContext, prepare func(dir string), message string) {
		dir := GinkgoT().TempDir()
		prepare(dir)
		Expect(failureOf(func(t *fakeTest) { eirinixtest.NewHarness(t, inProduction("a")...).Replay(dir) })).To(ContainSubstring(message))
	},
		Entry("none", func(string) {}, "holds no recording (*.json); recording.Start writes them"),
		Entry("no review", func(dir string) {
			Expect(os.WriteFile(filepath.Join(dir, "a.json"), []byte(`{}`), 0o600)).To(Succeed())
		}, "a.json"),
	)

	It("is one at a time, in a folder that can be written", func(ctx SpecContext) {
		m := eirinix.NewManager(eirinix.ManagerOptions{Host: "webhook.example.org"})
		stop := Must(recording.Start(m, recording.Options{Dir: GinkgoT().TempDir()}))
		_, err := recording.Start(m, recording.Options{Dir: GinkgoT().TempDir()})
		Expect(err).To(MatchError(ContainSubstring("another recording is in progress; stop it first")))
		Expect(stop(ctx)).To(Succeed())
		Expect(stop(ctx)).To(Succeed(), "twice is once")
		stop = Must(recording.Start(m, recording.Options{Dir: GinkgoT().TempDir()}))
		Expect(stop(ctx)).To(Succeed())
		_, err = recording.Start(m, recording.Options{})
		Expect(err).To(MatchError(And(HavePrefix("eirinix: recording.Options: "), ContainSubstring("Dir is empty"))))
	})
})

// landlord refuses pods whose host another one has, by ConfigMaps, and those that hold the password of a Secret. Of the
// ConfigMaps it keeps no labels, although it selects by them.
func landlord(id string) eirinix.Validation[*corev1.Pod] {
	return eirinix.Validation[*corev1.Pod]{
		ID: id,
		Settings: eirinix.Settings{Reads: []eirinix.Read{
			{
				Object: &corev1.ConfigMap{}, Labels: &metav1.LabelSelector{MatchLabels: map[string]string{"hosts": "yes"}}, Required: true,
				Transform: func(o client.Object) { o.SetLabels(nil) },
				Index:     map[string]client.IndexerFunc{"host": func(o client.Object) []string { return []string{o.(*corev1.ConfigMap).Data["host"]} }},
			},
			{Object: &corev1.Secret{}},
		}},
		Create: func(ctx context.Context, c *eirinix.Call, pod *corev1.Pod) error {
			if pod.Name == "idle" {
				return nil
			}
			var taken corev1.ConfigMapList
			if err := c.Reader().List(ctx, &taken, client.MatchingFields{"host": pod.Annotations["host"]}); err != nil {
				return err
			}
			if len(taken.Items) > 0 {
				return eirinix.Deny("%s has the host %s", taken.Items[0].Name, pod.Annotations["host"])
			}
			secret := &corev1.Secret{}
			switch err := c.Reader().Get(ctx, client.ObjectKey{Namespace: pod.Namespace, Name: "db"}, secret); {
			case apierrors.IsNotFound(err):
				c.Warn("there is no Secret")
			case err != nil:
				return err
			case strings.Contains(pod.Annotations["url"], string(secret.Data["password"])):
				return eirinix.Deny("the password %s is in an annotation", secret.Data["password"])
			}
			return nil
		},
	}
}

var _ = Describe("A recorded call whose steps read", func() {
	const (
		hosts = `{apiVersion: v1, kind: ConfigMap, metadata: {namespace: default, name: shop, labels: {hosts: "yes"}}, data: {host: shop.example.com}}`
		other = `{apiVersion: v1, kind: ConfigMap, metadata: {namespace: default, name: other}, data: {host: b.example.com}}`
		db    = `{apiVersion: v1, kind: Secret, metadata: {namespace: default, name: db}, data: {password: Y29ycmVjdC1ob3JzZQ==}}`
	)
	// recorded records the creation of pods with these metadata, while the cluster holds the objects, into a folder.
	recorded := func(ctx context.Context, objects []string, fails func(reads.Declaration) error, pods ...string) string {
		GinkgoHelper()
		m := eirinix.NewManager(eirinix.ManagerOptions{Namespace: "default", OperatorFingerprint: "x", Logger: zap.NewNop().Sugar()})
		Expect(m.AddExtension(landlord("hosts"))).To(Succeed())
		played := Must(offline.Of(m, offline.Options{}))
		to := Must(url.Parse(*played.Validating.Webhooks[0].ClientConfig.URL))
		var world []*unstructured.Unstructured
		for _, o := range objects {
			tree := map[string]any{}
			Expect(yaml.Unmarshal([]byte(o), &tree)).To(Succeed())
			world = append(world, &unstructured.Unstructured{Object: tree})
		}
		dir := GinkgoT().TempDir()
		stop := Must(recording.Start(m, recording.Options{Dir: dir}))
		for _, pod := range pods {
			review, err := yaml.YAMLToJSON([]byte(`{kind: AdmissionReview, apiVersion: admission.k8s.io/v1, request: {uid: a, operation: CREATE, name: web, namespace: default,
				kind: {group: "", version: v1, kind: Pod}, resource: {group: "", version: v1, resource: pods}, userInfo: {username: jane},
				object: {apiVersion: v1, kind: Pod, metadata: {namespace: default, ` + pod + `}, spec: {containers: [{name: a, image: a}]}}}}`))
			Expect(err).NotTo(HaveOccurred())
			r := httptest.NewRequest(http.MethodPost, to.Path+"?timeout=10s", strings.NewReader(string(review)))
			r.Header.Set("Content-Type", "application/json")
			played.Handler.ServeHTTP(httptest.NewRecorder(), r.WithContext(snapshots.WithWorld(ctx, world, fails)))
		}
		Expect(stop(ctx)).To(Succeed())
		return dir
	}
	change := func(dir, old, with string) {
		GinkgoHelper()
		files := Must(filepath.Glob(filepath.Join(dir, "*.json")))
		for _, file := range files {
			text := Must(os.ReadFile(file))
			Expect(string(text)).To(ContainSubstring(old))
			Expect(os.WriteFile(file, []byte(strings.Replace(string(text), old, with, 1)), 0o600)).To(Succeed())
		}
	}

	It("is played again with the objects of that time, of which Transform had removed what selected them", func(ctx SpecContext) {
		dir := recorded(ctx, []string{hosts, other}, nil, `name: web, annotations: {host: shop.example.com}`,
			`name: web, annotations: {host: new.example.com}`, `name: web, annotations: {host: b.example.com}`, `name: idle`)
		for _, id := range []string{"hosts", "renamed"} {
			h := eirinixtest.NewHarness(GinkgoTB(), landlord(id))
			calls := h.Replay(dir)
			Expect(calls).To(HaveLen(4))
			Expect(calls[0]).To(eirinixtest.BeDenied().WithMessage("shop has the host shop.example.com"), id)
			for _, call := range calls[1:3] {
				Expect(call).To(And(eirinixtest.BeAllowed(), eirinixtest.HaveWarned("there is no Secret")), "no such object: neither missing nor Required")
			}
			Expect(calls[3]).To(eirinixtest.BeAllowed())
			h.CheckReplay(dir)
		}
	})

	It("shows the difference of a step that decides otherwise on the same objects, which it declares anew", func(ctx SpecContext) {
		dir := recorded(ctx, []string{hosts}, nil, `name: web, annotations: {host: shop.example.com}`)
		lenient := landlord("hosts")
		lenient.Settings.Reads = []eirinix.Read{{Object: &corev1.ConfigMap{}, Labels: &metav1.LabelSelector{}, Required: true}}
		lenient.Create = func(ctx context.Context, c *eirinix.Call, _ *corev1.Pod) error {
			var all corev1.ConfigMapList
			err := c.Reader().List(ctx, &all)
			c.Warn("%d", len(all.Items))
			return err
		}
		Expect(eirinixtest.NewHarness(GinkgoTB(), lenient).Replay(dir)[0].Difference()).To(And(ContainSubstring("-# denied"), ContainSubstring("+# warning: 1")))
	})

	It("fails as it has failed", func(ctx SpecContext) {
		stale := func(d reads.Declaration) error {
			if d.Kind.Kind == "Secret" {
				return errors.New("they are too old")
			}
			return nil
		}
		dir := recorded(ctx, []string{hosts, db}, stale, `name: web, annotations: {host: a}`)
		h := eirinixtest.NewHarness(GinkgoTB(), landlord("hosts"))
		Expect(h.Replay(dir)[0]).To(eirinixtest.HaveFailed("they are too old"))
		h.CheckReplay(dir)
		empty := recorded(ctx, nil, nil, `name: web, annotations: {host: a}`)
		Expect(h.Replay(empty)[0]).To(eirinixtest.HaveFailed("(Read.Required)"))
		h.CheckReplay(empty)
	})

	It("is answered alike with the placeholders of a Secret, and names them", func(ctx SpecContext) {
		dir := recorded(ctx, []string{hosts, db}, nil, `name: web, annotations: {host: a, url: "u:correct-horse@h"}`)
		h := eirinixtest.NewHarness(GinkgoTB(), landlord("hosts"))
		h.CheckReplay(dir)
		call := h.Replay(dir)[0]
		Expect(call).To(eirinixtest.BeDenied().WithMessage("the password redacted is in an annotation"))
		Expect(call.Redacted).To(ContainElement("eirinix.reads[1].objects[0].data"))
		Expect(call.String()).To(ContainSubstring("the recorder took out eirinix.reads[1].objects[0].data"))
	})

	It("reads the objects of the Harness only if the file has none, and says so", func(ctx SpecContext) {
		dir := recorded(ctx, []string{hosts}, nil, `name: web, annotations: {host: shop.example.com}`, `name: web, annotations: {host: mine.example.com}`)
		mine := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "mine", Labels: map[string]string{"hosts": "yes"}},
			Data:       map[string]string{"host": "mine.example.com"},
		}
		h := eirinixtest.NewHarness(GinkgoTB(), landlord("hosts"), func(o *eirinixtest.HarnessOptions) { o.Objects = []client.Object{mine} })
		h.CheckReplay(dir)
		change(dir, `"reads":`, `"older":`)
		calls := h.Replay(dir)
		Expect(calls[0]).To(eirinixtest.BeAllowed())
		Expect(calls[1]).To(eirinixtest.BeDenied().WithMessage("mine has the host mine.example.com"))
		Expect(calls[0].String()).NotTo(ContainSubstring("lacks what the steps have read"), "it is not known whether they could read")
		change(dir, `"older":`, `"readsLeftOut":"the steps read more than 1000 objects","older":`)
		calls = h.Replay(dir)
		Expect(calls[1]).To(eirinixtest.BeDenied().WithMessage("mine has the host mine.example.com"))
		Expect(calls[1].String()).To(ContainSubstring("(the recording lacks what the steps have read: the steps read more than 1000 objects)"))
	})
})
