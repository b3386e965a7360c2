package webhookconf

// This file implements the conversion webhook of a CustomResourceDefinition as a Configuration. The definition belongs
// to its user: only spec.conversion and our annotations are written, by a merge patch. Server-side apply cannot do that:
// it cannot remove a url of another manager, and the API server refuses a url beside a Service.

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"code.cloudfoundry.org/eirinix/internal/ca"
)

// CRDKind is the kind of CustomResourceDefinitions, and CRDResource their resource as in RBAC rules.
var CRDKind = schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}

const (
	CRDResource = "customresourcedefinitions"

	// CRDPath is the path under which the API server serves them.
	CRDPath = "/apis/apiextensions.k8s.io/v1/" + CRDResource
)

// conversionReviewVersions are the versions of ConversionReview that are served, the preferred one first.
var conversionReviewVersions = []any{"v1", "v1beta1"}

// Conversions returns the conversion webhook of each of these CustomResourceDefinitions. owner is the certificate
// Secret, "namespace/name". c is a client of the API server without a group.
func Conversions(c rest.Interface, crds []string, owner string) []Configuration {
	all := make([]Configuration, 0, len(crds))
	for _, crd := range crds {
		all = append(all, &conversion{client: c, crd: crd, owner: owner})
	}
	return all
}

// conversion implements Configuration for the conversion webhook of one CustomResourceDefinition.
type conversion struct {
	client rest.Interface
	crd    string
	owner  string
}

func (c *conversion) String() string { return CRDKind.Kind + " " + c.crd }

func (c *conversion) Name() string { return c.crd }

func (c *conversion) Resource() string { return CRDResource }

func (c *conversion) Creates() bool { return false }

func (c *conversion) Object() client.Object {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(CRDKind)
	object.SetName(c.crd)
	return object
}

func (c *conversion) Holds(entries []Entry) bool { return c.entry(entries) != nil }

func (c *conversion) entry(entries []Entry) *Entry {
	for i := range entries {
		if entries[i].Converts == c.crd {
			return &entries[i]
		}
	}
	return nil
}

func (c *conversion) Get(ctx context.Context) (Found, error) {
	object := &unstructured.Unstructured{}
	err := read(c.client.Get().AbsPath(CRDPath, c.crd).Do(ctx), object)
	switch {
	case apierrors.IsNotFound(err):
		return Found{of: c}, nil
	case err != nil:
		return Found{}, c.explain("get", err)
	}
	return c.Read(object)
}

func (c *conversion) Read(object client.Object) (Found, error) {
	if object == nil {
		return Found{of: c}, nil
	}
	crd, ok := object.(*unstructured.Unstructured)
	switch {
	case !ok:
		return Found{}, fmt.Errorf("%s: read from a %T", c, object)
	case crd == nil:
		return Found{of: c}, nil
	case crd.GetName() != c.crd:
		return Found{}, fmt.Errorf("%s: read from %q", c, crd.GetName())
	}
	annotations := crd.GetAnnotations()
	if other := annotations[OwnerAnnotation]; other != "" && other != c.owner {
		return Found{}, &OwnedElsewhereError{Kind: CRDKind.Kind, Configuration: c.crd, Owner: other, Us: c.owner}
	}
	found := Found{
		Exists:          true,
		ResourceVersion: crd.GetResourceVersion(),
		UID:             crd.GetUID(),
		managers:        crd.GetManagedFields(),
		object:          crd,
		of:              c,
	}
	if annotations[OwnerAnnotation] == "" {
		return found, nil // its webhook, if any, is not ours yet
	}
	found.Version, found.Pins = annotations[VersionAnnotation], readPins(annotations[PinsAnnotation])
	found.Unneeded = readUnneeded(annotations[UnneededAnnotation])
	if now := registeredIn(crd); now.Strategy == WebhookStrategy {
		found.Bundles = [][]byte{now.bundle()}
	}
	return found, nil
}

// WebhookStrategy and noStrategy are the values of spec.conversion.strategy.
const (
	WebhookStrategy = "Webhook"
	noStrategy      = "None"
)

// conversionSpec is spec.conversion of a CustomResourceDefinition.
type conversionSpec struct {
	Strategy string         `json:"strategy"`
	Webhook  map[string]any `json:"webhook,omitempty"`
}

