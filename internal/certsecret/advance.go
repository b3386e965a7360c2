package certsecret

// This file writes the steps of a rotation to the Secret: each function writes one action that ca.NextStep decides.

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"code.cloudfoundry.org/eirinix/internal/ca"
)

// Stage creates the next CA, signed by the current one. Both are trusted from then on. A staged CA that cannot sign is
// replaced. Retained older CAs stay trusted.
func (s *Store) Stage(ctx context.Context, from *State) (*State, error) {
	return s.advance(ctx, from, "a rotation of the CA begins", func(state *State) error {
		current, err := state.Current()
		if err != nil {
			return err
		}
		broken := s.NextBroken(state)
		id := state.NextID
		if err := s.mintNext(state, current); err != nil {
			return err
		}
		if broken {
			state.Generations = slices.DeleteFunc(state.Generations, func(g Generation) bool { return g.ID == id })
		}
		state.Handled = state.Request
		state.Phase, state.Since = ca.Staged, s.Now()
		return nil
	})
}

// Activate makes the next CA sign from now on. Call it when every caBundle holds that CA.
func (s *Store) Activate(ctx context.Context, from *State) (*State, error) {
	return s.advance(ctx, from, "the next CA is published everywhere", func(state *State) error {
		next := state.generation(state.NextID)
		if next == nil {
			return errors.New("no next CA is staged")
		}
		if _, err := next.Authority(); err != nil {
			return fmt.Errorf("the staged CA cannot be used: %w", err)
		}
		state.CurrentID, state.NextID = state.NextID, 0
		state.Phase, state.Since = ca.Retaining, s.Now()
		return nil
	})
}

// Prune drops every CA except the current one.
func (s *Store) Prune(ctx context.Context, from *State) (*State, error) {
	return s.advance(ctx, from, "nothing that an old CA signed is served any more", func(state *State) error {
		current := state.generation(state.CurrentID)
		if current == nil {
			return errNoCurrent
		}
		kept := *current
		kept.CrossSigned = nil // their issuers are no longer trusted
		state.Generations, state.NextID = []Generation{kept}, 0
		state.Phase, state.Since = ca.Steady, s.Now()
		return nil
	})
}

// advance changes the state that the caller read, and no other. If the Secret has changed since, it fails with a
// conflict, because the decision may no longer be right.
func (s *Store) advance(ctx context.Context, from *State, reason string, change func(*State) error) (*State, error) {
	secret, err := s.Secrets.Get(ctx, s.Name, metav1.GetOptions{})
	if err != nil {
		return nil, s.wrap(err)
	}
	if err := s.unchanged(secret, from); err != nil {
		return nil, err
	}
	f := inspect(secret.Data, s.usable, only(from))
	if !f.documented {
		return nil, s.wrap(errNotReady(f.reason))
	}
	state := found(f, secret)
	if err := change(state); err != nil {
		return nil, s.wrap(err)
	}
	written, err := s.write(ctx, secret, state, reason)
	return written, s.wrap(err)
}

// mintNext appends a new CA with the certificate that the current one signs for it. The new CA signs nothing for the
// current one: the old key must not stay trusted through the new CA.
func (s *Store) mintNext(state *State, current *ca.Authority) error {
	next, err := s.newCA()
	if err != nil {
		return err
	}
	byCurrent, err := current.CrossSign(next.Certificate, s.Now(), s.clock())
	if err != nil {
		return err
	}
	state.NextID = state.nextID()
	state.Generations = append(state.Generations, Generation{
		ID: state.NextID, CertificatePEM: next.CertificatePEM, PrivateKeyPEM: next.PrivateKeyPEM,
		CrossSigned: []CrossSigned{{IssuerID: state.CurrentID, CertificatePEM: ca.EncodeCertificate(byCurrent)}},
	})
	return nil
}

// retainOthers makes sure that CAs which a repair has kept are pruned in time, because outside a rotation nothing else
// would prune them. Retention starts again if something was lost: another replica may have known less and registered
// only that.
func (s *State) retainOthers(now time.Time, lost bool) {
	if s.generation(s.NextID) == nil {
		s.NextID = 0
	}
	if s.Phase == ca.Staged && s.NextID != 0 {
		return // the steps after this one prune them
	}
	switch {
	case len(s.Generations) < 2:
		s.Phase, s.Since = ca.Steady, now
	case lost || s.Phase != ca.Retaining:
		s.Phase, s.Since = ca.Retaining, now
	}
}
