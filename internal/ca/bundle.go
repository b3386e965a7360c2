package ca

// This file handles bundles, the PEM lists of CA certificates that an API server trusts.

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"time"
)

// Bundle joins PEM texts into one bundle. It holds every certificate once, in the order of first appearance and in
// canonical encoding. Anything else in the texts (keys, comments, unreadable blocks) is left out. The result is nil if
// no text holds a certificate. Equal input results in equal bytes.
func Bundle(texts ...[]byte) []byte {
	var bundle []byte
	seen := map[string]bool{}
	for _, text := range texts {
		for _, certificate := range SplitBundle(text) {
			if !seen[string(certificate.Raw)] {
				seen[string(certificate.Raw)] = true
				bundle = append(bundle, encodeCertificate(certificate.Raw)...)
			}
		}
	}
	return bundle
}

// SplitBundle returns the certificates of a bundle in order. It skips unreadable blocks, as the API server does when it
// loads a caBundle.
func SplitBundle(bundle []byte) []*x509.Certificate {
	var certificates []*x509.Certificate
	for {
		var block *pem.Block
		block, bundle = pem.Decode(bundle)
		if block == nil {
			return certificates
		}
		if block.Type != "CERTIFICATE" || len(block.Headers) > 0 {
			continue
		}
		if certificate, err := x509.ParseCertificate(block.Bytes); err == nil {
			certificates = append(certificates, certificate)
		}
	}
}

// OfName returns the certificates of a bundle whose subject has the common name that New sets for name.
func OfName(bundle []byte, name string) []byte {
	var texts [][]byte
	for _, certificate := range SplitBundle(bundle) {
		if certificate.Subject.CommonName == fitCommonName(name) {
			texts = append(texts, encodeCertificate(certificate.Raw))
		}
	}
	return Bundle(texts...)
}

// Contains reports whether whole holds every certificate of part. An empty part is contained in every bundle.
func Contains(whole, part []byte) bool {
	in := members(whole)
	for _, certificate := range SplitBundle(part) {
		if !in[string(certificate.Raw)] {
			return false
		}
	}
	return true
}

// Common returns those certificates of a bundle that another bundle holds too.
func Common(bundle, other []byte) []byte {
	in := members(other)
	var texts [][]byte
	for _, certificate := range SplitBundle(bundle) {
		if in[string(certificate.Raw)] {
			texts = append(texts, encodeCertificate(certificate.Raw))
		}
	}
	return Bundle(texts...)
}

// members returns the set of certificates in a bundle, as DER.
func members(bundle []byte) map[string]bool {
	in := map[string]bool{}
	for _, certificate := range SplitBundle(bundle) {
		in[string(certificate.Raw)] = true
	}
	return in
}

// EqualBundles reports whether two bundles hold the same certificates, regardless of order and encoding.
func EqualBundles(a, b []byte) bool {
	return bytes.Equal(a, b) || (Contains(a, b) && Contains(b, a))
}

// EncodeCertificate returns a certificate as one PEM block.
func EncodeCertificate(certificate *x509.Certificate) []byte {
	return encodeCertificate(certificate.Raw)
}

// TrustedBy reports whether a client with this bundle accepts certificates signed by the authority. It does if it
// trusts the authority itself, or an authority that has issued a certificate of its chain. ServerTime is a valid
// option.
func (a *Authority) TrustedBy(bundle []byte, now time.Time, opts ...Option) bool {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(bundle)
	for _, certificate := range append([]*x509.Certificate{a.Certificate}, a.Chain...) {
		now := Moment(certificate, now, opts...)
		_, err := certificate.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
		if err == nil {
			return true
		}
	}
	return false
}
