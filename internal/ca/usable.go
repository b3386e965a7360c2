package ca

// This file decides whether an authority can sign serving certificates that an API server accepts.

import (
	"crypto/rsa"
	"crypto/x509"
	"fmt"
	"slices"
	"time"
)

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
	if !mayIssueServing(certificate) {
		return fmt.Errorf("%w for servers: its extended key usage does not include server authentication", ErrNotCA)
	}
	if len(certificate.UnhandledCriticalExtensions) > 0 {
		return fmt.Errorf("%w that is understood: it has critical extensions %v", ErrNotCA, certificate.UnhandledCriticalExtensions)
	}
	now = optionsOf(opts).moment(certificate, now)
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

// mayIssueServing reports whether the CA's own extended key usage permits server authentication. Clients apply it to
// every certificate below the CA.
func mayIssueServing(certificate *x509.Certificate) bool {
	if len(certificate.ExtKeyUsage) == 0 && len(certificate.UnknownExtKeyUsage) == 0 {
		return true
	}
	return slices.Contains(certificate.ExtKeyUsage, x509.ExtKeyUsageServerAuth) ||
		slices.Contains(certificate.ExtKeyUsage, x509.ExtKeyUsageAny)
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
