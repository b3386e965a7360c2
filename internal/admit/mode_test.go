package admit_test

import (
	"context"
	"errors"
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"code.cloudfoundry.org/eirinix/internal/chain"
)

// in gives a step a mode.
func in(mode chain.Mode, s chain.Step) chain.Step {
	s.Mode = mode
	return s
}

var _ = Describe("A step that watches", func() {
	const tooLarge = `pods "web-0" is forbidden: too large`
	refuse := func(name string) chain.Step {
		return check(name, newPod, func(_, _ runtime.Object) error {
			return apierrors.NewForbidden(corev1.Resource("pods"), "web-0", errors.New("too large"))
		})
	}
	change := func(name string) chain.Step {
		return onPod(name, func(p *corev1.Pod) error {
			p.Spec.Containers[0].Env[0].Value = "another " + secret
			p.Labels = map[string]string{"a/b": secret}
			return nil
		})
	}

	DescribeTable("reports its denial to the user, and in the audit log", func(mode chain.Mode, warnings []string, audit map[string]string) {
		r, h := serve(chain.Config{Validating: true, Steps: []chain.Step{in(mode, refuse("size")), check("other", newPod, func(_, _ runtime.Object) error { return nil })}})
		resp := r.review("v1")
		Expect(resp.Allowed).To(BeTrue())
		Expect(resp.Warnings).To(Equal(warnings))
		Expect(resp.AuditAnnotations).To(Equal(audit))
		Expect(h.count("eirinix_admission_decisions_total", "size", "would_deny")).To(Equal(1.0))
		Expect(h.logs.all()).To(ContainElement(And(ContainSubstring("would deny"), ContainSubstring("too large"), ContainSubstring(`"step":"size"`))))
	},
		Entry("Warn", chain.ModeWarn, []string{`step "size" would deny this: ` + tooLarge}, nil),
		Entry("Audit", chain.ModeAudit, nil, map[string]string{"would-deny": "size: " + tooLarge}),
	)

	DescribeTable("reports the paths that it would change, without values", func(mode chain.Mode, warnings []string, audit map[string]string) {
		r, h := serve(chain.Config{Steps: []chain.Step{in(mode, change("inject"))}})
		resp := r.review("v1")
		Expect(resp.Allowed).To(BeTrue())
		Expect(resp.Patch).To(BeNil())
		Expect(resp.Warnings).To(Equal(warnings))
		Expect(resp.AuditAnnotations).To(Equal(audit))
		Expect(h.count("eirinix_admission_decisions_total", "inject", "would_patch")).To(Equal(1.0))
		Expect(strings.Join(h.logs.all(), "\n")).To(And(ContainSubstring("would change"), Not(ContainSubstring(secret))))
	},
		Entry("Warn", chain.ModeWarn, []string{`step "inject" would change this: /metadata/labels, /spec/containers/0/env/0/value`}, nil),
		Entry("Audit", chain.ModeAudit, nil, map[string]string{"would-change": "inject: /metadata/labels, /spec/containers/0/env/0/value"}),
	)

	DescribeTable("leaves the object to the other steps as it was", func(watching chain.Step) {
		seen := func(name string) chain.Step {
			return onPod(name, func(p *corev1.Pod) error {
				Expect(p.Spec.Containers[0].Env[0].Value).To(Equal(secret))
				metav1.SetMetaDataLabel(&p.ObjectMeta, name, "yes")
				return nil
			})
		}
		r, h := serve(chain.Config{Steps: []chain.Step{seen("before"), watching, seen("after")}})
		labels := patched(r)["metadata"].(map[string]any)["labels"]
		Expect(labels).To(Equal(map[string]any{"before": "yes", "after": "yes"}))
		Expect(h.count("eirinix_admission_decisions_total", watching.Name, "would_patch")).To(Equal(1.0))
	},
		Entry("after a change in place", in(chain.ModeWarn, change("watching"))),
		Entry("after a change of an untyped tree", in(chain.ModeWarn, labelTree("watching"))),
		Entry("after a patch by hand", in(chain.ModeWarn, labelRaw("watching"))),
		Entry("although it is ignored when it fails", ignoring(in(chain.ModeAudit, change("watching")))),
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
		r, h := serve(chain.Config{Validating: true, Steps: []chain.Step{ignoring(broken), check("other", newPod, func(_, _ runtime.Object) error { return nil })}})
		Expect(r.review("v1").Allowed).To(BeTrue())
		Expect(h.count("eirinix_admission_decisions_total", "broken", "ignored")).To(Equal(1.0))
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
		r, _ := serve(chain.Config{Validating: true, Steps: []chain.Step{in(chain.ModeWarn, refuse("a")), refuse("b")}})
		resp := r.review("v1")
		Expect(resp.Allowed).To(BeFalse())
		Expect(resp.Result.Message).To(HaveSuffix("too large"))
	})
})

