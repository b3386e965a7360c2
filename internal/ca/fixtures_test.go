package ca_test

// Certificates as other tools write them.

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var rsaKey = sync.OnceValue(func() *rsa.PrivateKey { return must(rsa.GenerateKey(rand.Reader, 2048)) })

func ecKey() *ecdsa.PrivateKey { return must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)) }

func edKey() ed25519.PrivateKey {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	return must(key, err)
}

func must[T any](v T, err error) T {
	GinkgoHelper()
	Expect(err).NotTo(HaveOccurred())
	return v
}

// foreignCA self-signs a CA as cfssl and openssl do, changed by the editors.
func foreignCA(key crypto.Signer, edit ...func(*x509.Certificate)) []byte {
	GinkgoHelper()
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(7),
		Subject:               pkix.Name{CommonName: "SCF CA"},
		NotBefore:             now.Add(-day),
		NotAfter:              now.Add(year),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	for _, e := range edit {
		e(template)
	}
	der := must(x509.CreateCertificate(rand.Reader, template, template, key.Public(), key))
	return block("CERTIFICATE", der)
}

func block(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

func pkcs1(key *rsa.PrivateKey) []byte {
	return block("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(key))
}

func pkcs8(key crypto.Signer) []byte {
	GinkgoHelper()
	return block("PRIVATE KEY", must(x509.MarshalPKCS8PrivateKey(key)))
}

func sec1(key *ecdsa.PrivateKey) []byte {
	GinkgoHelper()
	return block("EC PRIVATE KEY", must(x509.MarshalECPrivateKey(key)))
}
