package v1

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

var _ = Describe("Pod Webhook", func() {
	var (
		obj       *corev1.Pod
		defaulter PodCustomDefaulter
	)

	BeforeEach(func() {
		obj = &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default"},
			Spec: corev1.PodSpec{Containers: []corev1.Container{
				{Name: "main", Image: "example/web"},
				{Name: "sidecar", Image: "example/sidecar"},
			}},
		}
		defaulter = PodCustomDefaulter{}
	})

	talks := HaveField("TerminationMessagePolicy", corev1.TerminationMessageFallbackToLogsOnError)

	Context("When creating Pod under Defaulting Webhook", func() {
		It("Should apply defaults to every container", func() {
			Expect(defaulter.Default(ctx, obj)).To(Succeed())
			Expect(obj.Spec.Containers).To(HaveEach(talks))
		})
	})

	Context("When the API server calls the webhook", func() {
		It("Should default on creation, and leave updates alone", func() {
			Expect(k8sClient.Create(ctx, obj)).To(Succeed())
			Expect(obj.Spec.Containers).To(And(HaveLen(2), HaveEach(talks)))
			obj.Labels = map[string]string{"tier": "front"}
			Expect(k8sClient.Update(ctx, obj)).To(Succeed())
			Expect(k8sClient.Delete(ctx, obj, client.GracePeriodSeconds(0))).To(Succeed())
		})
	})
})
