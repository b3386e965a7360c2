package certsecret

// This file holds the Store, which creates, adopts, repairs, migrates and restores the Secret. It tries again after a lost
// race or a temporary failure. Other errors name the remedy.

import (
	"bytes"
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"code.cloudfoundry.org/eirinix/internal/ca"
	"code.cloudfoundry.org/eirinix/internal/wait"
)

// Outcome reports how a state came about. State.Reason holds the reason, for all outcomes except Created and Adopted.
type Outcome string

// The outcomes of Restore.
const (
	Created  Outcome = "created"  // there was no Secret
	Adopted  Outcome = "adopted"  // the Secret was in order, nothing was written
	Repaired Outcome = "repaired" // all usable parts were kept; a CA was created if none was left
	Migrated Outcome = "migrated" // EiriniX's Secret: its CA was adopted, or replaced because of State.Reason
	Restored Outcome = "restored" // the CA that this replica held in memory was put back
)

var (
	// ErrNotReady is wrapped by methods that do not create a CA, such as Load and RecordRegistered, when the Secret
	// holds no usable CA (yet).
	ErrNotReady = errors.New("no usable CA")

	// ErrNewerFormat is wrapped when a newer version of this library wrote the Secret and a write is needed.
	ErrNewerFormat = errors.New("written by a newer version of this library")

	// ErrImmutable is wrapped when the Secret is marked immutable: true and a write is needed.
	ErrImmutable = errors.New("the Secret is immutable")
)

// Store reads and writes one certificate Secret. It needs get, create and update on it. Its methods are safe for
// concurrent use, also by any number of replicas. Its fields must not change after first use.
type Store struct {
	Secrets         corev1client.SecretInterface // of Namespace
	Namespace, Name string
	Lifetime        time.Duration   // of a new CA
	Key             ca.KeyAlgorithm // of a new CA; empty means ECDSA-P256
	Log             logr.Logger     // the zero value is silent
	Now             func() time.Time

	// ServerTime returns the API server's time as last observed, or the zero time while it is unknown. If ServerTime is
	// nil, the time is always unknown. See ca.ServerTime.
	ServerTime func() time.Time

	// Cached returns the Secret from a cache, or a NotFound error. It is optional, and only Observe and Peek call it.
	// The returned Secret is not modified.
	Cached func(ctx context.Context) (*corev1.Secret, error)

	// OthersRegister is set if another process writes the configurations, and records in the Secret what it has registered.
	OthersRegister bool

	mu       sync.Mutex
	putBacks []time.Time // of the last minute
}

func (s *Store) String() string { return s.Namespace + "/" + s.Name }

// Restore returns the state that all replicas share. It creates a missing Secret, repairs an unusable one and migrates
// EiriniX's. It does not write a Secret that is in order, or that a newer version of this library has written and that is
// usable. Restore gives up after about ten seconds of lost races or failing requests, or when ctx ends.
//
// If this replica knows a state already, and the Secret is gone, unusable or was rolled back to an older CA, the known
// CA is written back instead of a new one. The served certificates and registered caBundles thus keep verifying. No
// other CA found in the Secret is trusted in that case. A known CA that is no longer usable is not written back.
//
// If the webhook configurations pin CAs, others are dropped from the state and from the Secret, unless an allowed one
// has signed them. A current CA that is not allowed counts as none. The CAs of the known state are allowed, regardless
// of pinned. A caller that got a state from here must pass it from then on. known is nil for none.
//
// Pinned may come from copies that are late, and then lack the CA of a rotation that is over. So now, which may be nil, returns
// what is pinned at the API server. It is called before each write, and after the read of the Secret that the write is bound to.
func (s *Store) Restore(ctx context.Context, known *State, pinned Pinned, now func(context.Context) (Pinned, error)) (*State, Outcome, error) {
	usable := s.withUsableCA(known)
	var state *State
	var outcome Outcome
	err := s.retry(ctx, func() error {
		secret, err := s.Secrets.Get(ctx, s.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			state, outcome, err = s.create(ctx, usable)
		case err == nil:
			f := s.judge(secret, usable, newAllowlist(known, pinned))
			if f.outcome != Adopted && now != nil {
				if pinned, err = now(ctx); err != nil {
					return err
				}
				f = s.judge(secret, usable, newAllowlist(known, pinned))
			}
			state, outcome, err = s.repair(ctx, secret, f)
		}
		return err
	})
	if err != nil {
		return nil, "", err
	}
	if outcome != Adopted {
		s.Log.Info("certificate Secret "+string(outcome), "secret", s.String(), "reason", cmp.Or(state.Reason, "it did not exist"), "state", state)
	}
	return state, outcome, nil
}

