package ca

// This file parses authorities and keys that come from outside this package. It decides whether an authority can sign
// serving certificates that an API server accepts, and reports exactly why not.

import (
	"crypto"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// The reasons why a certificate and key are not an authority. Errors of Parse and Usable wrap one of these.
var (
	ErrNoCertificate  = errors.New("no PEM certificate")
	ErrNoPrivateKey   = errors.New("no PEM private key")
	ErrBadCertificate = errors.New("the certificate cannot be read")
	ErrBadPrivateKey  = errors.New("the private key cannot be read")
	ErrNotCA          = errors.New("the certificate is not a CA certificate")
	ErrKeyMismatch    = errors.New("the private key does not match the certificate")
	ErrExpired        = errors.New("the CA certificate has expired")
	ErrNotYetValid    = errors.New("the CA certificate is not valid yet")
	ErrWeak           = errors.New("the CA is too weak")
)

// maxKeyDER limits the size of private keys that are parsed, in bytes. Checking an RSA key costs more than the square
// of its size, and a key of 8192 bits is under 5 KiB.
const maxKeyDER = 8 << 10

// Parse reads an authority from the first certificate in certificatePEM and the first private key in privateKeyPEM
// (PKCS#8, PKCS#1 or SEC1). The error wraps one of this package's sentinels. Parse ignores the validity period, which
// Usable checks.
func Parse(certificatePEM, privateKeyPEM []byte) (*Authority, error) {
	certificate, err := ParseCertificate(certificatePEM)
	if err != nil {
		return nil, err
	}
	key, err := ParsePrivateKey(privateKeyPEM)
	if err != nil {
		return nil, err
	}
	if !Matches(certificate, key) {
		return nil, ErrKeyMismatch
	}
	return newAuthority(certificate, key)
}

// ParseCertificate reads the first certificate of a PEM text, which must be a CA certificate.
func ParseCertificate(certificatePEM []byte) (*x509.Certificate, error) {
	block := firstBlock(certificatePEM, func(kind string) bool { return kind == "CERTIFICATE" })
	if block == nil {
		return nil, ErrNoCertificate
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBadCertificate, err)
	}
	if !certificate.BasicConstraintsValid || !certificate.IsCA {
		return nil, ErrNotCA
	}
	return certificate, nil
}

// Matches reports whether a certificate is for this key.
func Matches(certificate *x509.Certificate, key crypto.Signer) bool {
	public, ok := certificate.PublicKey.(interface{ Equal(crypto.PublicKey) bool })
	return ok && public.Equal(key.Public())
}

// ParsePrivateKey reads the first private key of a PEM text, in any of the common encodings. The error wraps
// ErrNoPrivateKey or ErrBadPrivateKey, and states the remedy. It omits the parsers' messages, because no part of a key
// may get into a log.
func ParsePrivateKey(text []byte) (crypto.Signer, error) {
	// openssl ecparam writes a block of parameters before the key, so only key blocks count.
	block := firstBlock(text, func(kind string) bool { return strings.HasSuffix(kind, "PRIVATE KEY") })
	switch {
	case block == nil:
		return nil, ErrNoPrivateKey
	case block.Type == "ENCRYPTED PRIVATE KEY" || strings.Contains(block.Headers["Proc-Type"], "ENCRYPTED"):
		return nil, fmt.Errorf("%w: it is encrypted; store it without a passphrase", ErrBadPrivateKey)
	case len(block.Bytes) > maxKeyDER:
		return nil, fmt.Errorf("%w: it has %d bytes, more than %d; use a smaller one, such as ECDSA P-256", ErrBadPrivateKey, len(block.Bytes), maxKeyDER)
	}
	if key, err := x509.ParsePKCS8PrivateKey(block.Bytes); err == nil {
		if signer, ok := key.(crypto.Signer); ok {
			return signer, nil
		}
		return nil, fmt.Errorf("%w: a %T cannot sign", ErrBadPrivateKey, key)
	}
	if key, err := x509.ParsePKCS1PrivateKey(block.Bytes); err == nil {
		return key, nil
	}
	if key, err := x509.ParseECPrivateKey(block.Bytes); err == nil {
		return key, nil
	}
	return nil, fmt.Errorf("%w; store it as PKCS#8, PKCS#1 or SEC1", ErrBadPrivateKey)
}

