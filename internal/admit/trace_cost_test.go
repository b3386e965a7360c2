package admit

import (
	"net/http"
	"net/http/httptest"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Describe("Without a Tracer", func() {
	It("a call takes no memory for traces, although it carries one", func() {
		h := &Handler{}
		asked := httptest.NewRequest(http.MethodPost, "/mutate/volumes", http.NoBody)
		asked.Header.Set("Traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
		w := httptest.NewRecorder()
		h.prepare()
		Expect(testing.AllocsPerRun(100, func() {
			same, ended := h.traced(w, asked, "volumes")
			h.runner.Logger(same.Context())
			h.refusedSpan(same.Context(), http.StatusServiceUnavailable, nil)
			ended(http.StatusOK)
		})).To(BeZero())
	})
})
