package admit_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
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

// ran applies the patch of a reply as the API server does and returns the annotation "ran".
func ran(r reply) string {
	GinkgoHelper()
	resp := r.review("v1")
	Expect(resp.Allowed).To(BeTrue())
	if resp.Patch == nil {
		return ""
	}
	p, err := jsonpatch.DecodePatch(resp.Patch)
	Expect(err).NotTo(HaveOccurred())
	after, err := p.Apply([]byte(pod))
	Expect(err).NotTo(HaveOccurred())
	u := &unstructured.Unstructured{}
	Expect(u.UnmarshalJSON(after)).To(Succeed())
	return strings.TrimSpace(u.GetAnnotations()["ran"])
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

	DescribeTable("of steps that may all fail reports to the API server when all of them failed:", func(status int, steps ...chain.Step) {
		for i := range steps {
			steps[i].Ignore = true
		}
		r, h := serve(chain.Config{Steps: steps})
		Expect(r.Status).To(Equal(status))
		Expect(h.logs.with("failurePolicy is Ignore")).NotTo(BeEmpty())
	},
		Entry("two that fail", 500, label("a", func(*chain.Call) error { return errStep }), label("b", func(*chain.Call) error { panic("b") })),
		Entry("one of two that fails", 200, label("a", func(*chain.Call) error { return errStep }), label("b", nil)),
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

	DescribeTable("fails as a whole when a step under Fail does, and names the step",
		func(then func(*chain.Call) error, words string) {
			r, _ := serve(chain.Config{Steps: []chain.Step{label("a", nil), label("broken", then), label("c", nil)}})
			Expect(r.Status).To(Equal(http.StatusInternalServerError))
			Expect(r.Body).To(And(ContainSubstring(`step "broken" failed`), ContainSubstring(words)))
		},
		Entry("error", func(*chain.Call) error { return errStep }, "no database"),
		Entry("panic", func(*chain.Call) error { panic("oops") }, "panic: oops"),
		Entry("an API status of 500 and more", func(*chain.Call) error { return apierrors.NewInternalError(errStep) }, "no database"),
	)

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

	It("gives a step the time that it names, whatever those before it take that name none", func() {
		ends := map[string]time.Time{}
		timed := func(name string, wait bool) chain.Step {
			return mutation(name, newPod, func(ctx context.Context, _ *chain.Call, _ *corev1.Pod) error {
				if ends[name], _ = ctx.Deadline(); wait {
					<-ctx.Done()
				}
				return ctx.Err()
			})
		}
		promised := timed("promised", false)
		promised.Timeout = 9 * time.Second // of the 9.5 s that the call has
		r, _ := serve(chain.Config{Steps: []chain.Step{ignoring(timed("slow", true)), promised}})
		Expect(r.review("v1").Allowed).To(BeTrue())
		Expect(ends["promised"].Sub(ends["slow"])).To(BeNumerically(">", 8*time.Second))
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

var _ = Describe("A step that changes managedFields", func() {
	DescribeTable("has that in the patch", func(patch string, edit func(*metav1.ManagedFieldsEntry)) {
		step := onPod("a", func(p *corev1.Pod) error { edit(&p.ManagedFields[0]); return nil })
		r, _ := serve(chain.Config{Steps: []chain.Step{step}}, func(req *admissionv1.AdmissionRequest) {
			req.Object.Raw = []byte(`{"metadata":{"name":"web-0","managedFields":[{"manager":"kubectl","time":"2026-01-02T03:04:05Z","fieldsV1":{"f:spec":{}}}]}}`)
		})
		Expect(r.review("v1").Patch).To(MatchJSON(patch))
	},
		Entry("of an entry's text", `[{"op":"remove","path":"/metadata/managedFields/0/fieldsV1/f:spec"},{"op":"add","path":"/metadata/managedFields/0/fieldsV1/f:status","value":{}}]`, func(e *metav1.ManagedFieldsEntry) { e.FieldsV1.SetRawBytes([]byte(`{"f:status":{}}`)) }),
		Entry("of an entry's time", `[{"op":"replace","path":"/metadata/managedFields/0/time","value":"2027-01-02T03:04:05Z"}]`, func(e *metav1.ManagedFieldsEntry) { *e.Time = metav1.NewTime(e.Time.AddDate(1, 0, 0)) }),
	)
})
