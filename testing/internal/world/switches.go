package world

// This file is how soon a step is registered that enters or leaves Shadow.

import (
	"slices"
	"strings"
	"time"
)

// switched is how long it takes at most until a step is registered as a shadow, or not any more, where one version lives.
const switched = 8 * time.Second

// switches sees that a step is registered as its mode says, or not yet as a shadow: soon after a change, of which all replicas hear.
func (w *World) switches(step string, shadow bool) {
	w.mu.Lock()
	mode, starts, stirred := w.modes[step], w.started, w.watch.stirred
	one := len(w.processes) > 0 && w.settledSince(time.Now().Add(-settling))
	for _, p := range w.processes {
		one = one && p.release.name == w.processes[0].release.name && p.release.has(strings.TrimSuffix(step, "-sets")) && !p.leaving && !p.readySince.IsZero() && time.Since(p.readySince) > settling && p.wire.hears()
	}
	one = one && !w.processes[0].release.judges
	w.mu.Unlock()
	bound := switched + 2*w.plan.Lag
	if !w.plan.settled("right") {
		bound = polledOut
	}
	if !one || w.declaresModes(step) || !w.wait(bound) {
		return
	}
	kind := configurations[1]
	if strings.HasSuffix(step, "-sets") || step == reader {
		kind = configurations[0]
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	last := w.history[kind].last()
	if last == nil || w.started != starts || !w.watch.stirred.Equal(stirred) || w.modes[step] != mode || !w.settledSince(mode.since) {
		return
	}
	if is := slices.Contains(shadowsIn(last.GetAnnotations()), step); is != shadow {
		w.breaks("a mode has changed %s ago, and step %s is a shadow in the %s: %t", time.Since(mode.since).Round(time.Second), step, kind, is)
	}
}
