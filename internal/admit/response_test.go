package admit_test

import (
	"context"
	"net/http"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"gomodules.xyz/jsonpatch/v2"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

func raw(r admissionv1.AdmissionResponse) admission.Response {
	return admission.Response{AdmissionResponse: r}
}

func denial(result *metav1.Status) admission.Response {
	return raw(admissionv1.AdmissionResponse{Result: result, AuditAnnotations: map[string]string{"asked": "yes"}})
}

var _ = Describe("An answer", func() {
	DescribeTable("comes in the version of the question, with its UID", func(version string) {
		h := newHook(allow)
		resp := h.post(volumes, body(version, request())).review(version)
		Expect(resp.Allowed).To(BeTrue())
		Expect(resp.Patch).To(BeNil())
		Expect(resp.PatchType).To(BeNil())
	},
		Entry("v1", "v1"),
		Entry("v1beta1", "v1beta1"),
	)

	It("is made of the request as it came", func() {
		var got admission.Request
		h := newHook(func(_ context.Context, req admission.Request) admission.Response {
			got = req
			return admission.Allowed("")
		})
		h.ask().review("v1")
		Expect(got.AdmissionRequest).To(Equal(*request()))
	})

	It("carries warnings and audit annotations, of leave and of refusal", func() {
		for _, allowed := range []bool{true, false} {
			h := newHook(returning(raw(admissionv1.AdmissionResponse{
				Allowed: allowed, Warnings: []string{"spec.x is deprecated"}, AuditAnnotations: map[string]string{"image": "pinned"},
			})))
			resp := h.ask().review("v1")
			Expect(resp.Allowed).To(Equal(allowed))
			Expect(resp.Warnings).To(Equal([]string{"spec.x is deprecated"}))
			Expect(resp.AuditAnnotations).To(Equal(map[string]string{"image": "pinned"}))
		}
	})

	Describe("that denies", func() {
		DescribeTable("is HTTP 200, not allowed, and has code and message",
			func(response admission.Response, code int32, message string) {
				h := newHook(returning(response))
				resp := h.ask().review("v1")
				Expect(resp.Allowed).To(BeFalse())
				Expect(resp.Result).NotTo(BeNil())
				Expect(resp.Result.Code).To(Equal(code))
				Expect(resp.Result.Message).To(Equal(message))
				Expect(resp.Result.Status).To(Equal(metav1.StatusFailure))
				Expect(resp.Patch).To(BeNil())
				Expect(resp.PatchType).To(BeNil())
			},
			Entry("as admission.Denied gives them", admission.Denied("no root"), int32(403), "no root"),
			Entry("also of admission.Errored below 500", admission.Errored(http.StatusBadRequest, errTest), int32(400), errTest.Error()),
			Entry("of its own", denial(&metav1.Status{Code: 422, Message: "bad field"}), int32(422), "bad field"),
			Entry("up to 499", denial(&metav1.Status{Code: 499, Message: "m"}), int32(499), "m"),
			Entry("403 without a code", denial(&metav1.Status{Message: "m"}), int32(403), "m"),
			Entry("403 where the code says that all is well", denial(&metav1.Status{Code: 200, Message: "m"}), int32(403), "m"),
			Entry("403 for the last code that is no refusal", denial(&metav1.Status{Code: 399, Message: "m"}), int32(403), "m"),
			Entry("the reason for a message", denial(&metav1.Status{Reason: "TooBig"}), int32(403), "TooBig"),
			Entry("the message rather than the reason", denial(&metav1.Status{Reason: "TooBig", Message: "m"}), int32(403), "m"),
			Entry("the extension's name where there is nothing else", denial(nil), int32(403), `denied by step "volumes"`),
			Entry("and no patch", admission.Response{
				Patches:           []jsonpatch.Operation{jsonpatch.NewOperation("remove", "/spec", nil)},
				AdmissionResponse: admissionv1.AdmissionResponse{Patch: []byte("[]"), Result: &metav1.Status{Message: "m"}},
			}, int32(403), "m"),
		)

		It("keeps reason and details", func() {
			details := &metav1.StatusDetails{Kind: "pods", Causes: []metav1.StatusCause{{Field: "spec", Message: "no"}}}
			h := newHook(returning(denial(&metav1.Status{Code: 422, Message: "m", Reason: metav1.StatusReasonInvalid, Details: details})))
			resp := h.ask().review("v1")
			Expect(resp.Result.Reason).To(Equal(metav1.StatusReasonInvalid))
			Expect(resp.Result.Details).To(Equal(details))
		})

		It("leaves a Result that the extension returns every time as it was", func() {
			shared := &metav1.Status{Reason: "TooBig"}
			h := newHook(returning(denial(shared)))
			h.ask().review("v1")
			Expect(*shared).To(Equal(metav1.Status{Reason: "TooBig"}))
		})
	})

	Describe("that has nothing to say", func() {
		It("lets the object through, and is logged once per extension", func() {
			h := newHook(returning(admission.Response{}))
			h.Handle("other", returning(admission.Response{}))
			for range 3 {
				for _, path := range []string{volumes, "/mutate/other"} {
					resp := h.post(path, body("v1", request())).review("v1")
					Expect(resp.Allowed).To(BeTrue())
					Expect(resp.Patch).To(BeNil())
				}
			}
			said := h.logs.with("zero Response")
			Expect(said).To(ConsistOf(HaveKeyWithValue("step", "volumes"), HaveKeyWithValue("step", "other")))
		})

		It("is not one that says a little", func() {
			h := newHook(returning(raw(admissionv1.AdmissionResponse{Warnings: []string{"careful"}})))
			Expect(h.ask().review("v1").Allowed).To(BeFalse())
		})
	})

	Describe("with a patch", func() {
		add := []jsonpatch.Operation{jsonpatch.NewOperation("add", "/metadata/labels", map[string]string{"a": "<b>"})}
		const added = `[{"op":"add","path":"/metadata/labels","value":{"a":"\u003cb\u003e"}}]`

		DescribeTable("has the patch type, for",
			func(response admission.Response, expected string) {
				resp := newHook(returning(response)).ask().review("v1")
				Expect(resp.Allowed).To(BeTrue())
				Expect(string(resp.Patch)).To(MatchJSON(expected))
				Expect(resp.PatchType).To(HaveValue(Equal(admissionv1.PatchTypeJSONPatch)))
			},
			Entry("Patches", admission.Response{Patches: add, AdmissionResponse: admissionv1.AdmissionResponse{Allowed: true}}, added),
			Entry("admission.Patched", admission.Patched("", add...), added),
			Entry("Patch without type", raw(admissionv1.AdmissionResponse{Allowed: true, Patch: []byte(added)}), added),
			Entry("Patch with type", raw(admissionv1.AdmissionResponse{Allowed: true, Patch: []byte(added), PatchType: new(admissionv1.PatchTypeJSONPatch)}), added),
			Entry("admission.PatchResponseFromRaw", admission.PatchResponseFromRaw([]byte(`{"metadata":{}}`), []byte(`{"metadata":{"labels":{"a":"<b>"}}}`)), added),
		)

		DescribeTable("that is empty has neither patch nor type, for",
			func(patch string) {
				for _, patchType := range []*admissionv1.PatchType{nil, new(admissionv1.PatchTypeJSONPatch)} {
					resp := newHook(returning(raw(admissionv1.AdmissionResponse{Allowed: true, Patch: []byte(patch), PatchType: patchType}))).ask().review("v1")
					Expect(resp.Allowed).To(BeTrue())
					Expect(resp.Patch).To(BeNil())
					Expect(resp.PatchType).To(BeNil())
				}
			},
			Entry("no bytes", ""),
			Entry("no operations", "[]"),
			Entry("no operations, with space between", " [ ]\n"),
			Entry("null", "null"),
		)

		It("may be empty for a DELETE", func() {
			h := newHook(returning(raw(admissionv1.AdmissionResponse{Allowed: true, Patch: []byte("[]"), PatchType: new(admissionv1.PatchTypeJSONPatch)})))
			Expect(h.ask(deletion).review("v1").Allowed).To(BeTrue())
		})
	})
})
