package certsource

// This file parses the PEM texts of a certificate, its key and its CA, and reports which of them is wrong and why.

import (
	"bytes"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"

	"code.cloudfoundry.org/eirinix/internal/ca"
)

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
