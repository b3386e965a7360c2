package world

// This file is rollouts that stop halfway, so that replicas of two versions live.

import (
	"math/rand/v2"
	"slices"
	"time"

	"code.cloudfoundry.org/eirinix"
)

// mixes rolls out a version, and stops halfway for some minutes. It returns true once replicas of two versions are ready.
func (w *World) mixes(f Fault, rng *rand.Rand) bool {
	w.rollout(f, rng)
	w.mu.Lock()
	w.paused = w.began.Add(min(time.Since(w.began)+5*time.Minute, w.plan.Lasts-quiet-settling))
	w.mu.Unlock()
	for n := 0; !w.isMixed(); n++ {
		if n == 30 || !w.wait(time.Second) {
			return false
		}
	}
	return true
}

// isMixed reports whether replicas of two versions are ready.
func (w *World) isMixed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	ready := slices.DeleteFunc(slices.Clone(w.processes), func(p *process) bool { return p.leaving || p.readySince.IsZero() })
	return slices.ContainsFunc(ready, func(p *process) bool { return p.release.declares() != ready[0].release.declares() })
}

// warnsMixed has a step only report while replicas of two versions are ready: it does so on all paths that either has registered.
func (w *World) warnsMixed(f Fault, rng *rand.Rand) bool {
	if w.plan.Versions < 2 || w.plan.Unregister || !w.mixes(f, rng) {
		return false
	}
	steps := w.common()
	step := steps[rng.IntN(len(steps))]
	w.setMode(step, string([]eirinix.Mode{eirinix.ModeWarn, eirinix.ModeAudit}[rng.IntN(2)]))
	for w.wait(2*time.Second) && w.isMixed() {
		n := rng.Uint64()
		w.tasks.Go(func() { w.tries(step, n) })
		if rng.IntN(12) == 0 {
			break
		}
	}
	return true
}
