package eirinix

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"

	"code.cloudfoundry.org/eirinix/internal/ca"
	"code.cloudfoundry.org/eirinix/internal/certsecret"
)

const (
	// actionsAtOnce bounds a look: more than a whole rotation has.
	actionsAtOnce = 16

	// unreadyAfter is how long this process may be the only one that the API server does not trust.
	unreadyAfter = 30 * time.Second
)

// keeper follows the Secret and the webhook configurations: it adopts what others write, puts back what was lost, and
// does what a rotation of the CA needs next. Every replica has one. They need no leader: each write is guarded by what
// it was decided on, and whoever comes too late finds it done.
type keeper struct {
	certs  *certificates
	reg    *registration
	writes bool // may write configurations
	retain time.Duration
	clock  *serverClock
	log    logr.Logger
	report *certificateReport
	ready  func(error) // is told whether the API server trusts this process

	looking   chan struct{} // holds one while a look is taken: one at a time
	said      reminder
	wrote     reminder
	known     []byte // every CA that the Secret has held, in PEM
	strangers ca.Strangers
	doubtedAt time.Time // since when the API server trusts others and not us
}

// newKeeper is called after the connection is made.
func (m *ExtensionManager) newKeeper(certs *certificates, reg *registration, log logr.Logger) *keeper {
	o := m.GetManagerOptions()
	return &keeper{
		certs: certs, reg: reg, writes: *o.RegisterWebHook || reg.grows, retain: o.retain(), clock: &m.clock, log: log,
		report: m.newCertificateReport(certs.store.Namespace, certs.store.Name, reg, log), ready: m.trusted, looking: make(chan struct{}, 1), said: reminder{log: log}, wrote: reminder{log: log},
	}
}

// run follows until ctx ends.
func (k *keeper) run(ctx context.Context) {
	watched := append(k.reg.watches(), watched{"the certificate Secret " + k.certs.owner(), k.certs.watch})
	keepUp(ctx, k, &k.said, watched, nil)
}

// tick looks at everything once, does what is due, and tells when to look again.
func (k *keeper) tick(ctx context.Context) (next time.Duration, err error) {
	select {
	case k.looking <- struct{}{}:
		defer func() { <-k.looking }()
	case <-ctx.Done(): // of RotateCA, say, while the keeper itself is at it
		return pollSecret, context.Cause(ctx)
	}
	defer func() { k.report.failed(err) }()
	hesitated := false
	for range actionsAtOnce {
		// The order counts: a configuration that was read before the Secret holds nothing that the Secret does not say
		// yet (ca.Situation).
		found, err := k.reg.look(ctx)
		if err != nil {
			return 0, err
		}
		live, unseen := found.live, found.unseen
		state, err := k.certs.reread(ctx)
		if err != nil {
			return 0, err
		}
		if unseen && len(state.RegisteredBundle) > 0 {
			live, unseen = []ca.Registered{{Name: "what was registered last", Bundle: state.RegisteredBundle}}, false
		}
		if err := k.certs.adoptIfTrusted(state, live, k.clock.Now()); err != nil {
			return 0, err
		}
		k.judge(state, live)
		situation := k.situation(state, live, unseen)
		due := ca.WhatIsDue(situation)
		k.report.tell(state, due, k.clock)
		k.report.serves(k.certs.leaf.Certificate(), k.clock)
		k.report.standing(ctx, found, state.UID)
		if (due.Action == ca.Publish || found.due) && k.writes && state.Phase != ca.Staged && !hesitated {
			hesitated = true
			if err := pause(ctx, rand.N(hesitation)); err != nil {
				return 0, err
			}
			continue
		}
		did, again, err := k.do(ctx, state, situation, due, found)
		if err == nil && !did {
			did, err = k.record(ctx, state, due)
		}
		if err != nil && !apierrors.IsConflict(err) {
			return 0, err
		}
		if err == nil && !did {
			return waitUntil(soonest(soonest(due.At, found.again), again), k.clock), nil
		}
	}
	return retryKeeping, nil // others write faster than we look
}

func (k *keeper) situation(state *certsecret.State, live []ca.Registered, unseen bool) ca.Situation {
	s := ca.Situation{
		Now: k.clock.Now(), Phase: state.Phase, Since: state.Since, Retain: k.retain, Requested: state.Requested(),
		Bundle: state.Bundle(), Live: live, Unseen: unseen,
	}
	if authority, err := state.Current(); err == nil {
		s.Current = authority.Certificate
	}
	k.known = ca.Bundle(k.known, s.Bundle) // what was in the Secret and is not any more has been pruned
	s.Tolerated, s.Until = k.strangers.Tolerate(live, s.Bundle, s.Now, k.patience, k.isSibling)
	return s
}

