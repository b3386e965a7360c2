package world

// This file is handshakes amid changes of CAs: at each moment, the chain that a ready replica serves verifies in the view of each API
// server.

import (
	"slices"
	"time"
)

// touches notes that a CA may have changed, in the Secret or in a configuration.
func (w *World) touches() {
	select {
	case w.touched <- struct{}{}:
	default:
	}
}

// shakes has each API server connect to each replica a few times after such a change.
func (w *World) shakes() {
	rng := w.stream("shakes", 0)
	for {
		select {
		case <-w.touched:
		case <-w.over:
			return
		}
		for range 2 {
			if !w.wait(time.Duration(rng.Int64N(int64(2*w.plan.Lag + time.Second)))) {
				return
			}
			for _, p := range w.mustVerify() {
				w.reach(p, amid)
			}
		}
	}
}

// amid is a moment at which something may be under way.
const amid = "amid a change"

// mustVerify returns the replicas that each API server must be able to call now.
func (w *World) mustVerify() []*process {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.plan.Unregister || w.troubledSince(time.Now().Add(-settling), rough, slow, spoiled, evicted, apart, strange, unissued) || w.plan.Issued && w.troubledSince(time.Now().Add(-settling), lapsed) {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(w.processes), func(p *process) bool { return p.leaving || !p.endpoint })
}
