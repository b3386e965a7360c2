package v1

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	shipv1 "code.cloudfoundry.org/eirinix/examples/kubebuilder/api/ship/v1"
)

var _ = Describe("Destroyer Webhook", func() {
	var (
		obj       *shipv1.Destroyer
		defaulter DestroyerCustomDefaulter
	)

	BeforeEach(func() {
		obj = &shipv1.Destroyer{ObjectMeta: metav1.ObjectMeta{Name: "cossack"}}
		defaulter = DestroyerCustomDefaulter{DefaultCrew: 300}
	})

	Context("When creating Destroyer under Defaulting Webhook", func() {
		It("Should apply defaults when a field is empty", func() {
			request := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{UserInfo: authenticationv1.UserInfo{Username: "brunel"}}}
			Expect(defaulter.Default(admission.NewContextWithRequest(ctx, request), obj)).To(Succeed())
			Expect(obj.Spec.Class).To(Equal("cossack"))
			Expect(obj.Spec.Crew).To(HaveValue(BeEquivalentTo(300)))
			Expect(obj.Annotations).To(Equal(map[string]string{builderAnnotation: "brunel"}))
		})
	})

	Context("When the API server calls the webhook", func() {
		It("Should default, with the user of the request", func() {
			obj.Spec.Class = "tribal"
			Expect(k8sClient.Create(ctx, obj)).To(Succeed())
			Expect(obj.Spec.Class).To(Equal("tribal"))
			Expect(obj.Spec.Crew).To(HaveValue(BeEquivalentTo(300)))
			Expect(obj.Annotations).To(HaveKeyWithValue(builderAnnotation, Not(BeEmpty())))
			Expect(k8sClient.Delete(ctx, obj)).To(Succeed())
		})
	})
})
