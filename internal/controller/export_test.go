package controller

// This file exports internals to the specs.

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"time"

	"code.cloudfoundry.org/eirinix/internal/ca"
	"code.cloudfoundry.org/eirinix/internal/rollout"
)

const (
	PassTimeout = passTimeout
	FirstRetry  = firstRetry
	LastRetry   = lastRetry
	PauseLong   = rollout.PauseLong
)

// Fixed are certificates that never change: every caBundle holds this text and nothing else.
type Fixed []byte

var _ Certificates = Fixed(nil)

func (Fixed) String() string                                                { return "fixed certificates" }
func (Fixed) Obtain(context.Context, Observation, bool) error               { return nil }
func (Fixed) ObtainTrust(context.Context, Observation) error                { return nil }
func (Fixed) Run(context.Context)                                           {}
func (Fixed) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) { return nil, nil }
func (Fixed) Verify([]byte) error                                           { return nil }
func (Fixed) verifyRecorded([]byte) error                                   { return nil }
func (Fixed) othersTrusted([]byte, time.Time) bool                          { return false }
func (Fixed) Certificate() *x509.Certificate                                { return nil }

func (f Fixed) need(context.Context, Observation) ([]byte, error) { return f, nil }

func (f Fixed) look(_ context.Context, _ *Controller, o Observation) (Plan, error) {
	plan := Plan{Want: f}
	for _, l := range o.Live {
		if !ca.EqualBundles(l.Bundle, f) {
			plan.Missing = "the caBundle of " + l.Name + " is another one"
		}
	}
	return plan, nil
}

// Hesitate is Controller.hesitate.
func (c *Controller) Hesitate(kind, fault string, most time.Duration) time.Duration {
	return c.hesitate(kind, fault, most)
}

// Repairs returns how often CAs that left a caBundle, in this order and a minute apart, count as put back, and how many are known afterwards.
func Repairs(hashes ...string) (times, known int) {
	d, now := newDrift(trustTroubleMost), time.Now()
	for ; len(hashes) > 0; hashes, now = hashes[1:], now.Add(2*time.Minute) {
		d.lookAtEach(hashes[:1], now)
		_, times = d.lookAtEach(nil, now.Add(time.Minute))
	}
	d.lookAtEach(nil, now.Add(quiet))
	return times, len(d.all)
}
