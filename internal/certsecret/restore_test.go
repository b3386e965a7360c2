package certsecret_test

// This file is about a Secret of which a process knows the past: it puts back a lost state, and follows a state that others have
// written. The state itself prints without keys, and is read from hostile bytes.

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"code.cloudfoundry.org/eirinix/internal/ca"
	"code.cloudfoundry.org/eirinix/internal/certsecret"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
)

// holds has a Secret hold a CA, and no document.
func holds(a *ca.Authority) func(*corev1.Secret) {
	return func(s *corev1.Secret) {
		s.Data = map[string][]byte{"tls.crt": a.CertificatePEM, "tls.key": a.PrivateKeyPEM}
	}
}

var _ = Describe("Restore", func() {
	var (
		c     *cluster
		known *certsecret.State
		held  *ca.Authority
	)
	BeforeEach(func() {
		c = newCluster(nil)
		known, _ = restore(c.store(), nil, nil)
		Expect(c.store().RecordRegistered(background, known.Bundle())).To(Succeed())
		known = Must(c.store().Load(background))
		held = Must(known.Current())
	})
	again := func() (*certsecret.State, certsecret.Outcome) {
		GinkgoHelper()
		state, outcome := restore(c.store(), known, nil)
		expectInOrder(c, state)
		return state, outcome
	}

	It("writes nothing when nothing is lost", func() {
		before := c.writes()
		_, outcome := again()
		Expect(outcome).To(Equal(certsecret.Adopted))
		Expect(c.writes()).To(Equal(before))
	})

	DescribeTable("puts the CA in memory back, and trusts no other", func(reason, request string, damage func()) {
		c.edit(func(s *corev1.Secret) {
			s.Annotations = map[string]string{certsecret.DistrustAnnotation: "1", certsecret.RotateAnnotation: "now"}
		})
		known = Must(c.store().Load(background))
		damage()
		before := known.Encode(nil)
		state, outcome := again()
		Expect(outcome).To(Equal(certsecret.Restored))
		Expect(state.Reason).To(ContainSubstring(reason))
		Expect(Must(state.Current()).Equal(held)).To(BeTrue(), "the same CA")
		Expect(state.Bundle()).To(Equal(known.Bundle()))
		Expect(state.Counter).To(BeNumerically(">", known.Counter))
		Expect(ca.EqualBundles(state.RegisteredBundle, known.RegisteredBundle)).To(BeTrue())
		Expect([]any{state.Distrusted, state.Request}).To(Equal([]any{int64(1), request}), "what was asked of it")
		Expect(known.Encode(nil)).To(Equal(before), "the known state is left alone")
	},
		Entry("deleted", "the Secret was deleted", "now", func() { c.delete() }),
		Entry("emptied", "the Secret holds no CA", "later", func() {
			c.edit(func(s *corev1.Secret) { s.Data, s.Annotations[certsecret.RotateAnnotation] = nil, "later" })
		}),
		Entry("document lost", "state.json is missing", "now", func() { c.edit(func(s *corev1.Secret) { delete(s.Data, "state.json") }) }),
		Entry("replaced by a foreign CA", "state.json is missing", "now", func() { c.edit(holds(NewCA(year, now))) }),
		Entry("replaced by EiriniX's", "state.json was lost", "now", func() { c.edit(func(s *corev1.Secret) { s.Data = eirinixData() }) }),
		Entry("deleted, and made anew by a replica that knew nothing", "replaced by that of another deployment", "now", func() {
			c.delete()
			restore(c.store(), nil, nil)
		}),
	)

	It("restores the state that it knows over an older copy", func() {
		old := Must(c.store().Load(background)).Encode(nil)
		known = rotated(c, known)
		held = Must(known.Current())
		c.edit(func(s *corev1.Secret) { s.Data = old })
		state, outcome := again()
		Expect(outcome).To(Equal(certsecret.Restored))
		Expect(state.Reason).To(ContainSubstring("rolled back to another CA"))
		Expect(Must(state.Current()).Equal(held)).To(BeTrue())
	})

	// The model of rotations has found this (see package controller): a copy with the CA that is current sets the counter
	// back; a later copy, of before the rotation that follows, then passes for newer than the known state.
	It("restores it over a second older copy too", func() {
		first := c.secret()
		for range 5 {
			Expect(c.store().RecordRegistered(background, NewCA(year, now).CertificatePEM)).To(Succeed())
		}
		sixth := c.secret()
		known, _ = again()
		c.edit(func(s *corev1.Secret) { s.Data = maps.Clone(first.Data) })
		known, _ = again()
		known = rotated(c, known)
		c.edit(func(s *corev1.Secret) { s.Data = maps.Clone(sixth.Data) })
		state, _ := again()
		Expect(Must(state.Current()).Equal(Must(known.Current()))).To(BeTrue())
	})

	It("ends a contest: who has written less gives way", func() {
		c.delete()
		newcomer, _ := restore(c.store(), nil, nil) // which saw no Secret, and made one
		restored, _ := again()
		state, outcome := restore(c.store(), newcomer, nil)
		Expect(outcome).To(Equal(certsecret.Adopted))
		Expect(Must(state.Current()).Equal(Must(restored.Current()))).To(BeTrue())
	})

	It("ends a contest with a replica that began anew and has registered its CA: the one that configurations pin stays", func() {
		c.delete()
		newcomer, _ := restore(c.store(), nil, nil)
		began := Must(newcomer.Current())
		pins := func(certificate *x509.Certificate) bool { return certificate.Equal(began.Certificate) }
		before := c.writes()
		state, outcome := restore(c.store(), known, pins)
		Expect(outcome).To(Equal(certsecret.Adopted))
		Expect(Must(state.Current()).Equal(began)).To(BeTrue())
		Expect(c.writes()).To(Equal(before))
		_, outcome = restore(c.store(), known, func(certificate *x509.Certificate) bool {
			return pins(certificate) || certificate.Equal(held.Certificate)
		})
		Expect(outcome).To(Equal(certsecret.Restored), "API servers trust both, so the older one goes on")
	})

	It("does not put back a CA that has expired", func() {
		c.delete()
		state, outcome := restore(c.storeAt(now.Add(10*year+day)), known, nil)
		Expect(outcome).To(Equal(certsecret.Created))
		Expect(Must(state.Current()).Equal(held)).To(BeFalse())
	})
})

