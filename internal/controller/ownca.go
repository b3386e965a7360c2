package controller

// This file reconciles a CA of our own. It adopts the CA that the replicas share, restores a lost one, and takes the
// next step of a rotation when that is due (see package ca).

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"code.cloudfoundry.org/eirinix/internal/ca"
	"code.cloudfoundry.org/eirinix/internal/certsecret"
	"code.cloudfoundry.org/eirinix/internal/lograte"
	"code.cloudfoundry.org/eirinix/internal/wait"
	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

const (
	// pollSecret is the interval between reads of a Secret that another process must create.
	pollSecret = time.Second

	// distrustRetain is how long an old CA stays trusted after RotateCA with Distrust. Replicas that watch the Secret
	// have switched by then.
	distrustRetain = 5 * time.Second

	// siblingGracePeriod is how long a CA stays trusted that a replica may have made while the Secret was lost.
	siblingGracePeriod = 2 * time.Minute

	// prunedKept bounds the number of pruned CAs that are remembered.
	prunedKept = 64
)

// Leaf is the serving certificate of this process (see package serving).
type Leaf interface {
	Use(*ca.Authority) error
	Verify(bundle []byte) error
	Certificate() *x509.Certificate
	GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error)
	Run(ctx context.Context, log logr.Logger)
}

// OwnCA provides certificates that this process signs with the CA in the Secret. The fields do not change.
type OwnCA struct {
	Leaf
	Store *certsecret.Store
	SetUp bool // whether this process creates and repairs the Secret
	Log   logr.Logger
	Now   func() time.Time

	// The fields below belong to Obtain, and afterwards to the pass.
	state   *certsecret.State // the last usable one
	serves  *ca.Authority     // the CA of the serving certificate
	id      int64             // of its generation
	foreign ca.ForeignCAs
	ordered bool     // this process was asked for the rotation that is on, so it takes its steps even if SetUp is false
	pruned  []string // hashes of CAs that the Secret held once and no longer holds
	held    []string // hashes of the CAs that the Secret holds
}

func (k *OwnCA) String() string { return "Secret " + k.Store.String() }

// Obtain adopts the CA from the Secret, or makes it, and signs this process's serving certificate. If another process
// must create the Secret (SetUp is false, or creating it is forbidden), Obtain with await set waits and logs the reason.
func (k *OwnCA) Obtain(ctx context.Context, o Observation, await bool) error {
	var reasons lograte.Limiter
	for {
		state, err := k.read(ctx, o)
		if err == nil {
			return k.adopt(state, nil)
		}
		notMadeYet := errors.Is(err, certsecret.ErrNotReady)
		lacksRights := k.SetUp && apierrors.IsForbidden(err)
		if !await || !notMadeYet && !lacksRights {
			return err
		}
		reasons.Info(k.Log, "waiting for the certificate Secret; RegisterExtensions makes it", err.Error())
		if err := wait.Sleep(ctx, wait.Jittered(pollSecret)); err != nil {
			return err
		}
		if lacksRights {
			k.SetUp = false // this half of a deployment has only the right to read
		}
	}
}

// ObtainTrust makes the CA if there is none, as a process that registers can.
func (k *OwnCA) ObtainTrust(ctx context.Context, o Observation) error { return k.Obtain(ctx, o, false) }

func (k *OwnCA) Run(ctx context.Context) { k.Leaf.Run(ctx, k.Log) }

// read returns the state of the Secret. A Secret that is missing or unusable gets the CA in this process's memory back,
// so that the certificates of all replicas keep verifying.
func (k *OwnCA) read(ctx context.Context, o Observation) (*certsecret.State, error) {
	if !k.SetUp {
		return k.Store.Peek(ctx)
	}
	return k.Store.Observe(ctx, k.state, webhookconf.Pinned(o.found()), o.pinnedNow)
}

