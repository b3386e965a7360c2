package ca

// This file creates keys, and parses keys and authorities that come from outside this package.

import (
	"cmp"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
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

// KeyAlgorithm names the algorithm of a new key. The zero value is ECDSA-P256.
type KeyAlgorithm string

// The supported algorithms. All are approved by FIPS 140-3 and understood by every API server. Creating an RSA key
// takes from a tenth of a second (2048 bits) to several seconds (4096 bits). An ECDSA key takes microseconds.
const (
	ECDSAP256 KeyAlgorithm = "ECDSA-P256"
	ECDSAP384 KeyAlgorithm = "ECDSA-P384"
	RSA2048   KeyAlgorithm = "RSA-2048"
	RSA3072   KeyAlgorithm = "RSA-3072"
	RSA4096   KeyAlgorithm = "RSA-4096"
)

// ErrUnknownKeyAlgorithm is wrapped by the error about an unsupported algorithm, which lists the supported ones.
var ErrUnknownKeyAlgorithm = errors.New("unknown key algorithm")

// KeyAlgorithms returns the supported algorithms, the default first.
func KeyAlgorithms() []KeyAlgorithm {
	return []KeyAlgorithm{ECDSAP256, ECDSAP384, RSA2048, RSA3072, RSA4096}
}

// Validate returns nil for a supported algorithm, including the zero value. Otherwise the error wraps
// ErrUnknownKeyAlgorithm.
func (k KeyAlgorithm) Validate() error {
	if makers[cmp.Or(k, ECDSAP256)] == nil {
		return fmt.Errorf("%w %q; choose one of %q", ErrUnknownKeyAlgorithm, string(k), KeyAlgorithms())
	}
	return nil
}

// makers create the keys.
var makers = map[KeyAlgorithm]func() (crypto.Signer, error){
	ECDSAP256: ecdsaKey(elliptic.P256()), ECDSAP384: ecdsaKey(elliptic.P384()),
	RSA2048: rsaKey(2048), RSA3072: rsaKey(3072), RSA4096: rsaKey(4096),
}

func ecdsaKey(curve elliptic.Curve) func() (crypto.Signer, error) {
	return func() (crypto.Signer, error) { return ecdsa.GenerateKey(curve, rand.Reader) }
}

func rsaKey(bits int) func() (crypto.Signer, error) {
	return func() (crypto.Signer, error) { return rsa.GenerateKey(rand.Reader, bits) }
}

// newKey creates a key of that algorithm. owner names the certificate in errors.
func newKey(owner string, kind KeyAlgorithm) (crypto.Signer, error) {
	if err := kind.Validate(); err != nil {
		return nil, fmt.Errorf("%s key: %w", owner, err)
	}
	key, err := makers[cmp.Or(kind, ECDSAP256)]()
	if err != nil {
		return nil, fmt.Errorf("making a %s key: %w", owner, err)
	}
	return key, nil
}
