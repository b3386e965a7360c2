package webhookconf

// This file implements the conversion webhook of a CustomResourceDefinition as a Configuration. The definition belongs
// to its user: only spec.conversion and our annotations are written, by a merge patch. Server-side apply cannot do that:
// it cannot remove a url of another manager, and the API server refuses a url beside a Service.

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"code.cloudfoundry.org/eirinix/internal/ca"
	"code.cloudfoundry.org/eirinix/internal/list"
)

// CRD is the kind of CustomResourceDefinitions.
var CRD = Kind{Group: "apiextensions.k8s.io", Name: "CustomResourceDefinition", Resource: "customresourcedefinitions", removal: "patch"}

// conversionReviewVersions are the versions of ConversionReview that are served, the preferred one first.
var conversionReviewVersions = []any{"v1", "v1beta1"}

// Conversions returns the conversion webhook of each of these CustomResourceDefinitions. owner is the certificate
// Secret, "namespace/name".
func Conversions(client dynamic.Interface, crds []string, owner string) []Configuration {
	return list.Of(crds, func(crd string) Configuration {
		c := &conversion{}
		c.object = CRD.object(client, crd, owner, c)
		return c
	})
}

// conversion implements Configuration for the conversion webhook of one CustomResourceDefinition.
type conversion struct{ object }

func (c *conversion) Creates() bool { return false }

func (c *conversion) Holds(entries []Entry) bool { return c.entry(entries) != nil }

func (c *conversion) entry(entries []Entry) *Entry {
	for i := range entries {
		if entries[i].Converts == c.name {
			return &entries[i]
		}
	}
	return nil
}

func (c *conversion) complete(f *Found) {
	if f.object.GetAnnotations()[OwnerAnnotation] == "" { // its webhook, if any, is not ours yet
		f.Version, f.Pins, f.Unneeded = "", nil, nil
	} else if now := registeredIn(f.object); now != nil {
		f.Bundles = [][]byte{now.bundle()}
	}
}

// WebhookStrategy and noStrategy are the values of spec.conversion.strategy.
const (
	WebhookStrategy = "Webhook"
	noStrategy      = "None"
)

// registeredIn returns a copy of the conversion webhook of a CustomResourceDefinition. It is nil if there is none, or if
// a member is of another type.
func registeredIn(crd *unstructured.Unstructured) webhook {
	if strategy, _, _ := unstructured.NestedString(crd.Object, "spec", "conversion", "strategy"); strategy != WebhookStrategy {
		return nil
	}
	w, _, _ := unstructured.NestedMap(crd.Object, "spec", "conversion", "webhook")
	return w
}

// holds reports whether a merge patch changes nothing in a tree.
func holds(tree, patch any) bool {
	wanted, ok := patch.(map[string]any)
	if !ok {
		return equality.Semantic.DeepEqual(tree, patch)
	}
	found, _ := tree.(map[string]any)
	for key, value := range wanted {
		if !holds(found[key], value) {
			return false
		}
	}
	return true
}

// desired returns the conversion webhook for an entry.
func (c *conversion) desired(o Options, e Entry) webhook {
	o.CABundle = nil
	call := o.ClientConfig(e.Path)
	address, _ := runtime.DefaultUnstructuredConverter.ToUnstructured(&call) // cannot fail for a type of the API
	return webhook{"clientConfig": address, "conversionReviewVersions": conversionReviewVersions}
}

func (c *conversion) missing(crd *unstructured.Unstructured, d Desired) []string {
	e := c.entry(d.Entries)
	if e == nil || crd == nil || crd.GetAnnotations()[OwnerAnnotation] != "" && registeredIn(crd) != nil {
		return nil
	}
	return []string{e.Name}
}

