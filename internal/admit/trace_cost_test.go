package admit

import (
	"net/http"
	"net/http/httptest"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
)

var _ = Describe("Without a Tracer", func() {
	It("a call takes no memory for traces, although it carries one", func() {
		h := &Handler{}
		asked := httptest.NewRequest(http.MethodPost, "/mutate/volumes", http.NoBody)
		asked.Header.Set("Traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
		w := httptest.NewRecorder()
		c := newChain("/mutate/volumes", Chain{Steps: []Step{{Name: "volumes"}}}, unexposed(), nil)
		r := &run{chain: c, ctx: asked.Context(), request: &admissionv1.AdmissionRequest{Name: "web-0"}}
		o := outcome{response: &admissionv1.AdmissionResponse{}}
		Expect(testing.AllocsPerRun(100, func() {
			same, ended := h.traced(w, asked, c.webhook)
			h.logOf(same.Context())
			h.traceRun(r)
			r.startSpan(0)
			r.describeSpan(0)
			r.failSpan(0, nil)
			r.endSpan(0, decisionAllowed)
			h.describe(same.Context(), r.request, o)
			h.exemplar(same.Context())
			h.refusedSpan(same.Context(), http.StatusServiceUnavailable, nil)
			ended(http.StatusOK)
		})).To(BeZero())
		Expect(r.spans).To(BeNil())
	})
})
