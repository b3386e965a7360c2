package ca_test

// This file is about the authority: how a CA is made, read, and judged, and which kinds of keys there are. It is also about
// signatures: of serving certificates, of other CAs, by two clocks, and the bundles that verify them.

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/fips140"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
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

// verify returns the verdict of a client that trusts the bundle, as an API server does.
func verify(serve *tls.Certificate, serverName string, bundle []byte) error {
	GinkgoHelper()
	roots, intermediates := x509.NewCertPool(), x509.NewCertPool()
	Expect(roots.AppendCertsFromPEM(bundle)).To(BeTrue())
	for _, der := range serve.Certificate[1:] {
		intermediates.AddCert(Must(x509.ParseCertificate(der)))
	}
	_, err := serve.Leaf.Verify(x509.VerifyOptions{DNSName: serverName, Roots: roots, Intermediates: intermediates, CurrentTime: now})
	return err
}

// longest is a name of 253 characters, with labels of 63.
var longest = strings.Repeat(strings.Repeat("a", 63)+".", 3) + strings.Repeat("a", 61)

var _ = Describe("SignServing", func() {
	DescribeTable("certifies the host that a client asks for", func(host, serverName string) {
		a := NewCA(year, now)
		certificate := Must(a.SignServing([]string{"other.example", host}, day, now))
		Expect(verify(certificate, serverName, a.CertificatePEM)).To(Succeed())
	},
		Entry("a Service", "logger.cf.svc", "logger.cf.svc"),
		Entry("a name in capitals, with the root's dot", "Logger.CF.svc.", "logger.cf.svc"),
		Entry("IPv4", "10.1.2.3", "10.1.2.3"),
		Entry("IPv4 in IPv6", "::ffff:10.1.2.3", "10.1.2.3"),
		Entry("IPv6 in brackets", "[::1]", "::1"),
		Entry("IPv6 with brackets and a zone", "[fe80::1%eth0]", "fe80::1"),
		Entry("an international name", "XN--bcher-kva.example", "xn--bcher-kva.example"),
		Entry("an underscore", "my_host.example", "my_host.example"),
		Entry("a wildcard", "*.example.org", "any.example.org"),
		Entry("one label", "localhost", "localhost"),
		Entry("labels and a name of the greatest length", longest, longest),
	)

	It("makes a server's certificate and nothing else", func() {
		a := NewCA(year, now)
		certificate := Must(a.SignServing([]string{"a.b.svc", "10.0.0.1", "A.B.SVC", "::ffff:10.0.0.1"}, 7*day, now))
		leaf := certificate.Leaf
		Expect(certificate.Certificate).To(HaveLen(1), "leaf only")
		Expect(certificate.Certificate[0]).To(Equal(leaf.Raw))
		Expect(leaf.IsCA).To(BeFalse())
		Expect(leaf.ExtKeyUsage).To(Equal([]x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}))
		Expect(leaf.KeyUsage).To(Equal(x509.KeyUsageDigitalSignature))
		Expect(leaf.DNSNames).To(Equal([]string{"a.b.svc"}), "each once")
		Expect(leaf.IPAddresses).To(HaveLen(1))
		Expect(leaf.AuthorityKeyId).To(Equal(a.Certificate.SubjectKeyId))
		Expect(leaf.NotBefore).To(Equal(now.Add(-time.Hour)))
		Expect(leaf.NotAfter).To(Equal(now.Add(7 * day)))
		Expect(leaf.SerialNumber.Sign()).To(Equal(1))
	})

	It("stays within the life of its CA, and refuses a lifetime that is none, and no hosts", func() {
		a := NewCA(day, now)
		leaf := Must(a.SignServing([]string{"h"}, 7*day, now.Add(-time.Minute))).Leaf
		Expect(leaf.NotBefore).To(Equal(a.Certificate.NotBefore))
		Expect(leaf.NotAfter).To(Equal(a.Certificate.NotAfter))
		Expect(a.SignServing([]string{"h"}, 0, now)).Error().To(MatchError(ContainSubstring("lifetime of a serving certificate")))
		Expect(a.SignServing(nil, day, now)).Error().To(MatchError(ContainSubstring("at least one host")))
	})
})

