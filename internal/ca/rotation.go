package ca

// This file decides the next step of a CA rotation. Replicas take these steps in turn, in no fixed order, and any of
// them can stop at any point. At each point the CAs in the Secret and in the webhook configurations verify the serving
// certificate of every replica.
//
//	steady    One CA signs. At half of its lifetime, or on request, a replica stages the next one.
//	staged    The next CA is in the Secret, and the current one has signed it. Both CAs are published in every caBundle.
//	          When all caBundles hold both, the next CA is activated. A next CA that cannot sign is replaced.
//	retaining The next CA signs. Replicas also send the certificate that the old CA has signed for it, so a client that
//	          trusts only the old CA verifies them. The old CA stays trusted for as long as a replica can still serve a
//	          certificate that it signed, and is pruned then. If the new CA is too short-lived to wait for that, the one
//	          after it is staged meanwhile.
//
// The next CA never signs the old one. So nothing that the old key signs verifies after the pruning, regardless of when
// the key was copied and which certificates were sent in a handshake.

import (
	"crypto/x509"
	"fmt"
	"time"
)

// Phase is the phase that a rotation is in.
type Phase string

// The phases, in their order.
const (
	Steady    Phase = "steady"
	Staged    Phase = "staged"
	Retaining Phase = "retaining"
)

// Action is the next step of a rotation.
type Action string

// The actions. All except Wait write: Publish writes the configurations, the others the Secret.
const (
	Wait     Action = "wait"
	Stage    Action = "stage"    // create the next CA, signed by the current one
	Publish  Action = "publish"  // register the bundle
	Activate Action = "activate" // sign with the next CA from now on
	Prune    Action = "prune"    // stop trusting the old CA
)

// RotationState holds all inputs of the decision.
type RotationState struct {
	Now       time.Time
	Phase     Phase
	Since     time.Time         // when the phase began
	Current   *x509.Certificate // the CA that signs
	Requested bool              // a rotation was requested
	Bundle    []byte            // the CAs that must be trusted, in PEM
	Retain    time.Duration     // how long an old CA stays trusted

	// Live holds the registered caBundles, read before the Secret. Because of that order, a bundle that holds more than
	// the Secret was not published by a faster replica.
	Live []Registered
	// Tolerated holds CAs in PEM that a caBundle can hold in addition to Bundle. Another replica, unknown to this one,
	// may still serve certificates that they signed. Until is when the first of them is no longer tolerated (see
	// ForeignCAs).
	Tolerated []byte
	Until     time.Time

	// NextBroken is set if the staged CA cannot sign, or not yet.
	NextBroken bool

	// Unseen is set if this replica lacks permission to read configurations, and so cannot confirm anything.
	Unseen bool
}

// Registered is one caBundle that an API server holds, or should hold.
type Registered struct {
	Name   string // of the configuration
	Bundle []byte // PEM; empty when there is none
}

// Step is the decision: an action, the reason, and for Wait the time of the next decision (zero: when something
// changes).
type Step struct {
	Action Action
	Reason string
	At     time.Time
}

// NextStep decides the next action. It is a pure function: equal states result in equal decisions.
func NextStep(s RotationState) Step {
	if name, lacks := s.Missing(); lacks {
		return Step{Action: Publish, Reason: fmt.Sprintf("the caBundle of %s lacks a CA that is in use", name)}
	}
	switch s.Phase {
	case Staged:
		if s.NextBroken {
			return Step{Action: Stage, Reason: "the staged CA cannot sign, so another one takes its place"}
		}
		// Other CAs in a bundle do no harm here: it only grows until the rotation is over.
		if s.Unseen {
			return Step{Action: Wait, Reason: "this replica may not read webhook configurations, so another one has to publish and confirm the next CA"}
		}
		return Step{Action: Activate, Reason: "every caBundle holds the next CA"}
	case Retaining:
		until := s.Since.Add(s.Retain)
		if !s.Now.Before(until) {
			return Step{Action: Prune, Reason: "nothing that the old CA signed is served any more"}
		}
		if s.Current != nil && s.Current.NotAfter.Before(until) {
			half := halfLife(s.Current)
			if !s.Now.Before(half) {
				return Step{Action: Stage, Reason: fmt.Sprintf("half of the CA's life is over since %s, and it ends before the old CA may go", stamp(half))}
			}
			until = half // which is earlier: the CA ends before until
		}
		if step, there := s.trim(); there { // a rotation may have begun before the CAs of the last one were gone
			return step
		}
		return Step{Action: Wait, Reason: "certificates of the old CA may still be served", At: until}
	}
	if step, there := s.trim(); there {
		return step
	}
	if s.Requested {
		return Step{Action: Stage, Reason: "a rotation was requested"}
	}
	half := halfLife(s.Current)
	if !s.Now.Before(half) {
		return Step{Action: Stage, Reason: fmt.Sprintf("half of the CA's life is over since %s", stamp(half))}
	}
	if len(s.Tolerated) > 0 && s.Until.Before(half) {
		return Step{Action: Wait, Reason: "a caBundle holds a CA that another replica may still serve", At: s.Until}
	}
	return Step{Action: Wait, Reason: "the CA is not due", At: half}
}

// trim returns the step that takes away what is surplus, if anything is.
func (s RotationState) trim() (step Step, there bool) {
	name := s.Surplus()
	return Step{Action: Publish, Reason: fmt.Sprintf("the caBundle of %s holds a CA that is not ours, or not any more", name)}, name != ""
}

// Surplus returns the name of a configuration whose caBundle holds a CA that is neither required nor tolerated. It is
// empty if there is none.
func (s RotationState) Surplus() string {
	may := Bundle(s.Bundle, s.Tolerated)
	for _, live := range s.Live {
		if !Contains(may, live.Bundle) {
			return live.Name
		}
	}
	return ""
}

// Missing reports whether a caBundle lacks a CA that must be trusted, and names the first such configuration.
func (s RotationState) Missing() (name string, missing bool) {
	for _, live := range s.Live {
		if !Contains(live.Bundle, s.Bundle) {
			return live.Name, true
		}
	}
	return "", false
}

// halfLife returns the middle of a CA's validity.
func halfLife(certificate *x509.Certificate) time.Time {
	return certificate.NotBefore.Add(certificate.NotAfter.Sub(certificate.NotBefore) / 2)
}

// ForeignCAs decides how long a CA that this process does not know stays in a caBundle. A replica with another certificate
// source, or one whose Secret was lost, has published that CA and serves certificates that it signed. Removing the CA at
// once would fail the calls that reach this replica. The zero value has seen none. It is not safe for concurrent use.
type ForeignCAs struct {
	since map[string]time.Time // when each CA was first seen, by its hash
}

// Renew has the grace periods of CAs begin again, because another process has shown that it needs them.
func (s *ForeignCAs) Renew(hashes []string, now time.Time) {
	for _, hash := range hashes {
		if _, seen := s.since[hash]; seen {
			s.since[hash] = now
		}
	}
}

// Seen reports whether a CA stays, or has stayed until its grace period was over.
func (s *ForeignCAs) Seen(certificate *x509.Certificate) bool {
	_, seen := s.since[HashOf(certificate)]
	return seen
}

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
			hash := HashOf(certificate)
			if _, known := there[hash]; known || needed[string(certificate.Raw)] {
				continue
			}
			since, seen := s.since[hash]
			if !seen {
				if !whole && !beside(certificate) {
					continue
				}
				since = now
			}
			there[hash] = since
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
