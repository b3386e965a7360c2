package v1

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	crewv1 "code.cloudfoundry.org/eirinix/examples/kubebuilder/api/crew/v1"
)

var _ = Describe("Captain Webhook", func() {
	var (
		obj, oldObj *crewv1.Captain
		validator   CaptainCustomValidator
	)

	BeforeEach(func() {
		obj = &crewv1.Captain{
			ObjectMeta: metav1.ObjectMeta{Name: "nemo", Namespace: "default"},
			Spec:       crewv1.CaptainSpec{Rank: 5},
		}
		oldObj = obj.DeepCopy()
		validator = CaptainCustomValidator{}
	})

	Context("When creating, updating or deleting Captain under Validating Webhook", func() {
		It("Should deny creation with a rank that does not exist", func() {
			obj.Spec.Rank = 11
			_, err := validator.ValidateCreate(ctx, obj)
			Expect(err).To(MatchError("rank 11 does not exist; the highest is 10"))
		})

		It("Should admit creation with a rank that exists", func() {
			Expect(validator.ValidateCreate(ctx, obj)).To(BeEmpty())
		})

		It("Should deny a demotion", func() {
			obj.Spec.Rank = 4
			_, err := validator.ValidateUpdate(ctx, oldObj, obj)
			Expect(err).To(MatchError("captain nemo has rank 5; it cannot fall to 4"))
		})

		It("Should deny the deletion of a captain in command", func() {
			obj.Spec.Ship = "nautilus"
			_, err := validator.ValidateDelete(ctx, obj)
			Expect(err).To(MatchError("captain nemo commands the nautilus; appoint another captain first"))
		})
	})

	Context("When the API server calls the webhook", func() {
		isForbidden := func(message string) OmegaMatcher {
			return And(Satisfy(apierrors.IsForbidden), MatchError(HaveSuffix(message)))
		}

		It("Should deny creations, updates and deletions, and admit the others", func() {
			admiral := obj.DeepCopy()
			admiral.Spec.Rank = 11
			Eventually(func() error { return k8sClient.Create(ctx, admiral.DeepCopy(), client.DryRunAll) }, patience).
				Should(isForbidden("denied the request: rank 11 does not exist; the highest is 10"))

			obj.Spec.Ship = "nautilus"
			Expect(k8sClient.Create(ctx, obj)).To(Succeed())
			demoted := obj.DeepCopy()
			demoted.Spec.Rank = 4
			Expect(k8sClient.Update(ctx, demoted)).To(isForbidden("captain nemo has rank 5; it cannot fall to 4"))
			Expect(k8sClient.Delete(ctx, obj)).To(isForbidden("captain nemo commands the nautilus; appoint another captain first"))

			obj.Spec.Rank, obj.Spec.Ship = 6, ""
			Expect(k8sClient.Update(ctx, obj)).To(Succeed())
			Expect(k8sClient.Delete(ctx, obj)).To(Succeed())
		})
	})
})
