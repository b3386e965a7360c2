package admit_test

// This file specifies the steps of a chain: their order, their objects, what becomes of a change that fails, and extensions
// about pods among them.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	jsonpatchv2 "gomodules.xyz/jsonpatch/v2"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"code.cloudfoundry.org/eirinix/internal/chain"
)

func newPod() runtime.Object  { return &corev1.Pod{} }
func newTree() runtime.Object { return &unstructured.Unstructured{} }

// label is a step that appends its name to the annotation "ran", and then calls the function.
func label(name string, then func(*chain.Call) error) chain.Step {
	return mutation(name, newPod, func(_ context.Context, c *chain.Call, p *corev1.Pod) error {
		metav1.SetMetaDataAnnotation(&p.ObjectMeta, "ran", p.Annotations["ran"]+name+" ")
		if then == nil {
			return nil
		}
		return then(c)
	})
}

// labelTree does the same on the untyped tree, labelRaw by its own patch.
func labelTree(name string) chain.Step {
	return mutation(name, newTree, func(_ context.Context, _ *chain.Call, u *unstructured.Unstructured) error {
		annotations := u.GetAnnotations()
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations["ran"] += name + " "
		u.SetAnnotations(annotations)
		return nil
	})
}

func labelRaw(name string) chain.Step {
	return chain.Step{Name: name, Handle: func(_ context.Context, req admission.Request) admission.Response {
		u := &unstructured.Unstructured{}
		Expect(u.UnmarshalJSON(req.Object.Raw)).To(Succeed())
		before := u.GetAnnotations()
		resp := admission.Allowed("")
		op := "replace"
		if before == nil {
			op = "add"
		}
		resp.Patch = fmt.Appendf(nil, `[{"op":%q,"path":"/metadata/annotations","value":{"ran":%q}}]`, op, before["ran"]+name+" ")
		return resp
	}}
}

// everything is a rule that selects all there is.
var everything = []admissionregistrationv1.RuleWithOperations{{
	Operations: []admissionregistrationv1.OperationType{"*"},
	Rule:       admissionregistrationv1.Rule{APIGroups: []string{"*"}, APIVersions: []string{"*"}, Resources: []string{"*/*"}},
}}

// tagged makes a step one for objects with a label.
func tagged(s chain.Step, name, value string) chain.Step {
	var err error
	s.Matcher, err = chain.NewMatcher(everything, &metav1.LabelSelector{MatchLabels: map[string]string{name: value}}, nil)
	Expect(err).NotTo(HaveOccurred())
	return s
}

var errStep = errors.New("no database")

// serve runs the test's pod through a chain.
func serve(c chain.Config, changes ...func(*admissionv1.AdmissionRequest)) (reply, *hook) {
	h := newHook(allow)
	h.Handler.Serve(volumes, c)
	return h.ask(changes...), h
}

// ran returns the annotation "ran" of the patched pod.
func ran(r reply) string {
	GinkgoHelper()
	text, _, err := unstructured.NestedString(patched(r), "metadata", "annotations", "ran")
	Expect(err).NotTo(HaveOccurred())
	return strings.TrimSpace(text)
}

