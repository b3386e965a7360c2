package ca

// This file decides what a rotation of the CA needs next. Replicas do what it says one after the other, whoever comes
// first, and any of them may stop at any point: what stands in the Secret and in the webhook configurations then
// always verifies what any replica serves.
//
//	steady    One CA signs. At half of its life, or when asked, a replica stages the next one.
//	staged    The next CA is in the Secret, and the current one has signed it. Both CAs are published in every caBundle;
//	          when all hold them, the next CA is activated. A next CA that cannot sign is replaced.
//	retaining The next CA signs. Replicas send the certificate along that the old CA has signed for it, so a client
//	          that trusts only the old CA verifies what they serve. The old CA stays trusted for as long as a replica
//	          may go on serving what it signed, and is pruned then. If the new CA is too short-lived to wait for that,
//	          the one after it is staged meanwhile.
//
// The next CA never signs the old one. So nothing that the old key signs verifies after the pruning, whenever the key
// was copied and whatever was sent in a handshake.

import (
	"crypto/x509"
	"fmt"
	"time"
)

// Phase is where a rotation stands.
type Phase string

// The phases, in their order.
const (
	Steady    Phase = "steady"
	Staged    Phase = "staged"
	Retaining Phase = "retaining"
)

// Action is what is due.
type Action string

// The actions. All but Wait write: Publish the configurations, the others the Secret.
const (
	Wait     Action = "wait"
	Stage    Action = "stage"    // make the next CA, and have the current one sign it
	Publish  Action = "publish"  // register the bundle
	Activate Action = "activate" // sign with the next CA from now on
	Prune    Action = "prune"    // trust the old CA no more
)

// Situation is all that the decision depends on.
type Situation struct {
	Now       time.Time
	Phase     Phase
	Since     time.Time         // when the phase began
	Current   *x509.Certificate // the CA that signs
	Requested bool              // a rotation was asked for
	Bundle    []byte            // what must be trusted, in PEM
	Retain    time.Duration     // how long an old CA stays trusted

	// Live is what is registered, read before the Secret was: then a bundle that holds more than the Secret
	// says is not one that a faster replica has published.
	Live []Registered
	// Tolerated are CAs that a caBundle may hold beside Bundle, in PEM: another replica, which this one knows nothing of,
	// may still serve what they signed. Until is when the first of them is tolerated no more. See Strangers.
	Tolerated []byte
	Until     time.Time

	// NextBroken says that the staged CA cannot sign.
	NextBroken bool

	// Unseen says that this replica may not read configurations, and so cannot confirm anything.
	Unseen bool
}

// Registered is one caBundle that an API server holds, or should hold.
type Registered struct {
	Name   string // of the configuration
	Bundle []byte // PEM; empty when there is none
}

// Due is the decision: an action, why, and for Wait, when to decide again (zero: when something changes).
type Due struct {
	Action Action
	Reason string
	At     time.Time
}

// WhatIsDue decides. It is a pure function: equal situations give equal decisions.
func WhatIsDue(s Situation) Due {
	for _, live := range s.Live {
		if !Contains(live.Bundle, s.Bundle) {
			return Due{Action: Publish, Reason: fmt.Sprintf("the caBundle of %s lacks a CA that is in use", live.Name)}
		}
	}
	switch s.Phase {
	case Staged:
		if s.NextBroken {
			return Due{Action: Stage, Reason: "the staged CA cannot sign, so another one takes its place"}
		}
		// Other CAs in a bundle do no harm here: it only grows until all is over.
		if s.Unseen {
			return Due{Action: Wait, Reason: "this replica may not read webhook configurations, so another one has to publish and confirm the next CA"}
		}
		return Due{Action: Activate, Reason: "every caBundle holds the next CA"}
	case Retaining:
		until := s.Since.Add(s.Retain)
		if !s.Now.Before(until) {
			return Due{Action: Prune, Reason: "nothing that the old CA signed is served any more"}
		}
		if s.endsBefore(until) {
			half := halfLife(s.Current)
			if !s.Now.Before(half) {
				return Due{Action: Stage, Reason: fmt.Sprintf("half of the CA's life is over since %s, and it ends before the old CA may go", stamp(half))}
			}
			until = half // which is earlier: the CA ends before until
		}
		return Due{Action: Wait, Reason: "certificates of the old CA may still be served", At: until}
	}
	if strange := s.Excess(); strange != "" {
		return Due{Action: Publish, Reason: fmt.Sprintf("the caBundle of %s holds a CA that is not ours, or not any more", strange)}
	}
	if s.Requested {
		return Due{Action: Stage, Reason: "a rotation was asked for"}
	}
	half := halfLife(s.Current)
	if !s.Now.Before(half) {
		return Due{Action: Stage, Reason: fmt.Sprintf("half of the CA's life is over since %s", stamp(half))}
	}
	if len(s.Tolerated) > 0 && s.Until.Before(half) {
		return Due{Action: Wait, Reason: "a caBundle holds a CA that another replica may still serve", At: s.Until}
	}
	return Due{Action: Wait, Reason: "the CA is not due", At: half}
}

// Excess names a configuration with more in its caBundle than what must be trusted, or may be; empty when there is none.
func (s Situation) Excess() string {
	may := Bundle(s.Bundle, s.Tolerated)
	for _, live := range s.Live {
		if !Contains(may, live.Bundle) {
			return live.Name
		}
	}
	return ""
}

// Lacks tells whether a caBundle lacks what must be trusted.
func (s Situation) Lacks() bool {
	for _, live := range s.Live {
		if !Contains(live.Bundle, s.Bundle) {
			return true
		}
	}
	return false
}

// endsBefore reports whether the CA that signs ends before that moment.
func (s Situation) endsBefore(t time.Time) bool {
	return s.Current != nil && s.Current.NotAfter.Before(t)
}

// halfLife is the middle of a CA's validity.
func halfLife(certificate *x509.Certificate) time.Time {
	return certificate.NotBefore.Add(certificate.NotAfter.Sub(certificate.NotBefore) / 2)
}
