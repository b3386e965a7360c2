package certsource

// This file checks certificates as an API server does when it calls the webhook.

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"code.cloudfoundry.org/eirinix/internal/ca"
)

// Material is one serving certificate and the CAs that must be trusted for it. It must not be changed after its
// delivery. It prints without its key.
type Material struct {
	Certificate *tls.Certificate // chain and key; Leaf set
	Bundle      []byte           // PEM of the CA certificates that verify it
}

// Verify returns nil if a client that trusts only the bundle accepts the certificate for every host (see ca.ParseHosts)
// at that time. Otherwise the error describes the remedy. Equal material and hosts result in equal errors while the
// reason persists.
func (m Material) Verify(hosts []string, now time.Time) error {
	if m.Certificate == nil || m.Certificate.Leaf == nil {
		return errors.New("there is no certificate")
	}
	leaf := m.Certificate.Leaf
	names, err := ca.ParseHosts(hosts)
	if err != nil {
		return err
	}
	if err := cmp.Or(checkTime(leaf, now), checkNames(leaf, names), checkUsage(leaf)); err != nil {
		return err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(m.Bundle) { // the API server loads a caBundle in the same way
		return errors.New("the CA bundle holds no readable certificate; it needs the one of the CA that issued the serving certificate")
	}
	intermediates, err := x509.ParseCertificates(slices.Concat(m.Certificate.Certificate[1:]...))
	if err != nil {
		return fmt.Errorf("the certificate chain cannot be read: %w", err)
	}
	if _, err := leaf.Verify(x509.VerifyOptions{Roots: roots, Intermediates: ca.Pool(intermediates...), CurrentTime: now}); err != nil {
		return explain(leaf, err)
	}
	return nil
}

// checkTime checks the validity period of one certificate. The error omits the current time, which would change it at
// every check.
func checkTime(certificate *x509.Certificate, now time.Time) error {
	if now.After(certificate.NotAfter) {
		return fmt.Errorf("the certificate of %q has expired at %s; renew it", certificate.Subject, stamp(certificate.NotAfter))
	}
	if now.Before(certificate.NotBefore) {
		return fmt.Errorf("the certificate of %q is not valid before %s; wait until then, or check the clocks of this machine and of the issuer",
			certificate.Subject, stamp(certificate.NotBefore))
	}
	return nil
}

// checkNames checks that the certificate is valid for every host.
func checkNames(leaf *x509.Certificate, names ca.Hosts) error {
	for _, host := range names.All() {
		if err := leaf.VerifyHostname(host); err != nil {
			return fmt.Errorf("the certificate is not for host %q, by which the API server calls; have it issued with %v as subject alternative names: %w",
				host, names.All(), err)
		}
	}
	return nil
}

// checkUsage checks that the certificate is valid for servers.
func checkUsage(leaf *x509.Certificate) error {
	if ca.ForServers(leaf) {
		return nil
	}
	return errors.New("servers may not use the certificate; have it issued with the extended key usage \"server auth\"")
}

// explain describes, in terms of chain and bundle, why the certificate does not verify.
func explain(leaf *x509.Certificate, err error) error {
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return fmt.Errorf("the CA bundle does not verify the certificate, which %q issued; put the CA into the bundle, and intermediate certificates behind the serving certificate: %w",
			leaf.Issuer, err)
	}
	if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok {
		if invalid.Reason == x509.Expired && invalid.Cert != nil {
			// The original error contains the current time.
			return fmt.Errorf("the CA certificate of %q, valid from %s to %s, is not valid now; renew it",
				invalid.Cert.Subject, stamp(invalid.Cert.NotBefore), stamp(invalid.Cert.NotAfter))
		}
		if invalid.Reason == x509.IncompatibleUsage {
			return fmt.Errorf("servers may not use what the CA %q issues; use a CA whose extended key usages are none, or include \"server auth\": %w", leaf.Issuer, err)
		}
	}
	return fmt.Errorf("the certificate of %q does not verify; have it issued again: %w", leaf.Subject, err)
}

// String names the certificate without its key.
func (m Material) String() string {
	if m.Certificate == nil || m.Certificate.Leaf == nil {
		return "no certificate"
	}
	leaf := m.Certificate.Leaf
	return fmt.Sprintf("certificate of %q by %q (serial %x, valid until %s, key redacted)",
		leaf.Subject, leaf.Issuer, leaf.SerialNumber, stamp(leaf.NotAfter))
}

// GoString returns String, because %#v must not print the key.
func (m Material) GoString() string { return m.String() }

// MarshalLog returns String, so that logr logs the material without its key.
func (m Material) MarshalLog() any { return m.String() }

// MarshalJSON encodes String, because zap and others would otherwise encode the key.
func (m Material) MarshalJSON() ([]byte, error) { return json.Marshal(m.String()) }

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