var _ = Describe("A chain", func() {
	It("runs steps of all forms in order, each on the result of those before, and answers with one patch", func() {
		r, _ := serve(chain.Config{Steps: []chain.Step{label("a", nil), labelRaw("b"), labelTree("c"), labelRaw("d"), label("e", nil)}})
		Expect(ran(r)).To(Equal("a b c d e"))
	})

	It("is one operation, however many steps made it", func() {
		r, _ := serve(chain.Config{Steps: []chain.Step{label("a", nil), label("b", nil), label("c", nil)}})
		Expect(string(r.review("v1").Patch)).To(Equal(`[{"op":"add","path":"/metadata/annotations","value":{"ran":"a b c "}}]`))
	})

	// tag is a step that sets a label, or takes it away.
	tag := func(name, value string) chain.Step {
		return onPod("tag", func(p *corev1.Pod) error {
			if delete(p.Labels, name); value != "" {
				metav1.SetMetaDataLabel(&p.ObjectMeta, name, value)
			}
			return nil
		})
	}

	DescribeTable("asks a step whose objectSelector selects the result of the steps before:",
		func(expected string, reinvoke bool, steps func() []chain.Step) {
			r, _ := serve(chain.Config{Steps: steps(), Reinvoke: reinvoke})
			Expect(ran(r)).To(Equal(expected))
		},
		Entry("one that was taken away again", "a", false, func() []chain.Step {
			return []chain.Step{tag("tier", "web"), tagged(label("a", nil), "tier", "web"), tag("tier", ""), tagged(label("c", nil), "tier", "web")}
		}),
		Entry("one on the untyped tree", "b", false, func() []chain.Step {
			return []chain.Step{tag("tier", "web"), tagged(labelTree("b"), "tier", "web")}
		}),
		Entry("one added by a patch of the step's own", "c", false, func() []chain.Step {
			patching := chain.Step{Name: "patching", Handle: returning(admission.Patched("", jsonpatchv2.NewOperation("add", "/metadata/labels", map[string]any{"tier": "web"})))}
			return []chain.Step{patching, tagged(label("c", nil), "tier", "web")}
		}),
		Entry("one that a step added whose failure is ignored", "", false, func() []chain.Step {
			failing := tag("tier", "web")
			tagging := failing.Run
			failing.Ignore, failing.Run = true, func(ctx context.Context, c *chain.Call, oldObj, newObj runtime.Object) error {
				return errors.Join(tagging(ctx, c, oldObj, newObj), errStep)
			}
			return []chain.Step{failing, tagged(label("b", nil), "tier", "web")}
		}),
		Entry("but not one that only a later step added", "", true, func() []chain.Step {
			return []chain.Step{tagged(label("a", nil), "tier", "web"), tag("tier", "web")}
		}),
	)

	DescribeTable("of steps that may all fail reports to the API server when all of them failed:", func(status int, partial bool, steps ...chain.Step) {
		for i := range steps {
			steps[i].Ignore, steps[i].Lenient = true, steps[i].Mode != chain.ModeShadow
		}
		r, h := serve(chain.Config{Steps: steps, Partial: partial})
		Expect(r.Status).To(Equal(status))
		Expect(h.logs.with("failurePolicy is Ignore")).NotTo(BeEmpty())
	},
		Entry("two that fail", 500, false, label("a", func(*chain.Call) error { return errStep }), label("b", func(*chain.Call) error { panic("b") })),
		Entry("but not where another version has a step in the call that may not", 200, true, label("a", func(*chain.Call) error { return errStep })),
		Entry("but not beside one in Shadow, which may not be registered as that yet", 200, false, label("a", func(*chain.Call) error { return errStep }), in(chain.ModeShadow, label("b", nil))),
		Entry("one of two that fails", 200, false, label("a", func(*chain.Call) error { return errStep }), label("b", nil)),
	)

	It("returns no patch when nothing changed in the end", func() {
		undo := onPod("undo", func(p *corev1.Pod) error { p.Annotations = nil; return nil })
		r, _ := serve(chain.Config{Steps: []chain.Step{label("a", nil), undo}})
		Expect(r.review("v1")).To(And(HaveField("Allowed", true), HaveField("Patch", BeNil()), HaveField("PatchType", BeNil())))
	})

	It("ends at the first denial, with the code and details of its error", func() {
		never := label("never", func(*chain.Call) error { Fail("ran after a denial"); return nil })
		r, _ := serve(chain.Config{Steps: []chain.Step{
			label("a", func(*chain.Call) error {
				return fmt.Errorf("looking at it: %w", apierrors.NewForbidden(corev1.Resource("pods"), "web-0", errStep))
			}), never,
		}})
		resp := r.review("v1")
		Expect(resp.Allowed).To(BeFalse())
		Expect(resp.Patch).To(BeNil())
		Expect(resp.Result).To(And(HaveField("Code", int32(403)), HaveField("Reason", metav1.StatusReasonForbidden),
			HaveField("Message", ContainSubstring("no database")), HaveField("Details.Name", "web-0")))
	})

	It("fails as a whole when a step under Fail does, and names the step", func() {
		broken := label("broken", func(*chain.Call) error { return errStep })
		r, _ := serve(chain.Config{Steps: []chain.Step{label("a", nil), broken, label("c", nil)}})
		Expect(r.Status).To(Equal(http.StatusInternalServerError))
		Expect(r.Body).To(ContainSubstring(`step "broken" failed: no database`))
	})

	DescribeTable("undoes a step under Ignore that fails, whatever it did, and goes on",
		func(broken chain.Step) {
			broken.Ignore = true
			r, h := serve(chain.Config{Steps: []chain.Step{label("a", nil), broken, label("c", nil)}})
			Expect(ran(r)).To(Equal("a c"))
			Expect(h.logs.with("undone")).To(ConsistOf(HaveKeyWithValue("step", broken.Name)))
		},
		Entry("error", label("broken", func(*chain.Call) error { return errStep })),
		Entry("on another type", onTree("broken", func(tree map[string]any) error {
			tree["metadata"] = map[string]any{"annotations": map[string]any{"ran": "nonsense"}}
			return errStep
		})),
		Entry("in EiriniX's form", chain.Step{Name: "broken", Handle: returning(admission.Errored(500, errStep))}),
		Entry("with a patch that does not apply", chain.Step{Name: "broken", Handle: returning(admission.Response{
			AdmissionResponse: admissionv1.AdmissionResponse{Allowed: true, Patch: []byte(`[{"op":"remove","path":"/nowhere"}]`)},
		})}),
	)

	It("abandons a step that ignores its deadline, with the objects that it holds", func() {
		late := make(chan struct{})
		slow := ignoring(mutation("slow", newPod, func(_ context.Context, c *chain.Call, p *corev1.Pod) error {
			metav1.SetMetaDataAnnotation(&p.ObjectMeta, "ran", "too early ")
			<-late
			for range 1000 { // beside the steps that follow: the race detector looks on
				metav1.SetMetaDataAnnotation(&p.ObjectMeta, "ran", "too late ")
				c.Warn("too late")
			}
			return nil
		}))
		slow.Timeout = 50 * time.Millisecond
		then := label("c", func(*chain.Call) error { close(late); return nil })
		r, _ := serve(chain.Config{Steps: []chain.Step{label("a", nil), slow, then}})
		Expect(ran(r)).To(Equal("a c"))
		Expect(r.review("v1").Warnings).To(BeEmpty())
	})

	It("gives a step the time that it names, whatever those before it take that name none, and one with Ignore half of the rest", func() {
		var ends sync.Map // the slow step is left behind, and the next one begins beside it
		timed := func(name string, wait bool) chain.Step {
			return mutation(name, newPod, func(ctx context.Context, _ *chain.Call, _ *corev1.Pod) error {
				end, _ := ctx.Deadline()
				ends.Store(name, end)
				if wait {
					<-ctx.Done()
				}
				return ctx.Err()
			})
		}
		promised := timed("promised", false)
		promised.Timeout = 9 * time.Second // of the 9.5 s that the call has
		r, _ := serve(chain.Config{Steps: []chain.Step{ignoring(timed("slow", true)), promised}})
		Expect(r.review("v1").Allowed).To(BeTrue())
		slow, _ := ends.Load("slow")
		then, _ := ends.Load("promised")
		Expect(then.(time.Time).Sub(slow.(time.Time))).To(BeNumerically(">", 8*time.Second))

		r, _ = serve(chain.Config{Steps: []chain.Step{ignoring(timed("first", false)), timed("last", false)}})
		Expect(r.review("v1").Allowed).To(BeTrue())
		first, _ := ends.Load("first")
		last, _ := ends.Load("last")
		Expect(last.(time.Time).Sub(first.(time.Time))).To(BeNumerically(">", 4*time.Second), "the step with Ignore cannot fail the call")
	})

	It("passes on warnings and audit annotations of every step, and keeps keys apart", func() {
		say := func(c *chain.Call) error {
			c.Warn("mind the gap")
			c.Annotate("why", "because")
			return nil
		}
		r, _ := serve(chain.Config{Steps: []chain.Step{label("a", say), label("b", say)}})
		Expect(r.review("v1").Warnings).To(Equal([]string{"mind the gap", "mind the gap"}))
		Expect(r.review("v1").AuditAnnotations).To(Equal(map[string]string{"why": "because", "b.why": "because"}))
	})

	It("runs a step again that a later one has given something to do, once, and only with IfNeeded", func() {
		steps := []chain.Step{label("a", nil), label("b", nil)}
		r, _ := serve(chain.Config{Steps: steps})
		Expect(ran(r)).To(Equal("a b"))
		r, _ = serve(chain.Config{Steps: steps, Reinvoke: true})
		Expect(ran(r)).To(Equal("a b a b")) // a saw b's change, then b saw a's: fighters stop after one round
		idle := onPod("idle", func(*corev1.Pod) error { return nil })
		r, _ = serve(chain.Config{Steps: []chain.Step{label("a", nil), idle}, Reinvoke: true})
		Expect(ran(r)).To(Equal("a"))
	})
})