// Observe is Restore for a caller with a cache. A cached Secret that needs no write costs no request. If known was read
// from that same version of the Secret, known itself is returned. All other cases are read live, so an outdated cache
// causes a request and no harm.
func (s *Store) Observe(ctx context.Context, known *State, pinned Pinned, now func(context.Context) (Pinned, error)) (*State, error) {
	if s.Cached != nil {
		if secret, err := s.Cached(ctx); err == nil {
			if state := s.inOrder(secret, known, pinned); state != nil {
				return state, nil
			}
		}
	}
	state, _, err := s.Restore(ctx, known, pinned, now)
	return state, err
}

// inOrder returns the state of a Secret that needs no write, or nil.
func (s *Store) inOrder(secret *corev1.Secret, known *State, pinned Pinned) *State {
	usable := s.withUsableCA(known)
	if usable != nil && known.ResourceVersion != "" && known.ResourceVersion == secret.ResourceVersion && known.UID == secret.UID &&
		bytes.Equal(known.document, secret.Data[StateKey]) { // after a restore from a backup, resourceVersions come again
		return known
	}
	f := s.judge(secret, usable, newAllowlist(known, pinned))
	if f.authority == nil || f.outcome != Adopted {
		return nil
	}
	return found(f, secret)
}

// withUsableCA returns the known state if its CA can still sign, or nil.
func (s *Store) withUsableCA(known *State) *State {
	if known == nil {
		return nil
	}
	if authority, err := known.Current(); err != nil || s.usable(authority) != nil {
		return nil
	}
	return known
}

// Load reads the state without writing. The error wraps ErrNotReady if the Secret is missing or holds no usable CA, and
// states which. A Secret that Restore would repair or migrate without a new CA is usable.
func (s *Store) Load(ctx context.Context) (*State, error) {
	secret, err := s.Secrets.Get(ctx, s.Name, metav1.GetOptions{})
	state, err := s.load(secret, err, allowlist{})
	return state, s.wrap(err)
}

// Peek is Load from the cache, if there is one. It is for replicas that lack permission to write. They see the Secret
// as it is, including CAs that Restore would drop and without those that it would write back.
func (s *Store) Peek(ctx context.Context) (*State, error) {
	if s.Cached == nil {
		return s.Load(ctx)
	}
	secret, err := s.Cached(ctx)
	state, err := s.load(secret, err, allowlist{})
	return state, s.wrap(err)
}

func (s *Store) load(secret *corev1.Secret, err error, list allowlist) (*State, error) {
	if apierrors.IsNotFound(err) {
		return nil, errNotReady("the Secret does not exist (yet)")
	}
	if err != nil {
		return nil, err
	}
	f := inspect(secret.Data, s.usable, list)
	if f.authority == nil {
		return nil, errNotReady(f.reason)
	}
	return found(f, secret), nil
}

