package webhookconf

// This file knows where the webhooks are in the two forms of objects that register them. A webhook configuration is ours
// as a whole. A CustomResourceDefinition belongs to its user: only spec.conversion and our annotations are changed.

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"code.cloudfoundry.org/eirinix/internal/ca"
)

// webhook is a webhook in a configuration or a definition.
type webhook map[string]any

func (w webhook) name() string {
	name, _ := w["name"].(string)
	return name
}

func (w webhook) address() map[string]any {
	address, _ := w["clientConfig"].(map[string]any)
	return address
}

// call returns the address that the API server calls, and the caBundle.
func (w webhook) call() (c admissionregistrationv1.WebhookClientConfig) {
	address := maps.Clone(w.address())
	delete(address, "caBundle")                                            // which the converter would take through JSON
	_ = runtime.DefaultUnstructuredConverter.FromUnstructured(address, &c) // an API server has read it too
	c.CABundle = w.bundle()
	return c
}

func (w webhook) path() string {
	_, path := TargetOf(w.call())
	return path
}

func (w webhook) bundle() []byte {
	text, _ := w.address()["caBundle"].(string)
	bundle, _ := base64.StdEncoding.DecodeString(text)
	return bundle
}

// trust sets the caBundle. An empty one is left out: then the API server uses the CAs of its machine.
func (w webhook) trust(bundle []byte) {
	switch address := w.address(); {
	case address == nil:
	case len(bundle) == 0:
		delete(address, "caBundle")
	default:
		address["caBundle"] = base64.StdEncoding.EncodeToString(bundle)
	}
}

// ours returns the webhooks that are ours, in order. They are not copies.
func (o object) ours(existing *unstructured.Unstructured) (all []webhook) {
	switch {
	case existing == nil:
		return nil
	case !o.Creates():
		return conversionOf(existing)
	}
	items, _ := existing.Object["webhooks"].([]any)
	for _, item := range items {
		if w, ok := item.(map[string]any); ok && strings.HasSuffix(webhook(w).name(), o.names.WebhookName("")) {
			all = append(all, w)
		}
	}
	return all
}

// register replaces all webhooks of a configuration, and marks it as that of a deployment.
func (o object) register(object *unstructured.Unstructured, d Desired) {
	object.SetLabels(with(object.GetLabels(), managedByLabel, managedBy))
	owners := object.GetOwnerReferences()
	if next := withOwner(owners, d.Options.OwnedBy); !equality.Semantic.DeepEqual(owners, next) {
		object.SetOwnerReferences(next)
	}
	was, bundles := map[string]webhook{}, [][]byte{}
	for _, w := range o.ours(object) {
		was[w.name()], bundles = w, append(bundles, w.bundle())
	}
	options := d.Options
	options.Fingerprint, options.Domain = o.names.Fingerprint, o.names.Domain
	var webhooks []any
	var shadows []string
	for _, e := range d.Entries {
		if !o.holds(e) {
			continue
		}
		name := options.WebhookName(e.Name)
		old, exists := was[name]
		if options.CABundle = old.bundle(); !exists {
			options.CABundle = ca.Bundle(bundles...)
		}
		webhooks = append(webhooks, renewed(old, options.Webhook(e))) // a validating one has no field that a mutating one lacks
		delete(was, name)
		for _, s := range e.Steps {
			if s.Shadow {
				shadows = append(shadows, s.Name)
			}
		}
	}
	for _, w := range o.ours(object) {
		if _, kept := d.Kept[w.path()]; kept && was[w.name()] != nil {
			webhooks = append(webhooks, map[string]any(w))
		}
	}
	if object.Object["webhooks"] = webhooks; len(webhooks) == 0 {
		delete(object.Object, "webhooks") // as the API server stores it
	}
	steps, registered := map[string][]string{}, d.Registered()
	for _, w := range o.ours(object) {
		if keys, known := registered[w.path()]; known {
			steps[w.path()] = keys
		}
	}
	slices.Sort(shadows)
	annotate(object, ShadowAnnotation, strings.Join(shadows, ","))
	text, _ := json.Marshal(stepsInForce{d.Version, steps}) // strings, sorted
	annotate(object, StepsAnnotation, string(text))
}

// ConversionSpec is the spec.conversion of a CustomResourceDefinition.
type ConversionSpec struct {
	Strategy string `json:"strategy"`
	Webhook  struct {
		ClientConfig   admissionregistrationv1.WebhookClientConfig `json:"clientConfig"` // its JSON is the same
		ReviewVersions []string                                    `json:"conversionReviewVersions"`
	} `json:"webhook"`
}

// WebhookStrategy and noStrategy are the values of spec.conversion.strategy.
const (
	WebhookStrategy = "Webhook"
	noStrategy      = "None"
)

// conversionOf returns the conversion webhook of a definition, if it is ours. Another strategy comes without a webhook.
func conversionOf(crd *unstructured.Unstructured) []webhook {
	registered, _, _ := unstructured.NestedFieldNoCopy(crd.Object, "spec", "conversion")
	now, _ := registered.(map[string]any)
	w, ok := now["webhook"].(map[string]any)
	if !ok || crd.GetAnnotations()[OwnerAnnotation] == "" {
		return nil
	}
	return []webhook{w}
}

// convert replaces the conversion webhook of a definition by that of d. Its caBundle is kept.
func (o object) convert(crd *unstructured.Unstructured, d Desired) {
	spec, options := ConversionSpec{Strategy: WebhookStrategy}, d.Options
	options.CABundle = nil
	for _, w := range conversionOf(crd) {
		options.CABundle = w.bundle()
	}
	spec.Webhook.ClientConfig = options.ClientConfig(d.Entries[slices.IndexFunc(d.Entries, o.holds)].Path)
	spec.Webhook.ReviewVersions = []string{"v1", "v1beta1"} // those that are served, the preferred one first
	now, _, _ := unstructured.NestedMap(crd.Object, "spec", "conversion")
	_ = unstructured.SetNestedMap(crd.Object, renewed(now, spec), "spec", "conversion") // every definition has a spec
}

// unconverted returns a definition with the strategy None and without our annotations, or nil if it has no webhook of
// ours. It refuses where more than one version is served or stored.
func unconverted(crd *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	if crd.GetAnnotations()[OwnerAnnotation] == "" {
		return nil, nil //nolint:nilnil // there is nothing to remove
	}
	if needed := versionsOf(crd); len(needed) > 1 {
		return nil, fmt.Errorf("%s %s serves or stores %s, so it needs its conversion webhook: without it, objects would change their apiVersion and keep the fields of another one; "+
			"first serve one version alone, store all objects in it, and remove the others from status.storedVersions", CRD.Name, crd.GetName(), strings.Join(needed, ", "))
	}
	without := crd.DeepCopy()
	_ = unstructured.SetNestedField(without.Object, noStrategy, "spec", "conversion", "strategy")
	unstructured.RemoveNestedField(without.Object, "spec", "conversion", "webhook")
	for _, key := range []string{OwnerAnnotation, VersionAnnotation, PinsAnnotation, UnneededAnnotation} {
		annotate(without, key, "")
	}
	return without, nil
}

// versionsOf returns the versions that a definition serves or stores.
func versionsOf(crd *unstructured.Unstructured) []string {
	all, _, _ := unstructured.NestedStringSlice(crd.Object, "status", "storedVersions")
	versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	for _, v := range versions {
		version, _ := v.(map[string]any)
		name, _ := version["name"].(string)
		if served, _ := version["served"].(bool); served && !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	return all
}
