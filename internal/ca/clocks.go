package ca

// This file accounts for two clocks: ours and that of the API server, which judges the certificates that we sign.
// Either clock can be wrong. New certificates are therefore valid by both, and a CA that is valid by one of them stays
// in use.

import (
	"crypto/x509"
	"slices"
	"time"
)

// ServerTime passes the API server's time as last observed. The zero value means unknown and has no effect.
//
// New, SignServing: the certificate starts before the earlier of the two clocks, and its lifetime is counted from the
// later one. Usable, SignServing, CrossSign, TrustedBy: validity by one of the two clocks is enough.
func ServerTime(t time.Time) Option {
	return func(o *options) { o.server = t }
}

// span returns the validity of a certificate that is created now.
func (o options) span(now time.Time, lifetime time.Duration) (from, until time.Time) {
	first, last := now, now
	if !o.server.IsZero() {
		first, last = earlier(now, o.server), later(now, o.server)
	}
	return first.Add(-backdate(lifetime)), last.Add(lifetime)
}

// Moment returns the time to judge a certificate by: now, or the server's time if the certificate is valid only by
// that.
func Moment(certificate *x509.Certificate, now time.Time, opts ...Option) time.Time {
	if o := optionsOf(opts); !validAt(certificate, now) && !o.server.IsZero() && validAt(certificate, o.server) {
		return o.server
	}
	return now
}

func validAt(certificate *x509.Certificate, t time.Time) bool {
	return !t.Before(certificate.NotBefore) && !t.After(certificate.NotAfter)
}

func later(a, b time.Time) time.Time { return slices.MaxFunc([]time.Time{a, b}, time.Time.Compare) }

func earlier(a, b time.Time) time.Time { return slices.MinFunc([]time.Time{a, b}, time.Time.Compare) }