var _ = Describe("A chain of validators", func() {
	verdict := func(name string, err error) chain.Step {
		return check(name, newPod, func(_, newObj runtime.Object) error {
			Expect(newObj.(*corev1.Pod).Name).To(Equal("web-0"))
			return err
		})
	}
	deny := func(message string) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{Code: 403, Message: message}}
	}
	validating := func(steps ...chain.Step) chain.Config { return chain.Config{Steps: steps, Validating: true} }
	fine, broken, size, name := verdict("fine", nil), verdict("broken", errStep), verdict("size", deny("too big")), verdict("name", deny("too long"))

	DescribeTable("runs them all, joins their denials, and names steps where the API server names a webhook of several:", func(message string, c chain.Config) {
		r, _ := serve(c)
		Expect(r.review("v1").Result.Message).To(Equal(message))
	},
		Entry("one alone", "too big", validating(size)),
		Entry("the only denial", "size: too big", validating(fine, size, fine)),
		Entry("two", "size: too big; name: too long", validating(size, fine, name)),
		Entry("although another one failed, because a refusal is definite", "size: too big", validating(broken, size)),
		Entry("one of a mutating step", "size: too big", chain.Config{Steps: []chain.Step{label("a", nil), onPod("size", func(*corev1.Pod) error { return deny("too big") })}}),
	)

	It("fails when none denies and one failed", func() {
		r, _ := serve(validating(broken, fine))
		Expect(r.Status).To(Equal(http.StatusInternalServerError))
	})

	DescribeTable("judges by a Rule although the old object cannot be read, and then forgives nothing", func(verdict error, allowed bool) {
		rule := chain.Step{Name: "rule", New: newPod, Ignore: true, Rule: func(context.Context, *chain.Call, runtime.Object) error { return verdict }}
		r, h := serve(validating(rule), func(req *admissionv1.AdmissionRequest) {
			req.Operation, req.OldObject.Raw = admissionv1.Update, []byte(`{"spec":7}`)
		})
		Expect(r.review("v1").Allowed).To(Equal(allowed))
		Expect(h.logs.with("could not judge the old object") != nil).To(Equal(!allowed))
	},
		Entry("of a good update", nil, true),
		Entry("of a bad one", apierrors.NewForbidden(corev1.Resource("pods"), "web-0", errors.New("no root")), false),
	)

	DescribeTable("passes the objects that the request carries, and nil for the others",
		func(oldRaw, newRaw, seen string) {
			var got string
			look := check("look", newPod, func(oldObj, newObj runtime.Object) error {
				got = fmt.Sprintf("%v %v", oldObj != nil, newObj != nil)
				return nil
			})
			r, _ := serve(validating(look), func(req *admissionv1.AdmissionRequest) {
				req.Object.Raw, req.OldObject.Raw = []byte(newRaw), []byte(oldRaw)
			})
			Expect(r.review("v1").Allowed).To(BeTrue())
			Expect(got).To(Equal(seen))
		},
		Entry("CREATE", "null", pod, "false true"),
		Entry("UPDATE", pod, pod, "true true"),
		Entry("DELETE", pod, "null", "true false"),
		Entry("CONNECT without options", "null", "null", "false false"),
	)
})

