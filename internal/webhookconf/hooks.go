package webhookconf

// This file implements the form of a webhook configuration.

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"code.cloudfoundry.org/eirinix/internal/ca"
)

// configuration is the form of a webhook configuration of a kind.
type configuration struct {
	kind  Kind
	names Options // only the names of the configuration and of its entries matter
}

// ours returns the webhooks of the fingerprint.
func (c configuration) ours(object *unstructured.Unstructured) (all []webhook) {
	if object == nil {
		return nil
	}
	items, _ := object.Object["webhooks"].([]any)
	for _, item := range items {
		if w, ok := item.(map[string]any); ok && strings.HasSuffix(webhook(w).name(), c.names.WebhookName("")) {
			all = append(all, w)
		}
	}
	return all
}

// register replaces all webhooks, and marks the configuration as that of a deployment.
func (c configuration) register(object *unstructured.Unstructured, d Desired) {
	object.SetLabels(with(object.GetLabels(), managedByLabel, managedBy))
	if owners := object.GetOwnerReferences(); d.Options.OwnedBy != nil {
		if next := withOwner(owners, d.Options.OwnedBy); !equality.Semantic.DeepEqual(owners, next) {
			object.SetOwnerReferences(next)
		}
	}
	was, bundles := map[string]webhook{}, [][]byte{}
	for _, w := range c.ours(object) {
		was[w.name()], bundles = w, append(bundles, w.bundle())
	}
	o := d.Options
	o.Fingerprint, o.Domain = c.names.Fingerprint, c.names.Domain
	var webhooks []any
	var shadows []string
	for _, e := range slices.DeleteFunc(slices.Clone(d.Entries), func(e Entry) bool { return !c.kind.Holds(e) }) {
		old, exists := was[o.WebhookName(e.Name)]
		if o.CABundle = old.bundle(); !exists {
			o.CABundle = ca.Bundle(bundles...)
		}
		webhooks = append(webhooks, renewed(old, o.Webhook(e))) // a validating one has no field that a mutating one lacks
		delete(was, o.WebhookName(e.Name))
		for _, s := range e.Steps {
			if s.Shadow {
				shadows = append(shadows, s.Name)
			}
		}
	}
	for _, w := range c.ours(object) {
		if _, kept := d.Kept[w.path()]; kept && was[w.name()] != nil {
			webhooks = append(webhooks, map[string]any(w))
		}
	}
	if object.Object["webhooks"] = webhooks; len(webhooks) == 0 {
		delete(object.Object, "webhooks") // as the API server stores it
	}
	steps, registered := map[string][]string{}, d.Registered()
	for _, w := range c.ours(object) {
		if keys, known := registered[w.path()]; known {
			steps[w.path()] = keys
		}
	}
	slices.Sort(shadows)
	annotate(object, ShadowAnnotation, strings.Join(shadows, ","))
	annotate(object, StepsAnnotation, stepsText(d.Version, steps))
}

// removed returns nil: the configuration as a whole is ours.
func (configuration) removed(*unstructured.Unstructured) (*unstructured.Unstructured, error) {
	return nil, nil //nolint:nilnil // it is to be deleted
}
