package admit_test

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"code.cloudfoundry.org/eirinix/internal/chain"
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
			r, _ := serve(chain.Config{Steps: steps, Reinvoke: reinvoke})
			Expect(r.Status).To(Equal(http.StatusInternalServerError))
			Expect(r.Body).To(HavePrefix(`step "bad" failed: `))
		},
			Entry("last", false, ignoring(label("a", nil)), bad),
			Entry("before one on another type", false, bad, label("c", nil)),
			Entry("before one that makes its own patch", false, bad, labelRaw("c")),
			Entry("among others on its type, where steps run again", true, labelTree("a"), bad, labelTree("c")),
			Entry("with a type that panics", false, label("a", nil), panicking, label("c", nil)),
		)

		DescribeTable("are counted, and no other step:", func(decision string, steps ...chain.Step) {
			h := newHook(allow)
			h.Handler.Serve(volumes, chain.Config{Steps: steps})
			h.ask()
			const decisions = "eirinix_admission_decisions_total"
			Expect(h.count(decisions, "bad", decision)).To(BeEquivalentTo(1))
			Expect(h.count(decisions, "bad")).To(BeEquivalentTo(1))
			Expect(h.count(decisions, "a", "patched")).To(BeEquivalentTo(1))
		},
			Entry("under Ignore", "ignored", label("a", nil), ignoring(bad), ignoring(label("c", nil))),
			Entry("under Fail", "failed", label("a", nil), bad, ignoring(label("c", nil))),
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
		req.Operation, req.OldObject.Raw = admissionv1.Update, []byte(pod)
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
