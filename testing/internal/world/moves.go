package world

// This file is a program that moves to another address, with the gap that the documentation tells of, and one whose registration is
// taken away by a person.

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/internal/ca"
)

// movedWithin is how long a program takes at most until it is ready at another address: the last replicas at the old one may have
// been killed.
const movedWithin = 75 * time.Second

// emptied stops or kills all replicas, and returns true once none runs.
func (w *World) emptied(kills bool) bool {
	w.scaleTo(0)
	if kills {
		w.mu.Lock()
		all := slices.Clone(w.processes)
		w.mu.Unlock()
		for _, p := range all {
			p.kill()
		}
	}
	for end := time.Now().Add(w.plan.drain() + 2*gracePeriod); time.Now().Before(end) && w.wait(time.Second); {
		w.mu.Lock()
		none, wanted := len(w.processes) == 0, w.replicas
		w.mu.Unlock()
		if wanted > 0 { // another fault has scaled it
			return false
		}
		if none {
			return true
		}
	}
	return false
}

// movesAway stops all replicas, deletes the registration, and runs the program at another address with the same fingerprint. Then it
// moves back.
func (w *World) movesAway(rng *rand.Rand) {
	if !w.moving.TryLock() { // not two of them
		return
	}
	defer w.moving.Unlock()
	w.mu.Lock()
	away := w.troubledSince(time.Now(), rough, slow, apart)
	w.mu.Unlock()
	if away { // while no API server answers, an old process is not known to have gone
		return
	}
	of := w.live(rng)
	for e := range excuses {
		w.excuse(e, 2*movedWithin+w.plan.drain()+2*gracePeriod+2*settling)
	}
	deletes := func() {
		for _, b := range belongings[:2] {
			w.harms(b)
			w.api.Remove(resources[b.kind], b.namespace, b.name)
		}
		w.observe()
	}
	if !w.emptied(rng.IntN(2) == 0) {
		w.scaleTo(w.plan.Replicas)
		return
	}
	w.tell(fate, "has the program move to another Service, and back")
	deletes()
	w.mu.Lock()
	stirred := w.watch.stirred
	w.mu.Unlock()
	w.startAnother(9, of, false, rng, 2*movedWithin, func(m *eirinix.ExtensionManager, ctx context.Context) error {
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		ended := make(chan error, 1)
		go func() { ended <- m.Run(ctx) }()
		select {
		case <-m.Ready():
			w.wait(10 * time.Second)
		case err := <-ended:
			ended <- err
			w.stays(stirred, "ends, although nothing runs at its old address", err)
		case <-time.After(movedWithin):
			w.stays(stirred, "is not ready at its new address", nil)
		case <-w.over:
		}
		stop()
		return <-ended
	})
	deletes()
	w.scaleTo(w.plan.Replicas)
}

// stays judges a program that has not moved, if nothing else has happened since then.
func (w *World) stays(stirred time.Time, what string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.watch.stirred.Equal(stirred) && w.plan.settled("right", "callers") {
		w.breaks("a program that has moved %s: %v", what, err)
	}
}

// unregistered has a person take the registration away: of all replicas, which were stopped, or of the only one, which goes on. It
// stays away, and the Secret stays.
func (w *World) unregistered(rng *rand.Rand) {
	before, of := w.state(), w.live(rng)
	w.mu.Lock()
	calm := w.settledSince(time.Now())
	w.mu.Unlock()
	if before == nil || !calm {
		return
	}
	if w.plan.Converts {
		if !w.stores(true, first) { // else it needs its conversion
			return
		}
		defer w.stores(false, first)
	}
	none := func() bool {
		definition := w.find(definitionKind, "", definitionName)
		return (definition == nil || !marked(definition)) && !slices.ContainsFunc(belongings[:2], func(b belonging) bool { return w.find(b.kind, b.namespace, b.name) != nil })
	}
	w.excuse(spoiled, 2*settling+w.plan.drain()+2*gracePeriod)
	var p *process
	if rng.IntN(2) == 0 {
		if !w.emptied(false) {
			w.scaleTo(w.plan.Replicas)
			return
		}
		w.tool("takes the registration away", of, rng, func(ctx context.Context, m *eirinix.ExtensionManager) error { return m.Unregister(ctx) })
	} else if p = w.single(); p != nil {
		ctx, cancel := w.ctx()
		defer cancel()
		ctx, cancelTimeout := context.WithTimeout(ctx, time.Minute)
		defer cancelTimeout()
		err := p.manager.Unregister(ctx)
		w.tell(p, "is asked to unregister: %v", err)
	} else {
		w.scaleTo(w.plan.Replicas)
		return
	}
	began, starts := time.Now(), w.begun()
	w.mu.Lock()
	stirred := w.watch.stirred
	w.mu.Unlock()
	for gone := none(); time.Since(began) < 30*time.Second && w.wait(time.Second); gone = none() {
		w.mu.Lock()
		if quiet := starts == w.started && w.watch.stirred.Equal(stirred); !quiet {
			w.mu.Unlock()
			break
		} else if !gone && !w.troubledSince(began, slow, lapsed, apart, strange) {
			w.breaks("a person has taken the registration away %s ago, and there is one", time.Since(began).Round(time.Second))
		}
		w.mu.Unlock()
	}
	after := w.state()
	old, err := before.Current()
	w.mu.Lock()
	if err == nil && w.watch.stirred.Equal(stirred) && !w.troubledSince(began, lapsed) && (after == nil || !ca.Contains(after.Bundle(), old.CertificatePEM)) {
		w.breaks("a person has taken the registration away, and the Secret does not hold its CA any more")
	}
	w.mu.Unlock()
	w.excuse(spoiled, settling)
	w.scaleTo(w.plan.Replicas)
	if p != nil { // it registers no more
		w.restart(Fault{}, rng)
	}
}

// marked reports whether a definition has a webhook, or an annotation of the program.
func marked(definition *unstructured.Unstructured) bool {
	return len(webhooksOf(definition)) > 0 || slices.ContainsFunc(slices.Collect(maps.Keys(definition.GetAnnotations())), func(key string) bool {
		return strings.HasPrefix(key, "eirinix.cloudfoundry.org/")
	})
}

// single scales the program to one replica, and returns it when it is the only one and ready.
func (w *World) single() (p *process) {
	w.scaleTo(1)
	for end := time.Now().Add(w.plan.drain() + 2*gracePeriod); time.Now().Before(end) && w.wait(time.Second); {
		w.mu.Lock()
		if p = nil; len(w.processes) == 1 && !w.processes[0].leaving && !w.processes[0].readySince.IsZero() {
			p = w.processes[0]
		}
		wanted := w.replicas
		w.mu.Unlock()
		if p != nil || wanted != 1 {
			break
		}
	}
	return p
}

func (w *World) scale(f Fault, rng *rand.Rand) {
	if n := rng.IntN(w.plan.Replicas + 3); n > 0 {
		w.scaleTo(n)
		return
	}
	w.scaleTo(0)
	began := time.Now()
	if drained := w.plan.drain() + gracePeriod; f.For > drained && w.wait(drained) {
		w.findsNone()
	}
	w.wait(f.For - time.Since(began))
	w.scaleTo(w.plan.Replicas)
}

func (w *World) scaleTo(n int) {
	w.mu.Lock()
	if time.Now().Before(w.watch.asleep) {
		n = 0
	}
	w.replicas = n
	w.mu.Unlock()
	w.tell(fate, "scales to %d replicas", n)
	w.wake()
}
