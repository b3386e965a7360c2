package world

// This file is other programs, and other clients that write to the objects of the program.

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/internal/ca"
)

// other is the Service of another program, and the beginning of its host.
const other = "other"

// another starts a program under the same fingerprint, with another address or in another namespace. It ends with an error,
// and nothing else changes.
func (w *World) another(f Fault, rng *rand.Rand) {
	const within = time.Minute
	w.excuse(strange, 4*within+settling)
	if own := w.stream("moves away", int(f.At)); !w.plan.Split && !w.plan.Unregister && !w.plan.Converts && !w.plan.Issued && own.IntN(4) == 0 {
		w.movesAway(own)
		return
	}
	elsewhere, steps := rng.IntN(2) == 0, w.live(rng)
	if rng.IntN(4) == 0 && !w.plan.Split && !w.plan.Unregister {
		w.overrun(steps, rng)
		return
	}
	for range 1 + rng.IntN(3) { // it is started again
		w.mu.Lock()
		stands := slices.ContainsFunc(w.processes, func(p *process) bool { return !p.leaving && !p.readySince.IsZero() })
		w.mu.Unlock()
		if !stands || w.plan.Split { // it would take the place of ours, for which a serving half does not speak
			return
		}
		var replicas sync.WaitGroup // none of which may end ours
		for n := range 1 + w.stream("replicas", int(f.At)).IntN(3) {
			own := w.stream("another replica", n)
			replicas.Go(func() {
				if w.wait(time.Duration(own.Int64N(int64(time.Second)))) {
					w.startAnother(n+1, steps, elsewhere, own, within, (*eirinix.ExtensionManager).Run)
				}
			})
		}
		replicas.Wait()
		if !w.wait(time.Duration(rng.Int64N(int64(20 * time.Second)))) {
			return
		}
	}
}

// takenOver is how long replicas may go on that another program has replaced.
const takenOver = 40 * time.Second

// overrun has a person register another program under the same fingerprint, which also serves. Ours ends with an error that names
// both, and comes back when the other one has gone.
func (w *World) overrun(steps release, rng *rand.Rand) {
	for e := range excuses {
		w.excuse(e, takenOver+backsOff+2*settling)
	}
	w.startAnother(1, steps, false, rng, takenOver, func(m *eirinix.ExtensionManager, ctx context.Context) error {
		began := time.Now()
		if err := m.RegisterExtensions(); err != nil {
			return err
		}
		w.mu.Lock()
		w.watch.ordered, w.watch.overrun = began, began
		all := slices.Clone(w.processes)
		w.mu.Unlock()
		err := m.Run(ctx)
		for _, p := range all {
			select {
			case <-p.ended:
			case <-w.over:
			default:
				if err == nil && !p.readySince.IsZero() && !p.leaving && p.ready() { // else it has begun to stop
					w.violate("%s goes on, although another program has taken its place %s ago", p, time.Since(began).Round(time.Second))
				}
			}
		}
		return err
	})
}

func (w *World) startAnother(n int, steps release, elsewhere bool, rng *rand.Rand, within time.Duration, run func(*eirinix.ExtensionManager, context.Context) error) {
	h := newHost(fmt.Sprint("another program/", n))
	c := w.newWire(h, rng)
	m := w.newManager(h, c, h.name, fmt.Sprintf("10.3.0.%d:%s", n, port), steps, func(o *eirinix.ManagerOptions) {
		o.Certificates = nil // those are not for its host
		switch {
		case elsewhere:
			if o.WebhookNamespace = "shop"; w.plan.Boxes { // which steps about boxes select by its name
				o.WebhookNamespace = bank
			}
		case w.plan.URL:
			o.Host = other + ".example.com"
		default:
			o.ServiceName = other
		}
	})
	if err := errors.Join(steps.add(m), m.Validate()); err != nil {
		w.violate("another program cannot be made: %v", err)
		return
	}
	w.tell(named(h.name), "starts")
	ctx, cancel := w.ctx()
	defer cancel()
	ctx, cancelTimeout := context.WithTimeout(ctx, within)
	defer cancelTimeout()
	began := time.Now()
	err := run(m, ctx)
	w.tell(named(h.name), "has ended: %v", err)
	h.cut(true)
	c.cut()
	w.mu.Lock()
	defer w.mu.Unlock()
	stands := slices.ContainsFunc(w.processes, func(p *process) bool { return !p.leaving && !p.readySince.IsZero() && p.readySince.Before(began) })
	if stands && err == nil && w.violation == "" && !w.troubledSince(began, rough, slow, spoiled, lapsed, apart) {
		w.breaks("another program goes on under the same fingerprint")
	}
}