var _ = DescribeTable("A change of managedFields is in the patch", func(patch string, edit func(*metav1.ManagedFieldsEntry)) {
	step := onPod("a", func(p *corev1.Pod) error { edit(&p.ManagedFields[0]); return nil })
	r, _ := serve(chain.Config{Steps: []chain.Step{step}}, func(req *admissionv1.AdmissionRequest) {
		req.Object.Raw = []byte(`{"metadata":{"name":"web-0","managedFields":[{"manager":"kubectl","time":"2026-01-02T03:04:05Z","fieldsV1":{"f:spec":{}}}]}}`)
	})
	Expect(r.review("v1").Patch).To(MatchJSON(patch))
},
	Entry("of an entry's text", `[{"op":"remove","path":"/metadata/managedFields/0/fieldsV1/f:spec"},{"op":"add","path":"/metadata/managedFields/0/fieldsV1/f:status","value":{}}]`, func(e *metav1.ManagedFieldsEntry) { e.FieldsV1.SetRawBytes([]byte(`{"f:status":{}}`)) }),
	Entry("of an entry's time", `[{"op":"replace","path":"/metadata/managedFields/0/time","value":"2027-01-02T03:04:05Z"}]`, func(e *metav1.ManagedFieldsEntry) { *e.Time = metav1.NewTime(e.Time.AddDate(1, 0, 0)) }),
)

// onTree is a step on the untyped tree, on the decoded members of the object.
func onTree(name string, edit func(map[string]any) error) chain.Step {
	return mutation(name, newTree, func(_ context.Context, _ *chain.Call, u *unstructured.Unstructured) error {
		return edit(u.Object)
	})
}

