package certsecret_test

import (
	"crypto/tls"
	"crypto/x509"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"code.cloudfoundry.org/eirinix/internal/ca"
	"code.cloudfoundry.org/eirinix/internal/certsecret"
)

var _ = Describe("A rotation", func() {
	var (
		c     *cluster
		store *certsecret.Store
		first *certsecret.State
	)
	BeforeEach(func() {
		c = newCluster(nil)
		store = c.store()
		first, _, _ = store.Ensure(background)
		Expect(first).NotTo(BeNil())
	})

	It("keeps every serving certificate good for every bundle on its way", func() {
		staged := must(store.Stage(background, first))
		Expect(staged.Phase).To(Equal(ca.Staged))
		active := must(store.Activate(background, staged))
		Expect(active.Phase).To(Equal(ca.Retaining))
		done := must(store.Prune(background, active))
		Expect(done.Phase).To(Equal(ca.Steady))
		Expect(done.Generations).To(HaveLen(1))

		// Replicas and API servers may each be one step behind, or one ahead.
		states := []*certsecret.State{first, staged, active, done}
		for i, serving := range states {
			for j, registered := range states {
				// A replica that never saw the next CA has no word from it; its certificates end before the pruning.
				if serving == first && registered == done {
					continue
				}
				Expect(verifies(serving, registered.Bundle())).To(Succeed(), "state %d under the bundle of state %d", i, j)
			}
		}
	})

	It("is refused to whoever decided on an older state", func() {
		_, err := store.Stage(background, first)
		Expect(err).NotTo(HaveOccurred())
		_, err = store.Stage(background, first)
		Expect(apierrors.IsConflict(err)).To(BeTrue(), "%v", err)
	})

	It("begins once for each value of the annotation", func() {
		c.edit(func(s *corev1.Secret) { s.Annotations = map[string]string{certsecret.RotateAnnotation: "please"} })
		asked := must(store.Load(background))
		Expect(asked.Requested()).To(BeTrue())
		done := rotated(c, asked)
		Expect(done.Requested()).To(BeFalse())
		Expect(must(store.Load(background)).Requested()).To(BeFalse())
		c.edit(func(s *corev1.Secret) { s.Annotations[certsecret.RotateAnnotation] = "again" })
		Expect(must(store.Load(background)).Requested()).To(BeTrue())
	})

	It("cannot be activated before it is staged", func() {
		_, err := store.Activate(background, first)
		Expect(err).To(MatchError(ContainSubstring("no next CA is staged")))
	})

	It("survives a repair that happens meanwhile", func() {
		staged := must(store.Stage(background, first))
		c.edit(func(s *corev1.Secret) { delete(s.Data, "tls.key") })
		repaired, outcome, err := store.Restore(background, staged)
		Expect(err).NotTo(HaveOccurred())
		Expect(outcome).To(Equal(certsecret.Repaired))
		Expect(repaired.Phase).To(Equal(ca.Staged))
		active := must(store.Activate(background, repaired))
		Expect(must(active.Current()).Certificate.Raw).NotTo(Equal(must(first.Current()).Certificate.Raw))
	})

	It("lets what a repair has kept go in time", func() {
		foreign := newCA(year, now)
		c.edit(func(s *corev1.Secret) {
			s.Data = map[string][]byte{"tls.crt": foreign.CertificatePEM, "tls.key": foreign.PrivateKeyPEM}
		})
		restored, _, err := store.Restore(background, first)
		Expect(err).NotTo(HaveOccurred())
		Expect(restored.Phase).To(Equal(ca.Retaining))
		Expect(restored.Since).To(BeTemporally("~", now, day))
		Expect(must(store.Prune(background, restored)).Bundle()).To(Equal(first.Bundle()))
	})
})

// verifies tells whether what a replica in this state serves is good for an API server with this bundle.
func verifies(state *certsecret.State, bundle []byte) error {
	GinkgoHelper()
	leaf, err := must(state.Current()).SignServing([]string{"localhost"}, day, now)
	Expect(err).NotTo(HaveOccurred())
	return verifyChain(leaf, bundle)
}

func verifyChain(served *tls.Certificate, bundle []byte) error {
	roots, intermediates := x509.NewCertPool(), x509.NewCertPool()
	roots.AppendCertsFromPEM(bundle)
	for _, der := range served.Certificate[1:] {
		intermediates.AddCert(must(x509.ParseCertificate(der)))
	}
	_, err := served.Leaf.Verify(x509.VerifyOptions{DNSName: "localhost", Roots: roots, Intermediates: intermediates, CurrentTime: now})
	return err
}
