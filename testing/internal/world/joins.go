package world

// This file is a step that waits no longer: it is registered soon.

import (
	"slices"
	"time"
)

// joinsWithin is how long it takes at most until a step is registered that need not wait any more: its kind may be noticed half a
// minute late.
const joinsWithin = 75 * time.Second

// joins sees that the step which reads policies is registered soon after there is one for the first time.
func (w *World) joins() {
	began, started := time.Now(), w.begun()
	w.mu.Lock()
	quiet := !w.troubledSince(began.Add(-settling), rough, slow, spoiled, lapsed, apart, unissued, strange) && w.watch.lonely.Before(began.Add(-settling))
	all := !slices.ContainsFunc(w.processes, func(p *process) bool { return !p.release.has(reader) || p.generation != w.generation })
	w.mu.Unlock()
	if !quiet || !all || w.plan.Split || w.plan.Issued || w.rights.ill() || !w.wait(joinsWithin) || w.rights.ill() {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if last := w.history[configurations[0]].last(); last != nil && !holdsReader(webhooksOf(last)) && w.started == started && !w.watch.ordered.After(began) && !w.troubledSince(began, rough, slow, spoiled, lapsed, apart, unissued, strange) {
		w.breaks("the policy is there since %s, and the step %s that has waited for it is not registered", time.Since(began).Round(time.Second), reader)
	}
}
