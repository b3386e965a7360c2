package admit_test

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"gomodules.xyz/jsonpatch/v2"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"code.cloudfoundry.org/eirinix/internal/chain"
)

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
		Entry("another value", "x b", func(r *admission.Response) { r.Patches[0].Value = map[string]any{"ran": "x "} }),
		Entry("another byte of it", "z b", func(r *admission.Response) {
			text, ok := r.Patches[0].Value.(json.RawMessage)
			Expect(ok).To(BeTrue())
			copy(text, `{"ran":"z "}`)
		}),
		Entry("one more operation", "y b", func(r *admission.Response) {
			r.Patches = append(r.Patches, jsonpatch.NewOperation("replace", "/metadata/annotations/ran", "y "))
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
