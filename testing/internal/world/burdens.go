package world

// This file is large pods, one after the other, on which a step in Shadow runs.

import (
	"fmt"
	"slices"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
)

// burdens is the number of the large pods, which together have more bytes than a step in Shadow may leave waiting, and burdenSize
// is the size of each.
const burdens, burdenSize = 26, 1_400_000

// burden has an API server call the step in Shadow for large pods, one after the other, so that none waits.
func (w *World) burden() {
	s := w.servers[0]
	entry, ok := s.entry(configurations[1], ghost)
	if !ok {
		return
	}
	began, started, ran := time.Now(), w.begun(), w.releases[0].burdened.Load()
	w.tell(named(s.name), "calls the step in Shadow for %d large pods", burdens)
	pod := podIn("shop", "burden")
	pod.SetAnnotations(map[string]string{ghost: strings.Repeat("x", burdenSize)})
	ctx, cancel := w.ctx()
	defer cancel()
	for n := range burdens {
		pod.SetName(fmt.Sprint("burden", n))
		if _, err := s.call(ctx, entry, ask{operation: admissionv1.Create, resource: podResource, kind: podKind, object: pod}); err != nil || !w.wait(time.Second) {
			return
		}
	}
	if !w.wait(settling) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	leaves := slices.ContainsFunc(w.processes, func(p *process) bool { return p.leaving })
	if n := w.releases[0].burdened.Load() - ran; n != burdens && w.started == started && !leaves && !w.troubledSince(began, rough) {
		w.breaks("a step in Shadow has run on %d of %d large pods, which came one after the other", n, burdens)
	}
}
