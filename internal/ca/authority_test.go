package ca_test

// This file is about the authority: how a CA is made, read, and judged, and which kinds of keys there are.

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/fips140"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"code.cloudfoundry.org/eirinix/internal/ca"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
)

func TestCA(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "internal/ca")
}

const (
	day  = 24 * time.Hour
	year = 365 * day
)

// now is the moment of every spec that does not choose its own. Whole seconds, as certificates have.
var now = time.Date(2030, time.May, 17, 12, 0, 0, 0, time.UTC)

// made returns one authority of each algorithm; making RSA keys takes seconds.
var made = func() func(ca.KeyAlgorithm) *ca.Authority {
	all := map[ca.KeyAlgorithm]*ca.Authority{}
	return func(algorithm ca.KeyAlgorithm) *ca.Authority {
		GinkgoHelper()
		if all[algorithm] == nil {
			all[algorithm] = Must(ca.New("spec", 10*year, now, ca.WithKey(algorithm)))
		}
		return all[algorithm]
	}
}()

var rsaKey = sync.OnceValue(func() *rsa.PrivateKey { return Must(rsa.GenerateKey(rand.Reader, 2048)) })

func sec1(key *ecdsa.PrivateKey) []byte {
	GinkgoHelper()
	return PEM("EC PRIVATE KEY", Must(x509.MarshalECPrivateKey(key)))
}

var _ = Describe("New", func() {
	It("makes a CA that may sign, for as long as asked, from an hour ago", func() {
		certificate := NewCA(10*year, now).Certificate
		Expect(certificate.IsCA && certificate.BasicConstraintsValid).To(BeTrue())
		Expect(certificate.KeyUsage).To(Equal(x509.KeyUsageCertSign | x509.KeyUsageCRLSign | x509.KeyUsageDigitalSignature))
		Expect(certificate.NotBefore).To(Equal(now.Add(-time.Hour)))
		Expect(certificate.NotAfter).To(Equal(now.Add(10 * year)))
		Expect(certificate.SubjectKeyId).NotTo(BeEmpty())
		Expect(certificate.PublicKeyAlgorithm).To(Equal(x509.ECDSA))
		Expect(certificate.PublicKey.(*ecdsa.PublicKey).Params().BitSize).To(Equal(256))
		Expect(certificate.MaxPathLen).To(Equal(1), "room for one cross-signed certificate, and no more")
	})

	It("gives every CA a serial number and a subject of its own", func() {
		a, b := NewCA(year, now), NewCA(year, now)
		Expect(a.Certificate.SerialNumber).NotTo(Equal(b.Certificate.SerialNumber))
		Expect(a.Certificate.RawSubject).NotTo(Equal(b.Certificate.RawSubject))
		Expect(a.Equal(b)).To(BeFalse())
		read := Must(ca.Parse(a.CertificatePEM, a.PrivateKeyPEM))
		Expect(read.Equal(a)).To(BeTrue(), "it survives being written and read")
		Expect(read.PrivateKeyPEM).To(Equal(a.PrivateKeyPEM))
	})

	It("starts less early when its life is short, and refuses one that is none", func() {
		Expect(NewCA(time.Minute, now).Certificate.NotBefore).To(Equal(now.Add(-6 * time.Second)))
		Expect(ca.New("spec", 0, now)).Error().To(MatchError(ContainSubstring("lifetime of a CA")))
	})

	It("takes a Secret's name of any length", func() {
		long := Must(ca.New(strings.Repeat("ü", 300), year, now))
		Expect([]rune(long.Certificate.Subject.CommonName)).To(HaveLen(64))
	})

	It("never prints its key", func() {
		a := NewCA(year, now)
		d := new(big.Int).SetBytes(Must(a.PrivateKey.(*ecdsa.PrivateKey).Bytes()))
		raw := string(a.PrivateKeyPEM)
		var printed strings.Builder
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%d", "%x"} {
			fmt.Fprintf(&printed, verb+"\n", a)
			fmt.Fprintf(&printed, verb+"\n", *a)
			fmt.Fprintf(&printed, verb+"\n", []ca.Authority{*a})
			fmt.Fprintf(&printed, verb+"\n", struct{ A *ca.Authority }{a})
		}
		fmt.Fprintln(&printed, a.MarshalLog(), string(Must(json.Marshal(a))))
		Expect(printed.String()).To(ContainSubstring("key redacted"))
		for _, part := range []string{d.String(), fmt.Sprint([]byte(raw[:20])), strings.Split(raw, "\n")[1][:20]} {
			Expect(printed.String()).NotTo(ContainSubstring(part))
		}
	})
})

