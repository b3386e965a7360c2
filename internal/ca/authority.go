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
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"slices"
	"time"
)

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
// hour back if lifetime is under ten hours. With a ServerTime, the validity holds by both clocks. The key is ECDSA P-256
// unless WithKey chooses another algorithm.
//
// The subject consists of commonName and a random serial number, so it is unique. No client confuses two authorities
// that were created for the same purpose. The path length is 1, because a cross-signed certificate can come between an old
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
	from, until := o.span(now, lifetime)
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: fitCommonName(commonName), SerialNumber: rand.Text()},
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

// issue signs a certificate, whose name is for errors, with a random serial number.
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

// minRSABits is the minimum size of an RSA key that crypto/tls and every current root programme require.
const minRSABits = 2048

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

// Equal reports whether both are the same authority: the same certificate and the same cross-signed chain.
func (a *Authority) Equal(b *Authority) bool {
	return a.Certificate.Equal(b.Certificate) && slices.EqualFunc(a.Chain, b.Chain, (*x509.Certificate).Equal)
}

// String names the authority without its key.
func (a Authority) String() string {
	if a.Certificate == nil {
		return "no CA"
	}
	return fmt.Sprintf("CA %q (valid until %s, key redacted)",
		a.Certificate.Subject, stamp(a.Certificate.NotAfter))
}

// Format prints String for every verb, because %#v, %d and %x would otherwise print the fields one by one.
func (a Authority) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, a.String()) }

// MarshalLog returns String, so that logr logs the authority without its key.
func (a Authority) MarshalLog() any { return a.String() }

// fitCommonName cuts a name to the 64 characters that X.520 allows.
func fitCommonName(name string) string {
	if runes := []rune(name); len(runes) > 64 {
		return string(runes[:64])
	}
	return name
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

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

// ServerTime passes the API server's time as last observed, because that clock judges the certificates that we sign, and
// either clock can be wrong. The zero value means unknown and has no effect.
//
// New, SignServing: the certificate starts before the earlier of the two clocks, and its lifetime is counted from the
// later one. Usable, SignServing, CrossSign, TrustedBy: validity by one of the two clocks is enough.
func ServerTime(t time.Time) Option {
	return func(o *options) { o.server = t }
}

// span returns the validity of a certificate that is created now. It begins an hour before, so that an API server whose
// clock is behind ours accepts the certificate at once. A short validity begins only a tenth of it before: otherwise two
// thirds of it could be over at once (see RenewIn).
func (o options) span(now time.Time, lifetime time.Duration) (from, until time.Time) {
	first, last := now, now
	if !o.server.IsZero() {
		first, last = earlier(now, o.server), later(now, o.server)
	}
	return first.Add(-min(time.Hour, lifetime/10)), last.Add(lifetime)
}

// Moment returns the time to judge a certificate by: now, or the server's time if the certificate is valid only by
// that.
func Moment(certificate *x509.Certificate, now time.Time, opts ...Option) time.Time {
	if o := optionsOf(opts); !validAt(certificate, now) && !o.server.IsZero() && validAt(certificate, o.server) {
		return o.server
	}
	return now
}

func validAt(certificate *x509.Certificate, t time.Time) bool {
	return !t.Before(certificate.NotBefore) && !t.After(certificate.NotAfter)
}

func later(a, b time.Time) time.Time { return slices.MaxFunc([]time.Time{a, b}, time.Time.Compare) }

func earlier(a, b time.Time) time.Time { return slices.MinFunc([]time.Time{a, b}, time.Time.Compare) }
