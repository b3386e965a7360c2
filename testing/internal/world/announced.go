package world

// This file is the Events by which a program tells of a rotation.

import "time"

const (
	// eventsWithin is how long an Event takes until it is written, and mergedFor how long a further one like it is counted in
	// the first.
	eventsWithin, mergedFor = 30 * time.Second, 15 * time.Minute
)

// announced sees that there are Events of a rotation that a replica was asked for, and that was over before: the CA was staged, and
// it signs. One that has not started yet writes no Events.
func (w *World) announced(p *process, began time.Time) {
	w.mu.Lock()
	toldBy := !p.readySince.IsZero() && p.readySince.Before(began) && w.watch.rotatedBy.Before(began.Add(-settling)) && w.settledSince(p.began)
	w.mu.Unlock()
	if !toldBy || !w.wait(eventsWithin) {
		return
	}
	last := map[string]time.Time{}
	for _, reason := range []string{"CAstage", "CAactivate"} {
		last[reason] = w.event(reason)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if p.leaving || w.watch.rotatedBy.After(began) || !w.settledSince(p.began) {
		return
	}
	for reason, at := range last {
		if at.Before(began.Add(-mergedFor)) {
			w.breaks("%s has rotated the CA, and no Event of the Secret tells it (%s; those that there are: %v)", p, reason, last)
		}
	}
}

// pruned sees that there is an Event of the last prune, if a running program has done it.
func (w *World) pruned() {
	last := w.event("CAprune")
	w.mu.Lock()
	defer w.mu.Unlock()
	if at := w.watch.pruned; !at.IsZero() && time.Since(at) > eventsWithin && w.watch.rotatedBy.Add(settling).Before(at) && last.Before(at.Add(-mergedFor)) &&
		!w.plan.Split && w.settledSince(at.Add(-settling)) && w.plan.settled("right", "restore") {
		w.breaks("an old CA has left the Secret at %s, and no Event tells it (last: %s)", at, last)
	}
}

// staged reports whether a rotation of the CA is under way.
func (w *World) staged() bool {
	secret := w.find("Secret", namespace, fingerprint+"-setupcertificate")
	if secret == nil {
		return true
	}
	state, err := decode(secret)
	return err != nil || state.NextID != 0
}