var _ = Describe("Parse", func() {
	It("reads the keys that other tools write", func() {
		ec := NewKey()
		_, ed, err := ed25519.GenerateKey(rand.Reader)
		Expect(err).NotTo(HaveOccurred())
		parameters := string(PEM("EC PARAMETERS", []byte{6, 8, 42, 134, 72, 206, 61, 3, 1, 7}))
		for name, texts := range map[string][2][]byte{
			"PKCS#1 (cfssl, EiriniX)":        {ForeignCA(rsaKey(), now), PKCS1(rsaKey())},
			"PKCS#8 RSA (openssl req)":       {ForeignCA(rsaKey(), now), PKCS8(rsaKey())},
			"SEC1 with parameters (ecparam)": {ForeignCA(ec, now), []byte(parameters + string(sec1(ec)))},
			"PKCS#8 Ed25519":                 {ForeignCA(ed, now), PKCS8(ed)},
			"SEC1 under the name of PKCS#8":  {ForeignCA(ec, now), []byte(strings.ReplaceAll(string(sec1(ec)), "EC PRIVATE", "PRIVATE"))},
			"text around the PEM":            {append([]byte("Certificate:\n  Data: ...\n"), ForeignCA(ec, now)...), PKCS8(ec)},
		} {
			a, err := ca.Parse(texts[0], texts[1])
			Expect(err).NotTo(HaveOccurred(), name)
			Expect(a.Usable(now)).To(Succeed(), name)
			Expect(a.SignServing([]string{"a.b.svc"}, day, now)).Error().NotTo(HaveOccurred(), name)
			Expect(string(a.PrivateKeyPEM)).To(HavePrefix("-----BEGIN PRIVATE KEY-----"), name)
		}
	})

	key := NewKey()
	certificate := ForeignCA(key, now)
	DescribeTable("names the fault", func(reason error, certificate, privateKey []byte) {
		a, err := ca.Parse(certificate, privateKey)
		Expect(a).To(BeNil())
		Expect(err).To(MatchError(reason))
		if errors.Is(err, ca.ErrBadPrivateKey) {
			Expect(err).To(MatchError(ContainSubstring("; ")), "with the remedy")
		}
	},
		Entry("nothing", ca.ErrNoCertificate, nil, nil),
		Entry("a key in place of the certificate", ca.ErrNoCertificate, sec1(key), sec1(key)),
		Entry("truncated certificate", ca.ErrNoCertificate, certificate[:len(certificate)/2], sec1(key)),
		Entry("garbage in the certificate", ca.ErrBadCertificate, PEM("CERTIFICATE", []byte("garbage")), sec1(key)),
		Entry("a leaf", ca.ErrNotCA, ForeignCA(key, now, func(c *x509.Certificate) { c.IsCA = false }), sec1(key)),
		Entry("no key", ca.ErrNoPrivateKey, certificate, nil),
		Entry("a certificate in place of the key", ca.ErrNoPrivateKey, certificate, certificate),
		Entry("garbage in the key", ca.ErrBadPrivateKey, certificate, PEM("PRIVATE KEY", []byte("garbage"))),
		Entry("an encrypted key", ca.ErrBadPrivateKey, certificate, PEM("ENCRYPTED PRIVATE KEY", []byte("x"))),
		Entry("an unknown kind of key", ca.ErrBadPrivateKey, certificate, PEM("DSA PRIVATE KEY", []byte("x"))),
		Entry("another CA's key", ca.ErrKeyMismatch, certificate, sec1(NewKey())),
	)

	It("says how large a key may be", func() {
		Expect(ca.Parse(certificate, PEM("RSA PRIVATE KEY", make([]byte, 8<<10+1)))).Error().To(MatchError(
			"the private key cannot be read: it has 8193 bytes, more than 8192; use a smaller one, such as ECDSA P-256"))
		Expect(ca.Parse(certificate, PEM("RSA PRIVATE KEY", make([]byte, 8<<10)))).Error().NotTo(MatchError(ContainSubstring("8192")))
	})
})

var _ = Describe("Usable", func() {
	DescribeTable("returns the reason why not", func(reason error, edit func(*x509.Certificate)) {
		key := NewKey()
		a := Must(ca.Parse(ForeignCA(key, now, edit), sec1(key)))
		if reason == nil {
			Expect(a.Usable(now)).To(Succeed())
		} else {
			Expect(a.Usable(now)).To(MatchError(reason))
			Expect(a.SignServing([]string{"h"}, day, now)).Error().To(MatchError(reason), "no signature without being usable")
		}
	},
		Entry("expired", ca.ErrExpired, func(c *x509.Certificate) { c.NotAfter = now.Add(-time.Second) }),
		Entry("last second", nil, func(c *x509.Certificate) { c.NotAfter = now }),
		Entry("not yet valid", ca.ErrNotYetValid, func(c *x509.Certificate) { c.NotBefore = now.Add(time.Second) }),
		Entry("key usage without signing", ca.ErrNotCA, func(c *x509.Certificate) { c.KeyUsage = x509.KeyUsageDigitalSignature }),
		Entry("no key usage at all", nil, func(c *x509.Certificate) { c.KeyUsage = 0 }),
		Entry("for clients only", ca.ErrNotCA, func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth} }),
		Entry("for servers too", nil, func(c *x509.Certificate) {
			c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}
		}),
	)

	It("refuses SHA-1, short RSA keys, and what is not there", func() {
		text := ForeignCA(rsaKey(), now, func(c *x509.Certificate) { c.SignatureAlgorithm = x509.SHA1WithRSA })
		Expect(Must(ca.Parse(text, PKCS1(rsaKey()))).Usable(now)).To(And(MatchError(ca.ErrWeak), MatchError(ContainSubstring("SHA1-RSA"))))

		GinkgoT().Setenv("GODEBUG", "rsa1024min=0") // only the spec makes one
		var short *rsa.PrivateKey
		fips140.WithoutEnforcement(func() { short = Must(rsa.GenerateKey(rand.Reader, 1024)) })
		Expect(Must(ca.Parse(ForeignCA(short, now), PKCS1(short))).Usable(now)).To(And(MatchError(ca.ErrWeak), MatchError(ContainSubstring("1024 bits"))))

		var none *ca.Authority
		Expect(none.Usable(now)).To(MatchError(ca.ErrNoCertificate))
		Expect((&ca.Authority{Certificate: NewCA(year, now).Certificate}).Usable(now)).To(MatchError(ca.ErrNoPrivateKey))
	})

	It("leaves checks that depend on the host to SignServing", func() {
		key := NewKey()
		a := Must(ca.Parse(ForeignCA(key, now, func(c *x509.Certificate) {
			c.PermittedDNSDomainsCritical, c.PermittedDNSDomains = true, []string{"allowed.example"}
		}), sec1(key)))
		Expect(a.Usable(now)).To(Succeed())
		Expect(a.SignServing([]string{"x.allowed.example"}, day, now)).Error().NotTo(HaveOccurred())
		Expect(a.SignServing([]string{"x.other.example"}, day, now)).Error().
			To(MatchError(ContainSubstring(`cannot issue a serving certificate for "x.other.example"`)))
	})
})

