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

// unleased is how long a program has no right to the Lease at its start.
const unleased = 5 * time.Minute

// startsAlone has the program start without any right to the Lease: versions cannot see each other, and it registers all the same.
func (w *World) startsAlone() {
	if w.plan.settled("right") || w.plan.Split || w.plan.Late || w.plan.Issued || w.stream("unleased", 0).IntN(3) > 0 {
		return
	}
	w.excuse(lapsed, unleased+rightRemembered)
	w.tell(fate, "gives no right to leases for %s", unleased)
	w.rights.set(everything, "leases", true)
	if !w.wait(unleased - time.Minute) {
		return
	}
	w.mu.Lock()
	if w.watch.lonely.Add(time.Minute).After(time.Now()) && !w.troubledSince(w.began, rough, slow, spoiled, apart, strange, unread, unissued) {
		w.breaks("the program has no right to the Lease since its start, and no replica is ready %s later", unleased-time.Minute)
	}
	w.mu.Unlock()
	w.wait(time.Minute)
	w.rights.set(everything, "leases", false)
	w.stirs()
}