// patience is how long a CA that the Secret does not hold stays trusted from when it is first seen.
func (k *keeper) patience(certificate *x509.Certificate) time.Duration {
	switch {
	case ca.Contains(k.known, ca.EncodeCertificate(certificate)):
		return 0
	case k.isSibling(certificate):
		return min(2*resync, k.retain) // all replicas that respond have been seen to publish what they serve by then
	}
	return k.retain // that of a replica that runs with another source of certificates
}

// isSibling tells whether a CA may be that of a replica which has started while the Secret was lost.
func (k *keeper) isSibling(certificate *x509.Certificate) bool {
	return ca.OfName(ca.EncodeCertificate(certificate), k.certs.store.Name) != nil
}

// do does what is due. It tells whether it did anything, and when what was put off is due again; what it may not do is left
// to others, and said.
func (k *keeper) do(ctx context.Context, state *certsecret.State, s ca.Situation, due ca.Due, found survey) (did bool, again time.Time, err error) {
	switch due.Action {
	case ca.Publish:
		if !k.writes {
			k.blocked(ctx, state, due, "call RegisterExtensions")
			return false, again, nil
		}
		return k.publish(ctx, s, due.Reason, found.due)
	case ca.Wait:
		if !k.writes || !found.due {
			return false, again, nil
		}
		return k.publish(ctx, s, found.reason, true)
	}
	did, err = k.advance(ctx, state, due)
	return did, again, err
}

// publish writes the configurations.
func (k *keeper) publish(ctx context.Context, s ca.Situation, because string, steps bool) (did bool, again time.Time, err error) {
	if k.reg.grows && !s.Lacks() && !steps {
		return false, again, nil // all that is missing is that something goes
	}
	k.wrote.say("registering again", errors.New(because))
	done, err := k.reg.write(ctx, func(live []byte) []byte {
		kept := ca.Common(live, s.Tolerated)
		if s.Lacks() { // whoever finds its CA missing knows nothing of other replicas
			kept = ca.Bundle(kept, ca.OfName(live, k.certs.store.Name))
		}
		return kept
	})
	return done.again.IsZero() && !k.reg.over.Load(), done.again, err
}

// advance does what the Secret needs next.
func (k *keeper) advance(ctx context.Context, state *certsecret.State, due ca.Due) (did bool, err error) {
	step := map[ca.Action]func(context.Context, *certsecret.State) (*certsecret.State, error){
		ca.Stage: k.certs.store.Stage, ca.Activate: k.certs.store.Activate, ca.Prune: k.certs.store.Prune,
	}[due.Action]
	if !k.certs.setUp {
		k.blocked(ctx, state, due, "give another replica get and update on the Secret")
		return false, nil
	}
	written, err := step(ctx, state)
	switch {
	case apierrors.IsForbidden(err):
		k.blocked(ctx, state, due, "grant update on the Secret")
		return false, nil
	case err != nil:
		return false, err
	}
	k.log.Info("rotating the CA", "did", due.Action, "because", due.Reason, "phase", written.Phase)
	k.report.event(ctx, written, eventNormal, "CA"+string(due.Action), fmt.Sprintf("%s: %s", due.Action, due.Reason))
	return true, nil
}

// record corrects what the Secret says is registered: whoever put the Secret back, or an older copy of it, may have known
// less. Serving halves that may not read configurations go by it.
func (k *keeper) record(ctx context.Context, state *certsecret.State, due ca.Due) (did bool, err error) {
	if due.Action == ca.Publish || !k.writes || !k.certs.setUp {
		return false, nil
	}
	bundle := state.Bundle() // every configuration holds it, and outside a rotation nothing else
	if ca.EqualBundles(state.RegisteredBundle, bundle) || state.Phase != ca.Steady && ca.Contains(state.RegisteredBundle, bundle) {
		return false, nil
	}
	err = k.certs.store.RecordRegistered(ctx, bundle)
	if apierrors.IsForbidden(err) || errors.Is(err, certsecret.ErrImmutable) || errors.Is(err, certsecret.ErrNewerFormat) {
		return false, nil // it helps others; nothing here depends on it
	}
	return err == nil, err
}