// firstBlock returns the first PEM block of a wanted type, or nil.
func firstBlock(text []byte, wanted func(kind string) bool) *pem.Block {
	for block := range Blocks(text) {
		if wanted(block.Type) {
			return block
		}
	}
	return nil
}

// minRSABits is the minimum size of an RSA key that crypto/tls and every current root programme require.
const minRSABits = 2048

// Usable returns nil if serving certificates signed by the authority verify at that time. Otherwise the error states
// the reason and wraps ErrNoCertificate, ErrNoPrivateKey, ErrExpired, ErrNotYetValid, ErrNotCA or ErrWeak. With
// ServerTime, an authority that is valid by one of the two clocks passes the check of its validity period.
func (a *Authority) Usable(now time.Time, opts ...Option) error {
	if a == nil || a.Certificate == nil {
		return ErrNoCertificate
	}
	if a.PrivateKey == nil {
		return ErrNoPrivateKey
	}
	certificate := a.Certificate
	if !certificate.BasicConstraintsValid || !certificate.IsCA {
		return ErrNotCA
	}
	if certificate.KeyUsage != 0 && certificate.KeyUsage&x509.KeyUsageCertSign == 0 {
		return fmt.Errorf("%w: its key usage does not include certificate signing", ErrNotCA)
	}
	if !ForServers(certificate) {
		return fmt.Errorf("%w for servers: its extended key usage does not include server authentication", ErrNotCA)
	}
	if len(certificate.UnhandledCriticalExtensions) > 0 {
		return fmt.Errorf("%w that is understood: it has critical extensions %v", ErrNotCA, certificate.UnhandledCriticalExtensions)
	}
	now = Moment(certificate, now, opts...)
	if now.Before(certificate.NotBefore) {
		return fmt.Errorf("%w: it starts at %s and now is %s; check the clocks", ErrNotYetValid, stamp(certificate.NotBefore), stamp(now))
	}
	if now.After(certificate.NotAfter) {
		return fmt.Errorf("%w at %s", ErrExpired, stamp(certificate.NotAfter))
	}
	return strong(certificate)
}

// strong refuses the algorithms and key sizes that Go clients refuse or are about to refuse.
func strong(certificate *x509.Certificate) error {
	switch certificate.SignatureAlgorithm {
	case x509.SHA256WithRSA, x509.SHA384WithRSA, x509.SHA512WithRSA,
		x509.SHA256WithRSAPSS, x509.SHA384WithRSAPSS, x509.SHA512WithRSAPSS,
		x509.ECDSAWithSHA256, x509.ECDSAWithSHA384, x509.ECDSAWithSHA512, x509.PureEd25519:
	default:
		return fmt.Errorf("%w: it is signed with %s, which is weaker than SHA-256", ErrWeak, certificate.SignatureAlgorithm)
	}
	if key, ok := certificate.PublicKey.(*rsa.PublicKey); ok && key.N.BitLen() < minRSABits {
		return fmt.Errorf("%w: its RSA key has %d bits, fewer than %d", ErrWeak, key.N.BitLen(), minRSABits)
	}
	return nil
}

// ForServers reports whether the extended key usage of a certificate permits server authentication. A certificate
// without one is for every use. Clients apply that of a CA to every certificate below it.
func ForServers(certificate *x509.Certificate) bool {
	return len(certificate.ExtKeyUsage)+len(certificate.UnknownExtKeyUsage) == 0 ||
		slices.Contains(certificate.ExtKeyUsage, x509.ExtKeyUsageServerAuth) ||
		slices.Contains(certificate.ExtKeyUsage, x509.ExtKeyUsageAny)
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
