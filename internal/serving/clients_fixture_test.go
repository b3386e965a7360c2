package serving_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"sync/atomic"
	"testing"
	"time"

	"code.cloudfoundry.org/eirinix/internal/ca"
)

var clientSerial atomic.Int64

// clientCert makes a client certificate with a common name, changed by the editors.
func clientCert(t testing.TB, issuer *ca.Authority, name string, edit ...func(*x509.Certificate)) *tls.Certificate {
	t.Helper()
	return certifiedBy(t, issuer.Certificate, issuer.PrivateKey, name, edit...)
}

func certifiedBy(t testing.TB, issuer *x509.Certificate, issuerKey crypto.Signer, name string, edit ...func(*x509.Certificate)) *tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(clientSerial.Add(1)),
		Subject:               pkix.Name{CommonName: name},
		NotBefore:             issuer.NotBefore,
		NotAfter:              issuer.NotBefore.Add(leafDay),
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		BasicConstraintsValid: true,
	}
	for _, e := range edit {
		e(template)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, issuer, key.Public(), issuerKey)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

// intermediateCA is an editor.
func intermediateCA(c *x509.Certificate) {
	c.IsCA, c.KeyUsage, c.ExtKeyUsage = true, x509.KeyUsageCertSign, nil
}

// connectionOf is the connection of a client that has sent these certificates.
func connectionOf(certificates ...*tls.Certificate) *tls.ConnectionState {
	state := &tls.ConnectionState{}
	for _, c := range certificates {
		state.PeerCertificates = append(state.PeerCertificates, c.Leaf)
	}
	return state
}

func until(t time.Time) func(*x509.Certificate) {
	return func(c *x509.Certificate) { c.NotAfter = t }
}

func from(t time.Time) func(*x509.Certificate) {
	return func(c *x509.Certificate) { c.NotBefore = t }
}