// intact reports true for a missing definition: its user creates it, and until then there is nothing to write.
func (c *conversion) intact(crd *unstructured.Unstructured, d Desired) bool {
	e := c.entry(d.Entries)
	if e == nil || crd == nil {
		return true
	}
	annotations, now, desired := crd.GetAnnotations(), registeredIn(crd), c.desired(d.Options, *e)
	desired.trust(now.bundle())
	return annotations[OwnerAnnotation] == c.owner && annotations[VersionAnnotation] == d.Version && holds(map[string]any(now), desired.inFull())
}

func (c *conversion) Put(ctx context.Context, from Found, change Change) (Found, Outcome, error) {
	crd := from.object
	if crd == nil {
		return c.found(nil), Absent, nil
	}
	call, annotations := registeredIn(crd), crd.GetAnnotations()
	if d := change.Entries; d != nil && c.Holds(d.Entries) {
		call = c.desired(d.Options, *c.entry(d.Entries))
		call.trust(ca.Bundle(from.Bundles...))
		annotations = with(with(annotations, OwnerAnnotation, c.owner), VersionAnnotation, d.Version)
	} else if annotations[OwnerAnnotation] == "" || call == nil {
		return from, Unchanged, nil // not our webhook
	}
	if change.Bundle != nil {
		call.trust(change.Bundle)
		annotations = with(annotations, PinsAnnotation, strings.Join(HashesOf(change.Bundle), ","))
	}
	if change.Unneeded != nil {
		annotations = with(annotations, UnneededAnnotation, unneededText(change.Unneeded))
	}
	if holds(map[string]any(registeredIn(crd)), call.inFull()) && maps.Equal(ours(annotations), ours(crd.GetAnnotations())) {
		return from, Unchanged, nil
	}
	written, err := c.patch(ctx, crd.GetResourceVersion(), annotations, map[string]any{"strategy": WebhookStrategy, "webhook": call.inFull()})
	if err != nil {
		return Found{}, "", err
	}
	return c.found(written), Updated, nil
}

// inFull returns what we set of a conversion webhook, with null for each member of the address that it does not have.
func (w webhook) inFull() map[string]any {
	address := map[string]any{"url": nil, "service": nil, "caBundle": nil}
	maps.Copy(address, w.address())
	return map[string]any{"clientConfig": address, "conversionReviewVersions": w["conversionReviewVersions"]}
}

// ourAnnotations are the annotations that this package writes.
var ourAnnotations = []string{OwnerAnnotation, VersionAnnotation, PinsAnnotation, UnneededAnnotation}

// ours returns those annotations that this package writes: null for each that is empty or missing.
func ours(annotations map[string]string) map[string]any {
	all := map[string]any{}
	for _, key := range ourAnnotations {
		all[key] = nil
		if value := annotations[key]; value != "" {
			all[key] = value
		}
	}
	return all
}

// patch sets our annotations to those of these, and spec.conversion. It fails if the definition does not have the
// resourceVersion any more.
func (c *conversion) patch(ctx context.Context, resourceVersion string, annotations map[string]string, spec map[string]any) (*unstructured.Unstructured, error) {
	body, _ := json.Marshal(map[string]any{ // what came from JSON, and strings
		"metadata": map[string]any{"resourceVersion": resourceVersion, "annotations": ours(annotations)},
		"spec":     map[string]any{"conversion": spec},
	})
	written, err := c.client.Patch(ctx, c.name, types.MergePatchType, body, metav1.PatchOptions{FieldManager: fieldManager})
	return written, c.explain("get and patch", err)
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

// remove sets the strategy None, and removes our annotations. It refuses where more than one version is served or stored.
func (c *conversion) remove(ctx context.Context, crd *unstructured.Unstructured) (Outcome, error) {
	if crd.GetAnnotations()[OwnerAnnotation] == "" {
		return Absent, nil
	}
	if needed := versionsOf(crd); len(needed) > 1 {
		return "", &StillConvertsError{CRD: c.name, Versions: needed}
	}
	_, err := c.patch(ctx, crd.GetResourceVersion(), nil, map[string]any{"strategy": noStrategy, "webhook": nil})
	return Deleted, err
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

var _ Configuration = (*conversion)(nil)
