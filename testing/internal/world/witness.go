package world

// This file is a step in Shadow beside one that hangs.

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"code.cloudfoundry.org/eirinix"
)

// witness is the name of the step, and the label of the pods that it is about: small ones, which wait for no memory.
const witness = "witness"

// addWitness gives the Manager the step, which counts its runs.
func addWitness(m *eirinix.ExtensionManager, witnessed *atomic.Int64) error {
	return m.AddExtension(eirinix.Validation[*corev1.Pod]{
		ID: witness, Settings: eirinix.Settings{Isolated: true, Mode: eirinix.ModeShadow, Objects: &metav1.LabelSelector{MatchLabels: map[string]string{witness: "yes"}}},
		Create: func(context.Context, *eirinix.Call, *corev1.Pod) error {
			witnessed.Add(1)
			return nil
		},
	})
}

// shadowsSoon is how long runs in Shadow take at most, if no other one of their step is at work. Each of another one keeps them for a second.
const shadowsSoon = 5 * time.Second

// witnesses has API servers call the step, while the other one hangs.
func (w *World) witnesses() {
	ctx, cancel := w.ctx()
	defer cancel()
	began, started, ran, sent := time.Now(), w.begun(), w.releases[0].witnessed.Load(), int64(0)
	for _, s := range w.servers {
		entry, ok := s.entry(configurations[1], witness)
		for n := range 4 {
			if !ok {
				return
			}
			pod := podIn("shop", fmt.Sprint("witnessed", n))
			pod.SetLabels(map[string]string{witness: "yes"})
			if _, err := s.call(ctx, entry, ask{operation: admissionv1.Create, resource: podResource, kind: podKind, object: pod}); err == nil {
				sent++
			}
		}
	}
	if !w.wait(shadowsSoon) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	leaves := slices.ContainsFunc(w.processes, func(p *process) bool { return p.leaving })
	if n := w.releases[0].witnessed.Load() - ran; n < sent && w.started == started && !leaves && !w.troubledSince(began, rough) {
		w.breaks("a step in Shadow has run on %d of %d pods within %s, while another step in Shadow hangs", n, sent, shadowsSoon)
	}
}
