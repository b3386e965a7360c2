package ca_test

// This file is about signatures: of serving certificates, of other CAs, by two clocks, and the bundles that verify them.

import (
	"crypto/tls"
	"crypto/x509"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"code.cloudfoundry.org/eirinix/internal/ca"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
)

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
		bundles := map[string][]byte{
			"old": older.CertificatePEM, "new": newer.CertificatePEM, "both": ca.Bundle(older.CertificatePEM, newer.CertificatePEM),
		}
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
