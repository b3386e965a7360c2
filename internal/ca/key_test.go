package ca_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/rsa"
	"crypto/x509"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"code.cloudfoundry.org/eirinix/internal/ca"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
)

// keyedCA is one authority of each algorithm; making RSA keys takes seconds.
var keyedCA = func() func(ca.KeyAlgorithm) *ca.Authority {
	var mu sync.Mutex
	made := map[ca.KeyAlgorithm]*ca.Authority{}
	return func(algorithm ca.KeyAlgorithm) *ca.Authority {
		GinkgoHelper()
		mu.Lock()
		defer mu.Unlock()
		if made[algorithm] == nil {
			made[algorithm] = Must(ca.New("spec", 10*year, now, ca.WithKey(algorithm)))
		}
		return made[algorithm]
	}
}()

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
		a := keyedCA(algorithm)
		Expect(kindOf(a.Certificate.PublicKey)).To(Equal(kind))
		Expect(a.Usable(now)).To(Succeed())
		read := Must(ca.Parse(a.CertificatePEM, a.PrivateKeyPEM))
		Expect(read.Equal(a)).To(BeTrue())
		certificate := Must(read.SignServing([]string{"a.b.svc"}, day, now))
		Expect(kindOf(certificate.Leaf.PublicKey)).To(Equal(ca.ECDSAP256), "the serving key is chosen by itself")
		Expect(handshake(certificate, "a.b.svc", a.CertificatePEM)).To(Succeed())
	},
		Entry("the default", ca.KeyAlgorithm(""), ca.ECDSAP256),
		Entry("ECDSA-P256", ca.ECDSAP256, ca.ECDSAP256),
		Entry("ECDSA-P384", ca.ECDSAP384, ca.ECDSAP384),
		Entry("RSA-2048", ca.RSA2048, ca.RSA2048),
		Entry("RSA-3072", ca.RSA3072, ca.RSA3072),
		Entry("RSA-4096", ca.RSA4096, ca.RSA4096),
	)

	DescribeTable("chooses the key of a serving certificate, whatever its CA's is", func(algorithm, kind ca.KeyAlgorithm) {
		for _, signer := range []ca.KeyAlgorithm{ca.ECDSAP256, ca.RSA2048} {
			a := keyedCA(signer)
			certificate := Must(a.SignServing([]string{"a.b.svc"}, day, now, ca.WithKey(algorithm)))
			Expect(kindOf(certificate.Leaf.PublicKey)).To(Equal(kind))
			Expect(handshake(certificate, "a.b.svc", a.CertificatePEM)).To(Succeed(), "signed by %s", signer)
		}
	},
		Entry("the default", ca.KeyAlgorithm(""), ca.ECDSAP256),
		Entry("ECDSA-P384", ca.ECDSAP384, ca.ECDSAP384),
		Entry("RSA-2048", ca.RSA2048, ca.RSA2048),
		Entry("RSA-3072", ca.RSA3072, ca.RSA3072),
	)

	It("can be left out, and the last one counts", func() {
		a := Must(ca.New("spec", year, now, ca.WithKey(ca.RSA4096), ca.WithKey(ca.ECDSAP384)))
		Expect(kindOf(a.Certificate.PublicKey)).To(Equal(ca.ECDSAP384))
	})

	It("names the choices when there is no such algorithm", func() {
		for _, algorithm := range []ca.KeyAlgorithm{"RSA-1024", "ecdsa-p256", "Ed25519", " "} {
			named := And(MatchError(ca.ErrUnknownKeyAlgorithm), MatchError(ContainSubstring(
				`key algorithm "`+string(algorithm)+`"; choose one of ["ECDSA-P256" "ECDSA-P384" "RSA-2048" "RSA-3072" "RSA-4096"]`)))
			Expect(algorithm.Validate()).To(named)
			Expect(ca.New("spec", year, now, ca.WithKey(algorithm))).Error().To(named)
			Expect(keyedCA("").SignServing([]string{"h"}, day, now, ca.WithKey(algorithm))).Error().To(named)
		}
		for _, algorithm := range append(ca.KeyAlgorithms(), "") {
			Expect(algorithm.Validate()).To(Succeed())
		}
	})

	It("lets a CA of any algorithm be cross-signed by one of any other", func() {
		for _, older := range ca.KeyAlgorithms() {
			for _, newer := range ca.KeyAlgorithms() {
				trusted, signer := keyedCA(older), *keyedCA(newer)
				if older == newer {
					trusted = Must(ca.New("spec", 10*year, now)) // one of its own cannot be told from itself
				}
				signer.Chain = []*x509.Certificate{Must(trusted.CrossSign(signer.Certificate, now))}
				certificate := Must(signer.SignServing([]string{"a.b.svc"}, day, now))
				Expect(handshake(certificate, "a.b.svc", trusted.CertificatePEM)).To(Succeed(), "%s trusted, %s serves", older, newer)
				Expect(signer.TrustedBy(trusted.CertificatePEM, now)).To(BeTrue(), "%s trusted, %s serves", older, newer)
			}
		}
	})
})
