package eirinix_test

// This file holds the rows of the options about the certificates of the program.

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/internal/ca"
)

// newest returns the effect that the CA of the program matches.
func newest(matcher func(*x509.Certificate) bool) effect {
	return func(ctx SpecContext, s *scene) {
		GinkgoHelper()
		block, _ := pem.Decode(s.secret(ctx).Data["tls.crt"])
		Expect(block).NotTo(BeNil())
		certificate, err := x509.ParseCertificate(block.Bytes)
		Expect(err).NotTo(HaveOccurred())
		Expect(matcher(certificate)).To(BeTrue(), "%+v", certificate)
	}
}

var (
	month = newest(func(c *x509.Certificate) bool { return time.Until(c.NotAfter) < 31*24*time.Hour })
	p384  = newest(func(c *x509.Certificate) bool { return c.PublicKey.(*ecdsa.PublicKey).Curve == elliptic.P384() })

	ofIssuer = eachHook(func(s *scene) OmegaMatcher {
		return HaveField("ClientConfig.CABundle", WithTransform(ca.SplitBundle, ConsistOf(HaveField("SubjectKeyId", s.value.(issuer).Certificate.SubjectKeyId))))
	})
)

var certificateRows = map[string]row{
	"SetupCertificate": {
		set:    func(_ *scene, o *eirinix.ManagerOptions) { o.SetupCertificate = new(false) },
		beside: func(_ SpecContext, s *scene) { Expect(s.plain().RegisterExtensions()).To(Succeed()) },
		Start: plays(func(ctx SpecContext, s *scene) {
			s.clean(ctx)
			s.launch(ctx, s.other())
			Eventually(s.logged).WithContext(ctx).Should(ContainSubstring("waiting for the certificate Secret; RegisterExtensions makes it"))
			Expect(s.certificates(ctx)).To(BeEmpty())
			Expect(s.plain().RegisterExtensions()).To(Succeed())
			Eventually(s.manager.Ready()).WithContext(ctx).Should(BeClosed())
			refuses(ctx, s)
		}),
		RegisterExtensions: plays(func(ctx SpecContext, s *scene) {
			Expect(s.run(ctx, s.life)).To(MatchError(ContainSubstring("certificate Secret")))
			Expect(s.certificates(ctx)).To(BeEmpty())
			Expect(s.plain().RegisterExtensions()).To(Succeed())
			Expect(s.run(ctx, s.life)).To(Succeed(), "it adopts the Secret")
		}),
		RotateCA: plays(func(ctx SpecContext, s *scene) {
			s.clean(ctx)
			Expect(s.other().RotateCA(ctx, eirinix.RotateOptions{})).To(MatchError(ContainSubstring("certificate Secret")))
			Expect(s.certificates(ctx)).To(BeEmpty(), "it makes none")
			Expect(s.plain().RegisterExtensions()).To(Succeed())
			before := s.certificates(ctx)
			Expect(s.other().RotateCA(ctx, eirinix.RotateOptions{})).To(Succeed(), "it is asked to, and no other program runs")
			Expect(s.certificates(ctx)).NotTo(Equal(before))
			s.clean(ctx) // otherwise the next rotation waits until the first one is complete
			s.launch(ctx, s.plain())
			Eventually(s.manager.Ready()).WithContext(ctx).Should(BeClosed())
			before = s.certificates(ctx)
			Expect(s.other().RotateCA(ctx, eirinix.RotateOptions{})).To(Succeed(), "beside a running program")
			Expect(s.certificates(ctx)).NotTo(Equal(before))
			refuses(ctx, s)
		}),
	},
	"CALifetime": {
		set:   func(_ *scene, o *eirinix.ManagerOptions) { o.CALifetime = 30 * 24 * time.Hour },
		Start: month, RegisterExtensions: month, RotateCA: month,
	},
	"KeyAlgorithm": {
		set:   func(_ *scene, o *eirinix.ManagerOptions) { o.KeyAlgorithm = "ECDSA-P384" },
		Start: p384, RegisterExtensions: p384, RotateCA: p384,
	},
	"Certificates": {
		prepare: func(_ SpecContext, s *scene) {
			i := newIssuer()
			write(s.temporary, i.issue())
			s.value = i
		},
		set: func(s *scene, o *eirinix.ManagerOptions) {
			o.Certificates = eirinix.FromFiles(s.temporary, "", "", "")
		},
		Start: effect(func(ctx SpecContext, s *scene) {
			ofIssuer(ctx, s)
			Expect(servedBy(s.manager)()).To(Equal(s.value.(issuer).Certificate.SubjectKeyId))
			Expect(s.certificates(ctx)).To(BeEmpty())
		}),
		RegisterExtensions: ofIssuer, RotateCA: refusal("the certificates come from"),
	},
	"TLS": {
		set: func(_ *scene, o *eirinix.ManagerOptions) {
			o.TLS = func(c *tls.Config) { c.MinVersion = tls.VersionTLS13 }
		},
		Start: effect(func(ctx SpecContext, s *scene) {
			refuses(ctx, s)
			refusesTLS12(s.manager)
		}),
	},
}

// refusesTLS12 asserts that the Manager takes a handshake of TLS 1.3, and none of TLS 1.2.
func refusesTLS12(m *eirinix.ExtensionManager) {
	GinkgoHelper()
	conn, err := tls.Dial("tcp", m.Addr().String(), &tls.Config{InsecureSkipVerify: true})
	Expect(err).NotTo(HaveOccurred())
	Expect(conn.Close()).To(Succeed())
	_, err = tls.Dial("tcp", m.Addr().String(), &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12})
	Expect(err).To(MatchError(ContainSubstring("protocol version not supported")))
}