// registeredIn returns the spec.conversion of a CustomResourceDefinition. Members of another type count as missing.
func registeredIn(crd *unstructured.Unstructured) (s conversionSpec) {
	s.Strategy, _, _ = unstructured.NestedString(crd.Object, "spec", "conversion", "strategy")
	s.Webhook, _, _ = unstructured.NestedMap(crd.Object, "spec", "conversion", "webhook")
	return s
}

func (s conversionSpec) bundle() []byte {
	text, _, _ := unstructured.NestedString(s.Webhook, "clientConfig", "caBundle")
	bundle, _ := base64.StdEncoding.DecodeString(text)
	return bundle
}

// equal reports whether both call the same webhook, whatever their caBundles.
func (s conversionSpec) equal(other conversionSpec) bool {
	text := func(s conversionSpec) []byte {
		webhook := (&unstructured.Unstructured{Object: s.Webhook}).DeepCopy().Object
		unstructured.RemoveNestedField(webhook, "clientConfig", "caBundle")
		text, _ := json.Marshal(conversionSpec{s.Strategy, webhook}) // JSON, sorted
		return text
	}
	return bytes.Equal(text(s), text(other))
}

// desired returns the spec.conversion for an entry.
func (c *conversion) desired(o Options, e Entry) conversionSpec {
	o.CABundle = nil
	call := o.ClientConfig(e.Path)
	address := map[string]any{}
	if call.Service != nil {
		address["service"] = map[string]any{
			"namespace": call.Service.Namespace, "name": call.Service.Name,
			"path": *call.Service.Path, "port": int64(*call.Service.Port),
		}
	} else {
		address["url"] = *call.URL
	}
	return conversionSpec{Strategy: WebhookStrategy, Webhook: map[string]any{
		"clientConfig": address, "conversionReviewVersions": conversionReviewVersions,
	}}
}

func (c *conversion) missing(object client.Object, d Desired) []string {
	e := c.entry(d.Entries)
	crd, ok := object.(*unstructured.Unstructured)
	if e == nil || !ok || crd.GetAnnotations()[OwnerAnnotation] != "" && registeredIn(crd).Strategy == WebhookStrategy {
		return nil
	}
	return []string{e.Name}
}

// intact reports true for a missing definition: its user creates it, and until then there is nothing to write.
func (c *conversion) intact(object client.Object, d Desired) bool {
	e := c.entry(d.Entries)
	crd, ok := object.(*unstructured.Unstructured)
	if e == nil || !ok {
		return true
	}
	annotations := crd.GetAnnotations()
	return annotations[OwnerAnnotation] == c.owner && annotations[VersionAnnotation] == d.Version &&
		registeredIn(crd).equal(c.desired(d.Options, *e))
}

func (c *conversion) Put(ctx context.Context, from Found, change Change) (Found, Outcome, error) {
	crd, ok := from.object.(*unstructured.Unstructured)
	if !ok {
		return Found{of: c}, Absent, nil
	}
	spec, annotations := registeredIn(crd), ours(crd.GetAnnotations())
	if d := change.Entries; d != nil && c.Holds(d.Entries) {
		bundle := ca.Bundle(from.Bundles...)
		spec = c.desired(d.Options, *c.entry(d.Entries))
		spec.trust(bundle)
		annotations[OwnerAnnotation], annotations[VersionAnnotation] = c.owner, d.Version
	} else if annotations[OwnerAnnotation] == "" || spec.Strategy != WebhookStrategy {
		return from, Unchanged, nil // not our webhook
	}
	if change.Bundle != nil {
		spec.trust(change.Bundle)
		annotations = with(annotations, PinsAnnotation, strings.Join(HashesOf(change.Bundle), ","))
	}
	if change.Unneeded != nil {
		annotations = with(annotations, UnneededAnnotation, unneededText(change.Unneeded))
	}
	now := registeredIn(crd)
	if now.equal(spec) && bytes.Equal(now.bundle(), spec.bundle()) && maps.Equal(annotations, ours(crd.GetAnnotations())) {
		return from, Unchanged, nil
	}
	written, err := c.patch(ctx, crd.GetResourceVersion(), annotations, spec.inFull())
	if err != nil {
		return Found{}, "", c.explain("get and patch", err)
	}
	found, err := c.Read(written)
	return found, Updated, err
}

