package certsecret

// This file parses the PEM texts of a generation.

import (
	"bytes"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"

	"code.cloudfoundry.org/eirinix/internal/ca"
)

// certificate returns the first certificate of the generation, which must be a CA certificate.
func (g *Generation) certificate() (*x509.Certificate, error) {
	return ca.ParseCertificate(g.CertificatePEM)
}

// Authority returns the generation as a CA that can sign.
func (g *Generation) Authority() (*ca.Authority, error) {
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

// of returns the cross-signed certificate if it has this CA's name and key.
func (c *CrossSigned) of(authority *x509.Certificate) (*x509.Certificate, error) {
	certificate, err := ca.ParseCertificate(c.CertificatePEM)
	if err != nil {
		return nil, err
	}
	if !bytes.Equal(certificate.RawSubject, authority.RawSubject) ||
		!bytes.Equal(certificate.RawSubjectPublicKeyInfo, authority.RawSubjectPublicKeyInfo) {
		return nil, errors.New("it is not of this CA's name and key")
	}
	return certificate, nil
}

// mended returns the generation without its unusable parts: a key that does not match the certificate, and cross-signed
// certificates of another name or key.
func (g Generation) mended() Generation {
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