var _ = Describe("ParseHosts", func() {
	DescribeTable("refuses a host that no client can ask for", func(host, hint string) {
		_, err := ca.ParseHosts([]string{"fine.example", host})
		Expect(err).To(And(MatchError(ca.ErrInvalidHost), MatchError(ContainSubstring(hint))))
	},
		Entry("nothing", "", `host ""`),
		Entry("a dot", ".", `host "."`),
		Entry("an empty label", "a..b", "a..b"),
		Entry("a port", "a.example:443", "leave out the port"),
		Entry("an address with a port", "[::1]:443", "leave out the port"),
		Entry("a URL", "https://a.example", "leave out the scheme"),
		Entry("half a bracket", "[::1", "[::1"),
		Entry("blanks", "a b", "a b"),
		Entry("Unicode", "bücher.example", "xn--"),
		Entry("a star in the middle", "a.*.example", "a.*"),
		Entry("a star alone", "*", "*"),
		Entry("a long label", strings.Repeat("a", 64)+".example", "more than 63"),
		Entry("a long name", strings.Repeat("abcdefg.", 40)+"example", "more than 253"),
		Entry("bytes", "\xff\xfe", "not a DNS name"),
	)
})

var _ = Describe("CrossSign", func() {
	It("lets clients that trust either CA, or both, verify old and new serving certificates", func() {
		older, newer := NewCA(10*year, now), NewCA(10*year, now)
		newer.Chain = []*x509.Certificate{Must(older.CrossSign(newer.Certificate, now))}
		older.Chain = []*x509.Certificate{Must(newer.CrossSign(older.Certificate, now))}
		bundles := map[string][]byte{"old": older.CertificatePEM, "new": newer.CertificatePEM, "both": ca.Bundle(older.CertificatePEM, newer.CertificatePEM)}
		for name, bundle := range bundles {
			for _, signer := range []*ca.Authority{older, newer} {
				certificate := Must(signer.SignServing([]string{"a.b.svc"}, day, now))
				Expect(certificate.Certificate).To(HaveLen(2))
				Expect(verify(certificate, "a.b.svc", bundle)).To(Succeed(), "%s under bundle %s", signer, name)
			}
		}
		Expect(verify(Must(newer.SignServing([]string{"h"}, day, now)), "h", NewCA(year, now).CertificatePEM)).NotTo(Succeed())
	})

	It("serves CAs that other tools made", func() {
		older, newer := Must(ca.Parse(ForeignCA(rsaKey(), now), PKCS1(rsaKey()))), NewCA(10*year, now)
		newer.Chain = []*x509.Certificate{Must(older.CrossSign(newer.Certificate, now))}
		Expect(newer.Chain[0].NotAfter).To(Equal(older.Certificate.NotAfter), "valid where both are")
		Expect(verify(Must(newer.SignServing([]string{"h"}, day, now)), "h", older.CertificatePEM)).To(Succeed())
	})

	It("vouches for the other, and no more, when the CA may not issue CAs", func() {
		key, other := NewKey(), NewCA(year, now)
		closed := Must(ca.Parse(ForeignCA(key, now, func(c *x509.Certificate) { c.MaxPathLenZero = true }), sec1(key)))
		voucher := Must(closed.CrossSign(other.Certificate, now))
		Expect(voucher.CheckSignatureFrom(closed.Certificate)).To(Succeed())
		Expect(voucher).To(And(HaveField("KeyUsage", x509.KeyUsageDigitalSignature), HaveField("RawSubject", other.Certificate.RawSubject)))
	})

	It("fails for what is no CA, or was never valid together with the other", func() {
		leaf := Must(NewCA(year, now).SignServing([]string{"h"}, day, now)).Leaf
		Expect(NewCA(year, now).CrossSign(leaf, now)).Error().To(MatchError(ca.ErrNotCA))
		Expect(NewCA(day, now).CrossSign(NewCA(year, now.Add(year)).Certificate, now)).Error().
			To(MatchError(ContainSubstring("never valid at the same time")))
		Expect(NewCA(day, now).CrossSign(NewCA(year, now).Certificate, now.Add(2*day))).Error().To(MatchError(ca.ErrExpired))
	})
})

