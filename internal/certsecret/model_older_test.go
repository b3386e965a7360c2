package certsecret_test

// This file holds a case that the model of rotations has found (see package controller).

import (
	"maps"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	. "code.cloudfoundry.org/eirinix/internal/spectest"
)

var _ = Describe("A Secret of which older copies are put back", func() {
	// A copy with the CA that is current sets the counter back; a later copy, of before the rotation that follows, then
	// passes for newer than the known state.
	It("gets its CA back, the second time too", func(ctx SpecContext) {
		c := newCluster(nil)
		store := c.store()
		putBack := func(copied *corev1.Secret) {
			c.edit(func(secret *corev1.Secret) { secret.Data = maps.Clone(copied.Data) })
		}
		state, _, err := store.Restore(ctx, nil, nil)
		Must(state, err)
		first := c.secret()
		for range 5 {
			Must(0, store.RecordRegistered(ctx, NewCA(year, now).CertificatePEM))
		}
		sixth := c.secret()
		state, _, err = store.Restore(ctx, state, nil)
		Must(state, err)

		putBack(first)
		state, _, err = store.Restore(ctx, state, nil)
		Must(state, err)
		state = Must(store.Stage(ctx, state))
		state = Must(store.Activate(ctx, state))
		rotated := Must(Must(store.Prune(ctx, state)).Current())
		state, _, err = store.Restore(ctx, state, nil)
		Must(state, err)

		putBack(sixth)
		state, outcome, err := store.Restore(ctx, state, nil)
		Expect(Must(Must(state, err).Current()).Certificate.Equal(rotated.Certificate)).To(BeTrue(), "outcome: %s", outcome)
	})
})
