package world

// This file is people who run a command in a pod, which is a CONNECT that carries options instead of an object; and kubelets, which send
// mirror pods.

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"code.cloudfoundry.org/eirinix"
)

const (
	guard     = "guards" // refuses some commands in pods
	forbidden = "rm -rf /"
	execOf    = "exec"
)

// addGuard gives the Manager the step about commands.
func addGuard(m *eirinix.ExtensionManager) error {
	return m.AddExtension(eirinix.Subresource[*corev1.PodExecOptions]{
		ID: guard, Resource: corev1.SchemeGroupVersion.WithResource("pods"), Subresource: execOf,
		Check: func(_ context.Context, c *eirinix.Call, old, command *corev1.PodExecOptions) error {
			if old != nil || command == nil {
				return fmt.Errorf("it was %v, and is %v", old, command)
			}
			c.Annotate(guard, fmt.Sprint(c.Namespace, "/", c.Name, " ", c.SubResource, " ", command.Command))
			if slices.Contains(command.Command, forbidden) {
				return apierrors.NewForbidden(corev1.Resource("pods/exec"), c.Name, errors.New(guard+" denies"))
			}
			return nil
		},
	})
}

// commands has an API server admit a command in a pod.
func (w *World) commands(rng *rand.Rand, n int) {
	s := w.servers[rng.IntN(len(w.servers))]
	if failing, frozen := s.state(); failing != 0 || frozen != nil {
		return
	}
	command := []string{"ls", forbidden}[rng.IntN(2)]
	a := ask{
		operation: admissionv1.Connect, resource: podResource, kind: metav1.GroupVersionKind{Version: "v1", Kind: "PodExecOptions"}, subresource: execOf,
		name: fmt.Sprint("pod", n), in: "shop",
		object: &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "PodExecOptions", "stdin": true, "command": []any{"sh", command}}},
	}
	began, v, over := w.offers(s, a)
	if over {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	must := w.mustRun(lenient, began) && w.reachable(began) && !w.troubledSince(began, rough, slow, apart, evicted)
	seen := false
	for _, one := range v.said {
		if one.response == nil {
			continue
		}
		for _, saw := range one.annotated(guard) {
			if seen = true; saw != fmt.Sprintf("shop/%s exec [sh %s]", a.name, command) {
				w.breaks("%s: step %s sees another command in the pod %s than %q: %s", s.name, guard, a.name, command, saw)
			}
		}
	}
	switch {
	case v.failed != nil:
		if must {
			w.breaks("%s refused a command in a pod although a replica could be reached: %v", s.name, v.failed)
		}
	case command != forbidden && v.denied != "":
		w.breaks("%s: a command in a pod that no step denies is %s", s.name, v)
	case command == forbidden && v.denied == "" && (must || seen):
		w.breaks("%s: a command in a pod that step %s denies is %s (called: %s)", s.name, guard, v, v.entries())
	case command == forbidden && v.denied != "" && !strings.Contains(v.denied, guard+" denies"):
		w.breaks("%s: a command in a pod is denied, and not as step %s says it: %s", s.name, guard, v.denied)
	case command != forbidden && must && !seen:
		w.breaks("%s: step %s of every live version does not see a command in a pod (called: %s)", s.name, guard, v.entries())
	}
}

// kubelet is the user of one.
const kubelet = "system:node:node1"

// mirrorPod has a kubelet create a mirror pod, which no step changes, or another user one that looks like it, which steps do change.
func (w *World) mirrorPod(rng *rand.Rand, n int) {
	s := w.servers[rng.IntN(len(w.servers))]
	if failing, frozen := s.state(); failing != 0 || frozen != nil || w.plan.Judges {
		return
	}
	pod := podIn("shop", fmt.Sprint("mirror", n))
	pod.SetAnnotations(map[string]string{corev1.MirrorPodAnnotationKey: "hash"})
	a := ask{operation: admissionv1.Create, resource: podResource, kind: podKind, object: pod}
	if rng.IntN(3) > 0 {
		a.user = kubelet
	}
	began, v, over := w.offers(s, a)
	if over || v.failed != nil || v.denied != "" {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for name := range v.object.GetAnnotations() {
		if name != corev1.MirrorPodAnnotationKey && a.user == kubelet {
			w.breaks("%s: a step changes the mirror pod of a kubelet: %s (called: %s)", s.name, name, v.entries())
		}
	}
	if a.user == "" && w.mustRun("a", began) && w.denies("a-sets", began) && v.object.GetAnnotations()["ran-a"] == "" {
		w.breaks("%s: a pod with the annotation of mirror pods, which a user creates, is not changed (called: %s)", s.name, v.entries())
	}
}
