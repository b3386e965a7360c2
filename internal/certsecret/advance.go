package certsecret

// This file takes the Secret through a rotation: each function writes one step of what ca.WhatIsDue decides.

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"code.cloudfoundry.org/eirinix/internal/ca"
)

// Stage makes the next CA: it and the current one sign each other, and both are trusted from now on.
func (s *Store) Stage(ctx context.Context, from *State) (*State, error) {
	return s.advance(ctx, from, "a rotation of the CA begins", func(state *State) error {
		current, err := state.Current()
		if err != nil {
			return err
		}
		if err := s.mintNext(state, current); err != nil {
			return err
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
		state.Generations, state.NextID = []Generation{*current}, 0
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
	if secret.ResourceVersion != from.ResourceVersion || secret.UID != from.UID {
		return nil, s.wrap(apierrors.NewConflict(corev1.Resource("secrets"), s.Name, fmt.Errorf("it has changed since it was read")))
	}
	f := inspect(secret.Data, s.usable)
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

// mintNext appends a CA, with a certificate for each of the two that the other has signed.
func (s *Store) mintNext(state *State, current *ca.Authority) error {
	next, err := ca.New(s.Name, s.lifetime(), s.now(), ca.WithKey(s.Key))
	if err != nil {
		return err
	}
	var crossSigned []CrossSigned
	byCurrent, err := current.CrossSign(next.Certificate, s.now())
	switch {
	case err == nil:
		crossSigned = append(crossSigned, CrossSigned{IssuerID: state.CurrentID, CertificatePEM: ca.EncodeCertificate(byCurrent)})
	case errors.Is(err, ca.ErrNotCA):
		// A CA that was taken over may be for serving certificates only. The bundle still overlaps; an API server that
		// is frozen while it changes is not covered this once.
		s.Log.Info("the current CA may not sign the next one; it is replaced by overlapping bundles alone", "secret", s.String(), "because", err.Error())
	default:
		return err
	}
	byNext, err := next.CrossSign(current.Certificate, s.now())
	if err != nil {
		return err
	}
	state.NextID = state.nextID()
	old := state.generation(state.CurrentID)
	old.CrossSigned = append(old.CrossSigned, CrossSigned{IssuerID: state.NextID, CertificatePEM: ca.EncodeCertificate(byNext)})
	state.Generations = append(state.Generations, Generation{
		ID: state.NextID, CertificatePEM: next.CertificatePEM, PrivateKeyPEM: next.PrivateKeyPEM,
		CrossSigned: crossSigned,
	})
	return nil
}

// settle begins a phase.
func (s *State) settle(phase ca.Phase, now time.Time) { s.Phase, s.Since = phase, now }

// retainOthers makes sure that CAs which a repair has kept go away in time: outside a rotation nothing else would
// prune them.
func (s *State) retainOthers(now time.Time) {
	if s.generation(s.NextID) == nil {
		s.NextID = 0
	}
	if s.Phase == ca.Staged && s.NextID != 0 {
		return // what comes after prunes them
	}
	if len(s.Generations) > 1 {
		s.settle(ca.Retaining, now)
		return
	}
	s.settle(ca.Steady, now)
}
