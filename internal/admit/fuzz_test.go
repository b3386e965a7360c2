package admit_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"code.cloudfoundry.org/eirinix/internal/admit"
)

// FuzzServeHTTP sends any bytes as an AdmissionReview. The answer is a review in the version and with the
// UID of the question, or an HTTP error in words; nothing panics, and no step sees a refused request.
func FuzzServeHTTP(f *testing.F) {
	const review = `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","operation":"CREATE","object":` + pod + `}}`
	for _, seed := range []string{
		review, review[:len(review)/2], review + "x", "", "{}", "null", "[]", `"x"`, "\xff", "\x00",
		strings.Replace(review, "/v1", "/v1beta1", 1),
		strings.Replace(review, "CREATE", "DELETE", 1),
		strings.Replace(review, `"request"`, `"Request"`, 1),
		strings.Replace(review, `"u"`, `"\ud800"`, 1),
		strings.Replace(review, pod, "null", 1),
		strings.Replace(review, pod, "[1,2]", 1),
		strings.Replace(review, pod, `"text"`, 1),
		strings.Replace(review, pod, `{"metadata":null}`, 1),
		strings.Replace(review, `"uid":"u"`, `"uid":"u","dryRun":true,"options":{},"userInfo":{"extra":{"a":["b"]}}`, 1),
		`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":null}`,
		`{"apiVersion":1,"kind":{}}`,
		`{"apiVersion":"a/b/c","kind":"AdmissionReview","request":{}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		g := gomega.NewWithT(t)
		called := false
		h := &admit.Handler{MaxBytes: 1 << 20}
		h.Serve(volumes, handling("volumes", func(_ context.Context, req admission.Request) admission.Response {
			called = true
			g.Expect(req.UID).NotTo(gomega.BeEmpty())
			return admission.Response{AdmissionResponse: admissionv1.AdmissionResponse{
				Allowed: true, Patch: []byte(`[{"op":"add","path":"/metadata/labels","value":{}}]`),
			}}
		}))
		r := httptest.NewRequest(http.MethodPost, volumes+"?timeout=30s", bytes.NewReader(text))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)

		switch {
		case w.Code == http.StatusOK:
			var asked, answered admissionv1.AdmissionReview
			g.Expect(json.Unmarshal(text, &asked)).To(gomega.Succeed())
			g.Expect(json.Unmarshal(w.Body.Bytes(), &answered)).To(gomega.Succeed())
			g.Expect(answered.Kind).To(gomega.Equal("AdmissionReview"))
			g.Expect(answered.APIVersion).To(gomega.BeElementOf("admission.k8s.io/v1", "admission.k8s.io/v1beta1"))
			g.Expect(answered.Response).NotTo(gomega.BeNil())
			g.Expect(answered.Response.UID).NotTo(gomega.BeEmpty())
			g.Expect(called).To(gomega.BeTrue())
		case w.Code == http.StatusInternalServerError:
			g.Expect(called).To(gomega.BeTrue(), "only an extension fails")
		default:
			g.Expect(w.Code).To(gomega.And(gomega.BeNumerically(">=", 400), gomega.BeNumerically("<", 500)))
			g.Expect(called).To(gomega.BeFalse())
		}
		if w.Code != http.StatusOK {
			g.Expect(w.Body.String()).To(gomega.ContainSubstring("volumes"))
			g.Expect(w.Body.Len()).To(gomega.BeNumerically("<", 4096))
			g.Expect(utf8.Valid(w.Body.Bytes())).To(gomega.BeTrue())
		}
	})
}
