package admit_test

// This file specifies what steps in each mode report, and what a step that is played has in common with one that is called.

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"code.cloudfoundry.org/eirinix/internal/audit"
	"code.cloudfoundry.org/eirinix/internal/chain"
	"code.cloudfoundry.org/eirinix/internal/hang"
)

// in gives a step a mode.
func in(mode chain.Mode, s chain.Step) chain.Step {
	s.Mode = mode
	return s
}

func shadow(s chain.Step) chain.Step { return in(chain.ModeShadow, s) }

func accepting(name string) chain.Step {
	return check(name, newPod, func(_, _ runtime.Object) error { return nil })
}

// refusing is a step that denies every pod with tooLarge.
func refusing(name string) chain.Step {
	return check(name, newPod, func(_, _ runtime.Object) error {
		return apierrors.NewForbidden(corev1.Resource("pods"), "web-0", errors.New("too large"))
	})
}

const tooLarge = `pods "web-0" is forbidden: too large`

// decided returns how often a step has decided so.
func decided(h *hook, step, decision string) func() float64 {
	return func() float64 { return h.count("eirinix_admission_decisions_total", step, decision) }
}

var _ = Describe("A step that watches", func() {
	change := func(name string) chain.Step {
		return onPod(name, func(p *corev1.Pod) error {
			p.Spec.Containers[0].Env[0].Value = "another " + secret
			p.Labels = map[string]string{"a/b": secret}
			return nil
		})
	}
	const paths = "/metadata/labels, /spec/containers/0/env/0/value"

	DescribeTable("reports to the user, or in the audit log, its denial, and the paths that it would change, without values:",
		func(s chain.Step, warnings []string, audit map[string]string, decision, said string) {
			r, h := serve(chain.Config{Validating: !s.Mutates, Steps: []chain.Step{s, in(chain.ModeWarn, accepting("other"))}})
			Expect(r.review("v1")).To(And(HaveField("Allowed", true), bePatchless,
				HaveField("Warnings", Equal(warnings)), HaveField("AuditAnnotations", Equal(audit))))
			Expect(decided(h, "size", decision)()).To(Equal(1.0))
			Expect(h.logs.with(said)).To(ConsistOf(HaveKeyWithValue("step", "size")))
		},
		Entry("denial, Warn", in(chain.ModeWarn, refusing("size")), []string{`step "size" would deny this: ` + tooLarge}, nil, "would_deny", "would deny"),
		Entry("denial, Audit", in(chain.ModeAudit, refusing("size")), nil, map[string]string{"would-deny": "size: " + tooLarge}, "would_deny", "would deny"),
		Entry("change, Warn", in(chain.ModeWarn, change("size")), []string{`step "size" would change this: ` + paths}, nil, "would_patch", "would change"),
		Entry("change, Audit", in(chain.ModeAudit, change("size")), nil, map[string]string{"would-change": "size: " + paths}, "would_patch", "would change"),
	)

	DescribeTable("leaves the object to the other steps as it was", func(watching chain.Step) {
		r, h := serve(chain.Config{Steps: []chain.Step{label("before", nil), watching, label("after", nil)}})
		Expect(patched(r)["metadata"]).To(And(HaveKeyWithValue("annotations", map[string]any{"ran": "before after "}), Not(HaveKey("labels"))))
		Expect(decided(h, watching.Name, "would_patch")()).To(Equal(1.0))
	},
		Entry("after a change in place", in(chain.ModeWarn, change("watching"))),
		Entry("after a patch by hand", in(chain.ModeWarn, labelRaw("watching"))),
		Entry("although it is ignored when it fails", ignoring(in(chain.ModeAudit, labelTree("watching")))),
	)

	It("keeps its warnings and annotations, but shows the user no warnings in Audit", func() {
		speak := func(name string, mode chain.Mode) chain.Step {
			return in(mode, chain.Step{Name: name, Handle: returning(admission.Response{
				AdmissionResponse: admissionv1.AdmissionResponse{Allowed: true, Warnings: []string{name + " warns"}, AuditAnnotations: map[string]string{name: "noted"}},
			})})
		}
		r, _ := serve(chain.Config{Steps: []chain.Step{speak("a", chain.ModeWarn), speak("b", chain.ModeAudit)}})
		resp := r.review("v1")
		Expect(resp.Warnings).To(Equal([]string{"a warns"}))
		Expect(resp.AuditAnnotations).To(Equal(map[string]string{"a": "noted", "b": "noted"}))
	})

	DescribeTable("that fails is a failure, on which failurePolicy decides", func(mode chain.Mode) {
		broken := in(mode, check("broken", newPod, func(_, _ runtime.Object) error { return errStep }))
		r, _ := serve(chain.Config{Validating: true, Steps: []chain.Step{broken}})
		Expect(r.Status).To(Equal(500))
		r, h := serve(chain.Config{Validating: true, Steps: []chain.Step{ignoring(broken), accepting("other")}})
		Expect(r.review("v1").Allowed).To(BeTrue())
		Expect(decided(h, "broken", "ignored")()).To(Equal(1.0))
	}, Entry("Warn", chain.ModeWarn), Entry("Audit", chain.ModeAudit))

	It("names ten paths at most", func() {
		r, _ := serve(chain.Config{Steps: []chain.Step{in(chain.ModeWarn, onTree("many", func(tree map[string]any) error {
			for i := range 14 {
				tree[fmt.Sprintf("field-%02d", i)] = int64(i)
			}
			return nil
		}))}})
		Expect(r.review("v1").Warnings).To(ConsistOf(HaveSuffix("/field-08, /field-09 and 4 more")))
	})

	It("denies nothing beside a step that denies", func() {
		r, _ := serve(chain.Config{Validating: true, Steps: []chain.Step{in(chain.ModeWarn, refusing("a")), refusing("b")}})
		Expect(r.review("v1").Result.Message).To(HaveSuffix("b: " + tooLarge))
	})
})

