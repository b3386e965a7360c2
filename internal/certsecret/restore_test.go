package certsecret_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"math/big"
	"strings"

	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"code.cloudfoundry.org/eirinix/internal/ca"
	"code.cloudfoundry.org/eirinix/internal/certsecret"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
)

var _ = Describe("Restore", func() {
	var (
		c     *cluster
		known *certsecret.State
		held  *ca.Authority
	)
	BeforeEach(func() {
		c = newCluster(nil)
		var err error
		known, _, err = c.store().Restore(background, nil, nil)
		Expect(err).NotTo(HaveOccurred())
		Expect(c.store().RecordRegistered(background, known.Bundle())).To(Succeed())
		known = Must(c.store().Load(background))
		held = Must(known.Current())
	})

	restore := func() (*certsecret.State, certsecret.Outcome) {
		GinkgoHelper()
		state, outcome, err := c.store().Restore(background, known, nil)
		Expect(err).NotTo(HaveOccurred())
		expectInOrder(c, state)
		return state, outcome
	}

	It("writes nothing when nothing is lost", func() {
		before := c.writes()
		_, outcome := restore()
		Expect(outcome).To(Equal(certsecret.Adopted))
		Expect(c.writes()).To(Equal(before))
	})

	DescribeTable("puts the CA in memory back", func(reason string, damage func()) {
		damage()
		state, outcome := restore()
		Expect(outcome).To(Equal(certsecret.Restored))
		Expect(state.Reason).To(ContainSubstring(reason))
		Expect(Must(state.Current()).Equal(held)).To(BeTrue(), "the same CA")
		Expect(state.Counter).To(BeNumerically(">", known.Counter))
		Expect(ca.EqualBundles(state.RegisteredBundle, known.RegisteredBundle)).To(BeTrue())
	},
		Entry("deleted", "the Secret was deleted", func() { c.delete() }),
		Entry("emptied", "the Secret holds no CA", func() { c.edit(func(s *corev1.Secret) { s.Data = nil }) }),
		Entry("garbage", "tls.crt: no PEM certificate", func() {
			c.edit(func(s *corev1.Secret) {
				for key := range s.Data {
					s.Data[key] = []byte("garbage")
				}
			})
		}),
		Entry("document lost", "state.json is missing", func() {
			c.edit(func(s *corev1.Secret) { delete(s.Data, "state.json") })
		}),
		Entry("replaced by a foreign CA", "state.json is missing", func() {
			foreign := NewCA(year, now)
			c.edit(func(s *corev1.Secret) {
				s.Data = map[string][]byte{"tls.crt": foreign.CertificatePEM, "tls.key": foreign.PrivateKeyPEM}
			})
		}),
		Entry("replaced by EiriniX's", "state.json was lost", func() {
			c.edit(func(s *corev1.Secret) { s.Data = eirinixData() })
		}),
		Entry("deleted, and made anew by a replica that knew nothing", "replaced by that of another deployment", func() {
			c.delete()
			_, _, err := c.store().Restore(background, nil, nil)
			Expect(err).NotTo(HaveOccurred())
		}),
	)

	It("keeps its own last CA, however often the Secret is replaced", func() {
		state := Must(c.store().Stage(background, known))
		known = Must(c.store().Activate(background, state))
		for range 12 {
			foreign := NewCA(year, now)
			c.edit(func(s *corev1.Secret) {
				s.Data = map[string][]byte{"tls.crt": foreign.CertificatePEM, "tls.key": foreign.PrivateKeyPEM}
			})
			known, _ = restore()
		}
		Expect(ca.Contains(known.Bundle(), held.CertificatePEM)).To(BeTrue(), "replicas may still serve its certificates")
		Expect(known.Generations).To(HaveLen(2), "and none of the others")
	})

	It("does not trust the CA that it replaces", func() {
		c.delete()
		fresh, _, err := c.store().Restore(background, nil, nil)
		Expect(err).NotTo(HaveOccurred())
		state, _ := restore()
		Expect(ca.Contains(state.Bundle(), fresh.Bundle())).To(BeFalse())
		Expect(state.Bundle()).To(Equal(known.Bundle()))
	})

	It("restores the state that it knows over an older copy", func() {
		old := Must(c.store().Load(background)).Encode(nil)
		known = rotated(c, known)
		held = Must(known.Current())
		c.edit(func(s *corev1.Secret) { s.Data = old })
		state, outcome := restore()
		Expect(outcome).To(Equal(certsecret.Restored))
		Expect(state.Reason).To(ContainSubstring("rolled back to another CA"))
		Expect(Must(state.Current()).Equal(held)).To(BeTrue())
	})

	It("adopts the CA that others have rotated to while it slept", func() {
		rotated(c, known)
		state, outcome := restore()
		Expect(outcome).To(Equal(certsecret.Adopted))
		Expect(Must(state.Current()).Equal(held)).To(BeFalse())
	})

	It("ends a contest: who has written less gives way", func() {
		c.delete()
		newcomer, _, err := c.store().Restore(background, nil, nil) // which saw no Secret, and made one
		Expect(err).NotTo(HaveOccurred())
		restored, _ := restore()
		state, outcome, err := c.store().Restore(background, newcomer, nil)
		Expect(err).NotTo(HaveOccurred())
		Expect(outcome).To(Equal(certsecret.Adopted))
		Expect(Must(state.Current()).Equal(Must(restored.Current()))).To(BeTrue())
	})

	It("lets 200 replicas that lost their Secret put it back once", func() {
		c.delete()
		created := c.created
		cas, outcomes := race(200, func(ctx context.Context) (*certsecret.State, certsecret.Outcome, error) {
			return c.store().Restore(ctx, known, nil)
		})
		Expect(cas).To(HaveLen(1))
		Expect(outcomes).To(Equal(map[certsecret.Outcome]int{certsecret.Restored: 1, certsecret.Adopted: 199}))
		Expect(c.created).To(Equal(created + 1))
	})

	It("does not put back a CA that has expired", func() {
		c.delete()
		late := c.storeAt(now.Add(10*year + day))
		state, outcome, err := late.Restore(background, known, nil)
		Expect(err).NotTo(HaveOccurred())
		Expect(outcome).To(Equal(certsecret.Created))
		Expect(Must(state.Current()).Equal(held)).To(BeFalse())
	})

	It("leaves the known state alone", func() {
		before := known.Encode(nil)
		foreign := NewCA(year, now)
		c.edit(func(s *corev1.Secret) {
			s.Data = map[string][]byte{"tls.crt": foreign.CertificatePEM, "tls.key": foreign.PrivateKeyPEM}
		})
		state, _ := restore()
		Expect(state.Counter).To(BeNumerically(">", known.Counter))
		Expect(known.Encode(nil)).To(Equal(before))
	})
})

