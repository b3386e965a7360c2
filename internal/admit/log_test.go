package admit_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

var _ = Describe("The log", func() {
	It("tells of a denial who was refused what by whom, why, and how long it took", func() {
		h := newHook(returning(admission.Denied("no root")))
		h.ask(func(r *admissionv1.AdmissionRequest) {
			r.Resource = metav1.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
			r.SubResource = "scale"
			r.Operation = admissionv1.Update
		})
		Expect(h.logs.all()).To(HaveLen(1))
		Expect(h.logs.with("denied")).To(ConsistOf(And(
			HaveKeyWithValue("user", "alice"),
			HaveKeyWithValue("operation", "UPDATE"),
			HaveKeyWithValue("resource", "deployments.apps/scale"),
			HaveKeyWithValue("namespace", "cf"),
			HaveKeyWithValue("name", "web-0"),
			HaveKeyWithValue("extension", "volumes"),
			HaveKeyWithValue("uid", uid),
			HaveKeyWithValue("code", BeEquivalentTo(403)),
			HaveKeyWithValue("reason", "no root"),
			HaveKeyWithValue("took", aDuration()),
			HaveKeyWithValue("level", BeEquivalentTo(0)),
		)))
	})

	It("tells of what was allowed only those who want to know more", func() {
		h := newHook(patching(`[{"op":"add","path":"/spec/hostname","value":"` + secret + `"}]`))
		h.ask().review("v1")
		Expect(h.logs.all()).To(HaveLen(1))
		Expect(h.logs.with("allowed")).To(ConsistOf(And(
			HaveKeyWithValue("level", BeEquivalentTo(1)),
			HaveKeyWithValue("extension", "volumes"),
			HaveKeyWithValue("took", aDuration()),
			HaveKey("patchBytes"),
		)))
	})
})
