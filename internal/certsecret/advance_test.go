package certsecret_test

// This file is about the steps of a rotation, as they stand in the Secret.

import (
	"crypto/x509"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"code.cloudfoundry.org/eirinix/internal/ca"
	"code.cloudfoundry.org/eirinix/internal/certsecret"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
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
		first, _ = restore(store, nil, nil)
	})

	It("keeps every serving certificate good for every bundle on its way", func() {
		staged := Must(store.Stage(background, first))
		Expect(staged.Phase).To(Equal(ca.Staged))
		active := Must(store.Activate(background, staged))
		Expect(active.Phase).To(Equal(ca.Retaining))
		Expect(Must(active.Current()).Chain).To(HaveLen(1), "replicas send the certificate by which the old CA trusts the new one")
		Expect(Must(Must(store.Load(background)).Current()).Chain).To(HaveLen(1))
		done := Must(store.Prune(background, active))
		Expect(done.Phase).To(Equal(ca.Steady))
		Expect(done.Generations).To(HaveLen(1))
		Expect(Must(done.Current()).Chain).To(BeEmpty(), "for as long as the old CA is retained, and no longer")
		Expect(Must(Must(store.Load(background)).Current()).Chain).To(BeEmpty())

		// Replicas and API servers may each be one step behind, or one ahead.
		states := []*certsecret.State{first, staged, active, done}
		for i, serving := range states {
			for j, registered := range states {
				// The next CA never signs the old one, whose certificates end before the pruning.
				if serving != active && serving != done && registered == done {
					Expect(verifies(serving, registered.Bundle())).NotTo(Succeed(), "state %d after the pruning", i)
					continue
				}
				// And nothing calls by a caBundle that was replaced before the retention began.
				if serving == done && registered == first {
					continue
				}
				Expect(verifies(serving, registered.Bundle())).To(Succeed(), "state %d under the bundle of state %d", i, j)
			}
		}

		By("keeping all certificates that were cross-signed, as an observer of handshakes or of the Secret could")
		kept := x509.NewCertPool()
		for _, state := range states {
			for _, g := range state.Generations {
				for _, cross := range g.CrossSigned {
					kept.AppendCertsFromPEM(cross.CertificatePEM)
				}
			}
		}
		Expect(kept.Equal(x509.NewCertPool())).To(BeFalse(), "the old CA has signed the next one")
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(done.Bundle())
		stolen := Must(Must(first.Current()).SignServing([]string{"localhost"}, day, now)).Leaf
		_, err := stolen.Verify(x509.VerifyOptions{Roots: roots, Intermediates: kept, CurrentTime: now})
		Expect(err).To(BeAssignableToTypeOf(x509.UnknownAuthorityError{}), "the old key is trusted no more")
	})

	It("is refused if it was decided on an older state, and cannot be activated before it is staged", func() {
		Expect(store.Activate(background, first)).Error().To(MatchError(ContainSubstring("no next CA is staged")))
		Must(store.Stage(background, first))
		Expect(store.Stage(background, first)).Error().To(MatchError(apierrors.IsConflict, "IsConflict"))
		Expect(store.Distrust(background, first)).Error().To(MatchError(apierrors.IsConflict, "IsConflict"))
	})

	It("begins once for each value of the annotation", func() {
		c.edit(func(s *corev1.Secret) { s.Annotations = map[string]string{certsecret.RotateAnnotation: "please"} })
		asked := Must(store.Load(background))
		Expect(asked.Requested()).To(BeTrue())
		Expect(rotated(c, asked).Requested()).To(BeFalse())
		Expect(Must(store.Load(background)).Requested()).To(BeFalse())
		c.edit(func(s *corev1.Secret) { s.Annotations[certsecret.RotateAnnotation] = "again" })
		Expect(Must(store.Load(background)).Requested()).To(BeTrue())
	})

	It("survives a repair that happens meanwhile", func() {
		staged := Must(store.Stage(background, first))
		c.edit(func(s *corev1.Secret) { delete(s.Data, "tls.key") })
		repaired, outcome := restore(store, staged, nil)
		Expect(outcome).To(Equal(certsecret.Repaired))
		Expect(repaired.Phase).To(Equal(ca.Staged))
		active := Must(store.Activate(background, repaired))
		Expect(Must(active.Current()).Certificate.Raw).NotTo(Equal(Must(first.Current()).Certificate.Raw))
	})

	It("drops in time the CAs that a repair has kept", func() {
		active := Must(store.Activate(background, Must(store.Stage(background, first))))
		c.delete()
		later := now.Add(day)
		restored, _ := restore(c.storeAt(later), active, nil)
		Expect(restored.Since).To(Equal(later), "another replica may have known less")
		later = later.Add(day)
		c.edit(func(s *corev1.Secret) { s.Data = first.Encode(nil) }) // an older copy
		restored, _ = restore(c.storeAt(later), restored, nil)
		Expect(restored.Phase).To(Equal(ca.Retaining))
		Expect(restored.Since).To(Equal(later), "another replica may have known less")
		Expect(ca.SplitBundle(Must(store.Prune(background, restored)).Bundle())).To(HaveLen(1))
	})

	Context("that an older version of this library has begun", func() {
		// cross is a certificate of one generation that another one has signed.
		cross := func(by, of *certsecret.State) certsecret.CrossSigned {
			certificate := Must(Must(by.Current()).CrossSign(Must(of.Current()).Certificate, now))
			return certsecret.CrossSigned{IssuerID: by.CurrentID, CertificatePEM: ca.EncodeCertificate(certificate)}
		}
		// put stores a state as the older version would.
		put := func(state *certsecret.State) { c.edit(func(s *corev1.Secret) { s.Data = state.Encode(s.Data) }) }

		It("does not send the certificate that the next CA has signed for the old one", func() {
			staged := Must(store.Stage(background, first))
			next := staged.Clone()
			next.CurrentID = staged.NextID
			staged.Generations[0].CrossSigned = []certsecret.CrossSigned{cross(next, staged)}
			put(staged)
			found, outcome := restore(store, staged, nil)
			Expect(outcome).To(Equal(certsecret.Adopted))
			Expect(Must(found.Current()).Chain).To(BeEmpty())
			Expect(Must(Must(store.Activate(background, found)).Current()).Chain).To(HaveLen(1))
			Expect(string(c.secret().Data["state.json"])).NotTo(ContainSubstring(`"issuer": 2`))
		})

		It("does not send a certificate that a pruned CA has signed", func() {
			active := Must(store.Activate(background, Must(store.Stage(background, first))))
			kept := active.Generations[1].CrossSigned
			done := Must(store.Prune(background, active))
			done.Generations[0].CrossSigned = kept
			put(done)
			found, outcome := restore(store, nil, nil)
			Expect(outcome).To(Equal(certsecret.Adopted))
			Expect(Must(found.Current()).Chain).To(BeEmpty())
		})
	})

	It("is vouched for by an adopted CA that may issue no CAs, and sends nothing of it", func() {
		c = newCluster(eirinixData(func(c *x509.Certificate) { c.MaxPathLenZero = true }))
		adopted, _ := restore(c.store(), nil, nil)
		staged := Must(c.store().Stage(background, adopted))
		late, outcome := restore(c.store(), adopted, pins(adopted.Bundle()))
		Expect(outcome).To(Equal(certsecret.Adopted), "by a replica that knows only the one before")
		Expect(late.Bundle()).To(Equal(staged.Bundle()))
		active := Must(Must(c.store().Activate(background, staged)).Current())
		Expect(active.Chain).To(BeEmpty())
		Expect(active.TrustedBy(adopted.Bundle(), now)).To(BeFalse())
	})

	It("replaces a staged CA that cannot sign", func() {
		Expect(store.NextBroken(first)).To(BeFalse())
		staged := Must(store.Stage(background, first))
		Expect(store.NextBroken(staged)).To(BeFalse())
		Expect(c.storeAt(now.AddDate(0, 0, -1)).NextBroken(staged)).To(BeTrue(), "not valid yet, after a clock was set back")
		c.edit(func(s *corev1.Secret) {
			broken := Must(DecodeState(s.Data, now))
			broken.Generations[1].PrivateKeyPEM = []byte("garbage")
			s.Data = broken.Encode(s.Data)
		})
		broken, _ := restore(store, staged, nil)
		Expect(store.NextBroken(broken)).To(BeTrue())
		Expect(store.Activate(background, broken)).Error().To(MatchError(ContainSubstring("the staged CA cannot be used")))

		again := Must(store.Stage(background, broken))
		Expect(store.NextBroken(again)).To(BeFalse())
		Expect(again.Generations).To(HaveLen(2), "in the place of the broken one")
		Expect(again.NextID).To(BeNumerically(">", staged.NextID), "IDs are never used twice")
		Expect(Must(Must(store.Activate(background, again)).Current()).Usable(now)).To(Succeed())
		Expect(store.NextBroken(&certsecret.State{Phase: ca.Staged, NextID: 7})).To(BeTrue(), "a staged CA that is not there")
	})

	It("may begin again while older CAs are retained, which stay trusted", func() {
		second := Must(store.Activate(background, Must(store.Stage(background, first))))
		third := Must(store.Activate(background, Must(store.Stage(background, second))))
		Expect(third.Phase).To(Equal(ca.Retaining))
		Expect(ca.SplitBundle(third.Bundle())).To(HaveLen(3))
		Expect(ca.Contains(third.Bundle(), first.Bundle())).To(BeTrue())
		Expect(ca.SplitBundle(Must(store.Prune(background, third)).Bundle())).To(HaveLen(1))
	})
})

