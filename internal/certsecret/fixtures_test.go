package certsecret_test

// Secrets as this library and EiriniX leave them.

import (
	"context"
	"crypto"
	"crypto/fips140"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"sync"

	. "github.com/onsi/ginkgo/v2"

	. "code.cloudfoundry.org/eirinix/internal/spectest"
)

var (
	eirinixCAKey   = sync.OnceValue(func() *rsa.PrivateKey { return Must(rsa.GenerateKey(rand.Reader, 2048)) })
	eirinixLeafKey = sync.OnceValue(func() *rsa.PrivateKey { return Must(rsa.GenerateKey(rand.Reader, 2048)) })
)

// ownData returns the data of a new Secret of ours.
func ownData() map[string][]byte {
	GinkgoHelper()
	c := newCluster(nil)
	_, _, err := c.store().Restore(context.Background(), nil, nil)
	Must(0, err)
	return c.secret().Data
}

// eirinixData returns the data that EiriniX wrote: RSA keys in PKCS#1, a leaf without SANs. Editors change the CA.
func eirinixData(edit ...func(*x509.Certificate)) map[string][]byte {
	GinkgoHelper()
	authority := &x509.Certificate{
		SerialNumber:          big.NewInt(11),
		Subject:               pkix.Name{CommonName: "SCF CA"},
		NotBefore:             now.Add(-30 * day),
		NotAfter:              now.Add(335 * day),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	for _, e := range edit {
		e(authority)
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(12), Subject: pkix.Name{CommonName: "logger.cf.svc"},
		NotBefore: authority.NotBefore, NotAfter: authority.NotAfter,
	}
	issue := func(template *x509.Certificate, key crypto.PublicKey) (text []byte) {
		fips140.WithoutEnforcement(func() { // as EiriniX, which knew nothing of it
			text = PEM("CERTIFICATE", Must(x509.CreateCertificate(rand.Reader, template, authority, key, eirinixCAKey())))
		})
		return text
	}
	return map[string][]byte{
		"ca_certificate": issue(authority, eirinixCAKey().Public()),
		"ca_private_key": PKCS1(eirinixCAKey()),
		"certificate":    issue(leaf, eirinixLeafKey().Public()),
		"private_key":    PKCS1(eirinixLeafKey()),
	}
}
