package world

// This file is the namespace of the program, and the garbage collector.

import (
	"fmt"
	"math/rand/v2"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// renewNamespace deletes the program's namespace and makes it again. The garbage collector deletes what belongs to the old
// one, and for a while looks again.
func (w *World) renewNamespace(Fault, *rand.Rand) {
	w.mu.Lock()
	again := !w.watch.renewed.IsZero() && time.Since(w.watch.renewed) < 2*quiet
	w.watch.renewed = time.Now()
	w.mu.Unlock()
	if w.excuse(spoiled, settling); again { // it looks as if a tool fought, so repairs come later and later
		w.excuse(spoiled, repairedWithin)
	}
	w.tell(fate, "deletes the namespace %s, and makes it again", namespace)
	for _, b := range belongings[2:] {
		w.api.Remove(resources[b.kind], b.namespace, b.name)
	}
	w.api.Remove(schema.GroupResource{Resource: "namespaces"}, "", namespace)
	if err := w.api.Put(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace, UID: types.UID(fmt.Sprint("again-", time.Since(w.began)))}}); err != nil {
		w.violate("the namespace cannot be made: %v", err)
	}
	for w.collect(); w.wait(time.Second); w.collect() {
		if time.Since(w.began) > w.plan.Lasts-quiet {
			return
		}
	}
}

// collect is the garbage collector, for configurations.
func (w *World) collect() {
	current := w.find("Namespace", "", namespace)
	for _, b := range belongings[:2] {
		object := w.find(b.kind, "", b.name)
		if object == nil || current == nil {
			continue
		}
		for _, owner := range object.GetOwnerReferences() {
			if owner.UID != current.GetUID() {
				w.tell(named("the garbage collector"), "deletes the %s", b.kind)
				w.api.Remove(resources[b.kind], "", b.name)
				w.observe()
			}
		}
	}
}
