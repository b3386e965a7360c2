package v1

import (
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"code.cloudfoundry.org/eirinix"
	eirinixtest "code.cloudfoundry.org/eirinix/testing"
)

// A Deployment is refused with all of its faults, at its creation and at each update.
func TestDeploymentWebhook(t *testing.T) {
	x := eirinix.NewManager(eirinix.ManagerOptions{Host: "127.0.0.1"})
	g := NewWithT(t)
	g.Expect(SetupDeploymentWebhookWithManager(x)).To(Succeed())
	h := eirinixtest.NewHarness(t, x)
	obj := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Labels: map[string]string{ownerLabel: "front"}},
		Spec:       appsv1.DeploymentSpec{Replicas: new(int32(50))},
	}
	g.Expect(h.Create(obj)).To(eirinixtest.BeAllowed())
	g.Expect(h.Delete(obj)).To(eirinixtest.BeAllowed())

	larger := obj.DeepCopy()
	larger.Spec.Replicas = new(int32(51))
	g.Expect(h.Update(obj, larger)).To(eirinixtest.BeDenied().WithMessage(Equal("51 replicas are too many; the most is 50")))
	larger.Labels = nil
	g.Expect(h.Create(larger)).To(eirinixtest.BeDenied().WithCode(403).
		WithMessage(Equal("the label tutorial.example/team is missing\n51 replicas are too many; the most is 50")))
}
