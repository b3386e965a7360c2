package controller

// This file reconciles certificates that an external issuer makes (see package certsource). The next one is served once
// every caBundle trusts it. Replicas need not know of each other: each adds the CAs that it needs, and removes only those
// that it has not needed, and has not seen another replica add, for as long as a certificate may be in use.

import (
	"context"
	"crypto/x509"
	"fmt"
	"time"

	"code.cloudfoundry.org/eirinix/internal/ca"
	"code.cloudfoundry.org/eirinix/internal/certsource"
	"code.cloudfoundry.org/eirinix/internal/rollout"
)

const (
	// reserve is the fraction of a certificate's lifetime, one tenth. When only this part is left, the next certificate
	// is served even if API servers are not known to trust it.
	reserve = 10

	// settling is how long a new certificate waits after an API server was observed to trust it, and a new replica that no
	// caBundle trusted. Other API servers observe a write a moment later, and no CA verifies both the old and the new
	// certificate. It does not wait if no caBundle trusts the old one.
	settling = 10 * time.Second
)

// Issued provides certificates from a source. The exported fields do not change.
type Issued struct {
	*certsource.Served

	// The fields below belong to the pass.
	foreign ca.ForeignCAs
	trusted *certsource.Material // the next certificate, once every caBundle trusts it
	since   time.Time
}

func (f *Issued) String() string { return f.From.String() }

func (f *Issued) Obtain(ctx context.Context, _ Observation, _ bool) error {
	select {
	case <-f.Arrived():
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// ObtainTrust reports whether the CAs can be read.
func (f *Issued) ObtainTrust(ctx context.Context, _ Observation) error {
	_, err := f.From.Bundle(ctx)
	return err
}

// othersTrusted returns false: other replicas have the same certificate, or will have it.
func (f *Issued) othersTrusted([]byte, time.Time) bool { return false }

// verifyRecorded relies on what RegisterExtensions has recorded in the Lease, else on the CAs that the same source provides to it.
func (f *Issued) verifyRecorded(inLease []byte) error {
	served, _, _ := f.Current()
	if served == nil {
		return certsource.ErrNothingServed
	}
	if inLease == nil {
		return f.Verify(served.Bundle)
	}
	if err := f.Verify(inLease); err != nil {
		return fmt.Errorf("the caBundle that RegisterExtensions registered last does not trust the certificate from %s; call it again: %w", f, err)
	}
	return nil
}

func (f *Issued) need(ctx context.Context, _ Observation) ([]byte, error) { return f.Need(ctx) }

func (f *Issued) look(ctx context.Context, c *Controller, o Observation) (plan Plan, err error) {
	now := f.Now()
	if f.Certificate() != nil {
		plan.RequeueAt = c.byOwnClock(f.takeOver(c, o, now), now)
	}
	_, _, plan.Waiting = f.Current()
	plan.Asks = f.foreign.Seen
	if plan.Want, err = f.Need(ctx); err != nil { // fewer CAs, once the next certificate is served
		return plan, err
	}
	if !c.Once {
		var until time.Time
		f.foreign.Renew(o.claimed, now)
		plan.Tolerated, until = f.foreign.Tolerate(o.Live, plan.Want, now,
			func(*x509.Certificate) time.Duration { return c.Retain }, func(*x509.Certificate) bool { return true })
		plan.RequeueAt = rollout.Soonest(plan.RequeueAt, c.byOwnClock(until, now))
	}
	s := ca.RotationState{Live: o.Live, Bundle: plan.Want, Tolerated: plan.Tolerated}
	if name, missing := s.Missing(); missing {
		plan.Missing = fmt.Sprintf("the caBundle of %s lacks a CA that is in use", name)
		plan.Retain = func(live []byte) []byte { return live }
	} else if name := s.Surplus(); name != "" {
		plan.Surplus = fmt.Sprintf("the caBundle of %s holds a CA that has not been needed for a while", name)
	}
	return plan, nil
}

// takeOver serves the next certificate if the API server trusts it, or returns when to check again. If the
// configurations cannot be read, it relies on what RegisterExtensions has recorded in the Lease, else it assumes the CAs that
// were trusted before. A certificate that is close to expiry is replaced anyway.
func (f *Issued) takeOver(c *Controller, o Observation, now time.Time) (again time.Time) {
	served, next, _ := f.Current()
	if next == nil {
		return again
	}
	live := o.Live
	if recorded := c.versions.Trusted(); o.Unseen && recorded != nil {
		live = []ca.Registered{{Name: "the caBundle that RegisterExtensions registered last", Bundle: recorded}}
	} else if o.Unseen {
		live = []ca.Registered{{Name: "the last registered caBundle", Bundle: served.Bundle}}
	}
	var doubt error
	trusted := len(live) == 0 // the served one, by any caBundle
	for _, l := range live {
		if err := f.VerifyNext(next, l.Bundle); err != nil {
			doubt = fmt.Errorf("%s: %w", l.Name, err)
		}
		trusted = trusted || f.Verify(l.Bundle) == nil
	}
	leaf := served.Certificate.Leaf
	deadline := leaf.NotAfter.Add(-leaf.NotAfter.Sub(leaf.NotBefore) / reserve)
	switch {
	case !now.Before(deadline):
		reason := "the last one is nearly over"
		if doubt != nil {
			reason += ", though the API server may not trust this one yet: " + doubt.Error()
		}
		f.Swap(next, reason)
		return again
	case doubt != nil:
		if f.trusted = nil; f.since.IsZero() {
			f.since = now
			f.Log.Info("a new certificate waits until the API server trusts it", "reason", doubt.Error())
		}
		return deadline
	case f.trusted != next:
		f.trusted, f.since = next, now
	}
	settled := f.since.Add(min(settling, c.Retain/10))
	if trusted && now.Before(settled) {
		return settled
	}
	f.since = time.Time{}
	f.Swap(next, "the API server trusts it")
	return again
}