var _ = Describe("Load", func() {
	DescribeTable("names the missing part", func(reason string, data map[string][]byte) {
		c := newCluster(data)
		state, err := c.store().Load(background)
		Expect(state).To(BeNil())
		Expect(err).To(MatchError(certsecret.ErrNotReady))
		Expect(err).To(MatchError(And(HavePrefix("certificate Secret cf/eirini-x-setupcertificate: "), ContainSubstring(reason))))
		Expect(c.writes()).To(BeEmpty())
	},
		Entry("absent", "does not exist (yet)", nil),
		Entry("empty", "holds no CA", map[string][]byte{}),
		Entry("half", "tls.key is missing", map[string][]byte{"tls.crt": []byte("x")}),
	)

	It("reads a Secret that only needs repair or migration, and does not write it", func() {
		crossed := Must(certsecret.Decode(ownData()))
		crossed.Generations[0].CrossSigned = []certsecret.CrossSigned{{IssuerID: 9, CertificatePEM: NewCA(year, now).CertificatePEM}}
		for _, data := range []map[string][]byte{ownData(), without(ownData(), "state.json"), crossed.Encode(nil), eirinixData()} {
			c := newCluster(data)
			state, err := c.store().Load(background)
			Expect(err).NotTo(HaveOccurred())
			Expect(Must(state.Current()).Usable(now)).To(Succeed())
			Expect(c.writes()).To(BeEmpty())
		}
	})
})

