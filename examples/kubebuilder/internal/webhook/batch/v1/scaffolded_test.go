package v1

// This file holds the set-up of the webhooks as kubebuilder scaffolds it, and compares its answers with the library's.

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	evanphx "gopkg.in/evanphx/json-patch.v4"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"code.cloudfoundry.org/eirinix"
	batchv1 "code.cloudfoundry.org/eirinix/examples/kubebuilder/api/batch/v1"
	crewv1 "code.cloudfoundry.org/eirinix/examples/kubebuilder/api/crew/v1"
	eirinixtest "code.cloudfoundry.org/eirinix/testing"
)

// scaffoldedCronJobWebhook is the set-up before the project moved.
func scaffoldedCronJobWebhook(mgr ctrl.Manager) error {
	return ctrl.NewWebhookManagedBy(mgr, &batchv1.CronJob{}).
		WithValidator(&CronJobCustomValidator{}).
		WithDefaulter(newCronJobDefaulter()).
		Complete()
}

// post sends a request to a webhook of controller-runtime, and returns its response.
func post(mux http.Handler, path string, request *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	GinkgoHelper()
	review := admissionv1.AdmissionReview{Request: request}
	review.SetGroupVersionKind(admissionv1.SchemeGroupVersion.WithKind("AdmissionReview"))
	body, err := json.Marshal(review)
	Expect(err).NotTo(HaveOccurred())
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, path, bytes.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, r)
	Expect(w).To(HaveHTTPStatus(http.StatusOK))
	var answer admissionv1.AdmissionReview
	Expect(json.Unmarshal(w.Body.Bytes(), &answer)).To(Succeed())
	return answer.Response
}

// patched returns the object of a request after the patch of a response.
func patched(request *admissionv1.AdmissionRequest, response *admissionv1.AdmissionResponse) string {
	GinkgoHelper()
	if len(response.Patch) == 0 {
		return string(request.Object.Raw)
	}
	patch, err := evanphx.DecodePatch(response.Patch)
	Expect(err).NotTo(HaveOccurred())
	object, err := patch.Apply(request.Object.Raw)
	Expect(err).NotTo(HaveOccurred())
	return string(object)
}

// verdict is the part of a refusal that users see, and nil if the object is admitted.
func verdict(r *admissionv1.AdmissionResponse) *metav1.Status {
	if r.Allowed {
		return nil
	}
	return &metav1.Status{Status: r.Result.Status, Code: r.Result.Code, Reason: r.Result.Reason, Message: r.Result.Message, Details: r.Result.Details}
}

var _ = Describe("CronJob Webhook, as scaffolded and as a step", func() {
	DescribeTable("gives the same answer", func(edit func(*batchv1.CronJob)) {
		mgr, err := ctrl.NewManager(testEnv.Config, ctrl.Options{Scheme: k8sClient.Scheme(), Metrics: metricsserver.Options{BindAddress: "0"}})
		Expect(err).NotTo(HaveOccurred())
		Expect(scaffoldedCronJobWebhook(mgr)).To(Succeed())
		mux := mgr.GetWebhookServer().WebhookMux()

		x := eirinix.NewManager(eirinix.ManagerOptions{Scheme: k8sClient.Scheme(), Host: "127.0.0.1"})
		Expect(SetupCronJobWebhookWithManager(x)).To(Succeed())
		h := eirinixtest.NewHarness(GinkgoT(), x)

		obj := &batchv1.CronJob{
			ObjectMeta: metav1.ObjectMeta{Name: "backup", Namespace: "default"},
			Spec:       batchv1.CronJobSpec{Schedule: "0 3 * * *", Image: "example/backup"},
		}
		edit(obj)
		result := h.Create(obj)
		Expect(result.Calls).To(HaveLen(2))
		for _, call := range result.Calls {
			path := "/validate-batch-tutorial-example-v1-cronjob"
			if strings.Contains(call.Configuration, "mutating") {
				path = "/mutate-batch-tutorial-example-v1-cronjob"
			}
			scaffolded := post(mux, path, call.Request)
			Expect(call.Response.Allowed).To(Equal(scaffolded.Allowed))
			Expect(call.Response.Warnings).To(Equal(scaffolded.Warnings))
			Expect(verdict(call.Response)).To(Equal(verdict(scaffolded)))
			Expect(patched(call.Request, call.Response)).To(MatchJSON(patched(call.Request, scaffolded)))
		}
	},
		Entry("to a CronJob without defaults", func(*batchv1.CronJob) {}),
		Entry("to a CronJob that a controller owns", func(obj *batchv1.CronJob) {
			captain := &crewv1.Captain{ObjectMeta: metav1.ObjectMeta{Name: "picard", UID: "6e0c0b6e"}}
			obj.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(captain, crewv1.GroupVersion.WithKind("Captain"))}
		}),
		Entry("with a warning", func(obj *batchv1.CronJob) { obj.Spec.Schedule = "* * * * *" }),
		Entry("to two faults", func(obj *batchv1.CronJob) { obj.Spec.Schedule, obj.Name = "daily", strings.Repeat("a", 60) }),
	)
})
