package eirinixtest_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/recording"
	eirinixtest "code.cloudfoundry.org/eirinix/testing"
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
	// recordCalls records the requests that are sent through a harness.
	recordCalls := func(ctx context.Context, r recording.Options, reviewVersion string, send func(*eirinixtest.Harness)) {
		GinkgoHelper()
		h := eirinixtest.NewHarness(GinkgoTB(), append(inProduction("a"), func(o *eirinixtest.HarnessOptions) { o.ReviewVersion = reviewVersion })...)
		stop, err := recording.Start(h.Manager(), r)
		Expect(err).NotTo(HaveOccurred())
		send(h)
		Expect(stop(ctx)).To(Succeed())
		send(h) // no recording is in progress any more
	}
	pods := func(h *eirinixtest.Harness) {
		for _, name := range []string{"nice", "naughty", "broken"} {
			h.Create(podOf(name, nil), eirinixtest.AsUser("jane"))
		}
	}

	DescribeTable("is played again, each call as it was", func(ctx SpecContext, version string) {
		dir := GinkgoT().TempDir()
		recordCalls(ctx, recording.Options{Dir: dir}, version, pods)
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
		dir := GinkgoT().TempDir()
		recordCalls(ctx, recording.Options{Dir: dir}, "", pods)
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
		dir := GinkgoT().TempDir()
		recordCalls(ctx, recording.Options{Dir: dir}, "", func(h *eirinixtest.Harness) { h.Create(podOf("nice", nil)) })
		elsewhere := func(o *eirinixtest.HarnessOptions) { o.Manager.Namespace = "elsewhere" }
		h := eirinixtest.NewHarness(GinkgoTB(), append(inProduction("a"), elsewhere)...)
		Expect(h.Create(podOf("nice", nil), eirinixtest.InNamespace("default"))).NotTo(eirinixtest.HaveRun("pods"))
		h.CheckReplay(dir)
	})

	It("holds no data of Secrets, unless it is asked to", func(ctx SpecContext) {
		const password = "correct-horse"
		secret := func(extra string) string {
			return `{apiVersion: v1, kind: Secret, metadata: {name: s}, stringData: {password: ` + password + `}` + extra + `}`
		}
		update := func(h *eirinixtest.Harness) {
			h.Update(secret(""), secret(", data: {more: Y29ycmVjdC1ob3JzZQ==}"))
		}
		text := func(dir string) string {
			GinkgoHelper()
			files, err := filepath.Glob(filepath.Join(dir, "*.json"))
			Expect(err).NotTo(HaveOccurred())
			Expect(files).To(HaveLen(1))
			raw, err := os.ReadFile(files[0])
			Expect(err).NotTo(HaveOccurred())
			return string(raw)
		}
		dir, whole := GinkgoT().TempDir(), GinkgoT().TempDir()
		recordCalls(ctx, recording.Options{Dir: dir}, "", update)
		recordCalls(ctx, recording.Options{Dir: whole, SecretData: true}, "", update)
		Expect(text(dir)).NotTo(Or(ContainSubstring(password), ContainSubstring("Y29ycmVjdC1ob3JzZQ")))
		Expect(strings.Count(text(whole), "Y29ycmVjdC1ob3JzZQ")).To(Equal(3), "webhooks see no stringData, but data")

		calls := eirinixtest.NewHarness(GinkgoTB(), inProduction("a")...).Replay(dir)
		Expect(calls[0].Redacted).To(ContainElement(HavePrefix("request.object.")))
		Expect(calls[0]).To(eirinixtest.BeDenied().WithMessage("no new keys"), "keys are there still")
		Expect(calls[0].String()).To(ContainSubstring("the recorder took out request.object."))
	})

	It("is answered alike by a step that repeats the data of a Secret, as the same placeholder stands for them everywhere", func(ctx SpecContext) {
		dir, echo := GinkgoT().TempDir(), eirinix.Mutation[*corev1.Secret]{ID: "echo", Apply: func(_ context.Context, c *eirinix.Call, s *corev1.Secret) error {
			password := string(s.Data["password"])
			c.Warn("it is %s, or %x", password, password)
			c.Annotate("bytes", fmt.Sprint([]byte("is "+password)))
			metav1.SetMetaDataAnnotation(&s.ObjectMeta, "header", "Basic "+base64.StdEncoding.EncodeToString([]byte("user:"+password)))
			metav1.SetMetaDataAnnotation(&s.ObjectMeta, "known", fmt.Sprint(s.Labels["known"] == password))
			return nil
		}}
		h := eirinixtest.NewHarness(GinkgoTB(), echo)
		stop, err := recording.Start(h.Manager(), recording.Options{Dir: dir})
		Expect(err).NotTo(HaveOccurred())
		h.Create(`{apiVersion: v1, kind: Secret, metadata: {name: s, labels: {known: correct-horse}}, stringData: {password: correct-horse}}`)
		Expect(stop(ctx)).To(Succeed())

		call := eirinixtest.NewHarness(GinkgoTB(), echo).Replay(dir)[0]
		Expect(call).To(eirinixtest.HaveWarned("it is redacted, or 7265646163746564"))
		Expect(eirinixtest.As[*corev1.Secret](call.Was).Annotations).To(HaveKeyWithValue("known", "true"))
		Expect(call.Difference()).To(BeEmpty())
	})

	It("holds the calls that the program selects, redacted by it", func(ctx SpecContext) {
		dir := GinkgoT().TempDir()
		recordCalls(ctx, recording.Options{
			Dir:  dir,
			Only: func(r *admissionv1.AdmissionRequest) bool { return r.Name == "nice" },
			Redact: func(object map[string]any) {
				delete(object, "spec")
			},
		}, "", pods)
		calls := eirinixtest.NewHarness(GinkgoTB(), inProduction("a")...).Replay(dir)
		Expect(calls).To(HaveLen(1))
		Expect(eirinixtest.As[*corev1.Pod](calls[0].Result).Spec.Containers).To(BeEmpty())
	})

	It("may be a review that another tool has kept", func() {
		file := filepath.Join(GinkgoT().TempDir(), "review.json")
		Expect(os.WriteFile(file, []byte(`{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "1", "operation": "CREATE",
			"kind": {"group": "", "version": "v1", "kind": "Pod"}, "resource": {"group": "", "version": "v1", "resource": "pods"}, "namespace": "default", "name": "naughty", "dryRun": true,
			"userInfo": {"username": "jane"}, "object": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "naughty", "namespace": "default"}}},
			"response": {"uid": "1", "allowed": true}}`), 0o600)).To(Succeed())
		calls := eirinixtest.NewHarness(GinkgoTB(), inProduction("a")...).Replay(file)
		Expect(calls).To(ConsistOf(eirinixtest.BeDenied()))
		Expect(calls[0].Was).To(eirinixtest.BeAllowed())
		Expect(calls[0].Difference()).To(ContainSubstring("+# denied with 403"))
	})

	It("of a webhook that is gone, or has another path, goes to those that want it now", func(ctx SpecContext) {
		dir := GinkgoT().TempDir()
		recordCalls(ctx, recording.Options{Dir: dir}, "", pods)
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

	DescribeTable("may be a review that another tool has kept without the answer, or of v1beta1", func(version, response string, was any) {
		file := filepath.Join(GinkgoT().TempDir(), "review.json")
		Expect(os.WriteFile(file, []byte(`{"apiVersion": "admission.k8s.io/`+version+`", "kind": "AdmissionReview", "request": {"uid": "1", "operation": "CREATE",
			"kind": {"group": "", "version": "v1", "kind": "Pod"}, "resource": {"group": "", "version": "v1", "resource": "pods"}, "namespace": "default", "name": "naughty",
			"userInfo": {"username": "jane"}, "object": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "naughty", "namespace": "default"}}}`+response+`}`), 0o600)).To(Succeed())
		h := eirinixtest.NewHarness(GinkgoTB(), inProduction("a")...)
		calls := h.Replay(file)
		Expect(calls).To(ConsistOf(eirinixtest.BeDenied()))
		Expect(calls[0].Was).To(was.(OmegaMatcher))
		Expect(calls[0].Difference()).To(BeEmpty())
		h.CheckReplay(file)
	},
		Entry("without", "v1", "", BeNil()),
		Entry("v1beta1, which is lax", "v1beta1", `, "response": {"allowed": false, "status": {"message": "no naughty here", "code": 403, "reason": "Forbidden"}}`, eirinixtest.BeDenied()),
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
		stop, err := recording.Start(m, recording.Options{Dir: GinkgoT().TempDir()})
		Expect(err).NotTo(HaveOccurred())
		kept := filepath.Join(GinkgoT().TempDir(), "20260101T000000.000000000Z-create-pods-default-a-00000000.json")
		Expect(os.WriteFile(kept, []byte("{}"), 0o600)).To(Succeed())
		_, err = recording.Start(m, recording.Options{Dir: filepath.Dir(kept), MaxBytes: 1})
		Expect(kept).To(BeAnExistingFile())
		Expect(err).To(MatchError(ContainSubstring("another recording is in progress; stop it first")))
		Expect(stop(ctx)).To(Succeed())
		Expect(stop(ctx)).To(Succeed(), "twice is once")
		stop, err = recording.Start(m, recording.Options{Dir: GinkgoT().TempDir()})
		Expect(err).NotTo(HaveOccurred())
		Expect(stop(ctx)).To(Succeed())
		_, err = recording.Start(m, recording.Options{})
		Expect(err).To(MatchError(And(HavePrefix("eirinix: recording.Options: "), ContainSubstring("Dir is empty"))))
		file := filepath.Join(GinkgoT().TempDir(), "file")
		Expect(os.WriteFile(file, nil, 0o600)).To(Succeed())
		_, err = recording.Start(m, recording.Options{Dir: file})
		Expect(strings.ToLower(err.Error())).To(ContainSubstring(strings.ToLower(file)))
	})
})
