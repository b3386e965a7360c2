package world

// This file is an issuer with a CA in between, and with a further CA in its Secret.

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	cryptorand "crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"time"

	"code.cloudfoundry.org/eirinix/internal/ca"
)

// inBetween reports whether the issuer signs with a CA that its own CA has signed, and which it sends along.
func (p Plan) inBetween() bool { return p.Seed%3 == 1 }

// between returns an authority that another one has signed, for a day.
func between(root *ca.Authority) (*ca.Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), cryptorand.Reader)
	if err != nil {
		return nil, err
	}
	made, err := x509.CreateCertificate(cryptorand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "in between"},
		NotBefore: root.Certificate.NotBefore, NotAfter: root.Certificate.NotAfter,
		KeyUsage: x509.KeyUsageCertSign, IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true,
	}, root.Certificate, key.Public(), root.PrivateKey)
	if err != nil {
		return nil, err
	}
	certificate, err := x509.ParseCertificate(made)
	return &ca.Authority{Certificate: certificate, PrivateKey: key}, err
}

// further returns the CAs that the issuer writes into its Secret: its own, and half the time one that verifies none of its
// certificates.
func (w *World) further(own []byte) []byte {
	if w.plan.Seed%2 == 0 || w.plan.Split {
		return own // RegisterExtensions registers them all
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.authorities.beside == nil {
		other, err := ca.New("beside", 30*day, w.began)
		if err != nil {
			return own
		}
		w.authorities.beside = other.CertificatePEM
	}
	return ca.Bundle(own, w.authorities.beside)
}

// leavesOut sees that a configuration holds no CA that verifies no certificate. The caller holds mu.
func (w *World) leavesOut(kind string, is []hook) {
	if w.authorities.beside == nil || !w.watch.ordered.IsZero() {
		return
	}
	for _, h := range is {
		if ca.Contains(h.ClientConfig.CABundle, w.authorities.beside) {
			w.breaks("the %s holds a CA of the issuer that verifies no certificate", kind)
			return
		}
	}
}

// rootless reports whether the issuer writes no ca.crt, and appends its CA to the certificate.
func (p Plan) rootless() bool { return p.Seed%5 == 2 && !p.filed() }

// withoutRoot returns the data of the issuer's Secret with its CA at the end of the certificate.
func withoutRoot(data map[string][]byte, root []byte) map[string][]byte {
	delete(data, "ca.crt")
	data["tls.crt"] = append(data["tls.crt"], root...)
	return data
}
