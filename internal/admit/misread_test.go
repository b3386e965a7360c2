package admit_test

// This file specifies what becomes of objects that do not decode into the type of a step.

import (
	"context"
	"errors"
	"net/http"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"code.cloudfoundry.org/eirinix/internal/chain"
)

const (
	typo     = `{"metadata":{"name":"web-0"},"spec":{"containers":[{"name":"web","resources":{"limits":{"cpu":"1x"}}}]}}`
	misfit   = "spec.containers[0].resources.limits.cpu cannot be read: quantities must match the regular expression"
	asFailed = "the object cannot be read as *v1.Pod: "
)

// carrying puts an object into the request.
func carrying(raw string) func(*admissionv1.AdmissionRequest) {
	return func(r *admissionv1.AdmissionRequest) { r.Object.Raw = []byte(raw) }
}

// replacing makes the request the update of an object.
func replacing(raw string) func(*admissionv1.AdmissionRequest) {
	return func(r *admissionv1.AdmissionRequest) {
		r.Operation, r.OldObject = admissionv1.Update, runtime.RawExtension{Raw: []byte(raw)}
	}
}

// classic is a step in the style of EiriniX.
func classic(name string) chain.Step {
	pods := &chain.Pods{}
	return chain.Step{Name: name, Pods: pods, Handle: func(_ context.Context, req admission.Request) admission.Response {
		if _, err := pods.Pod(req); err != nil {
			return admission.Errored(http.StatusInternalServerError, err)
		}
		return admission.Allowed("")
	}}
}

