package ca_test

// Certificates as other tools write them.

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"sync"

	. "github.com/onsi/ginkgo/v2"

	. "code.cloudfoundry.org/eirinix/internal/spectest"
)

var rsaKey = sync.OnceValue(func() *rsa.PrivateKey { return Must(rsa.GenerateKey(rand.Reader, 2048)) })

func edKey() ed25519.PrivateKey {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	return Must(key, err)
}

func sec1(key *ecdsa.PrivateKey) []byte {
	GinkgoHelper()
	return PEM("EC PRIVATE KEY", Must(x509.MarshalECPrivateKey(key)))
}
