package world

// This file is a program of which nothing runs until its CA has ended.

import "time"

// sleeps scales the program to zero in some worlds, until the CA in its Secret has ended, and starts it again then: it makes another
// one.
func (w *World) sleeps() {
	calm := w.plan.settled("clock", "namespace", "restore", "registration", "another program", "right", "distrust", "rotation", "unregistration", "isolation")
	if rng := w.stream("sleeps", 0); w.plan.CALifetime == 0 || w.plan.Split || w.plan.Issued || w.plan.Unregister || w.plan.audits() || !calm || rng.IntN(2) > 0 || !w.wait(firstFault+time.Duration(rng.Int64N(int64(30*time.Minute)))) {
		return
	}
	state, ahead := w.state(), max(w.plan.Clocks, -w.plan.Clocks)
	if state == nil || !w.moving.TryLock() {
		return
	}
	defer w.moving.Unlock()
	current, err := state.Current()
	if err != nil {
		return
	}
	end := current.Certificate.NotAfter.Add(time.Minute + ahead)
	if end.Add(settling).After(w.began.Add(w.plan.Lasts - quiet)) {
		return
	}
	w.mu.Lock()
	w.watch.asleep = end
	w.mu.Unlock()
	w.tell(fate, "has nothing run until the CA has ended, in %s", time.Until(end).Round(time.Second))
	w.scaleTo(0)
	if w.wait(time.Until(end)) {
		w.excuse(spoiled, settling)
		w.scaleTo(w.plan.Replicas)
	}
}
