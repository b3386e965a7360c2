package ca

// This file handles bundles, the PEM lists of CA certificates that an API server trusts.

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"io"
	"iter"
	"os"
	"slices"
	"time"
)

// Bundle joins PEM texts into one bundle. It holds every certificate once, in the order of first appearance and in
// canonical encoding. Anything else in the texts (keys, comments, unreadable blocks) is left out. The result is nil if
// no text holds a certificate. Equal input results in equal bytes.
func Bundle(texts ...[]byte) []byte {
	var all []*x509.Certificate
	for _, text := range texts {
		all = append(all, SplitBundle(text)...)
	}
	return encode(all)
}

// encode returns the bundle of these certificates, each once.
func encode(certificates []*x509.Certificate) (bundle []byte) {
	seen := map[string]bool{}
	for _, certificate := range certificates {
		if !seen[string(certificate.Raw)] {
			seen[string(certificate.Raw)] = true
			bundle = append(bundle, EncodeCertificate(certificate)...)
		}
	}
	return bundle
}

// SplitBundle returns the certificates of a bundle in order. It skips unreadable blocks, as the API server does when it
// loads a caBundle.
func SplitBundle(bundle []byte) (certificates []*x509.Certificate) {
	for der := range certificatesIn(bundle) {
		if certificate, err := x509.ParseCertificate(der); err == nil {
			certificates = append(certificates, certificate)
		}
	}
	return certificates
}

// certificatesIn returns what a bundle calls certificates, as DER, whether that can be read or not.
func certificatesIn(bundle []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for block := range Blocks(bundle) {
			if block.Type == "CERTIFICATE" && len(block.Headers) == 0 && !yield(block.Bytes) {
				return
			}
		}
	}
}

// Blocks returns the PEM blocks of a text.
func Blocks(text []byte) iter.Seq[*pem.Block] {
	return func(yield func(*pem.Block) bool) {
		for block, rest := pem.Decode(text); block != nil && yield(block); block, rest = pem.Decode(rest) {
		}
	}
}

// Select returns the bundle of those certificates of a bundle that are wanted.
func Select(bundle []byte, wanted func(*x509.Certificate) bool) []byte {
	return encode(slices.DeleteFunc(SplitBundle(bundle), func(c *x509.Certificate) bool { return !wanted(c) }))
}

// OfName returns the certificates of a bundle whose subject has the common name that New sets for name.
func OfName(bundle []byte, name string) []byte {
	return Select(bundle, func(c *x509.Certificate) bool { return c.Subject.CommonName == fitCommonName(name) })
}

// Contains reports whether whole holds every certificate of part. An empty part is contained in every bundle.
func Contains(whole, part []byte) bool {
	in := members(whole)
	for der := range certificatesIn(part) {
		if in[string(der)] {
			continue
		}
		if _, err := x509.ParseCertificate(der); err == nil {
			return false
		}
	}
	return true
}

// Common returns those certificates of a bundle that another bundle holds too.
func Common(bundle, other []byte) []byte {
	in := members(other)
	return Select(bundle, func(c *x509.Certificate) bool { return in[string(c.Raw)] })
}

// HashOf returns the SHA-256 of a certificate (DER), in lower-case hexadecimal digits.
func HashOf(cert *x509.Certificate) string {
	sum := sha256.Sum256(cert.Raw)
	return hex.EncodeToString(sum[:])
}

// members returns the set of certificates in a bundle, as DER. It holds unreadable ones too.
func members(bundle []byte) map[string]bool {
	in := map[string]bool{}
	for der := range certificatesIn(bundle) {
		in[string(der)] = true
	}
	return in
}

// EqualBundles reports whether two bundles hold the same certificates, regardless of order and encoding.
func EqualBundles(a, b []byte) bool {
	return bytes.Equal(a, b) || (Contains(a, b) && Contains(b, a))
}

// MaxFile limits the size of a file, in bytes. An object of the API cannot hold more.
const MaxFile = 1 << 20

// ReadFile reads up to one byte more than MaxFile, so that the caller detects a larger file.
func ReadFile(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // it was only read
	return io.ReadAll(io.LimitReader(file, MaxFile+1))
}

// Pool returns a pool of these certificates.
func Pool(certificates ...*x509.Certificate) *x509.CertPool {
	pool := x509.NewCertPool()
	for _, c := range certificates {
		pool.AddCert(c)
	}
	return pool
}

// EncodeCertificate returns a certificate as one PEM block.
func EncodeCertificate(certificate *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Raw})
}

// TrustedBy reports whether a client with this bundle accepts certificates signed by the authority. It does if it
// trusts the authority itself, or an authority that has issued a certificate of its chain. ServerTime is a valid
// option.
func (a *Authority) TrustedBy(bundle []byte, now time.Time, opts ...Option) bool {
	roots := Pool(SplitBundle(bundle)...)
	return slices.ContainsFunc(append([]*x509.Certificate{a.Certificate}, a.Chain...), func(certificate *x509.Certificate) bool {
		now := Moment(certificate, now, opts...)
		_, err := certificate.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
		return err == nil
	})
}