// kindOf names a public key in terms of the algorithms.
func kindOf(key crypto.PublicKey) ca.KeyAlgorithm {
	switch key := key.(type) {
	case *ecdsa.PublicKey:
		return map[int]ca.KeyAlgorithm{256: ca.ECDSAP256, 384: ca.ECDSAP384}[key.Params().BitSize]
	case *rsa.PublicKey:
		return map[int]ca.KeyAlgorithm{2048: ca.RSA2048, 3072: ca.RSA3072, 4096: ca.RSA4096}[key.N.BitLen()]
	}
	return "none of ours"
}

var _ = Describe("WithKey", func() {
	DescribeTable("chooses the key of a CA, which signs, is written and read", func(algorithm, kind ca.KeyAlgorithm) {
		a := made(algorithm)
		Expect(kindOf(a.Certificate.PublicKey)).To(Equal(kind))
		Expect(a.Usable(now)).To(Succeed())
		read := Must(ca.Parse(a.CertificatePEM, a.PrivateKeyPEM))
		Expect(read.Equal(a)).To(BeTrue())
		certificate := Must(read.SignServing([]string{"a.b.svc"}, day, now))
		Expect(kindOf(certificate.Leaf.PublicKey)).To(Equal(ca.ECDSAP256), "the serving key is chosen by itself")
		Expect(verify(certificate, "a.b.svc", a.CertificatePEM)).To(Succeed())
	},
		Entry("the default", ca.KeyAlgorithm(""), ca.ECDSAP256),
		Entry("ECDSA-P256", ca.ECDSAP256, ca.ECDSAP256),
		Entry("ECDSA-P384", ca.ECDSAP384, ca.ECDSAP384),
		Entry("RSA-2048", ca.RSA2048, ca.RSA2048),
		Entry("RSA-3072", ca.RSA3072, ca.RSA3072),
		Entry("RSA-4096", ca.RSA4096, ca.RSA4096),
	)

	It("chooses the key of a serving certificate, whatever its CA's is, and the last one counts", func() {
		for _, signer := range []ca.KeyAlgorithm{ca.ECDSAP256, ca.RSA2048} {
			for _, algorithm := range []ca.KeyAlgorithm{ca.ECDSAP384, ca.RSA2048} {
				certificate := Must(made(signer).SignServing([]string{"a.b.svc"}, day, now, ca.WithKey(ca.ECDSAP256), ca.WithKey(algorithm)))
				Expect(kindOf(certificate.Leaf.PublicKey)).To(Equal(algorithm))
				Expect(verify(certificate, "a.b.svc", made(signer).CertificatePEM)).To(Succeed(), "signed by %s", signer)
			}
		}
	})

	It("names the choices when there is no such algorithm", func() {
		for _, algorithm := range []ca.KeyAlgorithm{"RSA-1024", "ecdsa-p256", "Ed25519", " "} {
			named := And(MatchError(ca.ErrUnknownKeyAlgorithm), MatchError(ContainSubstring(
				`key algorithm "`+string(algorithm)+`"; choose one of ["ECDSA-P256" "ECDSA-P384" "RSA-2048" "RSA-3072" "RSA-4096"]`)))
			Expect(algorithm.Validate()).To(named)
			Expect(ca.New("spec", year, now, ca.WithKey(algorithm))).Error().To(named)
			Expect(made("").SignServing([]string{"h"}, day, now, ca.WithKey(algorithm))).Error().To(named)
		}
		for _, algorithm := range append(ca.KeyAlgorithms(), "") {
			Expect(algorithm.Validate()).To(Succeed())
		}
	})
})
