package v1

import (
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"code.cloudfoundry.org/eirinix"
	crewv1 "code.cloudfoundry.org/eirinix/examples/kubebuilder/api/crew/v1"
	eirinixtest "code.cloudfoundry.org/eirinix/testing"
)

// A captain has a rank that exists, is never demoted, and stays while in command.
func TestCaptainWebhook(t *testing.T) {
	g := NewWithT(t)
	scheme := runtime.NewScheme()
	g.Expect(crewv1.AddToScheme(scheme)).To(Succeed())
	x := eirinix.NewManager(eirinix.ManagerOptions{Host: "127.0.0.1", Scheme: scheme})
	g.Expect(SetupCaptainWebhookWithManager(x)).To(Succeed())
	h := eirinixtest.NewHarness(t, x)
	captain := func(rank int32, ship string) *crewv1.Captain {
		return &crewv1.Captain{ObjectMeta: metav1.ObjectMeta{Name: "nemo"}, Spec: crewv1.CaptainSpec{Rank: rank, Ship: ship}}
	}
	g.Expect(h.Create(captain(10, ""))).To(eirinixtest.BeAllowed())
	g.Expect(h.Create(captain(11, ""))).To(eirinixtest.BeDenied().WithMessage(Equal("rank 11 does not exist; the highest is 10")))
	g.Expect(h.Update(captain(5, ""), captain(5, "nautilus"))).To(eirinixtest.BeAllowed())
	g.Expect(h.Update(captain(5, ""), captain(4, ""))).To(eirinixtest.BeDenied().WithMessage(Equal("captain nemo has rank 5; it cannot fall to 4")))
	g.Expect(h.Update(captain(5, ""), captain(11, ""))).To(eirinixtest.BeDenied().WithMessage("rank 11 does not exist"))
	g.Expect(h.Delete(captain(5, ""))).To(eirinixtest.BeAllowed())
	g.Expect(h.Delete(captain(5, "nautilus"))).To(eirinixtest.BeDenied().WithMessage("captain nemo commands the nautilus"))
}
