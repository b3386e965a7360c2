package eirinix

// This file specifies the pod that an extension gets, and the patch that PatchFromPod makes of it.

import (
	"encoding/json"
	"net/http"

	. "github.com/onsi/ginkgo/v2/dsl/core"
	. "github.com/onsi/ginkgo/v2/dsl/table"
	. "github.com/onsi/gomega"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"code.cloudfoundry.org/eirinix/internal/chain"
)

// rawPod holds members that today's Go types know, and others.
const rawPod = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web-0","creationTimestamp":null},` +
	`"spec":{"futureField":{"a":1},"hostNetwork":false,"containers":[{"name":"web","image":"web:1","futureToo":true,"env":[{"name":"A","value":"1"}]}]}}`

func podRequest(raw string) admission.Request {
	return admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
		Operation: admissionv1.Create, Object: runtime.RawExtension{Raw: []byte(raw)},
	}}
}

var _ = Describe("PatchFromPod", func() {
	// patched changes the pod of the request and returns the operations as EiriniX's users see them.
	patched := func(raw string, change func(*corev1.Pod)) (admission.Response, []string) {
		GinkgoHelper()
		req := podRequest(raw)
		p, err := new(chain.Pods).Pod(req)
		Expect(err).NotTo(HaveOccurred())
		p = p.DeepCopy()
		change(p)
		resp := NewManager(ManagerOptions{}).PatchFromPod(req, p)
		ops := []string{}
		for _, op := range resp.Patches {
			ops = append(ops, op.Json())
		}
		return resp, ops
	}

	DescribeTable("holds the changes and nothing else:",
		func(raw string, change func(*corev1.Pod), expected ...string) {
			resp, ops := patched(raw, change)
			Expect(resp.Allowed).To(BeTrue())
			Expect(resp.PatchType).To(HaveValue(Equal(admissionv1.PatchTypeJSONPatch)))
			Expect(resp.Patch).To(BeNil(), "granular, in Patches")
			Expect(ops).To(Equal(expected))
		},
		Entry("a list that was not there, in one operation", rawPod, func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{{Name: "setup", Image: "busybox"}}
		}, `{"op":"add","path":"/spec/initContainers","value":[{"image":"busybox","name":"setup","resources":{}}]}`),
		Entry("another environment variable", rawPod, func(p *corev1.Pod) {
			p.Spec.Containers[0].Env = append(p.Spec.Containers[0].Env, corev1.EnvVar{Name: "STICKY", Value: "yes"})
		}, `{"op":"add","path":"/spec/containers/0/env/-","value":{"name":"STICKY","value":"yes"}}`),
		Entry("a removed member", rawPod, func(p *corev1.Pod) { p.Spec.Containers[0].Env = nil },
			`{"op":"remove","path":"/spec/containers/0/env"}`),
	)

	It("keeps members that the Go types do not know, and leaves the rest as it was written", func() {
		resp, _ := patched(rawPod, func(p *corev1.Pod) {
			p.Spec.Containers = append([]corev1.Container{{Name: "proxy"}}, p.Spec.Containers...)
		})
		text, err := json.Marshal(resp.Patches)
		Expect(err).NotTo(HaveOccurred())
		decoded, err := jsonpatch.DecodePatch(text)
		Expect(err).NotTo(HaveOccurred())
		result, err := decoded.Apply([]byte(rawPod))
		Expect(err).NotTo(HaveOccurred())
		Expect(result).To(MatchJSON(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web-0","creationTimestamp":null},
			"spec":{"futureField":{"a":1},"hostNetwork":false,"containers":[
				{"name":"proxy","resources":{}},
				{"name":"web","image":"web:1","futureToo":true,"env":[{"name":"A","value":"1"}]}]}}`))
	})

	It("has no operations for an equal pod", func() {
		resp, ops := patched(rawPod, func(*corev1.Pod) {})
		Expect(resp.Allowed).To(BeTrue())
		Expect(ops).To(BeEmpty())
		Expect(resp.Patch).To(BeNil())
		Expect(resp.PatchType).To(BeNil())
	})

	DescribeTable("answers with an error in words for",
		func(raw string, pod *corev1.Pod, why string) {
			resp := NewManager(ManagerOptions{}).PatchFromPod(podRequest(raw), pod)
			Expect(resp.Allowed).To(BeFalse())
			Expect(resp.Patches).To(BeEmpty())
			Expect(resp.Result.Code).To(BeNumerically(">=", http.StatusBadRequest))
			Expect(resp.Result.Message).To(And(HavePrefix("eirinix: PatchFromPod: "), ContainSubstring(why)))
		},
		Entry("a nil pod", rawPod, nil, "pod is nil"),
		Entry("a request without object", "", &corev1.Pod{}, "carries no pod"),
		Entry("a request with a null object", "null", &corev1.Pod{}, "carries no pod"),
		Entry("an object that is no pod", `{"spec":"none"}`, &corev1.Pod{}, "not a pod"),
		Entry("an object that is no JSON", `{`, &corev1.Pod{}, "not a pod"),
	)
})

var _ = DescribeTable("The pod that an extension gets is nil when", func(change func(*admission.Request)) {
	req := podRequest(rawPod)
	change(&req)
	Expect(new(chain.Pods).Pod(req)).To(BeNil())
},
	Entry("there is no object", func(r *admission.Request) { r.Object.Raw = nil }),
	Entry("the object is of another kind", func(r *admission.Request) { r.Kind.Kind = "Binding" }),
	Entry("the object is of another group's Pod", func(r *admission.Request) { r.Kind.Group, r.Kind.Kind = "metrics.k8s.io", "Pod" }),
)

var _ = It("The pod that an extension gets is decoded with regard to case, as the API server does", func() {
	Expect(new(chain.Pods).Pod(podRequest(`{"metadata":{"Name":"no","name":"yes"}}`))).To(HaveField("Name", "yes"))
})
