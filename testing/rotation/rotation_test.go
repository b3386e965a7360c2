package rotation_test

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/internal/ca"
	"code.cloudfoundry.org/eirinix/internal/certsecret"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

var _ = Describe("A rotation of the CA", func() {
	It("fails no admission, many times over, while versions are rolled out and replicas die", Label("soak"), func(ctx SpecContext) {
		// Half of a CA's life is over some fifteen seconds after it was made, and a rotation by request is done before.
		d := deploy(ctx, 2, lifetimes{CA: 30 * time.Second, Leaf: 20 * time.Second, Retain: 3 * time.Second})
		l := d.startLoad(ctx, few)
		j := d.keepJournal(ctx)
		first := Must(d.current(ctx))
		began, last, rollouts := time.Now(), first, 0
		for ; last-first < int64(rotations(3)); rollouts++ {
			kind := []string{"RotateCA", "age", "annotation", "annotation"}[rollouts%4]
			switch kind {
			case "RotateCA":
				Expect(d.replicas[rollouts/4%len(d.replicas)].RotateCA(ctx, eirinix.RotateOptions{})).To(Succeed())
			case "annotation":
				d.request(ctx, fmt.Sprint("request ", rollouts))
			}
			d.more = []any{mark([]string{"odd", "even"}[rollouts%2], "yes", eirinix.Settings{})}
			if kind == "age" {
				d.rollOut(ctx, j, func(r *replica) { d.kill(ctx, r) })
			} else {
				d.rollOut(ctx, j)
			}
			Eventually(d.current).WithArguments(ctx).WithContext(ctx).WithPolling(50*time.Millisecond).Should(BeNumerically(">", last), kind)
			last = Must(d.current(ctx))
			Expect(l.Failures()).To(BeEmpty(), "after %d rotations", last-first)
		}
		took := time.Since(began).Round(time.Second)
		d.settle(ctx)
		Expect(j.registrations(mutatingKind)).To(HaveLen(1+rollouts), "each version was registered once")
		Expect(j.most).To(BeNumerically("<=", 3), "CAs in a caBundle: the old, the new, and one that is about to go")
		l.expectNoFailure("%d rotations in %s, %d rollouts", last-first, took, rollouts)
	}, SpecTimeout(4*time.Hour))
})

// freeze stops an API server while something is done, and sees that it goes on.
func freeze(server int, meanwhile func()) {
	GinkgoHelper()
	Expect(servers[server].Pause()).To(Succeed())
	defer func() { Expect(servers[server].Resume()).To(Succeed()) }()
	meanwhile()
}

// callTimeout is shorter than the time after which either side gives up a call or a handshake.
const callTimeout = 4 * time.Second

// A thawed API server may still act on an old state: it meets a new serving certificate with the old caBundle. Where a
// machine is so busy that the server stands still for longer than callTimeout, other failures are not the rotation's.
var _ = Describe("A rotation of the CA while an API server is frozen until the next CA signs", func() {
	lives := lifetimes{CA: time.Hour, Leaf: 30 * time.Second, Retain: 5 * time.Second}
	distrusts := ContainElement(ContainSubstring("x509"))

	// rotates freezes an API server in each rotation, until a certificate is not trusted, and so many times at most.
	rotates := func(ctx context.Context, most int, begin func(d *deployment, n int)) (failures []string, longest time.Duration) {
		GinkgoHelper()
		d := deploy(ctx, 3, lives)
		l := d.startLoad(ctx, many)
		n := 0
		for trusted := true; trusted && n < most; n++ {
			before := d.settle(ctx).CurrentID
			began := time.Now()
			freeze(1, func() {
				begin(d, n)
				Eventually(d.current).WithArguments(ctx).WithContext(ctx).WithPolling(20 * time.Millisecond).Should(BeNumerically(">", before))
			})
			longest = max(longest, time.Since(began))
			d.settle(ctx)
			l.ExpectMore(ctx, 2*many)
			trusted = !Must(distrusts.Match(l.Failures()))
		}
		l.end("%d rotations while an API server is frozen", n)
		return l.Failures(), longest
	}

	It("fails no admission", func(ctx SpecContext) {
		failures, longest := rotates(ctx, 2, func(d *deployment, n int) { d.request(ctx, fmt.Sprint("request ", n)) })
		Expect(failures).NotTo(distrusts)
		if longest < callTimeout {
			Expect(failures).To(BeEmpty())
		}
	}, SpecTimeout(10*patience))

	// The harness must be able to fail: here the next CA comes as most libraries would bring it, published before it
	// signs, and not signed by the one before. All that follows is the library's own.
	It("fails admissions without cross-signed certificates", func(ctx SpecContext) {
		failures, _ := rotates(ctx, 12, func(d *deployment, _ int) { d.stageAlone(ctx) })
		Expect(failures).To(distrusts)
	}, SpecTimeout(10*patience))
})

// stageAlone begins a rotation as Store.Stage does, but without cross-signed certificates. The configurations vouch for the
// next CA instead, or replicas would not take it.
func (d *deployment) stageAlone(ctx context.Context) {
	GinkgoHelper()
	next := Must(ca.New(d.secret(), d.rotation.CA, time.Now()))
	hooks := clientsOf(0).AdmissionregistrationV1().MutatingWebhookConfigurations()
	Eventually(func() error {
		c, err := hooks.Get(ctx, d.mutating(), metav1.GetOptions{})
		if err != nil {
			return err
		}
		metav1.SetMetaDataAnnotation(&c.ObjectMeta, webhookconf.PinsAnnotation, c.Annotations[webhookconf.PinsAnnotation]+","+webhookconf.HashOf(next.Certificate))
		_, err = hooks.Update(ctx, c, metav1.UpdateOptions{})
		return err
	}).WithContext(ctx).Should(Succeed())

	secrets := clientsOf(0).CoreV1().Secrets(d.namespace)
	secret := Must(secrets.Get(ctx, d.secret(), metav1.GetOptions{}))
	state := Must(DecodeState(secret.Data, time.Now()))
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
	Must(secrets.Update(ctx, secret, metav1.UpdateOptions{}))
}
