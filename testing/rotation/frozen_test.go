package rotation_test

import (
	"context"
	"crypto/x509"
	"fmt"
	"time"

	"code.cloudfoundry.org/eirinix/internal/spectest"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"code.cloudfoundry.org/eirinix/internal/ca"
	"code.cloudfoundry.org/eirinix/internal/certsecret"
	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

// frozenTime is how long an API server stands still: longer than a rotation takes until the next CA signs, and shorter than
// until the old one is trusted no more, and than the timeout of a call, which would fail whatever the certificate.
const frozenTime = 4 * time.Second

// freeze stops an API server until the function that it returns is called, and for frozenTime at least.
func freeze(server int) (resume func()) {
	GinkgoHelper()
	Expect(servers[server].Pause()).To(Succeed())
	over := time.NewTimer(frozenTime)
	resumed := false
	resume = func() {
		if !resumed {
			<-over.C
			Expect(servers[server].Resume()).To(Succeed())
			resumed = true
		}
	}
	DeferCleanup(func() { resume() })
	return resume
}

var _ = Describe("A rotation of the CA while an API server is frozen", func() {
	// A thawed API server may still act on an old state: it meets a new serving certificate with the old caBundle.
	lives := lifetimes{CA: time.Hour, Leaf: 30 * time.Second, Retain: 5 * time.Second}

	activated := func(m moment) bool { return m.object == "secrets" && m.phase == ca.Retaining && !m.past }

	// rotate has the CA rotate while that API server is frozen: all the way, or, with published, from where every
	// caBundle holds the next CA. inTime says that the next CA signed before the API server went on.
	rotate := func(ctx context.Context, d *deployment, frozen int, published bool, begin func(kubernetes.Interface)) (inTime bool) {
		GinkgoHelper()
		clients := clientsOf(1 - frozen)
		before := d.settle(ctx, clients).CurrentID
		var resume func()
		if published {
			gate := holdAt(activated)
			d.crash.Store(gate)
			begin(clients)
			Eventually(gate.held).WithContext(ctx).Should(Receive())
			resume = freeze(frozen)
			d.crash.Store(nil)
			close(gate.hold)
		} else {
			resume = freeze(frozen)
			begin(clients)
		}
		began := time.Now()
		for !inTime && time.Since(began) < frozenTime {
			inTime = d.state(ctx, clients).CurrentID > before
		}
		resume()
		Eventually(func() int64 { return d.state(ctx, clients).CurrentID }).WithContext(ctx).WithTimeout(patience).Should(BeNumerically(">", before))
		return inTime
	}

	It("fails no admission", func(ctx SpecContext) {
		d := deploy(ctx, 3, lives)
		l := startLoad(ctx, d, many)
		const times = 4
		meanwhile := 0
		for n := range times {
			if rotate(ctx, d, n%2, n%4 > 1, func(clients kubernetes.Interface) { d.request(ctx, clients, fmt.Sprint("request ", n)) }) {
				meanwhile++
			}
			Expect(l.failing()).To(BeEmpty(), "rotation %d", n)
		}
		d.settle(ctx, clientsOf(0))
		Expect(meanwhile).To(BeNumerically(">", times/2), "rotations that were over before the API server went on")
		d.expectNoFailure(l, fmt.Sprintf("%d rotations, %d of them over before the frozen API server went on", times, meanwhile))
	}, SpecTimeout(10*patience))

	// The harness must be able to fail: here the next CA comes as most libraries would bring it, published before it
	// signs, and not signed by the one before. All that follows is the library's own.
	It("fails admissions without cross-signed certificates", func(ctx SpecContext) {
		d := deploy(ctx, 3, lives)
		l := startLoad(ctx, d, many)
		const most = 12
		n := 0
		for ; n < most && len(l.failing()) == 0; n++ {
			rotate(ctx, d, n%2, false, func(clients kubernetes.Interface) { d.stageAlone(ctx, clients) })
			d.settle(ctx, clientsOf(0))
		}
		l.end()
		d.report(l, fmt.Sprintf("%d rotations without cross-signed certificates", n))
		Expect(l.failing()).To(ContainElement(ContainSubstring("certificate signed by unknown authority")))
	}, SpecTimeout(10*patience))
})

// stageAlone begins a rotation as Store.Stage does, but without cross-signed certificates. The configurations vouch for the
// next CA instead, or replicas would not take it.
func (d *deployment) stageAlone(ctx context.Context, clients kubernetes.Interface) {
	GinkgoHelper()
	secrets := clients.CoreV1().Secrets(d.namespace)
	secret, err := secrets.Get(ctx, d.secret(), metav1.GetOptions{})
	Expect(err).NotTo(HaveOccurred())
	state, err := spectest.DecodeState(secret.Data, time.Now())
	Expect(err).NotTo(HaveOccurred())
	next, err := ca.New(d.secret(), d.rotation.CA, time.Now())
	Expect(err).NotTo(HaveOccurred())
	d.vouch(ctx, clients, next.Certificate)
	for n := range state.Generations {
		state.Generations[n].CrossSigned = nil
	}
	state.NextID = state.CurrentID + 1
	state.Generations = append(state.Generations, certsecret.Generation{
		ID: state.NextID, CertificatePEM: next.CertificatePEM, PrivateKeyPEM: next.PrivateKeyPEM,
	})
	state.Phase, state.Since = ca.Staged, time.Now()
	state.Counter++
	secret.Data = state.Encode(secret.Data)
	_, err = secrets.Update(ctx, secret, metav1.UpdateOptions{})
	Expect(err).NotTo(HaveOccurred())
}

// vouch has the configurations pin a CA beside those that they pin.
func (d *deployment) vouch(ctx context.Context, clients kubernetes.Interface, certificate *x509.Certificate) {
	GinkgoHelper()
	hooks := clients.AdmissionregistrationV1().MutatingWebhookConfigurations()
	Eventually(func() error {
		c, err := hooks.Get(ctx, d.mutating(), metav1.GetOptions{})
		if err != nil {
			return err
		}
		metav1.SetMetaDataAnnotation(&c.ObjectMeta, webhookconf.PinsAnnotation, c.Annotations[webhookconf.PinsAnnotation]+","+webhookconf.HashOf(certificate))
		_, err = hooks.Update(ctx, c, metav1.UpdateOptions{})
		return err
	}).WithContext(ctx).WithTimeout(patience).Should(Succeed())
}
