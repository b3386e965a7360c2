package v1

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

var _ = Describe("Deployment Webhook", func() {
	var (
		obj, oldObj *appsv1.Deployment
		validator   DeploymentCustomValidator
	)

	BeforeEach(func() {
		app := map[string]string{"app": "web"}
		obj = &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", Labels: map[string]string{ownerLabel: "front"}},
			Spec: appsv1.DeploymentSpec{
				Replicas: new(int32(2)),
				Selector: &metav1.LabelSelector{MatchLabels: app},
				Template: corev1.PodTemplateSpec{
					ObjectMeta: metav1.ObjectMeta{Labels: app},
					Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "example/web"}}},
				},
			},
		}
		oldObj = obj.DeepCopy()
		validator = DeploymentCustomValidator{MaxReplicas: 50}
	})

	Context("When creating or updating Deployment under Validating Webhook", func() {
		It("Should deny every fault at once", func() {
			obj.Labels, obj.Spec.Replicas = nil, new(int32(51))
			_, err := validator.ValidateCreate(ctx, obj)
			Expect(err).To(MatchError("the label tutorial.example/team is missing\n51 replicas are too many; the most is 50"))
		})

		It("Should deny an update to too many replicas", func() {
			obj.Spec.Replicas = new(int32(51))
			_, err := validator.ValidateUpdate(ctx, oldObj, obj)
			Expect(err).To(MatchError("51 replicas are too many; the most is 50"))
		})
	})

	Context("When the API server calls the webhook", func() {
		It("Should deny creations and updates, and admit the others", func() {
			unowned := obj.DeepCopy()
			unowned.Labels = nil
			Eventually(func() error { return k8sClient.Create(ctx, unowned.DeepCopy(), client.DryRunAll) }, patience).
				Should(And(Satisfy(apierrors.IsForbidden), MatchError(HaveSuffix("denied the request: the label tutorial.example/team is missing"))))

			Expect(k8sClient.Create(ctx, obj)).To(Succeed())
			larger := obj.DeepCopy()
			larger.Spec.Replicas = new(int32(51))
			Expect(k8sClient.Update(ctx, larger)).To(MatchError(HaveSuffix("51 replicas are too many; the most is 50")))
			Expect(k8sClient.Delete(ctx, obj)).To(Succeed())
		})
	})
})