// ignoring makes a step one whose failure is ignored.
func ignoring(s chain.Step) chain.Step {
	s.Ignore, s.Lenient = true, true
	return s
}

// patched is the test's pod with the patch of a reply applied.
func patched(r reply) map[string]any {
	GinkgoHelper()
	resp := r.review("v1")
	Expect(resp.Allowed).To(BeTrue())
	after := []byte(pod)
	if resp.Patch != nil {
		p, err := jsonpatch.DecodePatch(resp.Patch)
		Expect(err).NotTo(HaveOccurred())
		after, err = p.Apply(after)
		Expect(err).NotTo(HaveOccurred())
	}
	u := &unstructured.Unstructured{}
	Expect(u.UnmarshalJSON(after)).To(Succeed())
	return u.Object
}

// unwritable changes an object into one that JSON cannot hold.
func unwritable(tree map[string]any) error {
	tree["size"] = math.NaN()
	return nil
}

var _ = Describe("Steps of a chain", func() {
	oddly := func(name string) chain.Step {
		return onTree(name, func(tree map[string]any) error {
			tree["replicas"] = 3
			tree["names"] = []string{"a", "b"}
			return nil
		})
	}

	DescribeTable("may put values into a tree that no decoder makes, whatever follows:", func(reinvoke bool, steps ...chain.Step) {
		r, _ := serve(chain.Config{Steps: steps, Reinvoke: reinvoke})
		Expect(patched(r)).To(And(HaveKeyWithValue("replicas", int64(3)), HaveKeyWithValue("names", []any{"a", "b"})))
	},
		Entry("nothing", false, oddly("a")),
		Entry("a step under Ignore on a Go type", false, oddly("a"), ignoring(label("b", nil))),
		Entry("a step that makes its own patch", false, oddly("a"), labelRaw("b")),
		Entry("another round", true, oddly("a"), ignoring(labelTree("b"))),
	)

	It("see the values that earlier steps put into a tree in the types that a decoder uses", func() {
		set := onTree("set", func(tree map[string]any) error {
			tree["metadata"].(map[string]any)["labels"] = map[string]string{"a": "1"}
			return nil
		})
		add := mutation("add", newTree, func(_ context.Context, _ *chain.Call, u *unstructured.Unstructured) error {
			labels := u.GetLabels()
			labels["b"] = "2"
			u.SetLabels(labels)
			return nil
		})
		r, _ := serve(chain.Config{Steps: []chain.Step{set, add}})
		Expect(patched(r)).To(HaveKeyWithValue("metadata", HaveKeyWithValue("labels", map[string]any{"a": "1", "b": "2"})))
	})

	Describe("with a change that cannot be written", func() {
		bad := onTree("bad", unwritable)
		panicking := mutation("bad", newUnwritable, func(_ context.Context, _ *chain.Call, s *unwritableKind) error {
			s.Payload = "bad"
			return nil
		})

		DescribeTable("under Ignore lose that change alone:", func(reinvoke bool, steps ...chain.Step) {
			r, h := serve(chain.Config{Steps: steps, Reinvoke: reinvoke})
			Expect(patched(r)).NotTo(HaveKey("size"))
			if !reinvoke {
				Expect(ran(r)).To(Equal("a c"))
			}
			Expect(decided(h, "bad", "ignored")()).To(Equal(h.count("eirinix_admission_decisions_total", "bad")))
			Expect(h.logs.with("undone")).NotTo(BeEmpty())
			for _, line := range h.logs.with("undone") {
				Expect(line).To(HaveKeyWithValue("step", "bad"))
			}
		},
			Entry("in the middle", false, label("a", nil), ignoring(bad), label("c", nil)),
			Entry("at the end", false, label("a", nil), label("c", nil), ignoring(bad)),
			Entry("before a step that makes its own patch", false, label("a", nil), ignoring(bad), labelRaw("c")),
			Entry("with a type that panics", false, label("a", nil), ignoring(panicking), label("c", nil)),
			Entry("with a type that panics when it is read", false, label("a", nil), ignoring(mutation("bad", newUnreadable, func(context.Context, *chain.Call, *unreadable) error { return nil })), label("c", nil)),
			Entry("in several rounds", true, label("a", nil), ignoring(bad), label("c", nil)),
		)

		DescribeTable("under Fail are named, and no other step:", func(reinvoke bool, steps ...chain.Step) {
			r, h := serve(chain.Config{Steps: steps, Reinvoke: reinvoke})
			Expect(r.Status).To(Equal(http.StatusInternalServerError))
			Expect(r.Body).To(HavePrefix(`step "bad" failed: `))
			Expect(h.count("eirinix_admission_decisions_total", "failed")).To(Equal(1.0))
			Expect(decided(h, "bad", "failed")()).To(Equal(1.0))
		},
			Entry("last", false, ignoring(label("a", nil)), bad),
			Entry("before one on another type", false, bad, label("c", nil)),
			Entry("before one that makes its own patch", false, bad, labelRaw("c")),
			Entry("among others on its type, where steps run again", true, labelTree("a"), bad, labelTree("c")),
			Entry("with a type that panics", false, label("a", nil), panicking, label("c", nil)),
		)

		It("under Fail are named together where they changed the object together", func() {
			r, _ := serve(chain.Config{Steps: []chain.Step{label("z", nil), labelTree("a"), bad}})
			Expect(r.Status).To(Equal(http.StatusInternalServerError))
			Expect(r.Body).To(And(HavePrefix(`one of the extensions ["a" "bad"] failed: `), Not(ContainSubstring(`"z"`))))
		})
	})

	It("are dropped with a run that was undone, also when the next one succeeds", func() {
		runs := 0
		flaky := ignoring(label("flaky", func(c *chain.Call) error {
			runs++
			c.Warn(fmt.Sprintf("run %d", runs))
			c.Annotate(fmt.Sprintf("run-%d", runs), "yes")
			if runs == 1 {
				return errStep
			}
			return nil
		}))
		again := ignoring(label("again", nil))
		r, _ := serve(chain.Config{Steps: []chain.Step{again, flaky, again}, Reinvoke: true})
		Expect(runs).To(Equal(2))
		Expect(r.review("v1").Warnings).To(Equal([]string{"run 2"}))
		Expect(r.review("v1").AuditAnnotations).To(Equal(map[string]string{"run-2": "yes"}))
	})
})

