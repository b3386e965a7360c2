package world

// This file is a Lease that is lost amid a rollout, and a configuration that is damaged then.

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
	if w.history[configurations[1]].last() == nil && !w.watch.damaged.After(began.Add(time.Millisecond)) && !w.troubledSince(began.Add(-settling), rough, slow, apart) && w.rights.held("get", "leases") {
		w.breaks("the %s was deleted amid a rollout, and is missing %s later", configurations[1], repairedSoon)
	}
}

// repairedSoon is how long it takes at most until a deleted configuration is there again, where nothing contests it.
const repairedSoon = 20 * time.Second
