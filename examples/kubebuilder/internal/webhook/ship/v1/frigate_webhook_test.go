package v1

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	shipv1 "code.cloudfoundry.org/eirinix/examples/kubebuilder/api/ship/v1"
)

var _ = Describe("Frigate Webhook", func() {
	var (
		obj, oldObj *shipv1.Frigate
		validator   FrigateCustomValidator
	)

	BeforeEach(func() {
		obj = &shipv1.Frigate{
			ObjectMeta: metav1.ObjectMeta{Name: "constitution", Namespace: "default"},
			Spec:       shipv1.FrigateSpec{Shipyard: "Boston", Masts: 3, Sails: 15},
		}
		oldObj = obj.DeepCopy()
		validator = FrigateCustomValidator{}
	})

	Context("When creating or updating Frigate under Validating Webhook", func() {
		It("Should admit as many sails as the masts carry", func() {
			Expect(validator.ValidateCreate(ctx, obj)).To(BeEmpty())
		})

		It("Should deny more sails than the masts carry", func() {
			obj.Spec.Sails++
			_, err := validator.ValidateCreate(ctx, obj)
			Expect(err).To(MatchError(ContainSubstring("spec.sails: Invalid value: 16")))
		})

		It("Should deny every fault of an update at once", func() {
			obj.Spec.Masts, obj.Spec.Shipyard = 2, "Toulon"
			_, err := validator.ValidateUpdate(ctx, oldObj, obj)
			Expect(err).To(MatchError(And(ContainSubstring("spec.sails"), ContainSubstring("spec.shipyard: Forbidden"))))
		})
	})

	Context("When the API server calls the webhook", func() {
		It("Should deny creations and updates, and admit the others", func() {
			wrong := obj.DeepCopy()
			wrong.Spec.Sails = 16
			Eventually(func() error { return k8sClient.Create(ctx, wrong.DeepCopy(), client.DryRunAll) }, patience).
				Should(And(Satisfy(apierrors.IsInvalid), MatchError(ContainSubstring("spec.sails: Invalid value: 16: a mast carries five sails at most"))))

			Expect(k8sClient.Create(ctx, obj)).To(Succeed())
			moved := obj.DeepCopy()
			moved.Spec.Shipyard = "Toulon"
			Expect(k8sClient.Update(ctx, moved)).To(And(Satisfy(apierrors.IsInvalid), MatchError(ContainSubstring("spec.shipyard: Forbidden: a ship is built once"))))
			obj.Spec.Sails = 12
			Expect(k8sClient.Update(ctx, obj)).To(Succeed())
			Expect(k8sClient.Delete(ctx, obj)).To(Succeed())
		})
	})
})