// Distrust marks the current CA of the state, and all before it, as distrusted, by setting the DistrustAnnotation. They
// must not be trusted for longer than replicas need to move to the next CA. Any replica begins the rotation that this
// requests. Distrust fails with a conflict if the Secret has changed since the state was read, unless it already has
// this mark.
func (s *Store) Distrust(ctx context.Context, from *State) (*State, error) {
	secret, err := s.Secrets.Get(ctx, s.Name, metav1.GetOptions{})
	if err != nil {
		return nil, s.wrap(err)
	}
	id := strconv.FormatInt(from.CurrentID, 10)
	if secret.UID == from.UID && secret.Annotations[DistrustAnnotation] == id {
		state, err := s.load(secret, nil, only(from))
		return state, s.wrap(err)
	}
	if err := s.unchanged(secret, from); err != nil {
		return nil, err
	}
	update := secret.DeepCopy()
	metav1.SetMetaDataAnnotation(&update.ObjectMeta, DistrustAnnotation, id)
	written, err := s.Secrets.Update(ctx, update, metav1.UpdateOptions{})
	if err != nil {
		return nil, s.wrap(err)
	}
	return from.Clone().from(written), nil
}

// unchanged returns a conflict unless the state was read from this version of the Secret.
func (s *Store) unchanged(secret *corev1.Secret, from *State) error {
	if secret.ResourceVersion == from.ResourceVersion && secret.UID == from.UID {
		return nil
	}
	return s.wrap(apierrors.NewConflict(corev1.Resource("secrets"), s.Name, fmt.Errorf("it has changed since it was read")))
}

// RecordRegistered stores the registered caBundle. If its certificates are already stored, nothing is written. The
// error wraps ErrNotReady if the Secret holds no usable CA, so call Restore first.
func (s *Store) RecordRegistered(ctx context.Context, bundle []byte) error {
	bundle = registered(bundle)
	if len(bundle) == 0 {
		return s.wrap(errors.New("the registered caBundle holds no certificate"))
	}
	return s.retry(ctx, func() error {
		secret, err := s.Secrets.Get(ctx, s.Name, metav1.GetOptions{})
		state, err := s.load(secret, err, allowlist{})
		if err != nil || ca.EqualBundles(state.RegisteredBundle, bundle) {
			return err
		}
		state.RegisteredBundle = bundle
		_, err = s.write(ctx, secret, state, "the registered caBundle has changed")
		return err
	})
}

// create creates the Secret, with the known CA or a new one.
func (s *Store) create(ctx context.Context, known *State) (*State, Outcome, error) {
	state, outcome := &State{}, Created
	if known != nil {
		if known.FormatVersion > FormatVersion {
			return nil, "", errNewer(known.FormatVersion, "the Secret is gone, and only a newer version can put it back")
		}
		state, outcome = known.Clone(), Restored
		state.retainOthers(s.Now(), true)
		state.Reason = "the Secret was deleted"
	} else if err := s.mint(state); err != nil {
		return nil, "", err
	}
	state.number()
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: s.Name, Namespace: s.Namespace},
		Type:       corev1.SecretTypeOpaque,
		Data:       state.Encode(nil),
	}
	state.mark(secret)
	secret, err := s.Secrets.Create(ctx, secret, metav1.CreateOptions{})
	if err != nil {
		return nil, "", err
	}
	return state.from(secret), outcome, nil
}

// judge inspects an existing Secret. If it is usable and must not be written, the outcome is Adopted.
func (s *Store) judge(secret *corev1.Secret, known *State, list allowlist) finding {
	f := inspect(secret.Data, s.usable, list)
	f.state.Distrusted = distrusted(secret)
	if f.dropped {
		f.state.retainOthers(s.Now(), false)
	}
	switch {
	case f.authority != nil && (f.newer() || immutable(secret)):
		// It cannot be repaired, but every replica finds the same usable CA in it.
		f.outcome = Adopted
	case !f.newer() && known != nil && known.FormatVersion <= FormatVersion && !s.succeeds(f, known, list.pinned):
		s.putBack(&f, known)
	}
	return f
}