// blocked says what stands in the way of a rotation or of healing.
func (k *keeper) blocked(ctx context.Context, state *certsecret.State, due ca.Due, remedy string) {
	why := fmt.Errorf("%s is due because %s; %s", due.Action, due.Reason, remedy)
	if k.said.say("this replica may not do what the certificates need", why) {
		k.report.event(ctx, state, eventWarning, "CARotationBlocked", why.Error())
	}
}

// judge tells whether the API server trusts this process. When it trusts what other replicas serve and not us, we
// become unready after a while, so that calls go to them. A caBundle that is no good for any replica takes none away:
// it is healed, and no endpoint at all would be worse.
func (k *keeper) judge(state *certsecret.State, live []ca.Registered) {
	now := k.clock.Now()
	current, err := state.Current()
	var doubt error
	for _, l := range live {
		if verifyErr := k.certs.leaf.Verify(l.Bundle); verifyErr != nil && err == nil && current.TrustedBy(l.Bundle, now) {
			doubt = fmt.Errorf("%s: %w", l.Name, verifyErr)
		}
	}
	switch {
	case doubt == nil:
		k.doubtedAt = time.Time{}
		k.ready(nil)
	case k.doubtedAt.IsZero():
		k.doubtedAt = now
	case now.Sub(k.doubtedAt) > unreadyAfter:
		k.ready(doubt)
	}
}

// watch is of the Secret alone, never of others.
func (c *certificates) watch(ctx context.Context) (watch.Interface, error) {
	return c.store.Secrets.Watch(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, c.store.Name).String()})
}

// RotateCA replaces the CA by a new one, without a failed call, and returns when the new one signs. The old one stays
// trusted for the lifetime of a serving certificate and is dropped then; until that, RotateCA waits for its turn. It
// works with the replicas that run, or alone; any of them finishes what it began. The end of ctx ends the wait, not the
// rotation.
//
// The same can be asked for with the annotation eirinix.cloudfoundry.org/rotate-ca on the certificate Secret: each new
// value stands for one rotation.
func (m *ExtensionManager) RotateCA(ctx context.Context) error {
	k, err := m.rotator(ctx)
	if err != nil {
		return prefixed(err)
	}
	var staged int64
	for {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("eirinix: RotateCA: %w", context.Cause(ctx))
		}
		state, err := k.certs.store.Load(ctx)
		if err != nil {
			return fmt.Errorf("eirinix: RotateCA: %w", err)
		}
		switch {
		case staged != 0 && state.CurrentID >= staged:
			return nil
		case staged == 0 && state.Phase == ca.Staged:
			staged = state.NextID // somebody else has begun
		case staged == 0 && state.Phase == ca.Steady:
			begun, err := k.certs.store.Stage(ctx, state)
			if err != nil && !apierrors.IsConflict(err) {
				return fmt.Errorf("eirinix: RotateCA: %w", err)
			}
			if err == nil {
				staged = begun.NextID
				k.report.event(ctx, begun, eventNormal, "CAstage", "a rotation was asked for with RotateCA")
			}
		}
		next, err := k.tick(ctx)
		if err != nil && !transient(err) {
			return fmt.Errorf("eirinix: RotateCA: %w", err)
		}
		if err := pause(ctx, min(max(next, 10*time.Millisecond), pollSecret)); err != nil {
			return fmt.Errorf("eirinix: RotateCA: %w", err)
		}
	}
}

// rotator is the keeper that runs, or one for this purpose.
func (m *ExtensionManager) rotator(ctx context.Context) (*keeper, error) {
	if source := m.certificateSource(); source != nil {
		return nil, fmt.Errorf("eirinix: RotateCA: the certificates come from %s; rotate the CA where they are issued, and it is taken over from there", source)
	}
	m.mu.Lock()
	running, ok := m.upkeep.(*keeper)
	m.mu.Unlock()
	if ok {
		return running, nil
	}
	if err := m.Validate(); err != nil {
		return nil, err
	}
	log := m.logr()
	certs, err := m.newCertificates(log)
	if err != nil {
		return nil, err
	}
	steps, err := m.resolveAll()
	if err != nil {
		return nil, err
	}
	reg, err := m.newRegistration(certs, steps, m.declaredPort(), log)
	if err != nil {
		return nil, err
	}
	return m.newKeeper(certs, reg, log), certs.obtain(ctx, false)
}
