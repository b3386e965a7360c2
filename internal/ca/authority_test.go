package ca_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/fips140"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"code.cloudfoundry.org/eirinix/internal/ca"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
)

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
		Expect(a.Certificate.SerialNumber.Cmp(b.Certificate.SerialNumber)).NotTo(BeZero())
		Expect(a.Certificate.RawSubject).NotTo(Equal(b.Certificate.RawSubject))
		Expect(a.Equal(b)).To(BeFalse())
	})

	It("starts less early when its life is short, and refuses one that is none", func() {
		Expect(NewCA(time.Minute, now).Certificate.NotBefore).To(Equal(now.Add(-6 * time.Second)))
		_, err := ca.New("spec", 0, now)
		Expect(err).To(MatchError(ContainSubstring("lifetime of a CA")))
	})

	It("takes a Secret's name of any length", func() {
		long := Must(ca.New(strings.Repeat("ü", 300), year, now))
		Expect([]rune(long.Certificate.Subject.CommonName)).To(HaveLen(64))
	})

	It("survives being written and read", func() {
		a := NewCA(year, now)
		b := Must(ca.Parse(a.CertificatePEM, a.PrivateKeyPEM))
		Expect(b.Equal(a)).To(BeTrue())
		Expect(b.PrivateKeyPEM).To(Equal(a.PrivateKeyPEM))
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
		Expect(printed.String()).NotTo(ContainSubstring(d.String()))
		Expect(printed.String()).NotTo(ContainSubstring(fmt.Sprint([]byte(raw[:20]))))
		Expect(printed.String()).NotTo(ContainSubstring(strings.Split(raw, "\n")[1][:20]))
	})
})

