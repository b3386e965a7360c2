package world

// This file is a mode for half of the objects: those that belong together draw alike.

import (
	"fmt"
	"math/rand/v2"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"code.cloudfoundry.org/eirinix"
)

// halved is the text of a mode for half of the objects.
var halved = fmt.Sprintf("%s 50%%\n%s", eirinix.ModeDeny, eirinix.ModeAudit)

// isHalved reports whether the objects draw for a mode, so that only those who compare them know what to expect.
func (m modeOf) isHalved() bool { return strings.Contains(m.text, "%") }

// mostPairs is the number of pairs of pods that draw. Of a wrong draw, half of the pairs differ.
const mostPairs = 5

// halves puts a step into Deny for half of the objects for a while, and looks at whether pods of one owner, or of one
// generateName, are admitted alike.
func (w *World) halves(rng *rand.Rand) {
	if rng.IntN(2) == 0 {
		w.portions(rng)
		return
	}
	steps := w.common()
	step := steps[rng.IntN(len(steps))]
	w.setMode(step, halved)
	defer w.setMode(step, string(eirinix.ModeDeny))
	if !w.wait(2 * inMode) {
		return
	}
	w.mu.Lock()
	mode := w.modes[step]
	w.mu.Unlock()
	for n := range mostPairs {
		of, owned := fmt.Sprintf("web%d-%d", rng.Uint32(), n), rng.IntN(2) == 0
		var verdicts []string
		for _, suffix := range []string{"5c9f4", "7d8b6"} {
			pod := podIn("shop", of+"-"+suffix)
			pod.SetLabels(map[string]string{denyLabel: step})
			if pod.SetGenerateName(of + "-"); owned {
				owns(pod, of, suffix)
			}
			verdicts = append(verdicts, w.draws(step, mode, pod, rng))
		}
		if verdicts[0] != verdicts[1] && verdicts[0] != "" && verdicts[1] != "" {
			w.violate("of two pods of %s (one owner: %t), for half of which step %s is in Deny, one is %s, and the other is %s", of, owned, step, verdicts[0], verdicts[1])
		}
	}
}

// owns has a replica set of a Deployment own a pod. Each of these has a hash in its name.
func owns(pod *unstructured.Unstructured, deployment, hash string) {
	all := pod.GetLabels()
	all["pod-template-hash"] = hash
	pod.SetLabels(all)
	pod.SetGenerateName(deployment + "-" + hash + "-")
	pod.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "apps/v1", Kind: kindOfIt, Name: deployment + "-" + hash, UID: "1", Controller: new(true)}})
}

// draws has an API server admit a new pod, and returns whether a step denies it; nothing if that proves nothing.
func (w *World) draws(step string, mode modeOf, pod *unstructured.Unstructured, rng *rand.Rand) string {
	s := w.servers[rng.IntN(len(w.servers))]
	if failing, frozen := s.state(); failing != 0 || frozen != nil {
		return ""
	}
	ctx, cancel := w.ctx()
	defer cancel()
	began := w.begins()
	v := s.admit(ctx, ask{operation: admissionv1.Create, resource: podResource, kind: podKind, object: pod})
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case ctx.Err() != nil || v.failed != nil || w.modes[step] != mode || !w.settledSince(mode.since) || !w.mustRun(step, began):
		return ""
	case strings.Contains(v.denied, step+" denies"):
		return "denied"
	}
	return "admitted"
}
