package world

// This file is handshakes amid changes of CAs: at each moment, the chain that a ready replica serves verifies in the view of each API
// server. It is also the line by which a program tells of another one that has started under its fingerprint.

import (
	"slices"
	"strings"
	"time"

	"code.cloudfoundry.org/eirinix/internal/rollout"
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

// toldOfNewcomer is in the log of a program when another one has started under its fingerprint.
const toldOfNewcomer = "another program has started; this one stays registered"

// newcomers looks at a record of another program that has answered. A replica of ours that hears of it tells it. The caller holds mu.
func (w *World) newcomers(before, versions rollout.Versions) {
	for version, r := range versions {
		if !strings.Contains(r.Target, other) || r.Removed || r.Answered == 0 || before[version].Answered == r.Answered {
			continue
		}
		lives := func(p *process) bool {
			return !p.leaving && !p.readySince.IsZero() && time.Since(p.readySince) > settling && p.wire.hears()
		}
		if !w.watch.overrun.IsZero() || !slices.ContainsFunc(w.processes, lives) || w.troubledSince(time.Now().Add(-settling), rough, slow, spoiled, lapsed, apart) {
			continue
		}
		began := time.Now()
		w.tasks.Go(func() {
			if !w.wait(10*time.Second + 2*w.plan.Lag) {
				return
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			told := func(l line) bool {
				return l.at.After(began.Add(-10*time.Minute)) && strings.Contains(l.text, toldOfNewcomer)
			}
			if !slices.ContainsFunc(w.story, told) && slices.ContainsFunc(w.processes, lives) && w.watch.overrun.IsZero() && !w.troubledSince(began.Add(-settling), rough, slow, spoiled, lapsed, apart) {
				w.breaks("another program has answered under the fingerprint %s ago, and no log of ours tells it", time.Since(began).Round(time.Second))
			}
		})
	}
}