// succeeds reports whether another CA has taken the place of the known one, so that a process which put that back would write
// against others for ever. A replica that found neither a Secret nor a configuration, as where their namespace was deleted and made
// again, has begun anew: its CA is of another lineage, and configurations pin it and not the known one. A client that can write the
// Secret alone cannot pin a CA. Where this process sees no configuration and leaves them to another one, the bundle that
// the other one has recorded decides: after a restore from a backup, that may have had to make another CA.
func (s *Store) succeeds(f finding, known *State, pinned Pinned) bool {
	held, err := known.Current()
	if err != nil || !f.documented || f.authority == nil || f.state.Lineage == known.Lineage {
		return false
	}
	if pinned == nil {
		return s.OthersRegister && len(f.state.RegisteredBundle) > 0 && !ca.Contains(f.state.RegisteredBundle, held.CertificatePEM)
	}
	return pinned(f.authority.Certificate) && !pinned(held.Certificate)
}

// repair uses the contents of an existing Secret and writes it only if something is wrong with it.
func (s *Store) repair(ctx context.Context, secret *corev1.Secret, f finding) (*State, Outcome, error) {
	if f.newer() && f.authority == nil {
		return nil, "", errNewer(f.state.FormatVersion, f.reason)
	}
	if f.outcome == Adopted {
		return found(f, secret), Adopted, nil
	}
	if f.outcome == Restored {
		if err := s.puts(); err != nil {
			return nil, "", err
		}
	}
	if f.authority == nil {
		f.state.Phase, f.state.Since = ca.Steady, s.Now()
		if err := s.mint(f.state); err != nil {
			return nil, "", err
		}
	}
	f.state.retainOthers(s.Now(), !f.documented)
	state, err := s.write(ctx, secret, f.state, f.reason)
	return state, f.outcome, err
}

// putBack turns a finding into one that restores the known state, if the Secret lost it. A document with another,
// allowed CA and a counter at least as high as ours is not a loss: another replica repaired or rotated it. That also
// holds for another lineage, started by a replica that found no Secret. A replica that writes its own state back
// continues from the higher of both counters. So the other one yields, and they agree.
func (s *Store) putBack(f *finding, known *State) {
	held, _ := known.Current() // withUsableCA has checked it
	same := f.authority != nil && f.authority.Certificate.Equal(held.Certificate)
	otherLineage := known.Lineage != "" && f.state.Lineage != known.Lineage
	behind := f.state.Counter < known.Counter
	switch {
	case f.documented && same && !otherLineage && behind:
		// The contents are good, but a lower counter would let another old copy pass for a newer one.
		f.reason = fmt.Sprintf("the Secret was rolled back (counter %d, this replica knows %d)", f.state.Counter, known.Counter)
		f.state.Counter, f.outcome = known.Counter, Repaired
		return
	case f.documented && (same || !behind):
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
	state.retainOthers(s.Now(), true)
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
		return nil, fmt.Errorf("delete it (kubectl --namespace %s delete secret %s) and a new one is made: %w and %s",
			s.Namespace, s.Name, ErrImmutable, reason)
	}
	state = state.Clone()
	state.Reason = reason
	state.number()
	state.forget(s.expired)
	update := secret.DeepCopy()
	update.Data = state.Encode(secret.Data)
	state.mark(update)
	written, err := s.Secrets.Update(ctx, update, metav1.UpdateOptions{})
	if err != nil {
		return nil, err
	}
	return state.from(written), nil
}

// mint creates a new CA and makes it the current generation.
func (s *Store) mint(state *State) error {
	authority, err := s.newCA()
	if err != nil {
		return err
	}
	state.install(authority)
	return nil
}

func (s *Store) newCA() (*ca.Authority, error) {
	return ca.New(s.Name, s.Lifetime, s.Now(), ca.WithKey(s.Key), s.clock())
}

func (s *Store) usable(authority *ca.Authority) error { return authority.Usable(s.Now(), s.clock()) }

