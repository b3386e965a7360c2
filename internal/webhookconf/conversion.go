package webhookconf

// This file implements the form of a CustomResourceDefinition, which belongs to its user: only spec.conversion and our
// annotations are changed.

import (
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"code.cloudfoundry.org/eirinix/internal/list"
)

// Conversions returns the conversion webhook of each of these CustomResourceDefinitions. owner is the certificate
// Secret, "namespace/name".
func Conversions(client dynamic.Interface, crds []string, owner string) []Configuration {
	return list.Of(crds, func(crd string) Configuration { return CRD.object(client, crd, owner, conversion{crd}) })
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

// conversion is the form of the CustomResourceDefinition of this name.
type conversion struct{ crd string }

// ours returns the conversion webhook. Without our annotation, it is not ours yet.
func (conversion) ours(crd *unstructured.Unstructured) []webhook {
	if crd == nil || crd.GetAnnotations()[OwnerAnnotation] == "" {
		return nil
	}
	registered, _, _ := unstructured.NestedFieldNoCopy(crd.Object, "spec", "conversion")
	now, _ := registered.(map[string]any)
	w, ok := now["webhook"].(map[string]any)
	if !ok || now["strategy"] != WebhookStrategy {
		return nil
	}
	return []webhook{w}
}

func (c conversion) register(crd *unstructured.Unstructured, d Desired) {
	spec, o := ConversionSpec{Strategy: WebhookStrategy}, d.Options
	o.CABundle = nil
	for _, w := range c.ours(crd) {
		o.CABundle = w.bundle()
	}
	e := slices.IndexFunc(d.Entries, func(e Entry) bool { return e.Converts == c.crd })
	spec.Webhook.ClientConfig = o.ClientConfig(d.Entries[e].Path)
	spec.Webhook.ReviewVersions = []string{"v1", "v1beta1"} // those that are served, the preferred one first
	now, _, _ := unstructured.NestedMap(crd.Object, "spec", "conversion")
	_ = unstructured.SetNestedMap(crd.Object, renewed(now, spec), "spec", "conversion") // every definition has a spec
}

// StillConvertsError reports that a definition cannot do without its conversion webhook.
type StillConvertsError struct {
	CRD      string
	Versions []string // those that are served or stored
}

func (e *StillConvertsError) Error() string {
	return fmt.Sprintf("%s %s serves or stores %s, so it needs its conversion webhook: without it, objects would change their apiVersion and keep the fields of another one; "+
		"first serve one version alone, store all objects in it, and remove the others from status.storedVersions", CRD.Name, e.CRD, strings.Join(e.Versions, ", "))
}

// removed sets the strategy None, and removes our annotations. It refuses where more than one version is served or
// stored.
func (c conversion) removed(crd *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	if crd.GetAnnotations()[OwnerAnnotation] == "" {
		return crd, nil
	}
	if needed := versionsOf(crd); len(needed) > 1 {
		return nil, &StillConvertsError{CRD: c.crd, Versions: needed}
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
