package world

// This file is large pods, one after the other, on which a step in Shadow runs.

import (
	"fmt"
	"slices"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// burdens is the number of the large pods, which together have more bytes than a step in Shadow may leave waiting, and burdenSize
// is the size of each.
const burdens, burdenSize = 26, 1_400_000

// mostBytes is the MaxRequestBytes of all programs: eight times as much, for all calls at once, is less than those of a burden.
const mostBytes = 4 << 20

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
	old := pod.DeepCopy()
	old.SetLabels(map[string]string{"burden": "old"})
	ctx, cancel := w.ctx()
	defer cancel()
	for n := range burdens {
		pod.SetName(fmt.Sprint("burden", n))
		old.SetName(pod.GetName())
		if !w.fits(s, ask{operation: admissionv1.Update, resource: podResource, kind: podKind, object: pod, old: old}, n) {
			return
		}
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

// fits sees that a large call is answered after as many others: none has kept memory that they share.
func (w *World) fits(s *apiServer, a ask, others int) bool {
	ctx, cancel := w.ctx()
	defer cancel()
	for _, kind := range configurations {
		for _, h := range s.entries(kind) {
			selects, err := h.selects(ctx, a, labels.Set{corev1.LabelMetadataName: a.object.GetNamespace()})
			if err != nil || !selects {
				continue
			}
			began := time.Now()
			_, err = s.call(ctx, h, a)
			w.mu.Lock()
			if err != nil && ctx.Err() == nil && !strings.Contains(err.Error(), "without endpoints") && w.reachable(began) && !w.troubledSince(began, rough, slow, spoiled, evicted, apart, unread) {
				w.breaks("%s has no answer to a large pod, after %d others: %v", h.Name, others, err)
			}
			w.mu.Unlock()
			if err != nil {
				return false
			}
		}
	}
	return true
}