var _ = Describe("Observe", func() {
	var (
		c        *cluster
		store    *certsecret.Store
		own      *certsecret.State
		cached   *corev1.Secret
		cacheErr error
	)
	BeforeEach(func() {
		c = newCluster(nil)
		own, _ = restore(c.store(), nil, nil)
		cached, cacheErr = c.secret(), nil
		store = c.store()
		store.Cached = func(context.Context) (*corev1.Secret, error) { return cached, cacheErr }
		c.ClearActions()
	})
	observe := func(known *certsecret.State, pinned certsecret.Pinned) *certsecret.State {
		GinkgoHelper()
		before := cached.DeepCopy()
		state := Must(store.Observe(background, known, pinned, nil))
		Expect(cached).To(Equal(before), "the cached object is not changed")
		return state
	}

	It("sends no request for a Secret in order, and returns the known state for the one that it stands in", func() {
		state := observe(nil, nil)
		Expect(state.Bundle()).To(Equal(own.Bundle()))
		Expect(state.ResourceVersion).To(Equal(own.ResourceVersion))
		Expect(observe(nil, pins(own.Bundle())).Bundle()).To(Equal(own.Bundle()))
		delete(cached.Data, certsecret.PrivateKeyKey) // it is not even inspected
		Expect(observe(own, pins(nil))).To(BeIdenticalTo(own))
		Expect(c.Actions()).To(BeEmpty())
	})

	It("follows the writes of others", func() {
		staged := Must(c.store().Stage(background, own))
		c.ClearActions()
		cached = Must(c.Tracker().Get(secrets, namespace, name)).(*corev1.Secret)
		cached.ResourceVersion = own.ResourceVersion // they come again after a restore from a backup
		Expect(observe(own, pins(own.Bundle())).NextID).To(Equal(staged.NextID))
		Expect(c.Actions()).To(BeEmpty())
	})

	It("reads a Secret live that is not in order, and writes it once", func() {
		c.edit(func(s *corev1.Secret) { s.Data = nil })
		cached = c.secret()
		state := observe(own, nil)
		Expect(Must(state.Current()).Equal(Must(own.Current()))).To(BeTrue())
		Expect(observe(state, nil).ResourceVersion).To(Equal(state.ResourceVersion), "the cache has not seen it yet")
		Expect(c.updated).To(Equal(1))
	})

	It("reads a Secret live whose CA no configuration pins", func() {
		Expect(ca.Contains(observe(nil, pins(NewCA(year, now).CertificatePEM)).Bundle(), own.Bundle())).To(BeFalse())
		Expect(c.updated).To(Equal(1))
	})

	It("asks the API server what is pinned before it drops a CA, and after it has read the Secret", func() {
		second, late := rotated(c, own), pins(own.Bundle())
		cached = c.secret()
		c.ClearActions()
		state := Must(store.Observe(background, own, late, func(context.Context) (certsecret.Pinned, error) {
			Expect(c.Actions()).To(HaveLen(1))
			return pins(second.Bundle()), nil
		}))
		Expect(state.Bundle()).To(Equal(second.Bundle()))
		Expect(store.Observe(background, own, late, func(context.Context) (certsecret.Pinned, error) {
			return nil, errors.New("unknown")
		})).Error().To(MatchError(ContainSubstring("unknown")))
		Expect(c.Actions()).To(HaveLen(2), "nothing is written")
	})

	It("reads live when the cache fails, is from before what is known, or is none", func() {
		second := rotated(c, own)
		for _, use := range []func(){
			func() { cacheErr = errors.New("not started") },
			func() { cacheErr = nil },
			func() { store.Cached = nil },
		} {
			use()
			c.ClearActions()
			Expect(observe(second, nil).Bundle()).To(Equal(second.Bundle()))
			Expect(c.Actions()).To(HaveLen(1))
		}
	})

	It("does not go on with a CA that has expired meanwhile", func() {
		store.Now = func() time.Time { return now.Add(10*year + day) }
		Expect(observe(own, nil).Bundle()).NotTo(Equal(own.Bundle()))
	})

	It("is Peek where nothing may be written", func() {
		Expect(Must(store.Peek(background)).Bundle()).To(Equal(own.Bundle()))
		cached.Data = nil
		Expect(store.Peek(background)).Error().To(MatchError(certsecret.ErrNotReady))
		cacheErr = apierrors.NewNotFound(resource, name)
		Expect(store.Peek(background)).Error().To(MatchError(certsecret.ErrNotReady))
		cacheErr = errors.New("not started")
		Expect(store.Peek(background)).Error().To(MatchError(ContainSubstring("certificate Secret cf/eirini-x-setupcertificate: not started")))
		Expect(c.Actions()).To(BeEmpty())
		store.Cached = nil
		Expect(Must(store.Peek(background)).Bundle()).To(Equal(own.Bundle()))
		Expect(c.Actions()).To(HaveLen(1))
	})
})

