package world

// This file is a Secret that is emptied after a distrust, while no replica runs that could remember what was in it.

import (
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"code.cloudfoundry.org/eirinix/internal/ca"
)

// empties has a person scale the program to nothing, empty the Secret, and scale back, if the last distrust was asked for at that
// time. The CA that is made then stays.
func (w *World) empties(asked time.Time) {
	isLast := func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.watch.asked.Equal(asked)
	}
	if !isLast() {
		return
	}
	w.scaleTo(0)
	if !w.wait(gracePeriod) {
		return
	}
	b := belongings[2]
	if found := w.find(b.kind, b.namespace, b.name); found != nil {
		object := found.DeepCopy()
		unstructured.RemoveNestedField(object.Object, "data")
		w.harms(b)
		w.tell(fate, "empties the %s", b.kind)
		if err := w.api.Put(object); err != nil {
			w.violate("an edit failed: %v", err)
		}
		w.observe()
	}
	w.excuse(spoiled, settling)
	w.wants() // an annotation that asked for a rotation before asks again
	emptied := time.Now()
	w.scaleTo(w.plan.Replicas)
	rotates := false // replicas that start at once may replace each other's CA, but that is no rotation
	for time.Since(emptied) < settling {
		if !w.wait(time.Second) || !isLast() {
			return
		}
		if found := w.find(b.kind, b.namespace, b.name); found != nil {
			state, err := decode(found)
			rotates = rotates || err == nil && state.Phase != ca.Steady
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if rotates && !w.watch.damaged.After(emptied) && w.plan.settled("rotation", "restore", "namespace") && !w.troubledSince(emptied, rough, slow, apart) {
		w.breaks("the Secret was emptied %s ago, and the CA that was made for it is rotated already", time.Since(emptied).Round(time.Second))
	}
}