// unwritableKind is a Go type that panics while it is encoded with the payload "bad".
type unwritableKind struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Payload           payload `json:"payload,omitempty"`
}

type payload string

func (m payload) MarshalJSON() ([]byte, error) {
	if m == "bad" {
		panic("cannot be encoded")
	}
	return []byte(`"good"`), nil
}

func (s *unwritableKind) DeepCopyObject() runtime.Object {
	c := *s
	s.ObjectMeta.DeepCopyInto(&c.ObjectMeta)
	return &c
}

func newUnwritable() runtime.Object { return &unwritableKind{} }

// unreadable is a type whose decoder panics.
type unreadable struct{ unwritableKind }

func (*unreadable) UnmarshalJSON([]byte) error { panic("unreadable") }

func newUnreadable() runtime.Object { return &unreadable{} }

var _ = Describe("Checks of a chain", func() {
	update := func(req *admissionv1.AdmissionRequest) {
		req.Operation, req.OldObject.Raw = admissionv1.Update, []byte(strings.Replace(pod, `"spec"`, `"status":{},"spec"`, 1))
	}

	It("do not see the changes of another step", func() {
		var seen []string
		rename := func(name string, newObject func() runtime.Object) chain.Step {
			return check(name, newObject, func(oldObj, newObj runtime.Object) error {
				for _, obj := range []runtime.Object{oldObj, newObj} {
					seen = append(seen, obj.(metav1.Object).GetName())
					obj.(metav1.Object).SetName("defaulted by " + name)
				}
				return nil
			})
		}
		r, _ := serve(chain.Config{Validating: true, Steps: []chain.Step{
			rename("a", newPod), rename("b", newPod), rename("c", newTree), ignoring(rename("d", newPod)), rename("e", newPod), rename("f", newTree),
		}}, update)
		Expect(r.review("v1").Allowed).To(BeTrue())
		Expect(strings.Join(seen, " ")).To(Equal(strings.TrimSpace(strings.Repeat("web-0 ", 12))))
	})

	It("work on objects of their own beside one that was left behind", func() {
		left := make(chan struct{})
		meddle := func(objects ...runtime.Object) error {
			for range 1000 { // the race detector looks on
				for _, obj := range objects {
					metav1.SetMetaDataAnnotation(&obj.(*corev1.Pod).ObjectMeta, "meddled", "yes")
				}
			}
			return nil
		}
		slow := check("slow", newPod, func(oldObj, newObj runtime.Object) error { <-left; return meddle(oldObj, newObj) })
		slow.Timeout = 50 * time.Millisecond
		quick := check("quick", newPod, func(oldObj, newObj runtime.Object) error { close(left); return meddle(oldObj, newObj) })
		r, _ := serve(chain.Config{Validating: true, Steps: []chain.Step{slow, quick}}, update)
		Expect(r.Body).To(HavePrefix(`step "slow" failed: no answer before the deadline`))
	})
})

