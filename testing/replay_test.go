package eirinixtest_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
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
	// recorded records the requests that are sent through a harness of these parts, into a folder.
	recorded := func(ctx context.Context, send func(*eirinixtest.Harness), parts ...any) string {
		GinkgoHelper()
		h, dir := eirinixtest.NewHarness(GinkgoTB(), parts...), GinkgoT().TempDir()
		stop, err := recording.Start(h.Manager(), recording.Options{Dir: dir})
		Expect(err).NotTo(HaveOccurred())
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
		stop, err := recording.Start(m, recording.Options{Dir: GinkgoT().TempDir()})
		Expect(err).NotTo(HaveOccurred())
		_, err = recording.Start(m, recording.Options{Dir: GinkgoT().TempDir()})
		Expect(err).To(MatchError(ContainSubstring("another recording is in progress; stop it first")))
		Expect(stop(ctx)).To(Succeed())
		Expect(stop(ctx)).To(Succeed(), "twice is once")
		stop, err = recording.Start(m, recording.Options{Dir: GinkgoT().TempDir()})
		Expect(err).NotTo(HaveOccurred())
		Expect(stop(ctx)).To(Succeed())
		_, err = recording.Start(m, recording.Options{})
		Expect(err).To(MatchError(And(HavePrefix("eirinix: recording.Options: "), ContainSubstring("Dir is empty"))))
	})
})