// adopt adopts a state. Its CA becomes the signer only if API servers trust it wherever they trust the CA of
// the serving certificate. In the reverse order, every call until the next write of the caBundle would fail.
func (k *OwnCA) adopt(state *certsecret.State, live []ca.Registered) error {
	authority, err := state.Current()
	if err != nil {
		return fmt.Errorf("certificate Secret %s: %w", k.Store, err)
	}
	now := k.Now()
	k.state = state
	if k.serves != nil && !k.serves.Equal(authority) && k.serves.Usable(now) == nil {
		for _, l := range live {
			if k.serves.TrustedBy(l.Bundle, now) && !authority.TrustedBy(l.Bundle, now) {
				return nil
			}
		}
	}
	if err := k.Use(authority); err != nil {
		return fmt.Errorf("cannot sign the serving certificate: %w", err)
	}
	k.serves, k.id = authority, state.CurrentID
	return nil
}

func (k *OwnCA) othersTrusted(bundle []byte, now time.Time) bool {
	current, err := k.state.Current()
	return err == nil && current.TrustedBy(bundle, now)
}

func (k *OwnCA) verifyRecorded([]byte) error {
	if len(k.state.RegisteredBundle) == 0 {
		return fmt.Errorf("the %s records no registration yet, and this process has no right to read webhook configurations; call RegisterExtensions", k)
	}
	if err := k.Verify(k.state.RegisteredBundle); err != nil {
		return fmt.Errorf("the caBundle that RegisterExtensions registered last does not trust the CA of the %s; call it again: %w", k, err)
	}
	return nil
}

// need returns the bundle of the Secret, and the CA of the serving certificate unless that was distrusted: a replica that
// learns of it late must not have a leaked key trusted again.
func (k *OwnCA) need(ctx context.Context, o Observation) ([]byte, error) {
	state, err := k.reread(ctx, o)
	if err != nil {
		return nil, err
	}
	if k.serves == nil || k.id <= state.Distrusted && state.Lineage == k.state.Lineage {
		return state.Bundle(), nil
	}
	return ca.Bundle(state.Bundle(), k.serves.CertificatePEM), nil
}

// reread returns the current state. A CA in it that no configuration pins is left out, or the Secret is
// repaired.
func (k *OwnCA) reread(ctx context.Context, o Observation) (*certsecret.State, error) {
	if !k.SetUp {
		return k.Store.Load(ctx)
	}
	state, _, err := k.Store.Restore(ctx, k.state, webhookconf.Pinned(o.found()), o.pinnedNow)
	return state, err
}

func (k *OwnCA) look(ctx context.Context, c *Controller, o Observation) (Plan, error) {
	state, err := k.read(ctx, o)
	if err != nil {
		return Plan{}, err
	}
	k.ordered = k.ordered && state.Phase != ca.Steady
	k.foreign.Renew(o.claimed, k.Now())
	live, unseen := o.Live, o.Unseen
	if unseen && len(state.RegisteredBundle) > 0 {
		live, unseen = []ca.Registered{{Name: "the last registered caBundle", Bundle: state.RegisteredBundle}}, false
	}
	if err := k.adopt(state, live); err != nil {
		return Plan{}, err
	}
	s := k.rotationState(c, state, live, unseen)
	step := ca.NextStep(s)
	plan := Plan{
		Want: s.Bundle, Tolerated: s.Tolerated, RequeueAt: c.byOwnClock(step.At, s.Now),
		Distrusted: state.Distrusted > 0 && state.Distrusted+1 >= state.CurrentID,
		own:        state,
		Asks: func(certificate *x509.Certificate) bool {
			return k.foreign.Seen(certificate) && k.gracePeriod(certificate, c.Retain) > 0 && !k.isSibling(certificate)
		},
	}
	_, missing := s.Missing()
	plan.Retain = func(live []byte) []byte {
		if missing && !c.wasReady {
			return live // a process that has just started knows nothing about other replicas
		}
		if missing || state.Phase == ca.Staged {
			return ca.OfName(live, k.Store.Name) // a replica whose CA is missing from a caBundle knows nothing about other replicas
		}
		return nil
	}
	switch step.Action {
	case ca.Publish:
		if missing {
			plan.Missing = step.Reason
		} else {
			plan.Surplus = step.Reason
			k.record(c, &plan, state, o) // it may stay for days
		}
	case ca.Wait:
		k.record(c, &plan, state, o)
	default:
		k.advance(c, &plan, state, step)
	}
	return plan, nil
}

