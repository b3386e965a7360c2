package certsecret

// This file is the Store: create-or-adopt, repair, migrate and restore.

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"code.cloudfoundry.org/eirinix/internal/ca"
)

// DefaultLifetime is that of a CA: ten years. Rotation at half of it leaves five to notice trouble.
const DefaultLifetime = 10 * 365 * 24 * time.Hour

// Outcome is what became of the Secret. State.Reason tells why, for all but Created and Adopted.
type Outcome string

// The outcomes of Ensure and Restore.
const (
	Created  Outcome = "created"  // there was no Secret
	Adopted  Outcome = "adopted"  // the Secret was in order, nothing was written
	Repaired Outcome = "repaired" // what could be kept was kept, a CA was made if none was left
	Migrated Outcome = "migrated" // EiriniX's Secret: its CA was taken over, or replaced for State.Reason
	Restored Outcome = "restored" // the CA that this replica held in memory was put back
)

// Store reads and writes one certificate Secret. It needs get, create and update on it. Its methods are
// safe for concurrent use, by any number of replicas too; its fields must not change after first use.
type Store struct {
	Secrets         corev1client.SecretInterface // of Namespace
	Namespace, Name string
	Lifetime        time.Duration     // of a new CA; 0 means DefaultLifetime
	Key             ca.KeyAlgorithm   // of a new CA; empty means ECDSA-P256
	Labels          map[string]string // added to the Secret when it is written anyway
	Log             logr.Logger       // the zero value is silent
	Now             func() time.Time  // nil means time.Now
}

// String is the Secret's namespace and name.
func (s *Store) String() string { return s.Namespace + "/" + s.Name }

// Ensure returns the state that all replicas share, and makes it if need be: it creates a missing Secret,
// repairs an unusable one, takes over EiriniX's. A Secret in order is not written. Losing a race is
// normal and ends in adopting what the winner wrote. It gives up after about ten seconds of lost races
// or failing requests, or when ctx ends.
//
// If the Secret is in use but a newer version of this library wrote it, it is adopted as it is.
func (s *Store) Ensure(ctx context.Context) (*State, Outcome, error) {
	return s.Restore(ctx, nil)
}

// Restore is Ensure for a replica that knows the state already: if the Secret is gone, unusable or was
// rolled back to an older CA, the known CA is put back instead of a new one being made, so that what is
// served and registered goes on verifying. Other CAs found in the Secret stay trusted. A known CA that is
// no longer usable is ignored, and so is known if it is nil.
func (s *Store) Restore(ctx context.Context, known *State) (*State, Outcome, error) {
	if known != nil {
		if authority, err := known.Current(); err != nil || authority.Usable(s.now()) != nil {
			known = nil
		}
	}
	var state *State
	var outcome Outcome
	err := s.retry(ctx, func() error {
		secret, err := s.Secrets.Get(ctx, s.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			state, outcome, err = s.create(ctx, known)
		case err == nil:
			state, outcome, err = s.mend(ctx, secret, known)
		}
		return err
	})
	if err != nil {
		return nil, "", err
	}
	if outcome != Adopted {
		s.Log.Info("certificate Secret "+string(outcome), "secret", s.String(), "reason", state.Reason, "state", state)
	}
	return state, outcome, nil
}

// Load reads the state and writes nothing. The error wraps ErrNotReady if the Secret is missing or holds
// no usable CA, and says so; a Secret that Ensure would repair or migrate without a new CA is usable.
func (s *Store) Load(ctx context.Context) (*State, error) {
	secret, err := s.Secrets.Get(ctx, s.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, s.wrap(errNotReady("the Secret does not exist (yet)"))
	}
	if err != nil {
		return nil, s.wrap(err)
	}
	f := inspect(secret.Data, s.usable)
	if f.authority == nil {
		return nil, s.wrap(errNotReady(f.reason))
	}
	return found(f, secret), nil
}

// RecordRegistered stores the caBundle that was registered. The same certificates again write nothing.
// The error wraps ErrNotReady if the Secret holds no usable CA: Ensure comes first.
func (s *Store) RecordRegistered(ctx context.Context, bundle []byte) error {
	bundle = ca.Bundle(bundle)
	if len(bundle) == 0 {
		return s.wrap(errors.New("the registered caBundle holds no certificate"))
	}
	return s.retry(ctx, func() error {
		secret, err := s.Secrets.Get(ctx, s.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return errNotReady("the Secret does not exist (yet)")
		}
		if err != nil {
			return err
		}
		f := inspect(secret.Data, s.usable)
		if f.authority == nil {
			return errNotReady(f.reason)
		}
		if ca.EqualBundles(f.state.RegisteredBundle, bundle) {
			return nil
		}
		f.state.RegisteredBundle = bundle
		_, err = s.write(ctx, secret, f.state, "the registered caBundle is to be recorded")
		return err
	})
}

// create makes the Secret, with the known CA or a new one.
func (s *Store) create(ctx context.Context, known *State) (*State, Outcome, error) {
	state, outcome := &State{Phase: ca.Steady}, Created
	if known != nil {
		if known.FormatVersion > FormatVersion {
			return nil, "", errNewer(known.FormatVersion, "the Secret is gone, and only a newer version can put it back")
		}
		state, outcome = known.Clone(), Restored
		state.Reason = "the Secret was deleted"
	} else if err := s.mint(state); err != nil {
		return nil, "", err
	}
	state.FormatVersion, state.Counter = FormatVersion, next(state.Counter)
	if state.Lineage == "" {
		state.Lineage = rand.Text()
	}
	secret, err := s.Secrets.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: s.Name, Namespace: s.Namespace, Labels: maps.Clone(s.Labels)},
		Type:       corev1.SecretTypeOpaque,
		Data:       state.Encode(nil),
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, "", err
	}
	return state.from(secret), outcome, nil
}

