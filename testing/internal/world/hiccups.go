package world

// This file is writes that are refused for a moment, long after others were refused for a while.

import (
	"math/rand/v2"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const (
	// longFor is how long writes are refused at first, until the pauses between tries are the longest, and momentFor how long then.
	longFor, momentFor = 80 * time.Second, 2 * time.Second

	// triedWithin is how long it takes at most after such a moment until a write is tried again: the pauses begin with a second.
	triedWithin = 12 * time.Second
)

// hiccups has writes of a configuration refused for a while, and much later for a moment. What was refused is tried again soon after
// the moment, as after a first one. It returns false if that cannot be seen.
func (w *World) hiccups(rng *rand.Rand) bool {
	b := belongings[rng.IntN(2)]
	if w.plan.Split || w.plan.Unregister || w.plan.Judges || !w.plan.settled("contest") || !w.moving.TryLock() { // not two of them
		return false
	}
	defer w.moving.Unlock()
	if !w.calm(settling) {
		return true
	}
	resource := resources[b.kind].Resource
	for _, d := range []time.Duration{longFor, momentFor} {
		if time.Since(w.began) > w.plan.Lasts-quiet-2*settling-d {
			return true
		}
		w.tell(fate, "takes the right to update %s for %s", resource, d)
		w.rights.set("update", resource, true)
		whole := w.shortens(b)
		began, starts := time.Now(), w.begun()
		w.wait(d)
		w.rights.set("update", resource, false)
		if whole == 0 || !w.wait(triedWithin+2*w.plan.Lag) {
			return true
		}
		w.mu.Lock()
		has := len(webhooksOf(w.history[b.kind].last()))
		if d == momentFor && has < whole && starts == w.started && !w.watch.damaged.After(began) && !w.troubledSince(began, rough, slow, lapsed, apart, evicted, strange, unissued) {
			w.breaks("the right to update %s was away for %s, and %s later an entry is still not back: the pauses are those of an earlier time", resource, d, triedWithin)
		}
		w.mu.Unlock()
		if !w.calm(settling) {
			return true
		}
	}
	return true
}

// shortens takes the last entry from a configuration. It returns how many there were.
func (w *World) shortens(b belonging) (whole int) {
	found := w.find(b.kind, b.namespace, b.name)
	if found == nil || len(webhooksOf(found)) < 2 {
		return 0
	}
	object := found.DeepCopy()
	hooks, _, _ := unstructured.NestedSlice(object.Object, "webhooks")
	w.harms(b)
	w.tell(fate, "takes the last entry from the %s", b.kind)
	err := unstructured.SetNestedSlice(object.Object, hooks[:len(hooks)-1], "webhooks")
	if err == nil {
		err = w.api.Put(object)
	}
	if err != nil {
		w.violate("an edit failed: %v", err)
	}
	w.observe()
	return len(hooks)
}