// inFull returns the spec with null for each member of the address that it does not have.
func (s conversionSpec) inFull() map[string]any {
	address := map[string]any{"url": nil, "service": nil, "caBundle": nil}
	set, _ := s.Webhook["clientConfig"].(map[string]any)
	maps.Copy(address, set)
	return map[string]any{"strategy": s.Strategy, "webhook": map[string]any{
		"clientConfig": address, "conversionReviewVersions": s.Webhook["conversionReviewVersions"],
	}}
}

// trust sets the caBundle. An empty one is left out: then the API server uses the CAs of its machine.
func (s conversionSpec) trust(bundle []byte) {
	address, ok := s.Webhook["clientConfig"].(map[string]any)
	switch {
	case !ok:
	case len(bundle) == 0:
		delete(address, "caBundle")
	default:
		address["caBundle"] = base64.StdEncoding.EncodeToString(bundle)
	}
}

// ourAnnotations are the annotations that this package writes.
var ourAnnotations = []string{OwnerAnnotation, VersionAnnotation, PinsAnnotation, UnneededAnnotation}

// ours returns those annotations that this package writes.
func ours(annotations map[string]string) map[string]string {
	all := map[string]string{}
	for _, key := range ourAnnotations {
		if value, ok := annotations[key]; ok {
			all[key] = value
		}
	}
	return all
}

// patch sets the annotations, of which an empty one is removed, and spec.conversion. It fails if the definition does not
// have the resourceVersion any more.
func (c *conversion) patch(ctx context.Context, resourceVersion string, annotations map[string]string, spec map[string]any) (*unstructured.Unstructured, error) {
	set := map[string]any{}
	for _, key := range ourAnnotations {
		set[key] = nil
		if value := annotations[key]; value != "" {
			set[key] = value
		}
	}
	body, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": resourceVersion, "annotations": set},
		"spec":     map[string]any{"conversion": spec},
	})
	if err != nil {
		return nil, err
	}
	written := &unstructured.Unstructured{}
	return written, read(c.client.Patch(types.MergePatchType).AbsPath(CRDPath, c.crd).
		Param("fieldManager", fieldManager).Body(body).Do(ctx), written)
}

// read reads the object in an answer of the API server.
func read(answer rest.Result, into *unstructured.Unstructured) error {
	if err := answer.Error(); err != nil { // Raw does not read the Status
		return err
	}
	text, err := answer.Raw()
	if err != nil {
		return err
	}
	return into.UnmarshalJSON(text)
}

// StillConvertsError reports that a definition cannot do without its conversion webhook.
type StillConvertsError struct {
	CRD      string
	Versions []string // those that are served or stored
}

func (e *StillConvertsError) Error() string {
	return fmt.Sprintf("%s %s serves or stores %s, so it needs its conversion webhook: without it, objects would change their apiVersion and keep the fields of another one; "+
		"first serve one version alone, store all objects in it, and remove the others from status.storedVersions", CRDKind.Kind, e.CRD, strings.Join(e.Versions, ", "))
}

// Delete sets the strategy None, and removes our annotations. It refuses where more than one version is served or
// stored.
func (c *conversion) Delete(ctx context.Context) (Outcome, error) {
	outcome := Deleted
	err := retry.OnError(retry.DefaultBackoff, apierrors.IsConflict, func() error {
		found, err := c.Get(ctx)
		crd, ok := found.object.(*unstructured.Unstructured)
		if err != nil {
			return err
		}
		if !ok || crd.GetAnnotations()[OwnerAnnotation] == "" {
			outcome = Absent
			return nil
		}
		if needed := versionsOf(crd); len(needed) > 1 {
			return &StillConvertsError{CRD: c.crd, Versions: needed}
		}
		_, err = c.patch(ctx, crd.GetResourceVersion(), nil, map[string]any{"strategy": noStrategy, "webhook": nil})
		return c.explain("get and patch", err)
	})
	if err != nil {
		return "", err
	}
	return outcome, nil
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

// explain names the object and, if rights are missing, the rule that grants them.
func (c *conversion) explain(verbs string, err error) error {
	switch {
	case err == nil:
		return nil
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%s (needs %s on %s.%s in a ClusterRole): %w", c, verbs, CRDResource, CRDKind.Group, err)
	}
	return fmt.Errorf("%s: %w", c, err)
}

var _ Configuration = (*conversion)(nil)
