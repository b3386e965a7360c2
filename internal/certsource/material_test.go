package certsource_test

// This file is about one certificate and its bundle: whether a client accepts it, and that it prints without its key.

import (
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"code.cloudfoundry.org/eirinix/internal/ca"
	"code.cloudfoundry.org/eirinix/internal/certsource"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
)

var _ = Describe("Material", func() {
	material := func(authority *ca.Authority, edit ...func(*x509.Certificate)) certsource.Material {
		GinkgoHelper()
		key := NewKey()
		leaf := leafOf(sign(authority, key.Public(), edit...))
		return certsource.Material{
			Certificate: &tls.Certificate{Certificate: [][]byte{leaf.Raw}, PrivateKey: key, Leaf: leaf},
			Bundle:      authority.CertificatePEM,
		}
	}

	It("is good when a client accepts it for every host", func() {
		m := material(newAuthority())
		Expect(m.Verify(hosts, time.Now())).To(Succeed())
		Expect(m.Verify([]string{"[127.0.0.1]", "WEBHOOK.cf.svc."}, time.Now())).To(Succeed())
		for _, host := range hosts {
			Expect(handshake(m, host, time.Now())).To(Succeed())
		}
	})

	It("is judged as a client does that does not know intermediate CAs", func() {
		root, issuer := newAuthority(), newAuthority()
		cross := Must(root.CrossSign(issuer.Certificate, time.Now()))
		m := material(issuer)
		m.Bundle = root.CertificatePEM
		Expect(m.Verify(hosts, time.Now())).To(MatchError(ContainSubstring("intermediate certificates behind the serving certificate")))
		m.Certificate.Certificate = append(m.Certificate.Certificate, cross.Raw)
		Expect(m.Verify(hosts, time.Now())).To(Succeed())
		Expect(handshake(m, hosts[0], time.Now())).To(Succeed())
	})

	DescribeTable("has the reason why a client would refuse it", func(reason string, make func() certsource.Material) {
		m := make()
		first := m.Verify(hosts, time.Now())
		Expect(first).To(MatchError(ContainSubstring(reason)))
		Expect(handshake(m, hosts[0], time.Now())).NotTo(Succeed())
		Expect(m.Verify(hosts, time.Now().Add(time.Minute))).To(MatchError(first.Error()), "the same reason is the same text")
	},
		Entry("expired", "has expired at", func() certsource.Material {
			return material(newAuthority(), func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Second) })
		}),
		Entry("not yet valid", "check the clocks", func() certsource.Material {
			return material(newAuthority(), func(c *x509.Certificate) { c.NotBefore = time.Now().Add(time.Hour) })
		}),
		Entry("another host", `is not for host "webhook.cf.svc"`, func() certsource.Material {
			return material(newAuthority(), func(c *x509.Certificate) { c.DNSNames = []string{"other.cf.svc"} })
		}),
		Entry("only a common name", "subject alternative names", func() certsource.Material {
			return material(newAuthority(), func(c *x509.Certificate) {
				c.DNSNames, c.IPAddresses, c.Subject.CommonName = nil, nil, hosts[0]
			})
		}),
		Entry("for clients", `"server auth"`, func() certsource.Material {
			return material(newAuthority(), func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth} })
		}),
		Entry("unknown CA", "put the CA into the bundle", func() certsource.Material {
			m := material(newAuthority())
			m.Bundle = newAuthority().CertificatePEM
			return m
		}),
		Entry("no bundle", "the CA bundle holds no readable certificate", func() certsource.Material {
			m := material(newAuthority())
			m.Bundle = nil
			return m
		}),
		Entry("a CA for clients", "use a CA whose extended key usages are none", func() certsource.Material {
			key, root := NewKey(), newAuthority()
			template := &x509.Certificate{
				SerialNumber: root.Certificate.SerialNumber, NotBefore: root.Certificate.NotBefore, NotAfter: root.Certificate.NotAfter,
				Subject: pkix.Name{CommonName: "clients only"}, BasicConstraintsValid: true, IsCA: true,
				ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
			}
			der := Must(x509.CreateCertificate(rand.Reader, template, template, key.Public(), key))
			certificate := Must(x509.ParseCertificate(der))
			return material(&ca.Authority{Certificate: certificate, CertificatePEM: ca.EncodeCertificate(certificate), PrivateKey: key})
		}),
		Entry("expired CA", "the CA certificate of", func() certsource.Material {
			return material(Must(ca.New("spec", time.Hour, time.Now().Add(-2*time.Hour))))
		}),
	)

	It("takes a certificate that is its own CA", func() {
		key := NewKey()
		self := &ca.Authority{PrivateKey: key, Certificate: &x509.Certificate{}}
		leaf := leafOf(sign(self, key.Public()))
		m := certsource.Material{
			Certificate: &tls.Certificate{Certificate: [][]byte{leaf.Raw}, PrivateKey: key, Leaf: leaf},
			Bundle:      ca.EncodeCertificate(leaf),
		}
		Expect(m.Verify(hosts, time.Now())).To(Succeed())
		Expect(handshake(m, hosts[0], time.Now())).To(Succeed())
	})

	It("is nothing without a certificate", func() {
		Expect(certsource.Material{}.Verify(hosts, time.Now())).To(MatchError("there is no certificate"))
		Expect(certsource.Material{}.String()).To(Equal("no certificate"))
	})

	It("never prints its key", func() {
		m := material(newAuthority())
		text := string(PKCS8(m.Certificate.PrivateKey))
		secret := fmt.Sprint(m.Certificate.PrivateKey)
		var printed strings.Builder
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%d", "%x"} {
			fmt.Fprintf(&printed, verb+"\n", m)
			fmt.Fprintf(&printed, verb+"\n", []any{&m, struct{ M certsource.Material }{m}})
		}
		fmt.Fprintln(&printed, m.MarshalLog(), string(Must(json.Marshal(m))))
		Expect(printed.String()).To(ContainSubstring("key redacted"))
		Expect(printed.String()).NotTo(ContainSubstring(strings.Split(text, "\n")[1][30:]))
		for _, number := range strings.Fields(strings.Trim(secret, "&{}")) {
			if len(number) > 30 {
				Expect(printed.String()).NotTo(ContainSubstring(strings.Trim(number, "{}")))
			}
		}
	})
})
