package admit_test

// This file specifies what steps in each mode report, and that shadows and runs that were left behind delay no call.

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	goruntime "runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"code.cloudfoundry.org/eirinix/internal/chain"
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

// sized makes the pod of a request as large as this many bytes, in containers with an environment.
func sized(bytes int) func(*admissionv1.AdmissionRequest) {
	const item = `{"name":"NAME","value":"a value of some length, such as the URL of a service"},`
	raw := `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web-0","namespace":"cf"},"spec":{"containers":[{"name":"web","env":[` +
		strings.Repeat(item, bytes/len(item)) + `{"name":"LAST"}]}]}}`
	return func(r *admissionv1.AdmissionRequest) { r.Object.Raw = []byte(raw) }
}

const (
	oneMB        = 1_000_000
	largestLegal = 1_700_000 // an API server stores objects of 1.5 MiB
)

// beside is the path of another webhook of the same program.
const beside = "/validate/beside"

// hanging is a hook with steps that ignore their contexts until release is called.
type hanging struct {
	*hook
	release func()
	hung    chan struct{}
	begun   atomic.Int64
}

func newHanging() *hanging {
	h := &hanging{hook: newHook(allow), hung: make(chan struct{})}
	h.MaxBytes = 32 << 20
	h.release = sync.OnceFunc(func() { close(h.hung) })
	DeferCleanup(h.release)
	h.Handler.Serve(beside, chain.Config{Validating: true, Steps: []chain.Step{accepting("beside")}})
	return h
}

// step is a step that hangs. Its runs are left behind after the timeout.
func (h *hanging) step(mode chain.Mode, ignore, mutates bool, timeout time.Duration) chain.Step {
	hang := func() error {
		h.begun.Add(1)
		<-h.hung
		return nil
	}
	s := check("hangs", newPod, func(_, _ runtime.Object) error { return hang() })
	if mutates {
		s = onPod("hangs", func(*corev1.Pod) error { return hang() })
	}
	s.Mode, s.Ignore, s.Timeout = mode, ignore, timeout
	return s
}

func (h *hanging) left() float64 { return h.count("eirinix_admission_left_behind_runs", "hangs") }

var _ = DescribeTable("A run that hangs on the largest objects delays no other call, and in the end its step fails at once:", Label("sequential"), func(mode chain.Mode, ignore, mutates bool) {
	h := newHanging()
	h.Handler.Serve(volumes, chain.Config{Validating: !mutates, Steps: []chain.Step{h.step(mode, ignore, mutates, 20*time.Millisecond)}})
	full := func() bool { return len(h.logs.with("of its runs still hang, and all that hang hold")) > 0 }
	for asked := 0; !full(); {
		Expect(asked).To(BeNumerically("<", 100), "its memory is bounded before the number of its runs is")
		for _, size := range []int{oneMB, largestLegal} {
			h.ask(sized(size))
			if asked++; mode == chain.ModeShadow {
				Eventually(decided(h.hook, "hangs", "would_fail")).Should(BeEquivalentTo(asked))
			}
			Expect(h.post(beside+"?timeout=10s", body("v1", request(sized(size)))).Status).To(Equal(http.StatusOK))
		}
	}
	Expect(h.left()).To(And(BeNumerically(">", 1), BeNumerically("==", h.begun.Load())))
	begun := h.begun.Load()
	h.release()
	Eventually(h.left).Should(BeZero())
	Eventually(func() int { return h.ask(sized(largestLegal)).Status }).WithTimeout(time.Minute).Should(Equal(http.StatusOK), "its memory is free again")
	Eventually(h.begun.Load).Should(BeNumerically(">", begun))
},
	Entry("a Validation", chain.ModeDeny, false, false),
	Entry("a Mutation under Ignore", chain.ModeDeny, true, true),
	Entry("in Warn", chain.ModeWarn, false, true),
	Entry("in Shadow", chain.ModeShadow, true, true),
)

var _ = Describe("A step in Shadow", func() {
	It("runs only for a bounded number of requests that wait", func() {
		const waiting, more = 200, 7
		h := newHanging()
		h.Handler.Serve(volumes, chain.Config{Steps: []chain.Step{h.step(chain.ModeShadow, true, true, time.Hour)}})
		h.ask()
		Eventually(h.begun.Load).Should(BeEquivalentTo(1))
		for range waiting + more {
			Expect(h.ask().Status).To(Equal(200))
		}
		Eventually(decided(h.hook, "hangs", "dropped")).Should(BeEquivalentTo(more))
		h.release()
		Eventually(decided(h.hook, "hangs", "allowed")).Should(BeEquivalentTo(1 + waiting))
	})

	DescribeTable("stops nothing when it fails", func(fail func() error) {
		r, h := serve(chain.Config{Steps: []chain.Step{shadow(onPod("broken", func(*corev1.Pod) error { return fail() }))}})
		Expect(r.review("v1").Allowed).To(BeTrue())
		Eventually(decided(h, "broken", "would_fail")).Should(Equal(1.0))
		Eventually(h.logs.with).WithArguments("step failed").Should(HaveLen(1), "it is logged after it was counted")
	},
		Entry("with an error", func() error { return errStep }),
		Entry("with a panic", func() error { panic("broken") }),
	)
})