var _ = Describe("A replica with a wrong clock", func() {
	DescribeTable("goes on with the CA of the others, and its own CAs are good for them", func(ahead time.Duration) {
		c := newCluster(nil)
		own, _ := restore(c.store(), nil, nil)
		wrong := c.storeAt(now.Add(ahead))
		wrong.ServerTime = func() time.Time { return now }
		for _, known := range []*certsecret.State{nil, own} {
			state, outcome := restore(wrong, known, nil)
			Expect(outcome).To(Equal(certsecret.Adopted))
			Expect(state.Bundle()).To(Equal(own.Bundle()))
		}
		active := Must(wrong.Activate(background, Must(wrong.Stage(background, own))))
		Expect(ca.SplitBundle(active.Bundle())).To(HaveLen(2), "the old one has not expired by both clocks")
		current := Must(active.Current())
		Expect(current.Usable(now)).To(Succeed())
		Expect(current.Usable(now.Add(ahead))).To(Succeed())
		Expect(current.Chain).To(HaveLen(1))
	},
		Entry("behind", -6*time.Hour),
		Entry("ahead, by more than the life of a CA", 10*year+day),
	)
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
		before := state.Encode(nil)
		got := Must(DecodeState(state.Encode(map[string][]byte{"other": []byte("kept")}), now))
		Expect(got.Encode(nil)).To(Equal(before))
		Expect(Must(got.Current()).Chain).To(Equal([]*x509.Certificate{cross}), "cross-signed certificates are the chain")
		Expect(string(got.Bundle())).To(Equal(string(newer.CertificatePEM)+string(older.CertificatePEM)), "the current CA first")

		clone := state.Clone()
		Expect(clone.Encode(nil)).To(Equal(before))
		clone.Generations[0].PrivateKeyPEM, clone.Generations[0].CrossSigned = nil, []certsecret.CrossSigned{{IssuerID: 1}}
		clone.Generations = append(clone.Generations[:0], certsecret.Generation{})
		Expect(state.Encode(nil)).To(Equal(before), "a change of the clone is none of the state")
	})

	It("never prints or logs keys", func() {
		c := newCluster(nil)
		var out strings.Builder
		store := c.store()
		store.Log = funcr.New(func(prefix, args string) { fmt.Fprintln(&out, prefix, args) }, funcr.Options{Verbosity: 9})
		state, _ := restore(store, nil, nil)
		c.edit(func(s *corev1.Secret) { delete(s.Data, "state.json") })
		restore(store, nil, nil)
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
		number := new(big.Int).SetBytes(Must(authority.PrivateKey.(*ecdsa.PrivateKey).Bytes())).String()
		Expect(out.String()).To(ContainSubstring("key redacted"))
		for _, part := range []string{"PRIVATE KEY-----", body[:20], number, fmt.Sprint([]byte(body[:8]))[1:20], fmt.Sprintf("%x", body[:8])} {
			Expect(out.String()).NotTo(ContainSubstring(part))
		}
	})
})