var _ = Describe("Parse", func() {
	It("reads the keys that other tools write", func() {
		ec, ed := NewKey(), edKey()
		parameters := PEM("EC PARAMETERS", []byte{6, 8, 42, 134, 72, 206, 61, 3, 1, 7})
		for name, texts := range map[string][2][]byte{
			"PKCS#1 (cfssl, EiriniX)":        {ForeignCA(rsaKey(), now), PKCS1(rsaKey())},
			"PKCS#8 RSA (openssl req)":       {ForeignCA(rsaKey(), now), PKCS8(rsaKey())},
			"SEC1 with parameters (ecparam)": {ForeignCA(ec, now), append(parameters, sec1(ec)...)},
			"PKCS#8 Ed25519":                 {ForeignCA(ed, now), PKCS8(ed)},
			"SEC1 under the name of PKCS#8":  {ForeignCA(ec, now), bytes.ReplaceAll(sec1(ec), []byte("EC PRIVATE"), []byte("PRIVATE"))},
			"text around the PEM":            {append([]byte("Certificate:\n  Data: ...\n"), ForeignCA(ec, now)...), PKCS8(ec)},
		} {
			a, err := ca.Parse(texts[0], texts[1])
			Expect(err).NotTo(HaveOccurred(), name)
			Expect(a.Usable(now)).To(Succeed(), name)
			Expect(a.SignServing([]string{"a.b.svc"}, day, now)).Error().NotTo(HaveOccurred(), name)
			Expect(string(a.PrivateKeyPEM)).To(HavePrefix("-----BEGIN PRIVATE KEY-----"), name)
		}
	})

	key := NewKey
	DescribeTable("names the fault", func(reason error, texts func() (certificate, key []byte)) {
		certificate, privateKey := texts()
		a, err := ca.Parse(certificate, privateKey)
		Expect(a).To(BeNil())
		Expect(err).To(Or(MatchError(reason), MatchError(reason.Error())))
		if errors.Is(err, ca.ErrBadPrivateKey) {
			Expect(err).To(MatchError(ContainSubstring("; ")), "with the remedy")
		}
	},
		Entry("no certificate", ca.ErrNoCertificate, func() ([]byte, []byte) { return []byte("hello"), sec1(key()) }),
		Entry("nothing", ca.ErrNoCertificate, func() ([]byte, []byte) { return nil, nil }),
		Entry("a key in place of the certificate", ca.ErrNoCertificate, func() ([]byte, []byte) { return sec1(key()), sec1(key()) }),
		Entry("truncated certificate", ca.ErrNoCertificate, func() ([]byte, []byte) {
			k := key()
			text := ForeignCA(k, now)
			return text[:len(text)/2], sec1(k)
		}),
		Entry("garbage in the certificate", ca.ErrBadCertificate, func() ([]byte, []byte) {
			return PEM("CERTIFICATE", []byte("garbage")), sec1(key())
		}),
		Entry("a leaf", ca.ErrNotCA, func() ([]byte, []byte) {
			k := key()
			return ForeignCA(k, now, func(c *x509.Certificate) { c.IsCA = false }), sec1(k)
		}),
		Entry("no key", ca.ErrNoPrivateKey, func() ([]byte, []byte) { return ForeignCA(key(), now), nil }),
		Entry("a certificate in place of the key", ca.ErrNoPrivateKey, func() ([]byte, []byte) {
			text := ForeignCA(key(), now)
			return text, text
		}),
		Entry("garbage in the key", ca.ErrBadPrivateKey, func() ([]byte, []byte) {
			return ForeignCA(key(), now), PEM("PRIVATE KEY", []byte("garbage"))
		}),
		Entry("a huge key", ca.ErrBadPrivateKey, func() ([]byte, []byte) {
			return ForeignCA(key(), now), PEM("RSA PRIVATE KEY", make([]byte, 1<<20))
		}),
		Entry("a key that is costly to check", errors.New("the private key cannot be read: it has 8193 bytes, more than 8192; use a smaller one, such as ECDSA P-256"), func() ([]byte, []byte) {
			return ForeignCA(key(), now), PEM("RSA PRIVATE KEY", make([]byte, 8<<10+1))
		}),
		Entry("an encrypted key", ca.ErrBadPrivateKey, func() ([]byte, []byte) {
			return ForeignCA(key(), now), PEM("ENCRYPTED PRIVATE KEY", []byte("x"))
		}),
		Entry("an unknown kind of key", ca.ErrBadPrivateKey, func() ([]byte, []byte) {
			return ForeignCA(key(), now), PEM("DSA PRIVATE KEY", []byte("x"))
		}),
		Entry("another CA's key", ca.ErrKeyMismatch, func() ([]byte, []byte) { return ForeignCA(key(), now), sec1(key()) }),
		Entry("a key of another kind", ca.ErrKeyMismatch, func() ([]byte, []byte) { return ForeignCA(key(), now), PKCS1(rsaKey()) }),
	)
})

var _ = Describe("Usable", func() {
	DescribeTable("returns the reason why not", func(reason error, edit func(*x509.Certificate)) {
		key := NewKey()
		a, err := ca.Parse(ForeignCA(key, now, edit), sec1(key))
		Expect(err).NotTo(HaveOccurred())
		if reason == nil {
			Expect(a.Usable(now)).To(Succeed())
			return
		}
		Expect(a.Usable(now)).To(MatchError(reason))
		Expect(a.SignServing([]string{"h"}, day, now)).Error().To(MatchError(reason), "no signature without being usable")
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
		Entry("in order", nil, func(*x509.Certificate) {}),
	)

	It("refuses SHA-1", func() {
		text := ForeignCA(rsaKey(), now, func(c *x509.Certificate) { c.SignatureAlgorithm = x509.SHA1WithRSA })
		Expect(Must(ca.Parse(text, PKCS1(rsaKey()))).Usable(now)).To(And(MatchError(ca.ErrWeak), MatchError(ContainSubstring("SHA1-RSA"))))
	})

	It("refuses short RSA keys", func() {
		GinkgoT().Setenv("GODEBUG", "rsa1024min=0") // only the spec makes one
		var key *rsa.PrivateKey
		fips140.WithoutEnforcement(func() { key = Must(rsa.GenerateKey(rand.Reader, 1024)) })
		a := Must(ca.Parse(ForeignCA(key, now), PKCS1(key)))
		Expect(a.Usable(now)).To(And(MatchError(ca.ErrWeak), MatchError(ContainSubstring("1024 bits"))))
	})

	It("is not surprised by nothing", func() {
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