var _ = Describe("An object that does not decode", func() {
	kinds := map[string]func(string) chain.Step{
		"Validation": accepting, "Mutation": func(name string) chain.Step { return onPod(name, func(*corev1.Pod) error { return nil }) }, "Extension": classic,
	}
	only := func(s chain.Step) chain.Config {
		return chain.Config{Validating: !s.Mutates && s.Handle == nil, Steps: []chain.Step{s}}
	}
	// breaks makes the limit of a pod one that does not decode.
	breaks := onTree("breaks", func(tree map[string]any) error {
		tree["spec"].(map[string]any)["containers"].([]any)[0].(map[string]any)["resources"] = map[string]any{"limits": map[string]any{"cpu": "1x"}}
		return nil
	})

	for kind, step := range kinds {
		Describe("for a "+kind, func() {
			It("is denied, with its path and the decoder's words, and counts as a denial", func() {
				r, h := serve(only(step("typed")), carrying(typo))
				Expect(r.review("v1")).To(And(HaveField("Allowed", false), HaveField("Result", HaveValue(And(
					HaveField("Code", BeEquivalentTo(http.StatusBadRequest)), HaveField("Reason", metav1.StatusReasonBadRequest), HaveField("Message", HavePrefix(misfit)))))))
				Expect(decided(h, "typed", "denied")()).To(Equal(1.0))
				Expect(decided(h, "typed", "failed")()).To(BeZero())
				Expect(h.logs.with(`"error"`)).To(BeEmpty())
				Expect(h.logs.with("denied")).To(ConsistOf(HaveKeyWithValue("reason", HavePrefix(misfit))))
			})

			DescribeTable("in another mode, or under Ignore, counts as", func(mode chain.Mode, ignore, lenient bool, decision string, warnings, audit int) {
				s := in(mode, step("typed"))
				s.Ignore, s.Lenient = ignore, lenient
				r, h := serve(only(s), carrying(typo))
				Eventually(decided(h, "typed", decision)).Should(Equal(1.0))
				switch decision {
				case "would_deny":
					resp := r.review("v1")
					Expect(resp).To(And(HaveField("Allowed", true), HaveField("Warnings", HaveLen(warnings)), HaveField("AuditAnnotations", HaveLen(audit))))
					Expect(strings.Join(resp.Warnings, "") + resp.AuditAnnotations["would-deny"]).To(Or(BeEmpty(), ContainSubstring(misfit)))
					Eventually(h.logs.with).WithArguments("would deny").Should(ConsistOf(HaveKeyWithValue("reason", HavePrefix(misfit))))
				case "ignored":
					Expect(r.Status).To(Equal(http.StatusInternalServerError))
					Expect(r.Body).To(ContainSubstring(asFailed))
				}
			},
				Entry("a failure that is ignored", chain.ModeDeny, true, true, "ignored", 0, 0),
				Entry("a denial in Warn", chain.ModeWarn, false, false, "would_deny", 1, 0),
				Entry("a denial in Audit", chain.ModeAudit, false, false, "would_deny", 0, 1),
				Entry("a denial in Shadow", chain.ModeShadow, false, false, "would_deny", 0, 0),
				Entry("a failure in Audit under Ignore", chain.ModeAudit, true, true, "ignored", 0, 0),
				Entry("a failure in Shadow under Ignore", chain.ModeShadow, true, true, "would_fail", 0, 0),
				Entry("a denial of a shadow whose author wrote Fail", chain.ModeShadow, true, false, "would_deny", 0, 0),
			)

			It("because an earlier step broke it, is a failure, also of a shadow", func() {
				r, h := serve(chain.Config{Steps: []chain.Step{breaks, step("typed")}})
				Expect(r.Status).To(Equal(http.StatusInternalServerError))
				Expect(r.Body).To(And(HavePrefix(`step "typed" failed: `), ContainSubstring(asFailed)))
				Expect(decided(h, "typed", "failed")()).To(Equal(1.0))
				r, h = serve(chain.Config{Steps: []chain.Step{breaks, shadow(step("typed"))}})
				Expect(r.review("v1").Allowed).To(BeTrue())
				Eventually(decided(h, "typed", "would_fail")).Should(Equal(1.0))
			})

			It("as it arrived, is denied after an earlier step has changed something else", func() {
				r, _ := serve(chain.Config{Steps: []chain.Step{labelTree("label"), step("typed")}}, carrying(typo))
				Expect(r.review("v1").Result.Message).To(HavePrefix("typed: " + misfit))
			})

			It("is none for a step after the one that repairs it", func() {
				repairs := onTree("repairs", func(tree map[string]any) error { tree["spec"] = nil; return nil })
				r, _ := serve(chain.Config{Steps: []chain.Step{repairs, step("typed")}}, carrying(typo))
				Expect(r.review("v1").Allowed).To(BeTrue())
			})

			It("because it takes too much memory, is a failure, also with a value that does not fit", func() {
				items := strings.Repeat(`{},`, 15_000)
				for _, last := range []string{`{}`, `5`} {
					r, h := serve(only(step("typed")), carrying(`{"spec":{"containers":[`+items+last+`]}}`))
					Expect(r.Status).To(Equal(http.StatusRequestEntityTooLarge), r.Body)
					Expect(decided(h, "typed", "failed")()).To(Equal(1.0))
				}
			})
		})
	}

	DescribeTable("and is old, is a failure", func(change func(*admissionv1.AdmissionRequest)) {
		r, h := serve(only(accepting("typed")), carrying(typo), change)
		Expect(r.Status).To(Equal(http.StatusInternalServerError))
		Expect(r.Body).To(ContainSubstring(asFailed))
		Expect(decided(h, "typed", "failed")()).To(Equal(1.0))
	},
		Entry("in a deletion", deletion),
		Entry("in an update", func(r *admissionv1.AdmissionRequest) { replacing(typo)(r); r.Object.Raw = []byte(pod) }),
	)

	It("is denied in an update, too", func() {
		r, _ := serve(only(accepting("typed")), carrying(typo), replacing(pod))
		Expect(r.review("v1").Result.Message).To(HavePrefix(misfit))
	})

	It("is denied for each step that reads it, and for steps under Ignore goes on", func() {
		r, h := serve(chain.Config{Validating: true, Steps: []chain.Step{accepting("a"), ignoring(accepting("b")), accepting("c")}}, carrying(typo))
		Expect(r.review("v1").Result.Message).To(And(HavePrefix("a: "+misfit), ContainSubstring("; c: "+misfit), Not(ContainSubstring("b: "))))
		Expect(decided(h, "b", "ignored")()).To(Equal(1.0))
	})

	It("is denied in few words, however long its value is", func() {
		r, _ := serve(only(accepting("typed")), carrying(`{"metadata":{"generation":1`+strings.Repeat("0", 5000)+`}}`))
		Expect(r.review("v1").Result.Message).To(And(HavePrefix("metadata.generation cannot be read: "), HaveLen(253+len("..."))))
	})

	It("is no denial of a step that returns a decoder's error", func() {
		r, _ := serve(only(check("reads", newPod, func(_, _ runtime.Object) error { return errors.New(misfit) })), carrying(pod))
		Expect(r.Status).To(Equal(http.StatusInternalServerError))
	})
})