var _ = Describe("RecordRegistered", func() {
	It("stores the bundle once", func() {
		c := newCluster(ownData())
		one, two := NewCA(year, now).CertificatePEM, NewCA(year, now).CertificatePEM
		Expect(c.store().RecordRegistered(background, ca.Bundle(one, two))).To(Succeed())
		Expect(c.store().RecordRegistered(background, ca.Bundle(two, one))).To(Succeed())
		Expect(c.writes()).To(Equal(map[string]int{"update": 1}))
		state := Must(c.store().Load(background))
		Expect(state.RegisteredBundle).To(Equal(ca.Bundle(one, two)))
		Expect(state.Counter).To(Equal(int64(2)))
		expectInOrder(c, state)
	})

	It("refuses a bundle of nothing, and a Secret without a CA", func() {
		c := newCluster(nil)
		Expect(c.store().RecordRegistered(background, []byte("Cg=="))).To(MatchError(ContainSubstring("holds no certificate")))
		bundle := NewCA(year, now).CertificatePEM
		err := c.store().RecordRegistered(background, bundle)
		Expect(err).To(MatchError(certsecret.ErrNotReady))
		Expect(strings.Count(err.Error(), "certificate Secret")).To(Equal(1))
		c = newCluster(map[string][]byte{})
		Expect(c.store().RecordRegistered(background, bundle)).To(MatchError(certsecret.ErrNotReady))
		Expect(c.writes()).To(BeEmpty())
	})
})

var _ = Describe("a Secret of a newer format", func() {
	newer := func(text string) map[string][]byte { return with(ownData(), "state.json", []byte(text)) }

	It("is read as far as it is understood and never written", func() {
		state := Must(certsecret.Decode(ownData()))
		state.FormatVersion = 7
		data := state.Encode(nil)
		data["state.json"] = []byte(strings.Replace(string(data["state.json"]), "{", `{"novelty":[1],`, 1))
		for _, content := range []map[string][]byte{
			data,
			with(data, "tls.key", []byte("damaged")),
			newer(`{"formatVersion":2,"generations":{"of":"another shape"}}`),
		} {
			c := newCluster(content)
			got, outcome, err := c.store().Restore(background, nil, nil)
			Expect(err).NotTo(HaveOccurred())
			Expect(outcome).To(Equal(certsecret.Adopted))
			Expect(Must(got.Current()).Usable(now)).To(Succeed())
			Expect(c.store().RecordRegistered(background, NewCA(year, now).CertificatePEM)).To(MatchError(certsecret.ErrNewerFormat))
			Expect(c.writes()).To(BeEmpty())
		}
	})

	It("is an error when it would have to be written", func() {
		c := newCluster(with(newer(`{"formatVersion":2}`), "tls.key", []byte("damaged")))
		_, _, err := c.store().Restore(background, nil, nil)
		Expect(err).To(MatchError(certsecret.ErrNewerFormat))
		Expect(err).To(MatchError(ContainSubstring("upgrade this program")))

		state := Must(certsecret.Decode(ownData()))
		state.FormatVersion = 2
		c = newCluster(nil)
		_, _, err = c.store().Restore(background, state, nil)
		Expect(err).To(MatchError(certsecret.ErrNewerFormat))
		Expect(c.writes()).To(BeEmpty())
	})
})