// an is a step in the form of EiriniX, as a Manager makes it of an Extension.
func an(pods *chain.Pods, name string, handle func(*corev1.Pod, admission.Request) admission.Response) chain.Step {
	return chain.Step{Name: name, Pods: pods, Handle: func(_ context.Context, req admission.Request) admission.Response {
		p, err := pods.Pod(req)
		if err != nil {
			return admission.Errored(http.StatusInternalServerError, err)
		}
		return handle(p, req)
	}}
}

func mark(p *corev1.Pod, name string) *corev1.Pod {
	metav1.SetMetaDataAnnotation(&p.ObjectMeta, "ran", p.Annotations["ran"]+name+" ")
	return p
}

var _ = Describe("An extension about pods", func() {
	var pods *chain.Pods
	BeforeEach(func() { pods = &chain.Pods{} })

	// labelPod changes a copy, labelOwn the pod that it was given.
	labelPod := func(name string) chain.Step {
		return an(pods, name, func(p *corev1.Pod, req admission.Request) admission.Response {
			return pods.Patch(req, mark(p.DeepCopy(), name))
		})
	}
	labelOwn := func(name string) chain.Step {
		return an(pods, name, func(p *corev1.Pod, req admission.Request) admission.Response { return pods.Patch(req, mark(p, name)) })
	}

	DescribeTable("is one of many steps:", func(expected string, reinvoke bool, steps func() []chain.Step) {
		r, _ := serve(chain.Config{Steps: steps(), Reinvoke: reinvoke})
		Expect(ran(r)).To(Equal(expected))
	},
		Entry("of all forms", "a b c d e f", false, func() []chain.Step {
			return []chain.Step{label("a", nil), labelPod("b"), labelTree("c"), labelOwn("d"), labelRaw("e"), labelPod("f")}
		}),
		Entry("under Ignore", "a b c", false, func() []chain.Step {
			return []chain.Step{ignoring(labelPod("a")), ignoring(label("b", nil)), ignoring(labelOwn("c"))}
		}),
		Entry("that run again", "a b a b", true, func() []chain.Step { return []chain.Step{labelPod("a"), labelOwn("b")} }),
		Entry("beside one that fails and is ignored", "a c", false, func() []chain.Step {
			return []chain.Step{labelPod("a"), ignoring(an(pods, "b", func(p *corev1.Pod, req admission.Request) admission.Response {
				pods.Patch(req, mark(p, "b"))
				return admission.Errored(500, errStep)
			})), labelPod("c")}
		}),
	)

	It("answers with the operations that it made, once", func() {
		for _, step := range []chain.Step{labelPod("a"), labelOwn("a")} {
			r, _ := serve(chain.Config{Steps: []chain.Step{step}})
			Expect(string(r.review("v1").Patch)).To(Equal(`[{"op":"add","path":"/metadata/annotations","value":{"ran":"a "}}]`))
		}
	})

	It("may go on changing the pod, of which the patch and the steps that follow see nothing", func() {
		var late sync.WaitGroup
		going := make(chan struct{})
		r, _ := serve(chain.Config{Steps: []chain.Step{
			an(pods, "a", func(p *corev1.Pod, req admission.Request) admission.Response {
				resp := pods.Patch(req, mark(p, "a"))
				p.Annotations["ran"] = "overwritten"
				late.Go(func() {
					<-going
					for range 1000 { // beside the steps that follow: the race detector looks on
						p.Annotations["ran"] += "!"
						p.Spec.Containers[0].Name += "!"
					}
				})
				return resp
			}),
			label("b", func(*chain.Call) error { close(going); return nil }), labelPod("c"),
		}})
		Expect(ran(r)).To(Equal("a b c"))
		late.Wait()
	})

	DescribeTable("may change the response, which is then taken as it is:", func(expected string, change func(*admission.Response)) {
		r, _ := serve(chain.Config{Steps: []chain.Step{
			an(pods, "a", func(p *corev1.Pod, req admission.Request) admission.Response {
				resp := pods.Patch(req, mark(p, "a"))
				change(&resp)
				return resp
			}),
			labelPod("b"),
		}})
		Expect(ran(r)).To(Equal(expected))
	},
		Entry("another byte of it", "z b", func(r *admission.Response) {
			text, ok := r.Patches[0].Value.(json.RawMessage)
			Expect(ok).To(BeTrue())
			copy(text, `{"ran":"z "}`)
		}),
		Entry("none any more", "b", func(r *admission.Response) { r.Patches, r.PatchType = nil, nil }),
		Entry("completed", "a b", func(r *admission.Response) { Expect(r.Complete(admission.Request{})).To(Succeed()); r.Patches = nil }),
		Entry("with a warning", "a b", func(r *admission.Response) { r.Warnings = []string{"careful"} }),
	)

	DescribeTable("makes several patches, and answers with any of them", func(answer int, expected string) {
		r, _ := serve(chain.Config{Steps: []chain.Step{
			an(pods, "a", func(p *corev1.Pod, req admission.Request) admission.Response {
				return []admission.Response{pods.Patch(req, mark(p.DeepCopy(), "one")), pods.Patch(req, mark(p.DeepCopy(), "two"))}[answer]
			}),
			labelPod("b"),
		}})
		Expect(ran(r)).To(Equal(expected))
	},
		Entry("the first", 0, "one b"),
		Entry("the last", 1, "two b"),
	)

	It("makes a patch for the object that stands in the request, also where the program has put it there", func() {
		var resp admission.Response
		serve(chain.Config{Steps: []chain.Step{an(pods, "a", func(p *corev1.Pod, req admission.Request) admission.Response {
			for i := range req.Object.Raw {
				req.Object.Raw[i] = ' '
			}
			copy(req.Object.Raw, `{"metadata":{"annotations":{"ran":"before"}}}`)
			resp = pods.Patch(req, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"ran": "after"}}})
			return admission.Allowed("")
		})}})
		Expect(resp.Patches).To(ConsistOf(HaveField("Path", "/metadata/annotations/ran")))
	})

	It("may write its own patch, and over the object in the request, as the last one too", func() {
		byHand := []byte(`[{"op":"add","path":"/metadata/annotations","value":{"ran":"by hand "}}]`)
		overwriting := func(patch []byte) chain.Step {
			return an(pods, "a", func(_ *corev1.Pod, req admission.Request) admission.Response {
				_ = append(req.Object.Raw, "beyond its end"...)
				for i := range req.Object.Raw {
					req.Object.Raw[i] = 'x'
				}
				return admission.Response{AdmissionResponse: admissionv1.AdmissionResponse{Allowed: true, Patch: patch}}
			})
		}
		for _, steps := range [][]chain.Step{{overwriting(byHand)}, {overwriting(byHand), label("b", nil)}} {
			r, _ := serve(chain.Config{Steps: steps})
			Expect(r.review("v1").Patch).To(ContainSubstring("by hand"))
		}
		r, _ := serve(chain.Config{Steps: []chain.Step{overwriting([]byte(`{}`))}})
		Expect(r.Body).To(ContainSubstring("the patch is no JSON patch"))
	})

	DescribeTable("fails when its own patch breaks the pod:", func(patch string) {
		broken := an(pods, "broken", func(*corev1.Pod, admission.Request) admission.Response {
			return raw(admissionv1.AdmissionResponse{Allowed: true, Patch: []byte(patch)})
		})
		r, _ := serve(chain.Config{Steps: []chain.Step{labelPod("a"), broken}})
		Expect(r.Status).To(Equal(http.StatusInternalServerError))
		Expect(r.Body).To(HavePrefix(`step "broken" failed: its patch makes an object that the API server cannot read: `))
		r, _ = serve(chain.Config{Steps: []chain.Step{labelPod("a"), ignoring(broken), labelPod("b")}})
		Expect(ran(r)).To(Equal("a b"))
	},
		Entry("a label that is an object", `[{"op":"add","path":"/metadata/labels","value":{"x":{"a":1}}}]`),
		Entry("a number for a name", `[{"op":"replace","path":"/spec/containers/0/name","value":1}]`),
	)

	It("may patch an object of another kind, about which nothing is known", func() {
		r, _ := serve(chain.Config{Steps: []chain.Step{an(pods, "a", func(p *corev1.Pod, req admission.Request) admission.Response {
			Expect(p).To(BeNil())
			return raw(admissionv1.AdmissionResponse{Allowed: true, Patch: []byte(`[{"op":"add","path":"/metadata/labels","value":{"x":{"a":1}}}]`)})
		})}}, func(req *admissionv1.AdmissionRequest) {
			req.Kind = metav1.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Thing"}
		})
		Expect(r.review("v1").Patch).NotTo(BeNil())
	})
})