var _ = Describe("A step in Shadow", func() {
	yes := func(name string) chain.Step {
		return check(name, newPod, func(_, _ runtime.Object) error { return nil })
	}
	It("runs after the answer, and only logs and counts", func() {
		answered := make(chan struct{})
		r, h := serve(chain.Config{Validating: true, Steps: []chain.Step{
			yes("other"),
			shadow(check("size", newPod, func(_, _ runtime.Object) error {
				<-answered
				return apierrors.NewForbidden(corev1.Resource("pods"), "web-0", errors.New("too large"))
			})),
		}})
		resp := r.review("v1")
		Expect(resp.Allowed).To(BeTrue())
		Expect(resp.Warnings).To(BeEmpty())
		Expect(resp.AuditAnnotations).To(BeEmpty())
		Expect(decided(h, "size", "would_deny")()).To(BeZero())
		close(answered)
		Eventually(decided(h, "size", "would_deny")).Should(Equal(1.0))
		Eventually(func() []map[string]any { return h.logs.with("would deny") }).Should(ConsistOf(And(HaveKeyWithValue("mode", "Shadow"), HaveKeyWithValue("step", "size"), HaveKeyWithValue("reason", ContainSubstring("too large")))))
	})

	DescribeTable("sees the object as the call leaves it, and changes it for none", func(change func(string) chain.Step) {
		seen := make(chan string, 1)
		look := func(name string) chain.Step {
			return onPod(name, func(p *corev1.Pod) error { seen <- p.Annotations["ran"]; return nil })
		}
		r, h := serve(chain.Config{Steps: []chain.Step{label("before", nil), shadow(change("shadow")), shadow(look("look")), label("after", nil)}})
		Expect(patched(r)["metadata"]).To(HaveKeyWithValue("annotations", map[string]any{"ran": "before after "}))
		Eventually(decided(h, "shadow", "would_patch")).Should(Equal(1.0))
		Eventually(seen).Should(Receive(Equal("before after ")))
		Expect(h.logs.with("would change")).To(ConsistOf(HaveKeyWithValue("reason", "/metadata/annotations/ran")))
	},
		Entry("in place", func(name string) chain.Step { return label(name, nil) }),
		Entry("of an untyped tree", labelTree),
	)

	DescribeTable("stops nothing when it fails", func(fail func() error) {
		r, h := serve(chain.Config{Steps: []chain.Step{shadow(onPod("broken", func(*corev1.Pod) error { return fail() }))}})
		Expect(r.review("v1").Allowed).To(BeTrue())
		Eventually(decided(h, "broken", "would_fail")).Should(Equal(1.0))
		Eventually(func() []map[string]any { return h.logs.with("step failed") }).Should(HaveLen(1), "it is logged after it was counted")
	},
		Entry("with an error", func() error { return errStep }),
		Entry("with a panic", func() error { panic("broken") }),
	)

	It("runs only for a bounded number of requests that wait", func() {
		const waiting, more = 200, 7
		begun, release := make(chan struct{}, 1), make(chan struct{})
		_, h := serve(chain.Config{Steps: []chain.Step{shadow(onPod("slow", func(*corev1.Pod) error {
			select {
			case begun <- struct{}{}:
			default:
			}
			<-release
			return nil
		}))}})
		Eventually(begun).Should(Receive())
		for range waiting + more {
			Expect(h.ask().Status).To(Equal(200))
		}
		Eventually(decided(h, "slow", "dropped")).Should(Equal(float64(more)))
		close(release)
		Eventually(decided(h, "slow", "allowed")).Should(Equal(float64(1 + waiting)))
	})
})

var _ = Describe("A step whose mode depends on the request", func() {
	choosing := func(mode chain.Mode, err error, s chain.Step) chain.Step {
		s.Choose = func(context.Context, *admissionv1.AdmissionRequest) (chain.Mode, error) { return mode, err }
		return s
	}
	refuse := func(mode chain.Mode, err error) chain.Step {
		return choosing(mode, err, check("size", newPod, func(_, _ runtime.Object) error {
			return apierrors.NewForbidden(corev1.Resource("pods"), "web-0", errors.New("too large"))
		}))
	}

	DescribeTable("has the effect of that mode", func(mode chain.Mode, allowed bool, decision string) {
		step := refuse(mode, nil)
		step.Mode = chain.ModeAudit // without meaning
		r, h := serve(chain.Config{Validating: true, Steps: []chain.Step{step}})
		Expect(r.review("v1").Allowed).To(Equal(allowed))
		Eventually(func() float64 { return h.count("eirinix_admission_decisions_total", "size", decision) }).Should(Equal(1.0))
	},
		Entry("Deny", chain.ModeDeny, false, "denied"),
		Entry("Warn", chain.ModeWarn, true, "would_deny"),
		Entry("Audit", chain.ModeAudit, true, "would_deny"),
		Entry("Shadow", chain.ModeShadow, true, "would_deny"),
	)

	It("fails if the mode is unknown, so that its failurePolicy decides", func() {
		r, h := serve(chain.Config{Validating: true, Steps: []chain.Step{refuse(0, errors.New("no labels"))}})
		Expect(r.Body).To(ContainSubstring(`step "size" failed: no labels`))
		Expect(h.count("eirinix_admission_decisions_total", "size", "failed")).To(Equal(1.0))
		ignored := refuse(0, errors.New("no labels"))
		ignored.Ignore = true
		r, h = serve(chain.Config{Validating: true, Steps: []chain.Step{ignored, check("other", newPod, func(_, _ runtime.Object) error { return nil })}})
		Expect(r.review("v1").Allowed).To(BeTrue())
		Expect(h.count("eirinix_admission_decisions_total", "size", "ignored")).To(Equal(1.0))
	})
})