var _ = Describe("State", func() {
	It("survives being written and read, with several generations and cross-signed certificates", func() {
		older, newer := NewCA(year, now), NewCA(year, now)
		cross := Must(older.CrossSign(newer.Certificate, now))
		state := &certsecret.State{
			FormatVersion: 1, Counter: 9, Phase: "publish", CurrentID: 5,
			Generations: []certsecret.Generation{
				{ID: 2, CertificatePEM: older.CertificatePEM},
				{
					ID: 5, CertificatePEM: newer.CertificatePEM, PrivateKeyPEM: newer.PrivateKeyPEM,
					CrossSigned: []certsecret.CrossSigned{{IssuerID: 2, CertificatePEM: ca.EncodeCertificate(cross)}},
				},
			},
			RegisteredBundle: ca.Bundle(older.CertificatePEM, newer.CertificatePEM),
		}
		got := Must(certsecret.Decode(state.Encode(map[string][]byte{"other": []byte("kept")})))
		Expect(got.Encode(nil)).To(Equal(state.Encode(nil)))
		Expect(got.Clone().Encode(nil)).To(Equal(state.Encode(nil)))
		Expect(Must(got.Current()).Chain).To(Equal([]*x509.Certificate{cross}), "cross-signed certificates are the chain")
		Expect(string(got.Bundle())).To(Equal(string(newer.CertificatePEM)+string(older.CertificatePEM)), "the current CA first")
	})

	It("has no CA when it is empty", func() {
		Expect((&certsecret.State{}).Current()).Error().To(HaveOccurred())
		Expect((&certsecret.State{}).Bundle()).To(BeEmpty())
	})

	It("is not changed by its clone", func() {
		a := Must(certsecret.Decode(ownData()))
		before := string(a.Encode(nil)["state.json"])
		b := a.Clone()
		b.Generations[0].PrivateKeyPEM, b.Generations[0].CrossSigned = nil, []certsecret.CrossSigned{{IssuerID: 1}}
		b.Generations = append(b.Generations[:0], certsecret.Generation{})
		Expect(string(a.Encode(nil)["state.json"])).To(Equal(before))
	})

	It("never prints or logs keys", func() {
		c := newCluster(nil)
		var out strings.Builder
		store := c.store()
		store.Log = funcr.New(func(prefix, args string) { fmt.Fprintln(&out, prefix, args) }, funcr.Options{Verbosity: 9})
		state, _, err := store.Restore(background, nil, nil)
		Expect(err).NotTo(HaveOccurred())
		c.edit(func(s *corev1.Secret) { delete(s.Data, "state.json") })
		_, _, err = store.Restore(background, nil, nil)
		Expect(err).NotTo(HaveOccurred())
		Expect(out.String()).To(And(ContainSubstring("created"), ContainSubstring("repaired"), ContainSubstring("state.json is missing")))
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%d", "%x"} {
			for _, v := range []any{state, *state, state.Generations, &state.Generations[0], struct{ S any }{state}} {
				fmt.Fprintf(&out, verb+"\n", v)
			}
		}
		store.Log.Info("state", "state", state, "value", *state, "generation", state.Generations[0], "list", state.Generations)
		fmt.Fprintln(&out, string(Must(json.Marshal(state))))
		authority := Must(state.Current())
		body := strings.Split(string(authority.PrivateKeyPEM), "\n")[1]
		Expect(out.String()).To(ContainSubstring("key redacted"))
		Expect(out.String()).NotTo(ContainSubstring("PRIVATE KEY-----"))
		Expect(out.String()).NotTo(ContainSubstring(body[:20]))
		secret := new(big.Int).SetBytes(Must(authority.PrivateKey.(*ecdsa.PrivateKey).Bytes()))
		Expect(out.String()).NotTo(ContainSubstring(secret.String()))
		Expect(out.String()).NotTo(ContainSubstring(fmt.Sprint([]byte(body[:8]))[1:20]))
		Expect(out.String()).NotTo(ContainSubstring(fmt.Sprintf("%x", body[:8])))
	})
})

// rotated takes the Secret through a whole rotation.
func rotated(c *cluster, from *certsecret.State) *certsecret.State {
	GinkgoHelper()
	staged := Must(c.store().Stage(background, from))
	return Must(c.store().Prune(background, Must(c.store().Activate(background, staged))))
}
