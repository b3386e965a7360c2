package ca

// This file decides how long a CA that this process does not know stays in a caBundle. A replica with another
// certificate source, or one whose Secret was lost, has published that CA and serves certificates that it signed.
// Removing the CA at once would fail the calls that reach this replica.

import (
	"crypto/x509"
	"time"
)

// ForeignCAs records when each CA that this process has no use for was first seen in a caBundle. The zero value has seen
// none. It is not safe for concurrent use.
type ForeignCAs struct{ since map[string]time.Time }

// Tolerate returns the CAs in live that are to stay in addition to those of bundle, and when the first of them can go.
//
// The gracePeriod function returns how long a CA stays after it is first seen. A CA with a grace period of 0 goes at
// once, and so does an expired one. If a caBundle lacks some of bundle, a new CA in it has replaced them instead of
// being added. Such a CA stays only if the beside function returns true.
func (s *ForeignCAs) Tolerate(live []Registered, bundle []byte, now time.Time,
	gracePeriod func(*x509.Certificate) time.Duration, beside func(*x509.Certificate) bool,
) (tolerated []byte, until time.Time) {
	there, needed := map[string]time.Time{}, members(bundle)
	var stay []*x509.Certificate
	for _, l := range live {
		whole := Contains(l.Bundle, bundle)
		for _, certificate := range SplitBundle(l.Bundle) {
			key := string(certificate.Raw)
			if _, known := there[key]; known || needed[key] {
				continue
			}
			since, seen := s.since[key]
			if !seen {
				if !whole && !beside(certificate) {
					continue
				}
				since = now
			}
			there[key] = since
			end := earlier(since.Add(gracePeriod(certificate)), certificate.NotAfter)
			if !now.Before(end) {
				continue
			}
			stay = append(stay, certificate)
			if until.IsZero() || end.Before(until) {
				until = end
			}
		}
	}
	s.since = there // a CA that disappears and comes back starts again
	return encode(stay), until
}