var _ = Describe("Shadows", func() {
	It("cost the others none of 2,000 counts if one of them hangs", Label("sequential"), func() {
		const requests, waiting = 2000, 200
		h := newHanging()
		h.Handler.Serve(volumes, chain.Config{Validating: true, Steps: []chain.Step{h.step(chain.ModeShadow, true, false, time.Hour), shadow(refusing("quick")), shadow(refusing("other"))}})
		for n := 1; n <= requests; n++ {
			Expect(h.ask().Status).To(Equal(http.StatusOK))
			if n%(waiting/2) == 0 { // as much as their queues hold
				Eventually(decided(h.hook, "quick", "would_deny")).Should(BeEquivalentTo(n))
				Eventually(decided(h.hook, "other", "would_deny")).Should(BeEquivalentTo(n))
			}
		}
		Expect(decided(h.hook, "hangs", "dropped")()).To(BeEquivalentTo(requests - waiting - 1))
		Expect(decided(h.hook, "quick", "dropped")()).To(BeZero())
	})

	It("leave room for the large objects of others, however many of one's wait", Label("sequential"), func() {
		h := newHanging()
		h.Handler.Serve(volumes, chain.Config{Validating: true, Steps: []chain.Step{h.step(chain.ModeShadow, true, false, time.Hour), shadow(refusing("quick"))}})
		for n := range 20 {
			Expect(h.ask(sized(largestLegal)).Status).To(Equal(http.StatusOK))
			Eventually(decided(h.hook, "quick", "would_deny")).Should(BeEquivalentTo(n + 1))
		}
		dropped := decided(h.hook, "hangs", "dropped")
		Expect(dropped()).To(BeNumerically(">", 4), "they are bounded in bytes, too")
		h.release()
		Eventually(func() float64 { return dropped() + decided(h.hook, "hangs", "allowed")() }).Should(BeEquivalentTo(20))
		for n := range 2 { // one after the other has room again
			Expect(h.ask(sized(largestLegal)).Status).To(Equal(http.StatusOK))
			Eventually(decided(h.hook, "quick", "would_deny")).Should(BeEquivalentTo(21 + n))
		}
	})

	It("read nothing and write nothing before the answer, and see the object as the call leaves it", func() {
		var served atomic.Bool
		answered, seen := make(chan struct{}), make(chan string, 4)
		look := shadow(onPod("look", func(p *corev1.Pod) error {
			seen <- p.Annotations["ran"]
			p.Annotations["ran"] = "changed for none"
			return nil
		}))
		look.New = func() runtime.Object {
			if served.Load() {
				<-answered // a decoder would wait for its own answer
			}
			return &corev1.Pod{}
		}
		var copies atomic.Int64
		change := func(name string) chain.Step {
			return mutation(name, func() runtime.Object { return &copied{copies: &copies} }, func(_ context.Context, _ *chain.Call, p *copied) error {
				metav1.SetMetaDataAnnotation(&p.ObjectMeta, "ran", p.Annotations["ran"]+name+" ")
				return nil
			})
		}
		h := newHook(allow)
		h.Handler.Serve(volumes, chain.Config{Steps: []chain.Step{look, change("a"), look, change("b"), look, change("c"), look}})
		served.Store(true)
		r := h.ask()
		Expect(ran(r)).To(Equal("a b c"))
		Expect(r.review("v1")).To(And(HaveField("Warnings", BeEmpty()), HaveField("AuditAnnotations", BeEmpty())))
		Expect(copies.Load()).To(BeEquivalentTo(1), "one patch is made, as without the shadows between them")
		close(answered)
		Eventually(decided(h, "look", "would_patch")).Should(BeEquivalentTo(4))
		for range 4 {
			Expect(seen).To(Receive(Equal("a b c ")))
		}
		Eventually(h.logs.with).WithArguments("would change").Should(ContainElement(And(
			HaveKeyWithValue("mode", "Shadow"), HaveKeyWithValue("step", "look"), HaveKeyWithValue("reason", "/metadata/annotations/ran"))))
	})

	It("run once for a call whose steps run again", func() {
		_, h := serve(chain.Config{Reinvoke: true, Steps: []chain.Step{shadow(label("shadow", nil)), label("a", nil), labelTree("b"), shadow(label("last", nil))}})
		Eventually(decided(h, "last", "would_patch")).Should(Equal(1.0))
		Eventually(decided(h, "shadow", "would_patch")).Should(Equal(1.0))
	})

	It("are asked about the objects that their selectors match when the call leaves them", func() {
		team := func(name, value string) chain.Step {
			return onPod(name, func(p *corev1.Pod) error { p.Labels = map[string]string{"team": value}; return nil })
		}
		look := tagged(shadow(onPod("look", func(*corev1.Pod) error { return nil })), "team", "a")
		for decision, value := range map[string]string{"allowed": "a", "skipped": "b"} {
			_, h := serve(chain.Config{Steps: []chain.Step{team("first", "a"), look, team("last", value)}})
			Eventually(decided(h, "look", decision)).Should(Equal(1.0))
		}
		_, h := serve(chain.Config{Steps: []chain.Step{look}})
		Expect(decided(h, "look", "skipped")()).To(Equal(1.0))
	})

	It("see a call that was refused, or that failed, as it arrived", func() {
		seen := make(chan string, 1)
		look := shadow(onPod("look", func(p *corev1.Pod) error { seen <- p.Annotations["ran"]; return nil }))
		h := newHanging()
		for _, last := range []chain.Step{refusing("last"), onPod("last", func(*corev1.Pod) error { return errStep }), h.step(chain.ModeDeny, false, true, 0)} {
			h.Handler.Serve(volumes, chain.Config{Steps: []chain.Step{look, label("a", nil), last}})
			h.post(volumes+"?timeout=200ms", body("v1", request()))
			Eventually(seen).Should(Receive(BeEmpty()))
		}
	})

	It("end with the program", func(ctx SpecContext) {
		begun := make(chan struct{}, 1)
		waits := shadow(chain.Step{Name: "waits", New: newPod, Run: func(ctx context.Context, _ *chain.Call, _, _ runtime.Object) error {
			begun <- struct{}{}
			<-ctx.Done()
			return ctx.Err()
		}})
		h := newHook(allow)
		h.Handler.Serve(volumes, chain.Config{Validating: true, Steps: []chain.Step{waits}})
		for range 5 {
			Expect(h.ask().Status).To(Equal(http.StatusOK))
		}
		Eventually(begun).Should(Receive())
		h.Handler.Stop()
		Eventually(decided(h, "waits", "dropped")).Should(Equal(5.0), "the one that ran has no verdict")
		Expect(decided(h, "waits", "would_fail")()).To(BeZero())
		Expect(h.logs.with("step failed")).To(BeEmpty())
		stacks := make([]byte, 4<<20)
		Eventually(func() string { // workers of other specs may have to end, too
			return string(stacks[:goruntime.Stack(stacks, true)])
		}).WithTimeout(time.Minute).ShouldNot(ContainSubstring("chain.(*Shadows).work"))
		Expect(h.ask().Status).To(Equal(http.StatusOK))
		Eventually(decided(h, "waits", "dropped")).Should(Equal(6.0))
		h.Handler.Stop()
	})

	It("are counted by the mode that the call had, if the mode changes while they wait", func() {
		var mode atomic.Int64
		mode.Store(int64(chain.ModeShadow))
		begun, release := make(chan struct{}, 3), make(chan struct{})
		s := refusing("size")
		refuse := s.Run
		s.Run = func(ctx context.Context, c *chain.Call, oldObj, newObj runtime.Object) error {
			begun <- struct{}{}
			<-release
			return refuse(ctx, c, oldObj, newObj)
		}
		s.Choose = func(context.Context, *admissionv1.AdmissionRequest) (chain.Mode, error) {
			return chain.Mode(mode.Load()), nil
		}
		config := chain.Config{Validating: true, Steps: []chain.Step{s}}
		h := newHook(allow)
		h.Handler.Serve(volumes, config)
		for range 2 {
			Expect(h.ask().review("v1").Allowed).To(BeTrue())
		}
		Eventually(begun).Should(Receive())
		mode.Store(int64(chain.ModeDeny))
		h.Handler.ServeAll(map[string]chain.Config{volumes: config}) // as after a change of the registration
		close(release)
		Expect(h.ask().review("v1").Allowed).To(BeFalse())
		Eventually(decided(h, "size", "would_deny")).Should(Equal(2.0))
		Expect(decided(h, "size", "denied")()).To(Equal(1.0))
		h.Handler.ServeAll(nil)
		Expect(decided(h, "size", "dropped")()).To(BeZero())
	})
})

// copied is a pod that counts its copies.
type copied struct {
	corev1.Pod
	copies *atomic.Int64
}

func (c *copied) DeepCopyObject() runtime.Object {
	c.copies.Add(1)
	return &copied{Pod: *c.Pod.DeepCopy(), copies: c.copies}
}