var _ = Describe("Distrust", func() {
	It("marks the CA of a state and those before it, and nothing else", func() {
		c := newCluster(nil)
		store := c.store()
		first, _ := restore(store, nil, nil)
		before := c.secret().Data
		marked := Must(store.Distrust(background, first))
		Expect(c.secret().Annotations).To(HaveKeyWithValue("eirinix.cloudfoundry.org/distrust", "1"))
		Expect(c.secret().Data).To(Equal(before))
		Expect(marked.Distrusted).To(Equal(int64(1)))
		Expect(marked.DistrustsOld()).To(BeFalse(), "it is the one that signs")
		Expect(first.Requested()).To(BeFalse())
		Expect(marked.Requested()).To(BeTrue(), "the mark is the request")

		writes := c.writes()
		Expect(Must(store.Distrust(background, first)).ResourceVersion).To(Equal(marked.ResourceVersion))
		Expect(Must(store.Distrust(background, marked)).Distrusted).To(Equal(int64(1)))
		Expect(c.writes()).To(Equal(writes), "once")

		staged := Must(store.Stage(background, marked))
		Expect(staged.DistrustsOld()).To(BeFalse())
		active := Must(store.Activate(background, staged))
		Expect(active.DistrustsOld()).To(BeTrue())
		Expect(active.Requested()).To(BeFalse())
		Expect(Must(store.Load(background)).DistrustsOld()).To(BeTrue())
		done := Must(store.Prune(background, active))
		Expect(done.DistrustsOld()).To(BeFalse())
		Expect(done.Distrusted).To(Equal(int64(1)), "annotations stay")
		Expect(rotated(c, done).DistrustsOld()).To(BeFalse(), "a later rotation is like any other")
	})

	It("requests rotations until a CA signs that is newer than the mark", func() {
		c := newCluster(nil)
		first, _ := restore(c.store(), nil, nil)
		Must(c.store().Stage(background, first))
		c.edit(func(s *corev1.Secret) { s.Annotations = map[string]string{certsecret.DistrustAnnotation: "5"} })
		second := Must(c.store().Activate(background, Must(c.store().Load(background))))
		Expect(second.Requested()).To(BeTrue())
		Expect(rotated(c, second).CurrentID).To(BeNumerically("==", 6))
		Expect(Must(c.store().Load(background)).Requested()).To(BeFalse())
	})

	DescribeTable("is off where the annotation is no ID of a generation", func(value string) {
		c := newCluster(ownData(), func(s *corev1.Secret) {
			s.Annotations = map[string]string{certsecret.DistrustAnnotation: value}
		})
		Expect(Must(c.store().Load(background)).Distrusted).To(BeZero())
		Expect(Must(c.store().Load(background)).Requested()).To(BeFalse())
		rotated(c, Must(c.store().Load(background)))
	},
		Entry("text", "all"), Entry("negative", "-1"), Entry("huge", "9007199254740990"), Entry("too long", "92233720368547758080"),
	)
})

// verifies reports whether an API server with this bundle trusts the certificate of a replica in this state.
func verifies(state *certsecret.State, bundle []byte) error {
	GinkgoHelper()
	served := Must(Must(state.Current()).SignServing([]string{"localhost"}, day, now))
	roots, intermediates := x509.NewCertPool(), x509.NewCertPool()
	roots.AppendCertsFromPEM(bundle)
	for _, der := range served.Certificate[1:] {
		intermediates.AddCert(Must(x509.ParseCertificate(der)))
	}
	_, err := served.Leaf.Verify(x509.VerifyOptions{DNSName: "localhost", Roots: roots, Intermediates: intermediates, CurrentTime: now})
	return err
}
