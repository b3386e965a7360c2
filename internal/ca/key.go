package ca

// This file creates keys and holds the options of New and SignServing.

import (
	"cmp"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"errors"
	"fmt"
	"time"
)

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

// An Option changes how a certificate is created or judged.
type Option func(*options)

type options struct {
	key    KeyAlgorithm
	server time.Time // zero: unknown
}

func optionsOf(opts []Option) options {
	var o options
	for _, change := range opts {
		change(&o)
	}
	return o
}

// WithKey chooses the algorithm of the certificate's key. Without it, or with the zero value, it is ECDSA-P256. An
// unsupported algorithm makes New and SignServing fail with ErrUnknownKeyAlgorithm.
func WithKey(algorithm KeyAlgorithm) Option {
	return func(o *options) { o.key = algorithm }
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
