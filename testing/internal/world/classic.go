package world

// This file is a step in the manner of EiriniX: an Extension, which answers with a response and its own patch.

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"code.cloudfoundry.org/eirinix"
)

// extension is the name of the Extension, and the label with its orders. It is about no other pods, and its failures are
// ignored. It adds an annotation, and a container at the end. The second one shares its call, and notes the pod that it sees.
const extension, secondly = "extension", "extension-too"

const (
	extends  = "changes"
	admits   = "admits"
	denies   = "denies"
	fails    = "fails"
	explodes = "explodes"

	toFail = "it is to fail"
)

type extending struct{ name, version string }

func (e extending) Name() string { return e.name }

func (extending) Settings() eirinix.Settings {
	return eirinix.Settings{
		FailurePolicy: admissionregistrationv1.Ignore,
		Objects:       &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: extension, Operator: metav1.LabelSelectorOpExists}}},
	}
}

func (e extending) Handle(_ context.Context, m eirinix.Manager, pod *corev1.Pod, req admission.Request) admission.Response {
	what := pod.Labels[extension]
	if e.name == secondly {
		annotate(pod, "ran-"+e.name, pod.Name+" "+what)
		return m.PatchFromPod(req, pod)
	}
	annotate(pod, "ran-"+e.name, e.version)
	pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: extension, Image: "example.com/" + e.version})
	switch what {
	case admits:
		return admission.Response{}
	case denies:
		return admission.Denied(extension + " denies")
	case fails:
		return admission.Errored(http.StatusInternalServerError, errors.New(toFail))
	case explodes:
		panic(toFail)
	}
	response := m.PatchFromPod(req, pod)
	pod.Name, pod.Labels = "taken", nil
	return response
}

// extend has an API server admit a pod that the Extension is about.
func (w *World) extend(rng *rand.Rand, name string) {
	s := w.servers[rng.IntN(len(w.servers))]
	if failing, frozen := s.state(); failing != 0 || frozen != nil {
		return
	}
	what := []string{extends, extends, extends, admits, denies, fails, explodes}[rng.IntN(7)]
	pod := podIn("shop", name)
	pod.SetLabels(map[string]string{extension: what})
	ctx, cancel := w.ctx()
	defer cancel()
	began := w.begins()
	v := s.admit(ctx, ask{operation: admissionv1.Create, resource: podResource, kind: podKind, object: pod})
	if ctx.Err() != nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	must := w.mustRun(lenient, began) && w.reachable(began) && !w.troubledSince(began, rough, slow, apart, evicted)
	if v.failed != nil {
		return // others fail
	}
	got := v.object.DeepCopy()
	ran := got.GetAnnotations()["ran-"+extension] != ""
	switch {
	case v.denied != "" && what != denies:
		w.breaks("%s: a pod that no step denies is %s", s.name, v)
	case what == denies && v.denied == "" && must:
		w.breaks("%s: a pod that the Extension denies is %s (called: %s)", s.name, v, v.entries())
	case what == extends && !ran && must:
		w.breaks("%s: the Extension has not changed a pod (called: %s)", s.name, v.entries())
	case what != extends && ran:
		w.breaks("%s: a pod has a change of the Extension, which %s", s.name, what)
	case v.denied != "":
		return
	}
	if containers, _, _ := unstructured.NestedSlice(got.Object, "spec", "containers"); ran && len(containers) == 2 {
		_ = unstructured.SetNestedSlice(got.Object, containers[:1], "spec", "containers") // it is an object
		unstructured.RemoveNestedField(got.Object, "metadata", "annotations", "ran-"+extension)
	}
	if seen := got.GetAnnotations()["ran-"+secondly]; seen != name+" "+what && (seen != "" || must) {
		w.breaks("%s: the second Extension has seen the pod %q, which is %s %s", s.name, seen, name, what)
	}
	unstructured.RemoveNestedField(got.Object, "metadata", "annotations", "ran-"+secondly)
	if len(got.GetAnnotations()) == 0 {
		unstructured.RemoveNestedField(got.Object, "metadata", "annotations")
	}
	if want := w.reckoned(pod, got); want != nil && !equality.Semantic.DeepEqual(want.Object, got.Object) {
		w.breaks("%s: a pod that the Extension %s is admitted as %v, and was to be as %v and its change", s.name, what, v.object.Object, want.Object)
	}
}
