package certsource

// This file parses certificates, keys and CAs, and checks them as an API server does when it calls the webhook.

import (
	"bytes"
	"cmp"
	"crypto"
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

// equal reports whether both have the same chain and bundle. The certificate identifies the key. The other one can be
// none.
func (m Material) equal(other Material) bool {
	return other.Certificate != nil && bytes.Equal(m.Bundle, other.Bundle) &&
		slices.EqualFunc(m.Certificate.Certificate, other.Certificate.Certificate, bytes.Equal)
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

// text is the content of a file, or of a key of a Secret.
type text struct {
	name string // of the file or key
	pem  []byte
}

// texts holds the three texts that are read together.
type texts struct{ certificate, key, ca text }

func (t texts) equal(other texts) bool {
	return bytes.Equal(t.certificate.pem, other.certificate.pem) && bytes.Equal(t.key.pem, other.key.pem) && bytes.Equal(t.ca.pem, other.ca.pem)
}

// bundle parses CA certificates.
func (t text) bundle() ([]byte, error) {
	bundle := ca.Bundle(t.pem)
	if bundle == nil {
		return nil, fmt.Errorf("%s holds no readable PEM certificate; write the certificate of the CA that issued the serving certificate to it", t.name)
	}
	return bundle, nil
}

// parse parses material. It checks neither time nor hosts, which Verify does.
func (t texts) parse() (Material, error) {
	for _, part := range []text{t.certificate, t.key, t.ca} {
		// Half of a bundle could verify the current certificate, but not the next one.
		if bytes.Count(part.pem, []byte("-----BEGIN ")) != bytes.Count(part.pem, []byte("-----END ")) {
			return Material{}, fmt.Errorf("%s is cut off; it is being written, or must be written again", part.name)
		}
	}
	key, err := ca.ParsePrivateKey(t.key.pem)
	if err != nil {
		return Material{}, fmt.Errorf("%s needs the key of the serving certificate: %w", t.key.name, err)
	}
	certificate, err := pair(t.certificate.pem, key)
	if err != nil {
		return Material{}, fmt.Errorf("%s and %s: %w", t.certificate.name, t.key.name, err)
	}
	bundle, err := t.ca.bundle()
	if err != nil {
		return Material{}, err
	}
	return Material{Certificate: certificate, Bundle: bundle}, nil
}

// pair parses a chain whose first certificate is for this key.
func pair(chainPEM []byte, key crypto.Signer) (*tls.Certificate, error) {
	chain, err := parseChain(chainPEM)
	if err != nil {
		return nil, err
	}
	certificate := &tls.Certificate{PrivateKey: key, Leaf: chain[0]}
	for i, c := range chain {
		certificate.Certificate = append(certificate.Certificate, c.Raw)
		if i > 0 && ca.Matches(c, key) && !ca.Matches(chain[0], key) {
			return nil, fmt.Errorf("%w that stands first; the serving certificate, %q, must stand before those of CAs", ca.ErrKeyMismatch, c.Subject)
		}
	}
	if !ca.Matches(chain[0], key) {
		return nil, fmt.Errorf("%w of %q; both are being written, or must be issued again", ca.ErrKeyMismatch, chain[0].Subject)
	}
	return certificate, nil
}

// parseChain returns at least one certificate. It skips PEM blocks of other types.
func parseChain(chainPEM []byte) (chain []*x509.Certificate, _ error) {
	for block := range ca.Blocks(chainPEM) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("certificate %d of the chain cannot be read: %w", len(chain)+1, err)
		}
		chain = append(chain, certificate)
	}
	if len(chain) == 0 {
		return nil, errors.New("there is no PEM certificate")
	}
	return chain, nil
}

// rootOf returns the PEM of the chain's last certificate if that is self-signed, or nil otherwise.
func rootOf(chainPEM []byte) []byte {
	chain, err := parseChain(chainPEM)
	if err != nil {
		return nil
	}
	last := chain[len(chain)-1]
	if !bytes.Equal(last.RawIssuer, last.RawSubject) || last.CheckSignature(last.SignatureAlgorithm, last.RawTBSCertificate, last.Signature) != nil {
		return nil
	}
	return ca.EncodeCertificate(last)
}