// FuzzDecode feeds the bytes of a hostile Secret. A decoded state has a CA that signs, survives encoding and
// decoding, and stays within the same trust. Run it with -fuzzminimizetime 5x: coverage
// of the crypto packages varies from run to run, and the engine would spend its time on minimizing.
func FuzzDecode(f *testing.F) {
	RegisterTestingT(f)
	own, old := ownData(), eirinixData()
	empty := []byte(nil)
	f.Add(own["state.json"], own["tls.crt"], own["tls.key"], empty, empty)
	f.Add(empty, own["tls.crt"], own["tls.key"], empty, empty)
	f.Add(empty, empty, empty, old["ca_certificate"], old["ca_private_key"])
	f.Add([]byte(`{"formatVersion":1,"current":1,"generations":[{"id":1,"certificate":"x","privateKey":"y","crossSigned":[{"issuer":2}]}]}`), own["tls.crt"], own["tls.key"], old["ca_certificate"], old["ca_private_key"])
	f.Add(bytes.Replace(own["state.json"], []byte(`"phase"`), []byte(`"since": "9999-12-31T23:59:59-01:00", "phase"`), 1), own["tls.crt"], own["tls.key"], empty, empty)
	f.Add([]byte(`{"formatVersion":99,"generations":7}`), own["tls.crt"], own["tls.key"], empty, empty)
	f.Add([]byte(`{"formatVersion":1,"counter":-9223372036854775808,"generations":[{"id":9223372036854775807}]}`), own["tls.crt"], own["tls.key"], empty, empty)
	f.Add([]byte(`null`), []byte("-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n"), []byte("-----BEGIN EC PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\n-----END EC PRIVATE KEY-----\n"), empty, empty)
	f.Fuzz(func(t *testing.T, document, certificate, key, oldCertificate, oldKey []byte) {
		data := map[string][]byte{}
		for name, value := range map[string][]byte{
			"state.json": document, "tls.crt": certificate, "tls.key": key, "ca_certificate": oldCertificate, "ca_private_key": oldKey,
		} {
			if len(value) > 0 {
				data[name] = value
			}
		}
		state, err := DecodeState(data, now)
		if err != nil {
			if state != nil || err.Error() == "" {
				t.Fatalf("state %v with error %q", state, err)
			}
			if bytes.Contains([]byte(err.Error()), []byte("PRIVATE KEY-----")) {
				t.Fatalf("the error quotes a key: %s", err)
			}
			return
		}
		authority, err := state.Current()
		if err != nil {
			t.Fatalf("decoded without a CA: %s", err)
		}
		if !ca.Contains(state.Bundle(), authority.CertificatePEM) {
			t.Fatal("the current CA is not in the bundle")
		}
		encoded := state.Encode(data)
		again, err := DecodeState(encoded, now)
		if err != nil {
			t.Fatalf("does not survive encoding: %s", err)
		}
		if !bytes.Equal(again.Encode(nil)["state.json"], encoded["state.json"]) {
			t.Fatal("encoding is not stable")
		}
		_ = state.String()
	})
}