var _ = Describe("A step whose mode depends on the request", func() {
	choosing := func(mode chain.Mode, err error) chain.Step {
		s := in(chain.ModeAudit, refusing("size")) // its own mode has no meaning
		s.Choose = func(context.Context, *admissionv1.AdmissionRequest) (chain.Mode, error) { return mode, err }
		return s
	}

	DescribeTable("has the effect of that mode", func(mode chain.Mode, allowed bool, decision string) {
		r, h := serve(chain.Config{Validating: true, Steps: []chain.Step{choosing(mode, nil)}})
		Expect(r.review("v1").Allowed).To(Equal(allowed))
		Eventually(decided(h, "size", decision)).Should(Equal(1.0))
	},
		Entry("Deny", chain.ModeDeny, false, "denied"),
		Entry("Warn", chain.ModeWarn, true, "would_deny"),
		Entry("Shadow", chain.ModeShadow, true, "would_deny"),
	)

	It("fails if the mode is unknown, so that its failurePolicy decides", func() {
		unknown := choosing(0, errors.New("no labels"))
		r, h := serve(chain.Config{Validating: true, Steps: []chain.Step{unknown}})
		Expect(r.Body).To(ContainSubstring(`step "size" failed: no labels`))
		Expect(decided(h, "size", "failed")()).To(Equal(1.0))
		r, h = serve(chain.Config{Validating: true, Steps: []chain.Step{ignoring(unknown), accepting("other")}})
		Expect(r.review("v1").Allowed).To(BeTrue())
		Expect(decided(h, "size", "ignored")()).To(Equal(1.0))
	})
})

var _ = Describe("A step that is played", func() {
	DescribeTable("makes the patch and the denial of a request, whatever its mode and failurePolicy", func(mode chain.Mode, ignore bool) {
		play := func(s chain.Step) audit.Verdict {
			s.Mode, s.Ignore = mode, ignore
			return audit.NewPlayer(s, logr.Discard()).Play(context.Background(), request())
		}
		label := onPod("label", func(p *corev1.Pod) error { p.Labels = map[string]string{"a": secret}; return nil })
		asked, _ := serve(chain.Config{Steps: []chain.Step{label}})
		v := play(label)
		Expect(v).To(And(HaveField("Err", BeNil()), HaveField("Denied", BeNil()), HaveField("Patch", MatchJSON(asked.review("v1").Patch))))
		Expect(chain.Paths(v.Patch)).To(Equal([]string{"/metadata/labels"}))
		Expect(v.Changed([]byte(pod))).To(ContainSubstring(`"labels":{"a":"` + secret + `"}`))
		asked, _ = serve(chain.Config{Validating: true, Steps: []chain.Step{refusing("refuse")}})
		Expect(play(refusing("refuse")).Denied).To(Equal(asked.review("v1").Result))
		failed := play(check("fails", newPod, func(_, _ runtime.Object) error { return errors.New("down") }))
		Expect(failed.Err).To(And(MatchError("down"), Not(MatchError(chain.ErrUnreadable)), Not(BeAssignableToTypeOf(&hang.PanicError{}))))
	},
		Entry("Deny", chain.ModeDeny, false),
		Entry("Warn, Ignore", chain.ModeWarn, true),
		Entry("Shadow, Ignore", chain.ModeShadow, true),
	)
})
