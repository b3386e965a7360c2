package certsecret_test

import (
	"context"
	"fmt"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"code.cloudfoundry.org/eirinix/internal/ca"
	"code.cloudfoundry.org/eirinix/internal/certsecret"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
)

var background = context.Background()

// expectInOrder checks the invariant after any Restore: the Secret agrees with the state in every key,
// its CA signs, and a second Restore writes nothing.
func expectInOrder(c *cluster, state *certsecret.State) *ca.Authority {
	GinkgoHelper()
	authority := Must(state.Current())
	Expect(authority.Usable(now)).To(Succeed())
	Expect(authority.SignServing([]string{"logger.cf.svc"}, day, now)).Error().NotTo(HaveOccurred())
	data := c.secret().Data
	Expect(string(data["ca.crt"])).To(Equal(string(authority.CertificatePEM)))
	Expect(string(data["tls.crt"])).To(Equal(string(authority.CertificatePEM)))
	Expect(string(data["tls.key"])).To(Equal(string(authority.PrivateKeyPEM)))
	Expect(ca.Contains(state.Bundle(), authority.CertificatePEM)).To(BeTrue())
	before := c.writes()
	again, outcome, err := c.store().Restore(background, nil, nil)
	Expect(err).NotTo(HaveOccurred())
	Expect(outcome).To(Equal(certsecret.Adopted))
	Expect(c.writes()).To(Equal(before), "a second Restore writes nothing")
	Expect(Must(again.Current()).Equal(authority)).To(BeTrue())
	Expect(again.ResourceVersion).To(Equal(state.ResourceVersion))
	return authority
}

