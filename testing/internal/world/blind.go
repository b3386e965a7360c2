package world

// This file is the repair of a configuration by replicas that cannot read what a step needs.

import (
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// holdsReader reports whether a configuration has an entry of the step that reads.
func holdsReader(hooks []hook) bool {
	return slices.ContainsFunc(hooks, func(h hook) bool { return strings.HasPrefix(h.Name, reader+".") })
}

// completeWithin is how long a repair may lack the step: a replica that starts meanwhile may write first, and has not seen it in
// force.
const completeWithin = 10 * time.Second

// repairs restarts all replicas while they cannot list policies, and deletes the configuration in which the step that reads them
// is in force. It stays in force.
func (w *World) repairs(lasts time.Duration, rng *rand.Rand) {
	end, b := time.Now().Add(lasts), belongings[0]
	w.restart(Fault{}, rng)
	for fresh := false; !fresh; {
		if !w.wait(time.Second) || time.Now().After(end) {
			return
		}
		w.mu.Lock()
		fresh = len(w.processes) > 0 && !slices.ContainsFunc(w.processes, func(p *process) bool { return p.generation != w.generation || p.readySince.IsZero() })
		w.mu.Unlock()
	}
	if found := w.find(b.kind, b.namespace, b.name); !holdsReader(webhooksOf(found)) {
		return
	}
	began := time.Now()
	w.loses(b)
	for time.Now().Before(end) && w.wait(time.Second) {
		found := webhooksOf(w.find(b.kind, b.namespace, b.name))
		w.mu.Lock()
		if time.Since(began) > completeWithin && len(found) > 0 && !holdsReader(found) && !w.watch.damaged.After(began.Add(time.Millisecond)) && w.watch.ordered.Before(began.Add(-inForce)) && !w.troubledSince(began, rough, slow, lapsed, apart) {
			w.breaks("the repair of the %s leaves out the step %s, which was in force", b.kind, reader)
		}
		w.mu.Unlock()
	}
}