// mend uses what stands in an existing Secret and writes it only if something is wrong with it.
func (s *Store) mend(ctx context.Context, secret *corev1.Secret, known *State) (*State, Outcome, error) {
	f := inspect(secret.Data, s.usable)
	if f.newer() {
		if f.authority == nil {
			return nil, "", errNewer(f.state.FormatVersion, f.reason)
		}
		return found(f, secret), Adopted, nil
	}
	if immutable(secret) && f.authority != nil {
		// It cannot be put in order, but every replica finds the same usable CA in it.
		return found(f, secret), Adopted, nil
	}
	if known != nil && known.FormatVersion <= FormatVersion {
		s.putBack(&f, known)
	}
	if f.outcome == Adopted {
		return found(f, secret), Adopted, nil
	}
	if f.authority == nil {
		f.state.settle(ca.Steady, s.now())
		if err := s.mint(f.state); err != nil {
			return nil, "", err
		}
	}
	if !f.documented { // what was lost may be what another replica still serves
		f.state.trust(s.now(), secret.Data[CertificateKey], secret.Data[CACertificateKey], secret.Data[eirinixCACertificateKey])
	}
	f.state.retainOthers(s.now())
	state, err := s.write(ctx, secret, f.state, f.reason)
	if err != nil {
		return nil, "", err
	}
	state.Reason = f.reason
	return state, f.outcome, nil
}

// putBack turns a finding into one that restores the known state, if the Secret lost it. A document of the same
// lineage with another CA and a counter as high as ours is not a loss: someone else repaired or rotated. One of
// another lineage is, unless it keeps our CA: then a replica with an older claim has put its own back and taken in ours.
func (s *Store) putBack(f *finding, known *State) {
	held, err := known.Current()
	if err != nil {
		return
	}
	same := f.authority != nil && ca.EqualBundles(f.authority.CertificatePEM, held.CertificatePEM)
	merged := ca.Contains(f.state.Bundle(), held.CertificatePEM)
	otherLineage := known.Lineage != "" && f.state.Lineage != known.Lineage
	switch {
	case f.documented && same && !otherLineage && f.state.Counter < known.Counter:
		// What it holds is good, but a counter that went back would let another old copy pass for newer.
		f.reason = fmt.Sprintf("the Secret was rolled back (counter %d, this replica knows %d)", f.state.Counter, known.Counter)
		f.state.Counter, f.outcome = known.Counter, Repaired
		return
	case f.documented && (same || otherLineage && merged || !otherLineage && f.state.Counter >= known.Counter):
		return
	case f.documented && otherLineage:
		f.reason = "the Secret was replaced by that of another deployment"
	case f.documented:
		f.reason = fmt.Sprintf("the Secret was rolled back to another CA (counter %d, this replica knows %d)",
			f.state.Counter, known.Counter)
	case f.reason == "":
		f.reason = StateKey + " was lost"
	}
	state := known.Clone()
	state.Counter = max(state.Counter, f.state.Counter)
	state.trust(s.now(), f.state.Bundle())
	state.retainOthers(s.now())
	if len(state.RegisteredBundle) == 0 {
		state.RegisteredBundle = f.state.RegisteredBundle
	}
	f.state, f.authority, f.outcome = state, held, Restored
}

// write updates the Secret in place, guarded by its resourceVersion.
func (s *Store) write(ctx context.Context, secret *corev1.Secret, state *State, reason string) (*State, error) {
	if state.FormatVersion > FormatVersion {
		return nil, errNewer(state.FormatVersion, reason)
	}
	if immutable(secret) {
		return nil, s.errImmutable(reason)
	}
	state = state.Clone()
	state.FormatVersion, state.Counter = FormatVersion, next(state.Counter)
	if state.Phase == "" {
		state.Phase = ca.Steady
	}
	if state.Lineage == "" {
		state.Lineage = rand.Text()
	}
	state.forget(s.now())
	update := secret.DeepCopy()
	update.Data = state.Encode(secret.Data)
	for key, value := range s.Labels {
		metav1.SetMetaDataLabel(&update.ObjectMeta, key, value)
	}
	written, err := s.Secrets.Update(ctx, update, metav1.UpdateOptions{})
	if err != nil {
		return nil, err
	}
	return state.from(written), nil
}

// mint makes a new CA the current generation.
func (s *Store) mint(state *State) error {
	authority, err := ca.New(s.Name, s.lifetime(), s.now(), ca.WithKey(s.Key))
	if err != nil {
		return err
	}
	state.install(authority)
	return nil
}

func (s *Store) lifetime() time.Duration {
	if s.Lifetime == 0 {
		return DefaultLifetime
	}
	return s.Lifetime
}

func (s *Store) usable(authority *ca.Authority) error { return authority.Usable(s.now()) }

func (s *Store) now() time.Time {
	if s.Now == nil {
		return time.Now()
	}
	return s.Now()
}

func found(f finding, secret *corev1.Secret) *State {
	f.state.Reason = f.reason
	return f.state.from(secret)
}

// from notes which Secret a state stands in.
func (s *State) from(secret *corev1.Secret) *State {
	s.ResourceVersion, s.UID, s.Request = secret.ResourceVersion, secret.UID, secret.Annotations[RotateAnnotation]
	return s
}

func immutable(secret *corev1.Secret) bool { return secret.Immutable != nil && *secret.Immutable }
