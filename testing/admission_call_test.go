package eirinixtest

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"

	"code.cloudfoundry.org/eirinix"
)

// The library never answers like this; but a Harness that took everything would not notice if it did. What the API
// server makes of each answer has been observed.
var _ = Describe("An answer of a webhook", func() {
	object := `{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"a": "b"}}`

	answering := func(version string, failurePolicy admissionregistrationv1.FailurePolicyType, mutating bool, handler http.HandlerFunc) *Result {
		GinkgoHelper()
		settings := eirinix.Settings{FailurePolicy: failurePolicy}
		var step any = eirinix.Validation[*corev1.ConfigMap]{Settings: settings, Create: func(context.Context, *eirinix.Call, *corev1.ConfigMap) error { return nil }}
		if mutating {
			step = eirinix.Mutation[*corev1.ConfigMap]{Settings: settings, Apply: func(context.Context, *eirinix.Call, *corev1.ConfigMap) error { return nil }}
		}
		h := NewHarness(GinkgoTB(), step, func(o *HarnessOptions) { o.ReviewVersion = version })
		for _, w := range append(h.mutating, h.validating...) {
			client, err := clientOf(w.ClientConfig, handler)
			Expect(err).NotTo(HaveOccurred())
			w.client = client
		}
		return h.Create(object, WebhookTimeout(time.Second))
	}
	// respond answers with a response, in which UID stands for that of the request.
	respond := func(version, response string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			var review admissionv1.AdmissionReview
			_ = json.NewDecoder(r.Body).Decode(&review)
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"apiVersion": "admission.k8s.io/%s", "kind": "AdmissionReview", "response": %s}`, version, strings.ReplaceAll(response, "UID", string(review.Request.UID)))
		}
	}
	const patch = `"W3sib3AiOiJhZGQiLCJwYXRoIjoiL2RhdGEvYyIsInZhbHVlIjoiZCJ9XQ=="` // adds c: d

	DescribeTable("is refused as an API server refuses it, and failurePolicy decides", func(mutating bool, response, message string) {
		Expect(answering("", admissionregistrationv1.Fail, mutating, respond("v1", response))).To(HaveFailed(message))
		ignored := answering("", admissionregistrationv1.Ignore, mutating, respond("v1", response))
		Expect(ignored).To(And(BeUnchanged(), HaveField("Calls", ConsistOf(HaveField("Ignored", true)))))
	},
		Entry("no response", true, `null`, "received invalid webhook response: webhook response was absent"),
		Entry("another UID", true, `{"uid": "other", "allowed": true}`, `expected response.uid="`),
		Entry("a patch without type", true, `{"uid": "UID", "allowed": true, "patch": `+patch+`}`, "response.patch but not response.patchType"),
		Entry("a type without patch", true, `{"uid": "UID", "allowed": true, "patchType": "JSONPatch"}`, "response.patchType but not response.patch"),
		Entry("a patch of another type", true, `{"uid": "UID", "allowed": true, "patchType": "Merge", "patch": `+patch+`}`, `unsupported patch type "Merge"`),
		Entry("a patch that is none", true, `{"uid": "UID", "allowed": true, "patchType": "JSONPatch", "patch": "e30="}`, "received undecodable patch in webhook response"),
		Entry("a patch of a validating webhook", false, `{"uid": "UID", "allowed": true, "patchType": "JSONPatch", "patch": `+patch+`}`, "validating webhook may not return response.patch"),
		Entry("a patch type of a validating webhook", false, `{"uid": "UID", "allowed": true, "patchType": "JSONPatch"}`, "validating webhook may not return response.patchType"),
	)

	It("is refused where its kind is wrong", func() {
		Expect(answering("", admissionregistrationv1.Fail, true, func(w http.ResponseWriter, r *http.Request) {
			var review admissionv1.AdmissionReview
			_ = json.NewDecoder(r.Body).Decode(&review)
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"response": {"uid": %q, "allowed": true}}`, review.Request.UID)
		})).To(HaveFailed("expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got /, Kind="))
	})

	It("may be lax in v1beta1", func() {
		lax := respond("v1beta1", `{"allowed": true, "patch": `+patch+`}`)
		Expect(answering("v1beta1", admissionregistrationv1.Fail, true, lax)).To(HaveChanged(func(m *corev1.ConfigMap) { m.Data["c"] = "d" }))
	})

	DescribeTable("with a patch that cannot be applied fails whatever the failurePolicy", func(patch, message string) {
		bad := respond("v1", fmt.Sprintf(`{"uid": "UID", "allowed": true, "patchType": "JSONPatch", "patch": %q}`, base64.StdEncoding.EncodeToString([]byte(patch))))
		for _, policy := range []admissionregistrationv1.FailurePolicyType{admissionregistrationv1.Fail, admissionregistrationv1.Ignore} {
			Expect(answering("", policy, true, bad)).To(HaveFailed(message))
		}
	},
		Entry("a missing parent", `[{"op": "add", "path": "/not/there", "value": 1}]`, "missing path"),
		Entry("a test that fails", `[{"op": "test", "path": "/data/a", "value": "c"}]`, "testing value"),
		Entry("another type", `[{"op": "replace", "path": "/data", "value": 1}]`, "cannot unmarshal number"),
	)

	It("without explanation is told as such", func() {
		Expect(answering("", admissionregistrationv1.Fail, true, respond("v1", `{"uid": "UID", "allowed": false}`)).Err).
			To(MatchError(HaveSuffix("denied the request without explanation")))
		Expect(answering("", admissionregistrationv1.Fail, true, respond("v1", `{"uid": "UID", "allowed": false, "status": {"reason": "Gone", "code": 200}}`)).Err).
			To(MatchError(HaveSuffix("denied the request: Gone")))
	})

	It("that is an HTTP error is a failure", func() {
		refuse := func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "out of order", http.StatusInternalServerError)
		}
		Expect(answering("", admissionregistrationv1.Fail, false, refuse)).To(HaveFailed("out of order"))
		Expect(answering("", admissionregistrationv1.Ignore, false, refuse)).To(BeUnchanged())
	})

	It("that comes too late is a failure", func() {
		late := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
		Expect(answering("", admissionregistrationv1.Fail, false, late)).To(HaveFailed("context deadline exceeded"))
		Expect(answering("", admissionregistrationv1.Ignore, false, late)).To(BeUnchanged())
	})

	It("that breaks off is a failure", func() {
		broken := func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
		Expect(answering("", admissionregistrationv1.Fail, false, broken)).To(HaveFailed("EOF"))
	})

	It("keeps audit annotations whose keys an API server takes", func() {
		result := answering("", admissionregistrationv1.Fail, false, respond("v1", `{"uid": "UID", "allowed": true, "auditAnnotations": {"good": "1", "a/b": "2", "not good": "3"}}`))
		Expect(result.AuditAnnotations).To(HaveLen(1))
		Expect(result).To(HaveAudited("good", "1"))
	})

	// An API server compares objects, not patches.
	DescribeTable("has an earlier webhook called again if it changed the object", func(patch string, calls int) {
		step := func(id string) eirinix.Mutation[*corev1.ConfigMap] {
			return eirinix.Mutation[*corev1.ConfigMap]{
				ID: id, Settings: eirinix.Settings{Isolated: true, Reinvoke: admissionregistrationv1.IfNeededReinvocationPolicy},
				Apply: func(context.Context, *eirinix.Call, *corev1.ConfigMap) error { return nil },
			}
		}
		h := NewHarness(GinkgoTB(), step("first"), step("second"))
		client, err := clientOf(h.mutating[1].ClientConfig, respond("v1", fmt.Sprintf(`{"uid": "UID", "allowed": true, "patchType": "JSONPatch", "patch": %q}`, base64.StdEncoding.EncodeToString([]byte(patch)))))
		Expect(err).NotTo(HaveOccurred())
		h.mutating[1].client = client
		result := h.Create(object)
		Expect(result).To(BeAllowed())
		Expect(result.Calls).To(HaveLen(1 + calls))
	},
		Entry("by a patch", `[{"op": "add", "path": "/data/c", "value": "d"}]`, 2),
		Entry("but not by a patch that changes nothing", `[{"op": "replace", "path": "/data/a", "value": "b"}]`, 1),
		Entry("nor by one that adds what is as good as nothing", `[{"op": "add", "path": "/binaryData", "value": {}}]`, 1),
	)
})
