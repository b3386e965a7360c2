package world

// This file is a Secret that is deleted while a distrust is under way.

import (
	"math/rand/v2"
	"slices"
	"time"

	"code.cloudfoundry.org/eirinix/internal/ca"
	"code.cloudfoundry.org/eirinix/internal/certsecret"
)

// losesMark deletes the Secret within seconds of the annotation that distrusts a CA. Replicas that live put both back, so no
// caBundle holds the CA for longer than a rotation with Distrust takes.
func (w *World) losesMark(old []byte, asked time.Time, rng *rand.Rand) {
	b := belongings[2]
	for marked := false; !marked; {
		if time.Since(asked) > asksWithin || !w.wait(20*time.Millisecond) {
			return
		}
		found := w.find(b.kind, b.namespace, b.name)
		if found != nil {
			state, err := decode(found)
			marked = err == nil && slices.ContainsFunc(state.Generations, func(g certsecret.Generation) bool {
				return g.ID <= state.Distrusted && ca.Contains(old, g.CertificatePEM)
			})
		}
	}
	if !w.wait(time.Duration(rng.Int64N(int64(20 * time.Second)))) {
		return
	}
	if known := w.loses(b); !known || !w.wait(5*settling) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.watch.asked != asked || !w.plan.settled("restore", "namespace") || w.troubledSince(asked, rough, slow, spoiled, apart) {
		return
	}
	for _, kind := range configurations {
		if ca.Contains(bundlesOf(w.history[kind].last()), old) {
			w.breaks("a CA is distrusted since %s, and the %s still holds it", time.Since(asked).Round(time.Second), kind)
		}
	}
}
