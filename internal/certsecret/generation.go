package certsecret

// This file parses the PEM texts of a generation, and caches the result.

import (
	"bytes"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"

	"code.cloudfoundry.org/eirinix/internal/ca"
)

var errForeignCross = errors.New("it is not of this CA's name and key")

// reading holds the parsed texts of a generation. It is immutable, and copies of the generation share it.
type reading struct {
	certificateText string
	certificate     *x509.Certificate

	// The fields below are set if the key has been parsed too.
	complete  bool
	keyText   string
	crossed   []string
	authority *ca.Authority
	err       error
}

// remember parses the certificate, and the key if the generation is to sign. Nothing is parsed again until the texts
// change. remember is not safe for concurrent use, but later reads of the result are.
func (g *Generation) remember(signs bool) {
	if signs && g.readWhole() {
		return
	}
	certificate, err := g.certificate()
	if err != nil {
		g.read = nil
		return
	}
	r := &reading{certificateText: string(g.CertificatePEM), certificate: certificate}
	if signs {
		r.authority, r.err = g.Authority()
		r.complete, r.keyText = true, string(g.PrivateKeyPEM)
		for _, c := range g.CrossSigned {
			r.crossed = append(r.crossed, string(c.CertificatePEM))
		}
	}
	g.read = r
}

// certificate returns the first certificate of the generation, which must be a CA certificate.
func (g *Generation) certificate() (*x509.Certificate, error) {
	if g.read != nil && g.read.certificateText == string(g.CertificatePEM) {
		return g.read.certificate, nil
	}
	return ca.ParseCertificate(g.CertificatePEM)
}

// Authority returns the generation as a CA that can sign. The result must not be changed.
func (g *Generation) Authority() (*ca.Authority, error) {
	if g.readWhole() {
		return g.read.authority, g.read.err
	}
	authority, err := ca.Parse(g.CertificatePEM, g.PrivateKeyPEM)
	if err != nil {
		return nil, err
	}
	for _, cross := range g.CrossSigned {
		certificate, err := cross.of(authority.Certificate)
		if err != nil {
			return nil, fmt.Errorf("certificate cross-signed by generation %d: %w", cross.IssuerID, err)
		}
		authority.Chain = append(authority.Chain, certificate)
	}
	return authority, nil
}

// readWhole reports whether all texts are still the parsed ones.
func (g *Generation) readWhole() bool {
	r := g.read
	return r != nil && r.complete && r.certificateText == string(g.CertificatePEM) && r.keyText == string(g.PrivateKeyPEM) &&
		slices.EqualFunc(r.crossed, g.CrossSigned, func(text string, c CrossSigned) bool { return text == string(c.CertificatePEM) })
}

// of returns the cross-signed certificate if it has this CA's name and key.
func (c *CrossSigned) of(authority *x509.Certificate) (*x509.Certificate, error) {
	certificate, err := ca.ParseCertificate(c.CertificatePEM)
	if err != nil {
		return nil, err
	}
	if !bytes.Equal(certificate.RawSubject, authority.RawSubject) ||
		!bytes.Equal(certificate.RawSubjectPublicKeyInfo, authority.RawSubjectPublicKeyInfo) {
		return nil, errForeignCross
	}
	return certificate, nil
}

// mended returns the generation without its unusable parts: a key that does not match the certificate, and cross-signed
// certificates of another name or key.
func (g Generation) mended() Generation {
	if g.readWhole() && g.read.err == nil {
		g.CertificatePEM, g.PrivateKeyPEM = g.read.authority.CertificatePEM, g.read.authority.PrivateKeyPEM
		return g
	}
	authority, err := ca.Parse(g.CertificatePEM, g.PrivateKeyPEM)
	if err != nil {
		g.PrivateKeyPEM, g.CrossSigned = nil, nil
		return g
	}
	g.CertificatePEM, g.PrivateKeyPEM = authority.CertificatePEM, authority.PrivateKeyPEM
	g.CrossSigned = slices.DeleteFunc(slices.Clone(g.CrossSigned), func(c CrossSigned) bool {
		_, err := c.of(authority.Certificate)
		return err != nil
	})
	return g
}

// remember parses the texts that are needed repeatedly: all certificates, and the keys of the CAs that sign.
func (s *State) remember() {
	for i := range s.Generations {
		s.Generations[i].remember(s.inUse(s.Generations[i].ID))
	}
}

// Bundle returns, in PEM, every CA certificate that must be trusted, the current one first.
func (s *State) Bundle() []byte {
	var current, others []byte
	for g, certificate := range s.readable() {
		if text := ca.EncodeCertificate(certificate); g.ID == s.CurrentID {
			current = text
		} else {
			others = append(others, text...)
		}
	}
	return ca.Bundle(current, others)
}