func (k *OwnCA) rotationState(c *Controller, state *certsecret.State, live []ca.Registered, unseen bool) ca.RotationState {
	s := ca.RotationState{
		Now: k.Now(), Phase: state.Phase, Since: state.Since, Retain: c.Retain, Requested: state.Requested(),
		Bundle: state.Bundle(), Live: live, Unseen: unseen, NextBroken: k.Store.NextBroken(state),
	}
	if state.DistrustsOld() {
		s.Retain = min(s.Retain, distrustRetain)
	}
	if authority, err := state.Current(); err == nil {
		s.Current = authority.Certificate
	}
	k.remember(webhookconf.HashesOf(s.Bundle))
	if !c.Once { // a short-lived process has no history; see webhookconf.Found.Outgrow
		gracePeriod := func(certificate *x509.Certificate) time.Duration { return k.gracePeriod(certificate, c.Retain) }
		s.Tolerated, s.Until = k.foreign.Tolerate(live, s.Bundle, s.Now, gracePeriod, k.isSibling)
	}
	return s
}

// remember records which CAs the Secret holds, and which it held before.
func (k *OwnCA) remember(held []string) {
	for _, hash := range k.held {
		if !slices.Contains(held, hash) && !slices.Contains(k.pruned, hash) {
			k.pruned = append(k.pruned, hash)
		}
	}
	k.pruned = k.pruned[max(0, len(k.pruned)-prunedKept):]
	k.held = held
}

// gracePeriod returns how long a CA that is not in the Secret stays trusted, counted from when it is first observed.
func (k *OwnCA) gracePeriod(certificate *x509.Certificate, retain time.Duration) time.Duration {
	switch {
	case slices.Contains(k.pruned, ca.HashOf(certificate)):
		return 0
	case k.isSibling(certificate):
		return min(siblingGracePeriod, retain) // by then each live replica has published the CA of its certificate
	}
	return retain // it belongs to a replica with another source of certificates
}

// isSibling reports whether a replica that started while the Secret was lost may have made this CA.
func (k *OwnCA) isSibling(certificate *x509.Certificate) bool {
	return ca.OfName(ca.EncodeCertificate(certificate), k.Store.Name) != nil
}

// advance schedules the next step of a rotation.
func (k *OwnCA) advance(c *Controller, plan *Plan, state *certsecret.State, step ca.Step) {
	write := map[ca.Action]func(context.Context, *certsecret.State) (*certsecret.State, error){
		ca.Stage: k.Store.Stage, ca.Activate: k.Store.Activate, ca.Prune: k.Store.Prune,
	}[step.Action]
	if !k.SetUp && !k.ordered {
		plan.Blocked = fmt.Sprintf("%s is due because %s; give another replica get and update on the Secret", step.Action, step.Reason)
		return
	}
	if state.FormatVersion > certsecret.FormatVersion && !k.ordered {
		plan.Blocked = fmt.Sprintf("%s is due because %s; a newer version of this library has written the Secret, and has to do it", step.Action, step.Reason)
		return
	}
	plan.Reason = string(step.Action)
	plan.Apply = func(ctx context.Context) error {
		if step.Action == ca.Activate {
			if err := k.confirm(ctx, c, state); err != nil {
				return err
			}
		}
		written, err := write(ctx, state)
		if apierrors.IsForbidden(err) {
			return fmt.Errorf("%s is due because %s; grant update on the Secret: %w", step.Action, step.Reason, err)
		}
		if err != nil {
			return err
		}
		k.Log.Info("rotating the CA", "action", step.Action, "reason", step.Reason, "phase", written.Phase)
		c.Report.event(eventNormal, "CA"+string(step.Action), step.Reason)
		return nil
	}
}

// confirm rereads every configuration: the next CA signs only after all caBundles hold it.
func (k *OwnCA) confirm(ctx context.Context, c *Controller, state *certsecret.State) error {
	o, err := c.reread(ctx)
	if err != nil {
		return err
	}
	if name, missing := (ca.RotationState{Live: o.Live, Bundle: state.Bundle()}).Missing(); missing {
		webhooks := schema.GroupResource{Group: "admissionregistration.k8s.io", Resource: "webhookconfigurations"}
		return apierrors.NewConflict(webhooks, name, errors.New("its caBundle does not hold the next CA any more"))
	}
	return nil
}

