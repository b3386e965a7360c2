package v1

// This file plays both webhooks of the group without an API server.

import (
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"code.cloudfoundry.org/eirinix"
	shipv1 "code.cloudfoundry.org/eirinix/examples/kubebuilder/api/ship/v1"
	eirinixtest "code.cloudfoundry.org/eirinix/testing"
)

func harness(t *testing.T, setup func(eirinix.Manager) error) *eirinixtest.Harness {
	t.Helper()
	scheme := runtime.NewScheme()
	NewWithT(t).Expect(shipv1.AddToScheme(scheme)).To(Succeed())
	x := eirinix.NewManager(eirinix.ManagerOptions{Host: "127.0.0.1", Scheme: scheme})
	NewWithT(t).Expect(setup(x)).To(Succeed())
	return eirinixtest.NewHarness(t, x)
}

// The name of the builder is the user of the request.
func TestDestroyerWebhookSetsWhatIsEmpty(t *testing.T) {
	h := harness(t, SetupDestroyerWebhookWithManager)
	g := NewWithT(t)
	obj := &shipv1.Destroyer{ObjectMeta: metav1.ObjectMeta{Name: "cossack"}}
	defaulted := eirinixtest.As[*shipv1.Destroyer](h.Create(obj, eirinixtest.AsUser("brunel")))
	g.Expect(defaulted.Spec).To(Equal(shipv1.DestroyerSpec{Class: "cossack", Crew: new(int32(300))}))
	g.Expect(defaulted.Annotations).To(Equal(map[string]string{builderAnnotation: "brunel"}))
	g.Expect(h.Update(defaulted, defaulted, eirinixtest.AsUser("jane"))).To(eirinixtest.BeUnchanged())
}

func TestFrigateWebhookDeniesEveryFaultAtOnce(t *testing.T) {
	h := harness(t, SetupFrigateWebhookWithManager)
	g := NewWithT(t)
	obj := &shipv1.Frigate{ObjectMeta: metav1.ObjectMeta{Name: "constitution"}, Spec: shipv1.FrigateSpec{Shipyard: "Boston", Masts: 3, Sails: 15}}
	g.Expect(h.Create(obj)).To(eirinixtest.BeAllowed())
	g.Expect(h.Delete(obj)).To(eirinixtest.BeAllowed())

	wrong := obj.DeepCopy()
	wrong.Spec.Sails = 16
	g.Expect(h.Create(wrong)).To(eirinixtest.BeDenied().WithCode(422).WithCause("spec.sails"))
	wrong.Spec.Shipyard = "Toulon"
	g.Expect(h.Update(obj, wrong)).To(eirinixtest.BeDenied().WithCause("spec.sails").WithCause("spec.shipyard").WithMessage("a ship is built once"))
}