var _ = Describe("Bundle", func() {
	It("holds each certificate once, in order, whatever stands around it", func() {
		a, b := NewCA(year, now), NewCA(year, now)
		messy := []byte("# comment\n\n" + string(a.CertificatePEM) + string(a.PrivateKeyPEM) + string(PEM("CERTIFICATE", []byte("garbage"))))
		bundle := ca.Bundle(messy, nil, b.CertificatePEM, a.CertificatePEM)
		Expect(string(bundle)).To(Equal(string(a.CertificatePEM) + string(b.CertificatePEM)))
		Expect(ca.SplitBundle(bundle)).To(HaveLen(2))
		Expect(ca.Bundle(bundle)).To(Equal(bundle))
		Expect(ca.Bundle()).To(BeNil())
		Expect(ca.EncodeCertificate(a.Certificate)).To(Equal(a.CertificatePEM))
	})

	It("compares by certificates, not by bytes", func() {
		a, b := NewCA(year, now).CertificatePEM, NewCA(year, now).CertificatePEM
		Expect(ca.EqualBundles(ca.Bundle(a, b), ca.Bundle(b, a))).To(BeTrue())
		Expect(ca.EqualBundles(ca.Bundle(a, b), a)).To(BeFalse())
		Expect(ca.EqualBundles(a, append([]byte("\n\n"), a...))).To(BeTrue())
		Expect(ca.Contains(ca.Bundle(a, b), b)).To(BeTrue())
		Expect(ca.Contains(a, b)).To(BeFalse())
		Expect(ca.Contains(nil, a)).To(BeFalse())
		Expect(ca.Contains(a, nil)).To(BeTrue())
	})
})

var _ = Describe("Two clocks", func() {
	DescribeTable("give certificates that are valid by both", func(ahead time.Duration) {
		server := now.Add(ahead)
		authority := Must(ca.New("spec", year, now, ca.ServerTime(server)))
		leaf := Must(authority.SignServing([]string{"h"}, day, now, ca.ServerTime(server))).Leaf
		for _, moment := range []time.Time{now, server} {
			Expect(authority.Usable(moment.Add(-50*time.Minute))).To(Succeed(), "backdated")
			Expect(leaf.NotBefore).To(BeTemporally("<=", moment.Add(-time.Hour)))
			Expect(leaf.NotAfter).To(BeTemporally(">=", moment.Add(day)), "a whole lifetime")
		}
	},
		Entry("the server's is ahead", 6*time.Hour),
		Entry("the server's is behind", -6*time.Hour),
	)

	It("are one where the server's is unknown", func() {
		certificate := Must(ca.New("spec", year, now, ca.ServerTime(time.Time{}))).Certificate
		Expect(certificate.NotBefore).To(Equal(now.Add(-time.Hour)))
		Expect(certificate.NotAfter).To(Equal(now.Add(year)))
	})

	// A replica whose own clock is wrong finds the CA that others made, and must not give it up.
	DescribeTable("judge a CA that is valid by one of them to be good", func(local time.Duration, sentinel error) {
		authority, wrong := NewCA(30*day, now), now.Add(local)
		server := ca.ServerTime(now)
		Expect(authority.Usable(wrong)).To(MatchError(sentinel))
		Expect(authority.Usable(wrong, ca.ServerTime(wrong))).To(MatchError(sentinel), "by neither")
		Expect(authority.Usable(wrong, server)).To(Succeed())

		leaf := Must(authority.SignServing([]string{"h"}, day, wrong, server)).Leaf
		Expect(now).To(And(BeTemporally(">=", leaf.NotBefore), BeTemporally("<=", leaf.NotAfter)))
		Expect(authority.CrossSign(NewCA(30*day, now).Certificate, wrong, server)).Error().NotTo(HaveOccurred())
		Expect(authority.TrustedBy(authority.CertificatePEM, wrong)).To(BeFalse())
		Expect(authority.TrustedBy(authority.CertificatePEM, wrong, server)).To(BeTrue())
	},
		Entry("ours is behind", -6*time.Hour, ca.ErrNotYetValid),
		Entry("ours is ahead", 40*day, ca.ErrExpired),
	)
})

var _ = Describe("RenewIn", func() {
	DescribeTable("is two thirds of the remaining life, give or take a tenth", func(jitter float64, after time.Duration) {
		Expect(ca.RenewIn(30*time.Hour, jitter)).To(BeNumerically("~", after, time.Second))
	},
		Entry("middle", 0.0, 20*time.Hour),
		Entry("out of range", -99.0, 18*time.Hour),
		Entry("out of range on the other side", 99.0, 22*time.Hour),
	)
})