// record corrects the registered bundle in the Secret. Serving halves that have no right to read configurations rely on
// it.
func (k *OwnCA) record(c *Controller, plan *Plan, state *certsecret.State, o Observation) {
	if !c.Registers || !k.SetUp || len(o.Live) == 0 {
		return
	}
	bundle := o.Live[0].Bundle
	for _, l := range o.Live[1:] {
		bundle = ca.Common(bundle, l.Bundle)
	}
	if len(ca.SplitBundle(bundle)) == 0 || ca.EqualBundles(state.RegisteredBundle, bundle) {
		return
	}
	plan.Reason = "record"
	plan.Apply = func(ctx context.Context) error {
		err := k.Store.RecordRegistered(ctx, bundle)
		if apierrors.IsForbidden(err) || errors.Is(err, certsecret.ErrImmutable) || errors.Is(err, certsecret.ErrNewerFormat) {
			return nil // the record helps other processes; nothing here depends on it
		}
		return err
	}
}

// Rotate replaces the CA, and returns when the new one signs. With distrust, it returns when the old one is no longer
// trusted. It makes passes of its own. If it ends early, other replicas finish the rotation.
func (c *Controller) Rotate(ctx context.Context, distrust bool) error {
	k, ok := c.Certificates.(*OwnCA)
	if !ok {
		return errors.New("the certificates are issued elsewhere")
	}
	var old int64
	var failures lograte.Limiter
	delays := wait.Backoff(time.Second, 5*time.Second) // the rotation before this one can take days
	for {
		if err := c.enter(ctx); err != nil {
			return err
		}
		done, err := k.rotate(ctx, c, distrust, &old)
		c.exit()
		if done {
			return nil
		}
		next, longest := time.Second, delays()
		if err == nil {
			next, err = c.Reconcile(ctx)
		}
		if err != nil && ctx.Err() == nil {
			if !wait.Transient(err) {
				return err
			}
			failures.Info(c.Log, "the rotation waits for the API server", err.Error())
			next = time.Second
		}
		if err := wait.Sleep(ctx, min(max(next, 10*time.Millisecond), longest)); err != nil {
			return err
		}
	}
}

// rotate begins the rotation if that is possible now, and reports whether it is complete. The first call stores in old
// the generation to replace, because another process can begin and end the rotation between two calls.
func (k *OwnCA) rotate(ctx context.Context, c *Controller, distrust bool, old *int64) (done bool, err error) {
	o, err := c.observe(ctx)
	if err != nil {
		return false, err
	}
	state, err := k.reread(ctx, o)
	if err != nil {
		return false, err
	}
	if *old == 0 {
		*old = state.CurrentID
	}
	k.ordered = true
	switch {
	case state.CurrentID > *old:
		return !distrust || state.Phase == ca.Steady && k.only(ctx, c, state), nil
	case distrust && state.Distrusted < state.CurrentID:
		_, err = k.Store.Distrust(ctx, state)
	case state.Phase == ca.Steady:
		if _, err = k.Store.Stage(ctx, state); err == nil {
			c.Report.event(eventNormal, "CAstage", "RotateCA requested a rotation")
		}
	}
	if apierrors.IsConflict(err) {
		err = nil
	}
	return false, err
}

// only reports whether the configurations trust the state's CAs and no other CA of ours, nor one that was adopted from EiriniX and has
// another name.
func (k *OwnCA) only(ctx context.Context, c *Controller, state *certsecret.State) bool {
	o, err := c.reread(ctx)
	if err != nil {
		return false
	}
	k.remember(webhookconf.HashesOf(state.Bundle()))
	pruned := func(certificate *x509.Certificate) bool { return slices.Contains(k.pruned, ca.HashOf(certificate)) }
	for _, l := range o.Live {
		if !ca.Contains(state.Bundle(), ca.OfName(l.Bundle, k.Store.Name)) || ca.Select(l.Bundle, pruned) != nil {
			return false
		}
	}
	return true
}
