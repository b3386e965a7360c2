package main

// This file holds the endpoints that change objects.

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"code.cloudfoundry.org/eirinix"
)

// mutating returns the endpoints that change objects.
func (e endpoints) mutating() []any {
	return []any{
		eirinix.Mutation[*unstructured.Unstructured]{
			ID: "add-label", Apply: addLabel,
			Settings: e.where("add-label", on("", "v1", "configmaps", created, updated), on("agnhost.example.org", "v1", "widgets", created, updated)),
		},
		eirinix.Mutation[*corev1.Pod]{ID: "mutating-pods", Settings: e.alone(), Apply: addInitContainer},
		eirinix.Mutation[*corev1.Pod]{
			ID: "mutating-pods-sidecar", Settings: e.where("mutating-pods-sidecar"),
			Apply: func(_ context.Context, _ *eirinix.Call, pod *corev1.Pod) error {
				pod.Spec.Containers = add(pod.Spec.Containers, corev1.Container{Name: "webhook-added-sidecar", Image: e.sidecarImage})
				return nil
			},
		},
		eirinix.Mutation[*corev1.ConfigMap]{ID: "mutating-configmaps", Settings: e.alone(), Apply: e.passStages},
		eirinix.Mutation[*unstructured.Unstructured]{
			ID: "mutating-custom-resource", Settings: e.alone(on("agnhost.example.org", "v1", "widgets", created, updated)), Apply: e.passWidgetStages,
		},
	}
}

func addLabel(_ context.Context, c *eirinix.Call, o *unstructured.Unstructured) error {
	labels := o.GetLabels()
	if labels == nil { // where others register, the label that selects the object is not needed
		labels = map[string]string{}
	}
	labels["added-label"] = "yes"
	o.SetLabels(labels)
	c.Warn("the label added-label was set to yes")
	return nil
}

func addInitContainer(_ context.Context, _ *eirinix.Call, pod *corev1.Pod) error {
	if pod.Name == "webhook-to-be-mutated" {
		pod.Spec.InitContainers = add(pod.Spec.InitContainers, corev1.Container{Name: "webhook-added-init-container", Image: "webhook-added-image"})
	}
	return nil
}

// add adds a container unless it is already there, because the API server can call twice.
func add(containers []corev1.Container, added corev1.Container) []corev1.Container {
	if slices.ContainsFunc(containers, func(c corev1.Container) bool { return c.Name == added.Name }) {
		return containers
	}
	return append(containers, added)
}

func (e endpoints) passStages(_ context.Context, c *eirinix.Call, m *corev1.ConfigMap) error {
	if e.pass(m.Data) {
		c.Annotate("stages", "passed")
	}
	return nil
}

func (e endpoints) passWidgetStages(_ context.Context, _ *eirinix.Call, w *unstructured.Unstructured) error {
	data, found, err := unstructured.NestedStringMap(w.Object, "data")
	if err != nil || !found || !e.pass(data) {
		return err
	}
	return unstructured.SetNestedStringMap(w.Object, data, "data")
}

// pass adds the marks of both stages to data that requests them, and reports whether it changed something. Where others
// register the webhooks, each webhook is a stage, and a call adds only the next mark.
func (e endpoints) pass(data map[string]string) bool {
	switch {
	case e.othersRegister && data["mutation-stage-1"] == "yes":
		data["mutation-stage-2"] = "yes"
	case data["mutation-start"] != "yes":
		return false
	case e.othersRegister:
		data["mutation-stage-1"] = "yes"
	default:
		data["mutation-stage-1"], data["mutation-stage-2"] = "yes", "yes"
	}
	return true
}
