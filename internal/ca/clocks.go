package ca

// This file is about two clocks: ours, and that of the API server, which judges what we sign. Either may be wrong. So a
// certificate is made to be valid by both, and a CA that is valid by one of them is not given up.

import (
	"crypto/x509"
	"time"
)

// ServerTime passes the API server's time, as it was seen last. The zero value stands for unknown, and changes nothing.
//
// New, SignServing: the certificate starts before the earlier of the two clocks, and its lifetime is counted from the
// later one. Usable, SignServing, CrossSign, TrustedBy: validity by one of the two clocks is enough.
func ServerTime(t time.Time) Option {
	return func(o *options) { o.server = t }
}

// span is the validity of a certificate that is made now.
func (o options) span(now time.Time, lifetime time.Duration) (from, until time.Time) {
	first, last := now, now
	if !o.server.IsZero() {
		first, last = earlier(now, o.server), later(now, o.server)
	}
	return first.Add(-backdate(lifetime)), last.Add(lifetime)
}

// moment is the clock to judge a certificate by: ours, unless it is valid by the server's alone.
func (o options) moment(certificate *x509.Certificate, now time.Time) time.Time {
	if !validAt(certificate, now) && !o.server.IsZero() && validAt(certificate, o.server) {
		return o.server
	}
	return now
}

// Moment returns the clock by which to judge a certificate: now, or the server's time if the certificate is valid by
// that one alone.
func Moment(certificate *x509.Certificate, now time.Time, opts ...Option) time.Time {
	return optionsOf(opts).moment(certificate, now)
}

func validAt(certificate *x509.Certificate, t time.Time) bool {
	return !t.Before(certificate.NotBefore) && !t.After(certificate.NotAfter)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
