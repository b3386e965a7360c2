package world

// This file is modes of several steps at once, and a step that leaves Shadow while replicas cannot read how it is registered.

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"code.cloudfoundry.org/eirinix"
)

// common are the plain steps that all versions have.
func (w *World) common() []string {
	return slices.DeleteFunc(slices.Clone(plain), func(step string) bool {
		return slices.ContainsFunc(w.releases, func(r release) bool { return !r.has(step) })
	})
}

// watchesAll puts all steps that all versions have into modes that report. It returns false if there is only one.
func (w *World) watchesAll(rng *rand.Rand) bool {
	steps := w.common()
	if len(steps) < 2 {
		return false
	}
	for _, step := range steps {
		if rng.IntN(4) == 0 {
			continue
		}
		if rng.IntN(3) == 0 && !w.plan.Judges {
			step += "-sets"
		}
		w.setMode(step, string([]eirinix.Mode{eirinix.ModeWarn, eirinix.ModeAudit, eirinix.ModeAudit, eirinix.ModeDeny}[rng.IntN(4)]))
	}
	return true
}

// darkens puts a step into Shadow, and back into Deny while replicas may not read the configurations. Until they may, the
// step is registered as one whose failures are ignored.
func (w *World) darkens(f Fault, rng *rand.Rand) {
	steps := w.common()
	step := steps[rng.IntN(len(steps))]
	w.setMode(step, string(eirinix.ModeShadow))
	if !w.wait(2 * inMode) {
		return
	}
	lasts := max(f.For, time.Minute)
	w.excuse(slow, lasts+rightRemembered)
	resource := "validatingwebhookconfigurations"
	w.tell(fate, "takes all rights to %s for %s", resource, lasts.Round(time.Second))
	w.rights.set(everything, resource, true)
	for _, s := range w.servers {
		s.server.Close() // watches end
	}
	if w.wait(10 * time.Second) {
		w.setMode(step, string(eirinix.ModeDeny))
	}
	for until := time.Now().Add(lasts); time.Now().Before(until) && w.wait(5*time.Second); {
		n := rng.Uint64()
		w.tasks.Go(func() { w.tries(step, n) })
	}
	w.rights.set(everything, resource, false)
	w.stirs()
}

// flickers puts a step into Shadow and, as soon as it is registered so, back into Deny.
func (w *World) flickers(rng *rand.Rand) {
	steps := w.common()
	step := steps[rng.IntN(len(steps))]
	last := func() *unstructured.Unstructured {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.history[configurations[1]].last()
	}
	before, moment := last(), w.plan.Lag/8
	w.setMode(step, string(eirinix.ModeShadow))
	for until := time.Now().Add(2 * inMode); last() == before && time.Now().Before(until); {
		if !w.wait(moment) {
			return
		}
	}
	w.setMode(step, string(eirinix.ModeDeny))
	for until := time.Now().Add(2 * w.plan.Lag); time.Now().Before(until) && w.wait(moment); {
		n := rng.Uint64()
		w.tasks.Go(func() { w.tries(step, n) })
	}
}

// tries has an API server admit a pod that a step is to deny.
func (w *World) tries(step string, n uint64) {
	s := w.servers[n%uint64(len(w.servers))]
	if failing, frozen := s.state(); failing != 0 || frozen != nil {
		return
	}
	pod := podIn("shop", fmt.Sprintf("tried%d", n))
	pod.SetLabels(map[string]string{denyLabel: step})
	a := ask{operation: admissionv1.Create, resource: podResource, kind: podKind, object: pod}
	ctx, cancel := w.ctx()
	defer cancel()
	began := time.Now()
	if v := s.admit(ctx, a); ctx.Err() == nil {
		w.judge(s, a, step, began, v)
	}
}
