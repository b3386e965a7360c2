package certsecret_test

// This file is about CAs that a client plants in the Secret: one that may write it, and no webhook configuration.

import (
	"bytes"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"code.cloudfoundry.org/eirinix/internal/ca"
	"code.cloudfoundry.org/eirinix/internal/certsecret"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
)

const notPinned = "the Secret holds a CA that no webhook configuration pins"

// pins returns a Pinned that pins the CAs in a bundle.
func pins(bundle []byte) certsecret.Pinned {
	return func(certificate *x509.Certificate) bool {
		return ca.Contains(bundle, ca.EncodeCertificate(certificate))
	}
}

// impostorOf is a CA with the name of another one and a key of its own.
func impostorOf(a *ca.Authority) *ca.Authority {
	GinkgoHelper()
	key := NewKey()
	template := *a.Certificate
	template.PublicKey, template.SubjectKeyId, template.AuthorityKeyId = nil, nil, nil
	der := Must(x509.CreateCertificate(rand.Reader, &template, &template, key.Public(), key))
	return Must(ca.Parse(PEM("CERTIFICATE", der), PKCS8(key)))
}

var _ = Describe("A CA that no webhook configuration pins", func() {
	var (
		c       *cluster
		store   *certsecret.Store
		own     *certsecret.State
		pinned  certsecret.Pinned
		foreign *ca.Authority
	)
	BeforeEach(func() {
		c = newCluster(nil)
		store = c.store()
		own, _ = restore(store, nil, nil)
		pinned = pins(own.Bundle())
		foreign = NewCA(year, now)
	})

	document := func(current int64, generations ...certsecret.Generation) map[string][]byte {
		state := &certsecret.State{FormatVersion: 1, Counter: math.MaxInt64, Lineage: "theirs", Phase: ca.Steady, CurrentID: current, Generations: generations}
		return state.Encode(nil)
	}
	foreignAs := func(id int64) certsecret.Generation {
		return certsecret.Generation{ID: id, CertificatePEM: foreign.CertificatePEM, PrivateKeyPEM: foreign.PrivateKeyPEM}
	}

	DescribeTable("is replaced by the one that this process knows, or a new one, and taken where nothing is pinned:", func(planted func() map[string][]byte) {
		plant := func() { c.edit(func(s *corev1.Secret) { s.Data = planted() }) }
		plant()
		state, outcome := restore(store, own, pinned)
		Expect(outcome).To(Equal(certsecret.Restored))
		Expect(state.Reason).To(ContainSubstring(notPinned))
		Expect(Must(state.Current()).Equal(Must(own.Current()))).To(BeTrue())
		Expect(state.Bundle()).To(Equal(own.Bundle()))
		Expect(state.Counter).To(Equal(own.Counter+1), "a counter that was found means nothing")
		Expect(string(c.secret().Data["state.json"])).NotTo(ContainSubstring("theirs"))

		By("where none is known")
		plant()
		state, outcome = restore(store, nil, pinned)
		Expect(outcome).To(Equal(certsecret.Repaired))
		Expect(state.Reason).To(ContainSubstring(notPinned))
		Expect(ca.Contains(state.Bundle(), foreign.CertificatePEM)).To(BeFalse())
		Expect(Must(state.Current()).Usable(now)).To(Succeed())
		Expect(state.Lineage).NotTo(Equal("theirs"))
		again, outcome := restore(store, state, pinned)
		Expect(outcome).To(Equal(certsecret.Adopted), "this process knows the CA that it has made")
		Expect(again.Bundle()).To(Equal(state.Bundle()))

		By("where nothing is pinned")
		plant()
		state, _ = restore(store, nil, nil)
		Expect(Must(state.Current()).Certificate.Equal(foreign.Certificate)).To(BeTrue())
	},
		Entry("in a document of its own", func() map[string][]byte { return document(1, foreignAs(1)) }),
		Entry("in a document that lists the public certificate of ours", func() map[string][]byte {
			return document(2, certsecret.Generation{ID: 1, CertificatePEM: Must(own.Current()).CertificatePEM}, foreignAs(2))
		}),
		Entry("in the mirrored keys", func() map[string][]byte {
			return map[string][]byte{"tls.crt": foreign.CertificatePEM, "ca.crt": foreign.CertificatePEM, "tls.key": foreign.PrivateKeyPEM}
		}),
		Entry("in EiriniX's keys", func() map[string][]byte {
			return map[string][]byte{"ca_certificate": foreign.CertificatePEM, "ca_private_key": foreign.PrivateKeyPEM}
		}),
	)

	// add has the document hold it beside the current CA.
	add := func(change func(*certsecret.State, *certsecret.Generation)) {
		c.edit(func(s *corev1.Secret) {
			state := Must(DecodeState(s.Data, now))
			g := foreignAs(9)
			change(state, &g)
			state.Generations = append(state.Generations, g)
			s.Data = state.Encode(s.Data)
		})
	}

	DescribeTable("is dropped from a document of ours", func(change func(*certsecret.State, *certsecret.Generation)) {
		for _, known := range []*certsecret.State{nil, own} {
			add(change)
			state, outcome := restore(store, known, pinned)
			Expect(outcome).To(Equal(certsecret.Repaired))
			Expect(state.Reason).To(Equal(notPinned))
			Expect(Must(state.Current()).Equal(Must(own.Current()))).To(BeTrue())
			Expect(state.Bundle()).To(Equal(own.Bundle()))
			Expect(state.NextID).To(BeZero())
			Expect(state.Phase).To(Equal(ca.Steady))
			expectInOrder(c, state)
		}
	},
		Entry("retained", func(s *certsecret.State, _ *certsecret.Generation) { s.Phase = ca.Retaining }),
		Entry("staged", func(s *certsecret.State, _ *certsecret.Generation) { s.Phase, s.NextID = ca.Staged, 9 }),
		Entry("neither", func(*certsecret.State, *certsecret.Generation) {}),
		Entry("with a certificate that claims to be signed by ours", func(s *certsecret.State, g *certsecret.Generation) {
			impostor := impostorOf(Must(own.Current()))
			cross := Must(impostor.CrossSign(foreign.Certificate, now))
			s.Phase, s.NextID = ca.Staged, 9
			g.CrossSigned = []certsecret.CrossSigned{{IssuerID: 1, CertificatePEM: ca.EncodeCertificate(cross)}}
		}),
		Entry("with a certificate of ours for another key", func(s *certsecret.State, g *certsecret.Generation) {
			cross := Must(Must(own.Current()).CrossSign(impostorOf(foreign).Certificate, now))
			s.Phase, s.NextID = ca.Staged, 9
			g.CrossSigned = []certsecret.CrossSigned{{IssuerID: 1, CertificatePEM: ca.EncodeCertificate(cross)}}
		}),
	)

	It("does not get into the bundle behind another certificate in one generation", func() {
		c.edit(func(s *corev1.Secret) {
			state := Must(DecodeState(s.Data, now))
			g := &state.Generations[0]
			g.CertificatePEM = append(bytes.Clone(g.CertificatePEM), foreign.CertificatePEM...)
			s.Data = with(s.Data, "state.json", state.Encode(nil)["state.json"])
		})
		for _, pinned := range []certsecret.Pinned{nil, pinned} {
			state, _ := restore(store, nil, pinned)
			Expect(state.Bundle()).To(Equal(own.Bundle()))
		}
	})

	It("is allowed if an allowed one has signed it, step by step through rotations", func() {
		third := Must(store.Stage(background, Must(store.Activate(background, Must(store.Stage(background, own))))))
		for _, seen := range []struct {
			known  *certsecret.State
			pinned certsecret.Pinned
		}{{nil, pinned}, {own, pinned}, {own, pins(nil)}} {
			state, outcome := restore(store, seen.known, seen.pinned)
			Expect(outcome).To(Equal(certsecret.Adopted))
			Expect(state.Bundle()).To(Equal(third.Bundle()))
			Expect(state.NextID).To(Equal(third.NextID))
		}
	})

	It("is never in a state that cannot be written", func() {
		add(func(s *certsecret.State, _ *certsecret.Generation) { s.FormatVersion = 7 })
		state, outcome := restore(store, nil, pinned)
		Expect(outcome).To(Equal(certsecret.Adopted))
		Expect(state.Bundle()).To(Equal(own.Bundle()))

		_, _, err := newCluster(document(1, foreignAs(1)), setImmutable).store().Restore(background, nil, pinned, nil)
		Expect(err).To(And(MatchError(certsecret.ErrImmutable), MatchError(ContainSubstring(notPinned))))
	})

	It("ends a contest of replicas that lost the Secret, as soon as one of them is registered", func() {
		c.delete()
		one, _ := restore(store, nil, pinned)
		two, _ := restore(store, nil, pinned) // neither knows the other's CA, nor does a configuration
		Expect(two.Bundle()).NotTo(Equal(one.Bundle()))
		both := pins(ca.Bundle(own.Bundle(), one.Bundle(), two.Bundle()))
		for range 2 {
			one, _ = restore(store, one, both)
			two, _ = restore(store, two, both)
		}
		Expect(two.Bundle()).To(Equal(one.Bundle()))
		writes := c.writes()
		restore(store, one, both)
		Expect(c.writes()).To(Equal(writes))
	})
})

