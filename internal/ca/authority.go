// Package ca creates and checks the certificates with which a webhook is trusted. It creates certificate authorities,
// signs serving certificates, cross-signs one authority with another, and merges and compares bundles. It depends on
// neither Kubernetes nor the system clock: every function takes the time to judge by as a parameter. Everything except
// keys, serial numbers and signatures is deterministic. It uses only the standard library.
//
// An Authority is immutable after New or Parse, so all functions are safe for concurrent use.
package ca

import (
	"crypto"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"slices"
	"time"
)

// maxBackdate is the longest time by which a certificate becomes valid before its creation. An API server whose clock
// is behind ours thus accepts it at once.
const maxBackdate = time.Hour

// Authority is a certificate authority together with its private key. It must not be changed after New or Parse. It
// prints without its key.
type Authority struct {
	Certificate    *x509.Certificate
	CertificatePEM []byte

	// Chain holds cross-signed certificates of this authority: the same name and key, issued by another authority. They
	// are sent after every serving certificate, so that a client which trusts only the other authority verifies it too.
	// Outside a rotation the Secret holds none.
	Chain []*x509.Certificate

	PrivateKey    crypto.Signer `json:"-"`
	PrivateKeyPEM []byte        `json:"-"` // always PKCS#8
}

// New creates an authority that is valid from an hour before now until lifetime after now. The start is less than an
// hour back if lifetime is under ten hours, see backdate. With a ServerTime, the validity holds by both clocks. The key
// is ECDSA P-256 unless WithKey chooses another algorithm.
//
// The subject consists of commonName and the serial number, so it is unique. No client confuses two authorities that
// were created for the same purpose. The path length is 1, because a cross-signed certificate can come between an old
// authority and the serving certificates of a new one.
func New(commonName string, lifetime time.Duration, now time.Time, opts ...Option) (*Authority, error) {
	if lifetime < time.Second {
		return nil, fmt.Errorf("the lifetime of a CA must be at least one second, not %s", lifetime)
	}
	o := optionsOf(opts)
	key, err := newKey("CA", o.key)
	if err != nil {
		return nil, err
	}
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	from, until := o.span(now, lifetime)
	template := &x509.Certificate{
		SerialNumber: serial,
		Subject: pkix.Name{
			CommonName:   fitCommonName(commonName),
			SerialNumber: hex.EncodeToString(serial.Bytes()),
		},
		NotBefore:             from,
		NotAfter:              until,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign | x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLen:            1,
	}
	certificate, err := issue("a CA certificate", template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	return newAuthority(certificate, key)
}

// issue signs a certificate, whose name is for errors. A template without a serial number gets a random one.
func issue(name string, template, parent *x509.Certificate, public any, key crypto.Signer) (*x509.Certificate, error) {
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, key)
	if err != nil {
		return nil, fmt.Errorf("signing %s: %w", name, err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("reading %s just made: %w", name, err)
	}
	return certificate, nil
}

// newAuthority completes an authority whose certificate and key are known to belong together.
func newAuthority(certificate *x509.Certificate, key crypto.Signer) (*Authority, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encoding a CA key: %w", err)
	}
	return &Authority{
		Certificate:    certificate,
		CertificatePEM: EncodeCertificate(certificate),
		PrivateKey:     key,
		PrivateKeyPEM:  pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}),
	}, nil
}

// Equal reports whether both are the same authority: the same certificate and the same cross-signed chain.
func (a *Authority) Equal(b *Authority) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Certificate.Equal(b.Certificate) && slices.EqualFunc(a.Chain, b.Chain, (*x509.Certificate).Equal)
}

// String names the authority without its key.
func (a Authority) String() string {
	if a.Certificate == nil {
		return "no CA"
	}
	return fmt.Sprintf("CA %q (valid until %s, key redacted)",
		a.Certificate.Subject, a.Certificate.NotAfter.UTC().Format(time.RFC3339))
}

// Format prints String for every verb, because %#v, %d and %x would otherwise print the fields one by one.
func (a Authority) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, a.String()) }

// MarshalLog returns String, so that logr logs the authority without its key.
func (a Authority) MarshalLog() any { return a.String() }

// backdate returns how long before its creation a certificate of that lifetime becomes valid: an hour, or a tenth of the
// lifetime if that is less. With a whole hour, two thirds of a short validity could be over at once (see RenewAt).
func backdate(lifetime time.Duration) time.Duration {
	return min(maxBackdate, lifetime/10)
}

// newSerial returns a random positive serial number of at most 16 octets (RFC 5280 allows 20).
func newSerial() (*big.Int, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("making a serial number: %w", err)
	}
	return serial.Add(serial, big.NewInt(1)), nil
}

// fitCommonName cuts a name to the 64 characters that X.520 allows.
func fitCommonName(name string) string {
	if runes := []rune(name); len(runes) > 64 {
		return string(runes[:64])
	}
	return name
}
