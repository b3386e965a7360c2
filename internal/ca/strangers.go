package ca

// This file tells how long a CA that nobody here knows stays trusted. Whoever runs with another source of certificates,
// or with a Secret that was lost, has put it into the caBundle and serves what it signed; taking it away at once would
// fail the calls that reach him.

import (
	"crypto/x509"
	"time"
)

// Strangers remembers since when CAs that this process has no use for stand in caBundles. The zero value knows none.
// It is for one goroutine at a time.
type Strangers struct{ since map[string]time.Time }

// Tolerate returns the CAs in live, beside those of bundle, that are to stay, and when the first of them need not any
// more. patience is how long a CA stays from when it is first seen; one of 0, and one that has expired, goes at once.
// A CA that appears in a caBundle which lacks some of bundle has taken their place, and not been put beside them: it
// stays only if beside says so.
func (s *Strangers) Tolerate(live []Registered, bundle []byte, now time.Time, patience func(*x509.Certificate) time.Duration, beside func(*x509.Certificate) bool) (tolerated []byte, until time.Time) {
	there := map[string]time.Time{}
	var texts [][]byte
	for _, l := range live {
		whole := Contains(l.Bundle, bundle)
		for _, certificate := range SplitBundle(l.Bundle) {
			key := string(certificate.Raw)
			if _, known := there[key]; known || Contains(bundle, encodeCertificate(certificate.Raw)) {
				continue
			}
			since, seen := s.since[key]
			if !seen && !whole && !beside(certificate) {
				continue
			}
			if !seen {
				since = now
			}
			there[key] = since
			end := since.Add(patience(certificate))
			if certificate.NotAfter.Before(end) {
				end = certificate.NotAfter
			}
			if !now.Before(end) {
				continue
			}
			texts = append(texts, encodeCertificate(certificate.Raw))
			if until.IsZero() || end.Before(until) {
				until = end
			}
		}
	}
	s.since = there // what has gone and comes back begins anew
	return Bundle(texts...), until
}

// Common returns those certificates of a bundle that stand in another one too.
func Common(bundle, other []byte) []byte {
	in := map[string]bool{}
	for _, certificate := range SplitBundle(other) {
		in[string(certificate.Raw)] = true
	}
	var text []byte
	for _, certificate := range SplitBundle(bundle) {
		if in[string(certificate.Raw)] {
			text = append(text, encodeCertificate(certificate.Raw)...)
		}
	}
	return Bundle(text)
}
