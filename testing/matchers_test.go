package eirinixtest_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"code.cloudfoundry.org/eirinix"
	eirinixtest "code.cloudfoundry.org/eirinix/testing"
)

var _ = Describe("The matchers", func() {
	var harness *eirinixtest.Harness
	BeforeEach(func() {
		harness = eirinixtest.NewHarness(GinkgoTB(), eirinix.Mutation[*corev1.ConfigMap]{ID: "worker", Apply: func(_ context.Context, c *eirinix.Call, m *corev1.ConfigMap) error {
			if m.Data["work"] != "" {
				m.Data["work"] = "done"
				m.Data["new"] = "thing"
				c.Warn("work was done")
				c.Annotate("worked-on", m.Name)
			}
			return nil
		}}, judging(eirinix.Settings{}, func(_ context.Context, _ *eirinix.Call, m *corev1.ConfigMap) error {
			switch m.Data["verdict"] {
			case "deny":
				return eirinix.Deny("%s is not wanted", m.Name)
			case "invalid":
				return invalidField()
			case "fail":
				return context.Canceled
			}
			return nil
		}))
	})
	send := func(data map[string]string) *eirinixtest.Result { return harness.Create(configMap("subject", data)) }
	worked, idle := map[string]string{"work": "todo"}, map[string]string{"key": "value"}

	// Each matcher matches the first request, and not the second.
	DescribeTable("tell apart", func(m types.GomegaMatcher, matching, other map[string]string) {
		Expect(send(matching)).To(m)
		Expect(send(other)).NotTo(m)
	},
		Entry("allowed and denied", eirinixtest.BeAllowed(), worked, map[string]string{"verdict": "deny"}),
		Entry("denied and failed", eirinixtest.BeDenied(), map[string]string{"verdict": "deny"}, map[string]string{"verdict": "fail"}),
		Entry("failed and denied", eirinixtest.HaveFailed("context canceled"), map[string]string{"verdict": "fail"}, map[string]string{"verdict": "deny"}),
		Entry("codes", eirinixtest.BeDenied().WithCode(403), map[string]string{"verdict": "deny"}, map[string]string{"verdict": "invalid"}),
		Entry("messages, by a matcher", eirinixtest.BeDenied().WithMessage(Equal("subject is not wanted")), map[string]string{"verdict": "deny"}, map[string]string{"verdict": "invalid"}),
		Entry("causes", eirinixtest.BeDenied().WithCause("data.verdict"), map[string]string{"verdict": "invalid"}, map[string]string{"verdict": "deny"}),
		Entry("all of these", eirinixtest.BeDenied().WithCode(422).WithReason(metav1.StatusReasonInvalid).WithMessage("must not be that"), map[string]string{"verdict": "invalid"}, map[string]string{"verdict": "deny"}),
		Entry("warned and not", eirinixtest.HaveWarned("work was"), worked, idle),
		Entry("audited and not", eirinixtest.HaveAudited("worked-on", "subject"), worked, idle),
		Entry("patched and not, operation by operation",
			eirinixtest.HavePatched(eirinixtest.Operation("add", "/data/new", "thing"), eirinixtest.Operation("replace", "/data/work", "done")), worked, idle),
		Entry("patched and not, by effect", eirinixtest.HaveChanged(func(m *corev1.ConfigMap) { m.Data["work"], m.Data["new"] = "done", "thing" }), worked, idle),
		Entry("objects", eirinixtest.HaveBecome("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: subject, namespace: default}\ndata: {work: done, new: thing}"), worked, idle),
		Entry("unchanged and not", eirinixtest.BeUnchanged(), idle, worked),
	)

	It("explain a mismatch with a diff of YAML", func() {
		m := eirinixtest.HaveChanged(func(m *corev1.ConfigMap) { m.Data["work"] = "half done" })
		result := send(worked)
		Expect(m.Match(result)).To(BeFalse())
		Expect(m.FailureMessage(result)).To(Equal(`Expected the request
  allowed
  warning: work was done
  audit: ` + result.Calls[0].Webhook + `/worked-on=subject
  ran: worker
  ran: judge
  --- sent
  +++ admitted
  @@ -1,6 +1,7 @@
   apiVersion: v1
   data:
  -  work: todo
  +  new: thing
  +  work: done
   kind: ConfigMap
   metadata:
     name: subject
to be allowed with just that change
The difference:
  --- expected
  +++ admitted
  @@ -1,6 +1,7 @@
   apiVersion: v1
   data:
  -  work: half done
  +  new: thing
  +  work: done
   kind: ConfigMap
   metadata:
     name: subject`))
	})

	It("explain a denial that is another one", func() {
		m := eirinixtest.BeDenied().WithCode(409).WithMessage("other")
		result := send(map[string]string{"verdict": "deny"})
		Expect(m.Match(result)).To(BeFalse())
		Expect(m.FailureMessage(result)).To(And(
			ContainSubstring("denied with 403 Forbidden: subject is not wanted"), HaveSuffix(`to be denied, with code 409, with message "other"`)))
	})

	It("refuse a value that is no result", func() {
		_, err := eirinixtest.BeAllowed().Match("yes")
		Expect(err).To(MatchError(ContainSubstring("not for string")))
		_, err = eirinixtest.HaveChanged(func(*corev1.Pod) {}).Match(send(idle))
		Expect(err).To(MatchError("the object is a *v1.ConfigMap, but the function is for *v1.Pod"))
		_, err = eirinixtest.HaveBecome(podOf("a", nil)).Match(send(idle))
		Expect(err).To(MatchError(ContainSubstring("Kind=Pod is expected of a request for a /v1, Kind=ConfigMap")))
	})
})