var _ = Describe("Restore without a known state", func() {
	It("creates the Secret when there is none", func() {
		c := newCluster(nil)
		store := c.store()
		state, outcome, err := store.Restore(background, nil, nil)
		Expect(err).NotTo(HaveOccurred())
		Expect(outcome).To(Equal(certsecret.Created))
		Expect(state.FormatVersion).To(Equal(certsecret.FormatVersion))
		Expect(state.Counter).To(Equal(int64(1)))
		Expect(state.Phase).To(Equal(ca.Steady))
		authority := expectInOrder(c, state)
		Expect(authority.Certificate.NotAfter).To(Equal(now.Add(10 * year)))
		Expect(c.secret().Type).To(Equal(corev1.SecretTypeOpaque))
		Expect(c.writes()).To(Equal(map[string]int{"create": 1}))
	})

	It("makes a CA of the given lifetime", func() {
		store := newCluster(nil).store()
		store.Lifetime = time.Hour
		state, _, err := store.Restore(background, nil, nil)
		Expect(err).NotTo(HaveOccurred())
		Expect(Must(state.Current()).Certificate.NotAfter).To(Equal(now.Add(time.Hour)))
	})

	It("lets 200 racers agree on one CA with one create", func() {
		c := newCluster(nil)
		cas, outcomes := race(200, unpinned(c))
		Expect(cas).To(HaveLen(1))
		Expect(outcomes).To(Equal(map[certsecret.Outcome]int{certsecret.Created: 1, certsecret.Adopted: 199}))
		Expect(c.created).To(Equal(1))
		Expect(c.updated).To(Equal(0))
	})

	It("lets 200 racers agree on one repair of an unusable Secret", func() {
		c := newCluster(map[string][]byte{"tls.crt": []byte("garbage"), "tls.key": []byte("garbage")})
		cas, outcomes := race(200, unpinned(c))
		Expect(cas).To(HaveLen(1))
		Expect(outcomes).To(Equal(map[certsecret.Outcome]int{certsecret.Repaired: 1, certsecret.Adopted: 199}))
		Expect(c.created).To(Equal(0))
		Expect(c.updated).To(Equal(1))
	})

	DescribeTable("repairs, and logs the reason", func(reason string, kept bool, damage func(map[string][]byte) map[string][]byte) {
		data := ownData()
		old := Must(ca.Parse(data["tls.crt"], data["tls.key"]))
		c := newCluster(damage(data))
		state, outcome, err := c.store().Restore(background, nil, nil)
		Expect(err).NotTo(HaveOccurred())
		Expect(outcome).To(Equal(certsecret.Repaired))
		Expect(state.Reason).To(ContainSubstring(reason))
		Expect(state.Reason).NotTo(ContainSubstring("PRIVATE KEY-----"))
		authority := expectInOrder(c, state)
		Expect(authority.Equal(old)).To(Equal(kept), "the same CA")
		Expect(c.writes()).To(Equal(map[string]int{"update": 1}))
	},
		Entry("emptied", "the Secret holds no CA", false, func(map[string][]byte) map[string][]byte { return map[string][]byte{} }),
		Entry("foreign content only", "the Secret holds no CA", false, func(map[string][]byte) map[string][]byte {
			return map[string][]byte{"password": []byte("x")}
		}),
		Entry("document deleted", "state.json is missing", true, func(d map[string][]byte) map[string][]byte { return without(d, "state.json") }),
		Entry("document truncated", "state.json is not valid JSON", true, func(d map[string][]byte) map[string][]byte {
			return with(d, "state.json", d["state.json"][:100])
		}),
		Entry("document of another shape", "state.json is not valid JSON of a known shape", true, func(d map[string][]byte) map[string][]byte {
			return with(d, "state.json", []byte(`{"formatVersion":1,"generations":{}}`))
		}),
		Entry("document without a version", "no valid format version", true, func(d map[string][]byte) map[string][]byte {
			return with(d, "state.json", []byte(`{}`))
		}),
		Entry("document without a current CA", "no generation is marked as current", true, func(d map[string][]byte) map[string][]byte {
			return with(d, "state.json", []byte(`{"formatVersion":1,"current":3}`))
		}),
		Entry("document with an ID twice", "repeated generation 1", true, func(d map[string][]byte) map[string][]byte {
			return with(d, "state.json", []byte(`{"formatVersion":1,"current":1,"generations":[{"id":1},{"id":1}]}`))
		}),
		Entry("document's key replaced", "state.json: the private key does not match the certificate", true, func(d map[string][]byte) map[string][]byte {
			s := Must(certsecret.Decode(d))
			s.Generations[0].PrivateKeyPEM = NewCA(year, now).PrivateKeyPEM
			return with(d, "state.json", s.Encode(nil)["state.json"])
		}),
		Entry("document's cross-signed certificate replaced", "cross-signed by generation 9", true, func(d map[string][]byte) map[string][]byte {
			s := Must(certsecret.Decode(d))
			s.Phase, s.CurrentID, s.Generations[0].ID = ca.Retaining, 10, 10
			s.Generations[0].CrossSigned = []certsecret.CrossSigned{{IssuerID: 9, CertificatePEM: NewCA(year, now).CertificatePEM}}
			return with(d, "state.json", s.Encode(nil)["state.json"])
		}),
		Entry("mirrors deleted", "tls.crt is missing", true, func(d map[string][]byte) map[string][]byte {
			return without(d, "tls.crt", "tls.key", "ca.crt")
		}),
		Entry("mirrored key of another CA", "tls.key does not match tls.crt", true, func(d map[string][]byte) map[string][]byte {
			return with(d, "tls.key", NewCA(year, now).PrivateKeyPEM)
		}),
		Entry("mirrored key truncated", "tls.key: no PEM private key", true, func(d map[string][]byte) map[string][]byte {
			return with(d, "tls.key", d["tls.key"][:60])
		}),
		Entry("mirrored certificate emptied", "tls.crt is empty", true, func(d map[string][]byte) map[string][]byte {
			return with(d, "tls.crt", []byte("\n"))
		}),
		Entry("mirrored CA of someone else", "tls.crt is not the current CA", true, func(d map[string][]byte) map[string][]byte {
			other := NewCA(year, now)
			return with(with(d, "tls.crt", other.CertificatePEM), "tls.key", other.PrivateKeyPEM)
		}),
		Entry("ca.crt of someone else", "ca.crt is not the current CA", true, func(d map[string][]byte) map[string][]byte {
			return with(d, "ca.crt", NewCA(year, now).CertificatePEM)
		}),
		Entry("key lost everywhere", "tls.key is missing", false, func(d map[string][]byte) map[string][]byte {
			return without(d, "state.json", "tls.key")
		}),
		Entry("mismatched everywhere", "tls.key does not match tls.crt", false, func(d map[string][]byte) map[string][]byte {
			return with(without(d, "state.json"), "tls.key", NewCA(year, now).PrivateKeyPEM)
		}),
		Entry("a leaf, as cert-manager would leave", "tls.crt: the certificate is not a CA certificate", false, func(d map[string][]byte) map[string][]byte {
			leaf := Must(NewCA(year, now).SignServing([]string{"h"}, day, now))
			return map[string][]byte{"tls.crt": ca.EncodeCertificate(leaf.Leaf), "tls.key": NewCA(year, now).PrivateKeyPEM}
		}),
	)

	It("trusts nothing besides that is found without its document", func() {
		data := ownData()
		c := newCluster(with(without(data, "state.json"), "tls.key", []byte("garbage")))
		state, _, err := c.store().Restore(background, nil, nil)
		Expect(err).NotTo(HaveOccurred())
		expectInOrder(c, state)
		Expect(ca.SplitBundle(state.Bundle())).To(HaveLen(1))
		Expect(ca.Contains(state.Bundle(), data["tls.crt"])).To(BeFalse())
	})

	It("takes a CA that someone put into the Secret", func() {
		own := NewCA(year, now)
		c := newCluster(map[string][]byte{"tls.crt": own.CertificatePEM, "tls.key": own.PrivateKeyPEM})
		state, outcome, err := c.store().Restore(background, nil, nil)
		Expect(err).NotTo(HaveOccurred())
		Expect(outcome).To(Equal(certsecret.Repaired))
		Expect(expectInOrder(c, state).Equal(own)).To(BeTrue())
	})

	It("replaces a CA that has expired, and one whose time has not come", func() {
		c := newCluster(ownData())
		late := c.storeAt(now.Add(10*year + day))
		state, outcome, err := late.Restore(background, nil, nil)
		Expect(err).NotTo(HaveOccurred())
		Expect(outcome).To(Equal(certsecret.Repaired))
		Expect(state.Reason).To(ContainSubstring("has expired at 2040-05-14T12:00:00Z"))
		Expect(ca.SplitBundle(state.Bundle())).To(HaveLen(1), "an expired CA is not trusted on")
		Expect(state.CurrentID).To(Equal(int64(2)), "IDs are never used twice")
		Expect(state.Counter).To(Equal(int64(2)))

		state, _, err = c.store().Restore(background, nil, nil) // a clock ten years behind
		Expect(err).NotTo(HaveOccurred())
		Expect(state.Reason).To(ContainSubstring("not valid yet"))
	})

	It("does not let the Secret grow without end", func() {
		c := newCluster(nil)
		for range 20 {
			state, _, err := c.store().Restore(background, nil, nil)
			Expect(err).NotTo(HaveOccurred())
			Expect(len(state.Generations)).To(BeNumerically("<=", 8))
			expectInOrder(c, state)
			c.edit(func(s *corev1.Secret) {
				broken := Must(certsecret.Decode(s.Data))
				broken.Generations[len(broken.Generations)-1].PrivateKeyPEM = nil
				s.Data = broken.Encode(nil)
			})
		}
	})

	It("keeps the data of others in the Secret, and its type", func() {
		data := with(without(ownData(), "state.json"), "password", []byte("x"))
		c := newCluster(data, func(s *corev1.Secret) {
			s.Type = corev1.SecretTypeTLS
			s.Labels = map[string]string{"theirs": "1"}
			s.Annotations = map[string]string{"note": "2"}
			s.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "x", UID: "u"}}
		})
		state, _, err := c.store().Restore(background, nil, nil)
		Expect(err).NotTo(HaveOccurred())
		expectInOrder(c, state)
		secret := c.secret()
		Expect(secret.Data).To(HaveKeyWithValue("password", []byte("x")))
		Expect(secret.Labels).To(Equal(map[string]string{"theirs": "1"}))
		Expect(secret.Annotations).To(Equal(map[string]string{"note": "2"}))
		Expect(secret.OwnerReferences).To(HaveLen(1))
		Expect(secret.Type).To(Equal(corev1.SecretTypeTLS))
	})
})

// unpinned is Restore of a fresh Store where no configuration pins anything.
func unpinned(c *cluster) func(context.Context) (*certsecret.State, certsecret.Outcome, error) {
	return func(ctx context.Context) (*certsecret.State, certsecret.Outcome, error) {
		return c.store().Restore(ctx, nil, nil)
	}
}

// race runs n replicas at once and returns the CAs they ended with and how often each outcome occurred.
func race(n int, ensure func(context.Context) (*certsecret.State, certsecret.Outcome, error)) (map[string]int, map[certsecret.Outcome]int) {
	GinkgoHelper()
	var (
		mu       sync.Mutex
		group    sync.WaitGroup
		start    = make(chan struct{})
		errs     []error
		cas      = map[string]int{}
		outcomes = map[certsecret.Outcome]int{}
	)
	for range n {
		group.Go(func() {
			<-start
			state, outcome, err := ensure(background)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				errs = append(errs, err)
				return
			}
			cas[fmt.Sprint(state.CurrentID)+string(state.Bundle())]++
			outcomes[outcome]++
		})
	}
	close(start)
	group.Wait()
	Expect(errs).To(BeEmpty())
	return cas, outcomes
}
