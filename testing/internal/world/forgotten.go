package world

// This file is a Lease that is lost amid a rollout, and a configuration that is damaged then, or once all damage is long ago.

import (
	"math/rand/v2"
	"time"
)

// forgets deletes the Lease while replicas of two versions live, and then a configuration. The versions come in another order,
// and the one that stands repairs it all the same.
func (w *World) forgets(f Fault, rng *rand.Rand) {
	if !w.mixes(f, rng) || !w.wait(20*time.Second) {
		return
	}
	w.loses(belongings[3])
	if !w.wait(40*time.Second) || !w.isMixed() {
		return
	}
	began := time.Now()
	w.loses(belongings[1])
	if !w.wait(repairedSoon) || !w.isMixed() {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	contested := w.watch.contest.Add(forgiven + repairedWithin).After(began) // its repairs come later and later
	if w.history[configurations[1]].last() == nil && !contested && !w.watch.damaged.After(began.Add(time.Millisecond)) && !w.troubledSince(began.Add(-settling), rough, slow, apart) && w.rights.held("get", "leases") {
		w.breaks("the %s was deleted amid a rollout, and is missing %s later", configurations[1], repairedSoon)
	}
}

// repairedSoon is how long it takes at most until a deleted configuration is there again, where nothing contests it.
const repairedSoon = 20 * time.Second

// forgives deletes a configuration that a tool has reverted, once it has been in order for long: it is repaired as at first.
func (w *World) forgives(b belonging) {
	for calm := false; !calm; {
		if !w.wait(time.Minute) || time.Since(w.began) > w.plan.Lasts-quiet-settling || w.plan.Split || w.plan.Unregister {
			return
		}
		w.mu.Lock()
		calm = w.watch.damaged.Add(repairedWithin+forgiven).Before(time.Now()) && w.watch.contest.Add(repairedWithin+forgiven).Before(time.Now())
		w.mu.Unlock()
	}
	w.tell(fate, "finds the %s in order for long", b.kind)
	began := time.Now()
	if w.loses(b); !w.wait(repairedSoon) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.history[b.kind].last() == nil && !w.watch.damaged.After(began.Add(time.Millisecond)) && !w.troubledSince(began.Add(-settling), rough, slow, lapsed, apart, strange, unissued) && w.watch.lonely.Before(began.Add(-settling)) {
		w.breaks("the %s was deleted after it had been in order for long, and is missing %s later", b.kind, repairedSoon)
	}
}

// forgiven is how long a configuration is in order until its repairs are forgotten, and a moment longer.
const forgiven = 16 * time.Minute