// overwriter is the name of a CA that another client puts in place of a caBundle.
const overwriter = "overwriter"

// bundlesOf returns all CAs in a configuration.
func bundlesOf(object *unstructured.Unstructured) (all []byte) {
	for _, h := range webhooksOf(object) {
		all = ca.Bundle(all, h.ClientConfig.CABundle)
	}
	return all
}

// putsRight sees that a CA has gone that has replaced another one.
func (w *World) putsRight(theirs []byte) {
	began := time.Now()
	if !w.wait(settling) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	starts := func(p *process) bool { return !p.readySince.Before(began) && p.began.Before(began.Add(settling)) }
	if w.troubledSince(began, rough, slow, apart) || w.plan.Split || !w.plan.settled("restore", "contest") || slices.ContainsFunc(w.processes, starts) {
		return // a replica that starts, and repairs, does not know who needs it
	}
	for _, kind := range configurations {
		if ca.Contains(bundlesOf(w.history[kind].last()), theirs) {
			w.breaks("a CA was put in place of one in the %s, and is trusted %s later", kind, settling)
		}
	}
}

// mark is what another client writes beside what is the program's.
const mark = "mark"

// markedOwner is an owner that another client gives to a configuration.
var markedOwner = metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: mark, UID: mark}

func isMarked(o metav1.OwnerReference) bool { return o.UID == mark }

// marks has another client add something of its own to an object, which stays as long as the object. It reports whether it did.
func (w *World) marks(kind string, object *unstructured.Unstructured) bool {
	added := false
	switch kind {
	case "Secret":
		if unstructured.SetNestedField(object.Object, encoded([]byte(mark)), "data", mark) != nil {
			return false
		}
	case configurations[0], configurations[1]:
		added = invents(object)
		object.SetOwnerReferences(append(object.GetOwnerReferences(), markedOwner))
	case "Lease":
	default:
		return false
	}
	for _, of := range []struct {
		get func() map[string]string
		set func(map[string]string)
	}{{object.GetLabels, object.SetLabels}, {object.GetAnnotations, object.SetAnnotations}} {
		all := of.get()
		if all == nil {
			all = map[string]string{}
		}
		all[mark] = mark
		of.set(all)
	}
	w.tell(fate, "adds something to the %s", kind)
	if err := w.api.Put(object); err != nil {
		w.violate("an edit failed: %v", err)
	}
	w.observe()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.watch.marked == nil {
		w.watch.marked, w.watch.invented = map[string]types.UID{}, map[string]types.UID{}
	}
	if added {
		w.watch.invented[kind] = object.GetUID()
	}
	w.watch.marked[kind] = object.GetUID()
	return true
}

// markedAt is when another client adds something to the Secret and the Lease, before the first fault that is not one of the start.
const markedAt = firstFault - time.Minute

// adds has another client do that, in half of the worlds.
func (w *World) adds() {
	if w.plan.Seed%2 == 0 || !w.wait(markedAt) {
		return
	}
	for _, b := range belongings[2:] {
		if found := w.find(b.kind, b.namespace, b.name); found != nil {
			w.marks(b.kind, found.DeepCopy())
		}
	}
}

// unmarked looks for what another client has written. The caller holds mu.
func (w *World) unmarked() {
	for _, b := range belongings {
		object, uid := w.find(b.kind, b.namespace, b.name), w.watch.marked[b.kind]
		if object == nil || uid == "" || object.GetUID() != uid {
			continue
		}
		_, kept, _ := unstructured.NestedString(object.Object, "data", mark)
		if b.kind == "Secret" && !kept || object.GetLabels()[mark] == "" || object.GetAnnotations()[mark] == "" ||
			slices.Contains(configurations, b.kind) && !slices.ContainsFunc(object.GetOwnerReferences(), isMarked) {
			w.breaks("at rest, the %s lacks a part of what another client has added", b.kind)
		}
	}
}
