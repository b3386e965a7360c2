package world

// This file is many calls of a step whose objects are too old.

import (
	"time"

	admissionv1 "k8s.io/api/admission/v1"
)

const (
	// urgent is the number of the calls, which come within two seconds.
	urgent = 40

	// mostUrgent is the number of requests of a replica in that time. Calls cause one attempt a second to read objects of a
	// namespace.
	mostUrgent = 16
)

// urges has an API server call the step that reads policies again and again, while they cannot be read and are too old.
func (w *World) urges() {
	s := w.servers[0]
	entry, ok := s.entry(configurations[0], reader)
	if !ok {
		return
	}
	w.mu.Lock()
	before, stirred := map[*process]int{}, w.watch.stirred
	for _, p := range w.processes {
		if time.Since(p.began) > settling && !p.leaving {
			before[p] = p.wire.count()
		}
	}
	w.mu.Unlock()
	w.tell(named(s.name), "calls step %s %d times", reader, urgent)
	ctx, cancel := w.ctx()
	defer cancel()
	for range urgent {
		_, _ = s.call(ctx, entry, ask{operation: admissionv1.Create, resource: podResource, kind: podKind, object: podIn("shop", "urgent")}) // it fails
		if !w.wait(2 * time.Second / urgent) {
			return
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.watch.stirred != stirred || w.troubledSince(time.Now(), rough, slow, spoiled, lapsed, apart) {
		return
	}
	for p, n := range before {
		if made := p.wire.count() - n; made > mostUrgent {
			w.breaks("%s made %d requests while it was called %d times in a moment, by objects that cannot be read", p, made, urgent)
		}
	}
}
