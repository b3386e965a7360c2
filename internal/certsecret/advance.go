package certsecret

// This file takes the Secret through a rotation: each function writes one step of what ca.WhatIsDue decides.

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"code.cloudfoundry.org/eirinix/internal/ca"
)

// Stage makes the next CA, which the current one signs, and both are trusted from now on. A staged CA that cannot sign
// is replaced. While older CAs are retained, they stay trusted.
func (s *Store) Stage(ctx context.Context, from *State) (*State, error) {
	return s.advance(ctx, from, "a rotation of the CA begins", func(state *State) error {
		current, err := state.Current()
		if err != nil {
			return err
		}
		broken := state.NextBroken()
		id := state.NextID
		if err := s.mintNext(state, current); err != nil {
			return err
		}
		if broken {
			state.Generations = slices.DeleteFunc(state.Generations, func(g Generation) bool { return g.ID == id })
		}
		state.Handled = state.Request
		state.settle(ca.Staged, s.now())
		return nil
	})
}

// Activate has the next CA sign from now on. Call it when every caBundle holds it.
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
		state.settle(ca.Retaining, s.now())
		return nil
	})
}

// Prune drops every CA but the current one.
func (s *Store) Prune(ctx context.Context, from *State) (*State, error) {
	return s.advance(ctx, from, "nothing that an old CA signed is served any more", func(state *State) error {
		current := state.generation(state.CurrentID)
		if current == nil {
			return errNoCurrent
		}
		kept := *current
		kept.CrossSigned = nil // those that issued them are trusted no more
		state.Generations, state.NextID = []Generation{kept}, 0
		state.settle(ca.Steady, s.now())
		return nil
	})
}

// advance changes the state that was found, and no other: when the Secret has changed since, it fails with a
// conflict, because what was decided may be wrong by now.
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
	if err != nil {
		return nil, s.wrap(err)
	}
	written.Reason = reason
	return written, nil
}

// mintNext appends a CA, with the certificate that the current one has signed for it. It signs nothing for the current
// one: the old key must not live on under the new CA.
func (s *Store) mintNext(state *State, current *ca.Authority) error {
	next, err := s.newCA()
	if err != nil {
		return err
	}
	var crossSigned []CrossSigned
	byCurrent, err := current.CrossSign(next.Certificate, s.now(), s.clock())
	switch {
	case err == nil:
		crossSigned = append(crossSigned, CrossSigned{IssuerID: state.CurrentID, CertificatePEM: ca.EncodeCertificate(byCurrent)})
	case errors.Is(err, ca.ErrNotCA):
		// A CA that was taken over may be for serving certificates only. The bundle still overlaps; an API server that
		// is frozen while it changes is not covered this once.
		s.Log.Info("the current CA may not sign the next one; it is replaced by overlapping bundles alone", "secret", s.String(), "reason", err.Error())
	default:
		return err
	}
	state.NextID = state.nextID()
	state.Generations = append(state.Generations, Generation{
		ID: state.NextID, CertificatePEM: next.CertificatePEM, PrivateKeyPEM: next.PrivateKeyPEM,
		CrossSigned: crossSigned,
	})
	return nil
}

// settle begins a phase.
func (s *State) settle(phase ca.Phase, now time.Time) { s.Phase, s.Since = phase, now }

// retainOthers sees to it that CAs which a repair has kept go away in time: outside a rotation nothing else would
// prune them. Retention begins anew if something was lost: another replica may have known less, and registered that.
func (s *State) retainOthers(now time.Time, lost bool) {
	if s.generation(s.NextID) == nil {
		s.NextID = 0
	}
	if s.Phase == ca.Staged && s.NextID != 0 {
		return // what comes after prunes them
	}
	switch {
	case len(s.Generations) < 2:
		s.settle(ca.Steady, now)
	case lost || s.Phase != ca.Retaining:
		s.settle(ca.Retaining, now)
	}
}
