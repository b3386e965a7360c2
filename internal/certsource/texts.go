package certsource

// This file parses the PEM texts of a certificate, its key and its CA, and reports which of them is wrong and why.

import (
	"bytes"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"

	"code.cloudfoundry.org/eirinix/internal/ca"
)

// maxKeyDER limits the size of private keys that are parsed, in bytes. Checking an RSA key costs more than the square
// of its size, and a key of 8192 bits is under 5 KiB.
const maxKeyDER = 8 << 10

// errMismatch is wrapped by the error about a certificate for another key.
var errMismatch = errors.New("the private key does not match the certificate")

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
		return nil, fmt.Errorf("%s holds no readable PEM certificate; put there the one of the CA that issued the serving certificate", t.name)
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
	key, err := parseKey(t.key)
	if err != nil {
		return Material{}, err
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
		if isFor(c, key) && i > 0 && !isFor(chain[0], key) {
			return nil, fmt.Errorf("%w that stands first; the serving certificate, %q, must stand before those of CAs", errMismatch, c.Subject)
		}
	}
	if !isFor(chain[0], key) {
		return nil, fmt.Errorf("%w of %q; both are being written, or must be issued again", errMismatch, chain[0].Subject)
	}
	return certificate, nil
}

func isFor(certificate *x509.Certificate, key crypto.Signer) bool {
	public, ok := certificate.PublicKey.(interface{ Equal(crypto.PublicKey) bool })
	return ok && public.Equal(key.Public())
}

// parseChain returns at least one certificate. It skips PEM blocks of other types.
func parseChain(chainPEM []byte) ([]*x509.Certificate, error) {
	var chain []*x509.Certificate
	for {
		var block *pem.Block
		block, chainPEM = pem.Decode(chainPEM)
		switch {
		case block == nil && len(chain) == 0:
			return nil, errors.New("there is no PEM certificate")
		case block == nil:
			return chain, nil
		case block.Type != "CERTIFICATE":
			continue
		}
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("certificate %d of the chain cannot be read: %w", len(chain)+1, err)
		}
		chain = append(chain, certificate)
	}
}

// parseKey reads the first private key, in any of the common encodings. Errors omit the parsers' messages, because no
// part of a key may get into a log.
func parseKey(t text) (crypto.Signer, error) {
	rest := t.pem
	for {
		var block *pem.Block
		block, rest = pem.Decode(rest)
		switch {
		case block == nil:
			return nil, fmt.Errorf("%s holds no PEM private key; write the key of the serving certificate there", t.name)
		case !strings.HasSuffix(block.Type, "PRIVATE KEY"): // openssl ecparam writes parameters before the key
			continue
		case block.Type == "ENCRYPTED PRIVATE KEY" || strings.Contains(block.Headers["Proc-Type"], "ENCRYPTED"):
			return nil, fmt.Errorf("the private key in %s is encrypted; store it without a passphrase", t.name)
		case len(block.Bytes) > maxKeyDER:
			return nil, fmt.Errorf("the private key in %s has %d bytes, more than %d; use a smaller one, such as ECDSA P-256", t.name, len(block.Bytes), maxKeyDER)
		}
		if key, ok := decodeKey(block.Bytes); ok {
			return key, nil
		}
		return nil, fmt.Errorf("the private key in %s cannot be read; store it as PKCS#8, PKCS#1 or SEC1", t.name)
	}
}

func decodeKey(der []byte) (crypto.Signer, bool) {
	if key, err := x509.ParsePKCS8PrivateKey(der); err == nil {
		signer, ok := key.(crypto.Signer)
		return signer, ok
	}
	if key, err := x509.ParsePKCS1PrivateKey(der); err == nil {
		return key, true
	}
	if key, err := x509.ParseECPrivateKey(der); err == nil {
		return key, true
	}
	return nil, false
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