// hostile is a document of some 720 KB, which fits into a Secret: one generation with more than a thousand certificates,
// many cross-signed certificates, and a long registered bundle.
func hostile(many string) map[string][]byte {
	GinkgoHelper()
	own := NewCA(year, now)
	state := &certsecret.State{
		FormatVersion: 1, Phase: ca.Retaining, CurrentID: 1,
		Generations: []certsecret.Generation{
			{ID: 1, CertificatePEM: own.CertificatePEM, PrivateKeyPEM: own.PrivateKeyPEM},
			{ID: 2, CertificatePEM: NewCA(year, now).CertificatePEM},
		},
	}
	var text []byte
	for len(text) < 720_000 {
		der := bytes.Clone(own.Certificate.Raw)
		copy(der[len(der)-3:], fmt.Sprintf("%03d", len(text)/700%1000)) // another signature: another certificate
		text = append(text, PEM("CERTIFICATE", der)...)
	}
	switch many {
	case "certificates":
		state.Generations[1].CertificatePEM = text
	case "cross-signed":
		state.CurrentID, state.Generations[0].ID, state.Generations[1].ID = 9, 9, 2
		for rest := text; ; {
			var block *pem.Block
			if block, rest = pem.Decode(rest); block == nil {
				break
			}
			state.Generations[0].CrossSigned = append(state.Generations[0].CrossSigned,
				certsecret.CrossSigned{IssuerID: 2, CertificatePEM: pem.EncodeToMemory(block)})
		}
	case "registered":
		state.RegisteredBundle = text
	case "generations":
		for i := range 62 {
			state.Generations = append(state.Generations, certsecret.Generation{ID: int64(i) + 3, CertificatePEM: NewCA(year, now).CertificatePEM, PrivateKeyPEM: text[:11_000]})
		}
	}
	return state.Encode(nil)
}

// A certificate takes some sixty allocations to read.
var _ = DescribeTable("A hostile document costs little", func(many string) {
	data := hostile(many)
	Expect(len(data["state.json"])).To(BeNumerically(">", 650_000))
	store := newCluster(data).store()
	var state *certsecret.State
	work := testing.AllocsPerRun(1, func() { state, _ = restore(store, nil, nil) })
	Expect(work).To(BeNumerically("<", 30_000))
	Expect(len(state.Generations)).To(BeNumerically("<=", 8))
	Expect(len(ca.SplitBundle(state.Bundle()))).To(BeNumerically("<=", 8))
	Expect(len(ca.SplitBundle(state.RegisteredBundle))).To(BeNumerically("<=", 64))
	Expect(len(Must(state.Current()).Chain)).To(BeNumerically("<=", 8))
},
	Entry("certificates in a generation", "certificates"),
	Entry("cross-signed certificates", "cross-signed"),
	Entry("registered certificates", "registered"),
	Entry("generations", "generations"),
)