// expired reports whether a CA has expired by both clocks.
func (s *Store) expired(certificate *x509.Certificate) bool {
	return ca.Moment(certificate, s.Now(), s.clock()).After(certificate.NotAfter)
}

// clock returns the API server's clock as an option.
func (s *Store) clock() ca.Option {
	if s.ServerTime == nil {
		return ca.ServerTime(time.Time{})
	}
	return ca.ServerTime(s.ServerTime())
}

func found(f finding, secret *corev1.Secret) *State {
	f.state.Reason = f.reason
	return f.state.from(secret)
}

func immutable(secret *corev1.Secret) bool { return secret.Immutable != nil && *secret.Immutable }

// wrap adds the Secret's name and the remedy to an API error.
func (s *Store) wrap(err error) error {
	switch {
	case err == nil:
		return nil
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return fmt.Errorf("certificate Secret %s: namespace %q is being deleted; use another one or wait until it is gone and create it again: %w", s, s.Namespace, err)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("certificate Secret %s (needs get, create, update on secrets): %w", s, err)
	case wait.NamespaceMissing(err):
		return fmt.Errorf("certificate Secret %s: namespace %q does not exist; create it first: %w", s, s.Namespace, err)
	default:
		return fmt.Errorf("certificate Secret %s: %w", s, err)
	}
}

func errNewer(version int, reason string) error {
	return fmt.Errorf("upgrade this program: the Secret was %w (format %d, this one knows %d) and %s",
		ErrNewerFormat, version, FormatVersion, reason)
}

// mostPutBacks is how often a process puts its CA back within a minute. Replicas that cannot register theirs, for want of a right,
// would replace each other's for ever.
const mostPutBacks = 5

// errContested is a conflict, after which the caller waits longer and longer.
var errContested = apierrors.NewConflict(corev1.Resource("secrets"), "", errors.New("another client replaces the CA again and again"))

// puts counts a CA that is put back, or returns errContested.
func (s *Store) puts() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.putBacks = slices.DeleteFunc(s.putBacks, func(t time.Time) bool { return now.Sub(t) > time.Minute })
	if len(s.putBacks) == mostPutBacks {
		return errContested
	}
	if s.putBacks = append(s.putBacks, now); len(s.putBacks) == mostPutBacks {
		s.Log.Info("another client replaces the CA in the certificate Secret again and again; the next try is up to a minute later. "+
			"Find that client, or grant the rights that the replicas lack", "secret", s.String())
	}
	return nil
}

func errNotReady(reason string) error { return fmt.Errorf("%w: %s", ErrNotReady, reason) }

// maxAttempts limits the attempts of one operation. With their delays they take some ten seconds.
const maxAttempts = 20

// retry runs attempt until it succeeds, fails with a permanent error, or has failed maxAttempts times. One that ran into
// a deadline has taken long enough: the caller decides how long to wait, and logs why. Delays double up to a second and
// are fully jittered, so that replicas which collided once do not collide again.
func (s *Store) retry(ctx context.Context, attempt func() error) error {
	delays := wait.Backoff(10*time.Millisecond, time.Second)
	for n := 1; ; n++ {
		err := attempt()
		switch {
		case err == nil:
			return nil
		case !wait.Transient(err) && !wait.Vanished(err), errors.Is(err, context.DeadlineExceeded), errors.Is(err, errContested):
			return s.wrap(err)
		case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err), apierrors.IsNotFound(err):
			s.Log.V(1).Info("another writer was faster; reading the certificate Secret again", "secret", s.String(), "attempt", n)
		}
		if n == maxAttempts {
			return s.wrap(fmt.Errorf("gave up after %d attempts: %w", n, err))
		}
		if cause := wait.Sleep(ctx, rand.N(delays())); cause != nil {
			return s.wrap(fmt.Errorf("%w; the last attempt: %w", cause, err))
		}
	}
}
