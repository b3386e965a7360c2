package world

// This file is the CAs of a split deployment that go from the caBundles after a rotation.

import (
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"code.cloudfoundry.org/eirinix/internal/ca"
)

// prunes sees that registrations take the CA of a state of the Secret out of the caBundles, once nothing needs it.
func (w *World) prunes(before *unstructured.Unstructured) {
	state, err := decode(before)
	if err != nil {
		return
	}
	old, err := state.Current()
	if err != nil {
		return
	}
	for over := false; !over; {
		if !w.wait(time.Minute) {
			return
		}
		if now := w.find("Secret", namespace, fingerprint+"-setupcertificate"); now != nil {
			state, err := decode(now)
			over = err == nil && state.Phase == ca.Steady && !ca.Contains(state.Bundle(), old.CertificatePEM)
		}
	}
	since := time.Now()
	if !w.wait(w.plan.Leaf*11/10 + settling + 3*registersEvery) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.troubledSince(since, rough, slow, spoiled, lapsed, apart, evicted) {
		return
	}
	for _, kind := range configurations {
		if ca.Contains(bundlesOf(w.history[kind].last()), old.CertificatePEM) {
			w.breaks("nothing has needed a CA for %s, and the %s still holds it", time.Since(since).Round(time.Second), kind)
		}
	}
}
