package webhookconf

// This file implements one of a deployment's two webhook configurations in a cluster: its kind, its owner, and how it
// is read and deleted. writer.go changes it. conversion.go implements the third form of a registration.

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"code.cloudfoundry.org/eirinix/internal/ca"
	"code.cloudfoundry.org/eirinix/internal/list"
)

const (
	// fieldManager is our name in the managed fields of a configuration, in every program.
	fieldManager = "eirinix"

	managedByLabel = "app.kubernetes.io/managed-by"
	managedBy      = "eirinix"

	// OwnerAnnotation names the certificate Secret, "namespace/name", of the deployment that owns a configuration. Two
	// deployments with one fingerprint would overwrite each other.
	OwnerAnnotation = "eirinix.cloudfoundry.org/certificate-secret"
)

// Configuration is an object that registers webhooks of a deployment: one of its two webhook configurations, or a
// CustomResourceDefinition with its conversion webhook. It holds no state: the caller gets, decides, puts, and on a
// conflict gets again. It is safe for concurrent use.
type Configuration interface {
	// String returns the kind and the name.
	fmt.Stringer
	// Name returns the metadata.name.
	Name() string
	// Resource returns the resource in the form that RBAC rules use.
	Resource() string
	// Object returns a new, empty object of the kind with this name, for a cache to watch or to fill.
	Object() client.Object
	// Creates reports whether Put creates a missing object. A CustomResourceDefinition is created by its user.
	Creates() bool
	// Holds reports whether any of these entries belongs in it.
	Holds(entries []Entry) bool
	// Get reads the configuration with one request. A missing configuration is not an error. One of another deployment
	// is an *OwnedElsewhereError.
	Get(ctx context.Context) (Found, error)
	// Read returns the same as Get, from a cache whose get fills in an untyped object of its name.
	Read(ctx context.Context, get func(context.Context, client.Object) error) (Found, error)
	// Put changes the configuration that was found, with one request: a create, or an update that succeeds only on the
	// version that was found. It sends no request if nothing changes. A lost race is an error for which
	// apierrors.IsConflict, IsAlreadyExists or IsNotFound is true: get and decide again. Put returns the resulting
	// configuration.
	Put(ctx context.Context, from Found, c Change) (Found, Outcome, error)
	// Delete removes the registration if it is ours: a configuration as a whole, and the conversion webhook from a
	// CustomResourceDefinition.
	Delete(ctx context.Context) (Outcome, error)
}

// Outcome is the effect of Put and Delete.
type Outcome string

// The outcomes.
const (
	Created   Outcome = "created"
	Updated   Outcome = "updated"
	Unchanged Outcome = "unchanged" // no write was needed
	Deleted   Outcome = "deleted"
	Absent    Outcome = "absent" // it does not exist, and is not needed
)

// Configurations returns both configurations of a deployment, the mutating one first. owner is the certificate Secret,
// "namespace/name". Only the names in the options matter.
func Configurations(client dynamic.Interface, o Options, owner string) (all []Configuration) {
	for _, k := range []Kind{Mutating, Validating} {
		c := &configuration{names: o}
		c.object = k.object(client, k.ConfigurationName(o.Fingerprint), owner, c)
		all = append(all, c)
	}
	return all
}

// Kind is a kind of object that registers webhooks: of version v1, and not in a namespace.
type Kind struct {
	Group    string
	Name     string // as in apiVersion and kind
	Resource string // as in RBAC rules

	suffix     string
	removal    string // the verb of a Delete
	validating bool
}

// Mutating is the kind of webhook configuration whose webhooks can change objects. Those of Validating only allow or
// deny.
var (
	Mutating = Kind{
		Group: admissionregistrationv1.GroupName, Name: "MutatingWebhookConfiguration", Resource: "mutatingwebhookconfigurations", suffix: "-mutating-hook",
		removal: "delete",
	}
	Validating = Kind{
		Group: admissionregistrationv1.GroupName, Name: "ValidatingWebhookConfiguration", Resource: "validatingwebhookconfigurations", suffix: "-validating-hook",
		removal: "delete", validating: true,
	}
)

// ConfigurationName returns the name of a fingerprint's configuration of this kind.
func (k Kind) ConfigurationName(fingerprint string) string { return fingerprint + k.suffix }

// Holds reports whether an entry is a webhook of this kind of webhook configuration.
func (k Kind) Holds(e Entry) bool { return e.Converts == "" && e.Validating == k.validating }

func (k Kind) version() schema.GroupVersion {
	return schema.GroupVersion{Group: k.Group, Version: "v1"}
}

func (k Kind) object(client dynamic.Interface, name, owner string, of form) object {
	return object{kind: k, client: client.Resource(k.version().WithResource(k.Resource)), name: name, owner: owner, of: of}
}

// object is the object of a Configuration in a cluster. It is untyped, so that what our Go types do not know survives
// each write.
type object struct {
	kind   Kind
	client dynamic.ResourceInterface
	name   string
	owner  string // the certificate Secret, "namespace/name"
	of     form
}

// form is what distinguishes a webhook configuration from a definition. object is nil if it does not exist.
type form interface {
	// complete adds what only this form has to what was found.
	complete(f *Found)
	// remove removes the registration from an object that exists and does not belong to another deployment.
	remove(ctx context.Context, existing *unstructured.Unstructured) (Outcome, error)
	missing(object *unstructured.Unstructured, d Desired) []string
	intact(object *unstructured.Unstructured, d Desired) bool
}

func (o object) String() string { return o.kind.Name + " " + o.name }

func (o object) Name() string { return o.name }

func (o object) Resource() string { return o.kind.Resource }

func (o object) Object() client.Object { return o.empty() }

func (o object) empty() *unstructured.Unstructured {
	empty := &unstructured.Unstructured{}
	empty.SetGroupVersionKind(o.kind.version().WithKind(o.kind.Name))
	empty.SetName(o.name)
	return empty
}

func (o object) Get(ctx context.Context) (Found, error) { return o.get(ctx, "get") }

// get implements Get, for a caller that needs these verbs.
func (o object) get(ctx context.Context, verbs string) (Found, error) {
	existing, err := o.client.Get(ctx, o.name, metav1.GetOptions{})
	return o.read(existing, o.explain(verbs, err))
}

func (o object) Read(ctx context.Context, get func(context.Context, client.Object) error) (Found, error) {
	existing := o.empty()
	return o.read(existing, get(ctx, existing))
}

// read returns what was found by a request with this error.
func (o object) read(existing *unstructured.Unstructured, err error) (Found, error) {
	if apierrors.IsNotFound(err) {
		return o.found(nil), nil
	}
	if err == nil {
		err = o.owned(existing)
	}
	if err != nil {
		return Found{}, err
	}
	return o.found(existing), nil
}

func (o object) Delete(ctx context.Context) (outcome Outcome, err error) {
	err = retry.OnError(retry.DefaultBackoff, apierrors.IsConflict, func() error {
		found, err := o.get(ctx, "get and "+o.kind.removal)
		if outcome = Absent; err == nil && found.Exists {
			outcome, err = o.of.remove(ctx, found.object)
		}
		return err
	})
	switch {
	case apierrors.IsNotFound(err):
		return Absent, nil
	case err != nil:
		return "", err
	}
	return outcome, nil
}

// found returns the Found of an object, which is nil if it does not exist.
func (o object) found(existing *unstructured.Unstructured) Found {
	f := Found{object: existing, of: o.of}
	if existing == nil {
		return f
	}
	annotations := existing.GetAnnotations()
	f.Exists, f.ResourceVersion, f.UID, f.managers = true, existing.GetResourceVersion(), existing.GetUID(), existing.GetManagedFields()
	f.Version, f.Pins, f.Unneeded = annotations[VersionAnnotation], readPins(annotations[PinsAnnotation]), readUnneeded(annotations[UnneededAnnotation])
	o.of.complete(&f)
	return f
}

// owned returns an error if the object is another one, or belongs to another deployment. One without an owner may become
// ours. existing is nil if none exists.
func (o object) owned(existing *unstructured.Unstructured) error {
	if existing == nil {
		return nil
	}
	if existing.GetName() != o.name {
		return fmt.Errorf("%s: read from %q", o, existing.GetName())
	}
	if other := existing.GetAnnotations()[OwnerAnnotation]; other != "" && other != o.owner {
		return &OwnedElsewhereError{Kind: o.kind.Name, Configuration: o.name, Owner: other, Us: o.owner}
	}
	return nil
}

// explain names the object and, if rights are missing, the rule that grants them.
func (o object) explain(verbs string, err error) error {
	if _, ok := errors.AsType[*OwnedElsewhereError](err); ok || err == nil {
		return err
	}
	needs := ""
	if apierrors.IsForbidden(err) {
		needs = fmt.Sprintf(" (needs %s on %s.%s in a ClusterRole)", verbs, o.kind.Resource, o.kind.Group)
	}
	return fmt.Errorf("%s %q%s: %w", o.kind.Name, o.name, needs, err)
}

// configuration implements Configuration for a webhook configuration.
type configuration struct {
	object
	names Options // only the names of the configuration and of its entries matter
}

func (c *configuration) Creates() bool { return true }

func (c *configuration) Holds(entries []Entry) bool {
	return slices.ContainsFunc(entries, c.kind.Holds)
}

// webhook is a webhook in a configuration or a definition.
type webhook map[string]any

// ours returns the webhooks of the fingerprint, in order. They are not copies. object is nil if none exists.
func (c *configuration) ours(object *unstructured.Unstructured) (all []webhook) {
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

func (w webhook) name() string {
	name, _ := w["name"].(string)
	return name
}

func (w webhook) address() map[string]any {
	address, _ := w["clientConfig"].(map[string]any)
	return address
}

// path returns the path that the API server calls.
func (w webhook) path() string {
	if service, ok := w.address()["service"].(map[string]any); ok {
		path, _ := service["path"].(string)
		return path
	}
	text, _ := w.address()["url"].(string)
	if u, err := url.Parse(text); err == nil {
		return u.Path
	}
	return ""
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

// Found is a configuration that was read. It does not change, and shares nothing that its holder could change with the
// object that it was read from. Only a Configuration makes it.
type Found struct {
	Exists          bool
	ResourceVersion string
	UID             types.UID
	Bundles         [][]byte             // the distinct caBundles of the fingerprint's entries
	Version         string               // the value of VersionAnnotation
	Pins            []string             // the values of PinsAnnotation, in order
	Unneeded        map[string]time.Time // the values of UnneededAnnotation
	Shadows         []string             // the steps in ShadowAnnotation

	validating bool
	paths      []string            // of the fingerprint's entries
	steps      map[string][]string // keys of the steps by path; nil if an earlier build has written it
	managers   []metav1.ManagedFieldsEntry

	object *unstructured.Unstructured // nil if it does not exist
	of     form
}

// Missing returns the names of the entries of d, of this configuration's kind, that it does not hold.
func (f Found) Missing(d Desired) []string { return f.of.missing(f.object, d) }

// Intact reports whether Put with these entries would change nothing but the caBundles and the annotations about CAs.
// Labels and annotations that are not ours do not matter. A missing configuration is intact if d has no entries of its
// kind.
func (f Found) Intact(d Desired) bool { return f.of.intact(f.object, d) }

// LastManager returns the other field manager that wrote the configuration last. It is empty if the managed fields are
// unknown, as in a cache that strips them, or name no other manager.
func (f Found) LastManager() string {
	var last metav1.ManagedFieldsEntry
	for _, m := range f.managers {
		if m.Manager == fieldManager || m.Time == nil {
			continue
		}
		if last.Time == nil || last.Time.Before(m.Time) {
			last = m
		}
	}
	return last.Manager
}

func (c *configuration) complete(f *Found) {
	annotations := f.object.GetAnnotations()
	f.Shadows, f.validating, f.steps = readShadows(annotations[ShadowAnnotation]), c.kind.validating, readSteps(annotations[StepsAnnotation], f.Version)
	for _, w := range c.ours(f.object) {
		f.paths = append(f.paths, w.path())
		if bundle := w.bundle(); !slices.ContainsFunc(f.Bundles, func(b []byte) bool { return bytes.Equal(b, bundle) }) {
			f.Bundles = append(f.Bundles, bundle)
		}
	}
}

func (c *configuration) missing(object *unstructured.Unstructured, d Desired) (missing []string) {
	held := list.Of(c.ours(object), webhook.name)
	for _, e := range d.Entries {
		if c.kind.Holds(e) && !slices.Contains(held, d.Options.WebhookName(e.Name)) {
			missing = append(missing, e.Name)
		}
	}
	return missing
}

func (c *configuration) remove(ctx context.Context, existing *unstructured.Unstructured) (Outcome, error) {
	// The preconditions ensure that only the object that was read is deleted.
	return Deleted, c.explain("get and delete", c.client.Delete(ctx, c.name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{
		UID: new(existing.GetUID()), ResourceVersion: new(existing.GetResourceVersion()),
	}}))
}

// OwnedElsewhereError reports that the configuration belongs to another deployment.
type OwnedElsewhereError struct{ Kind, Configuration, Owner, Us string }

func (e *OwnedElsewhereError) Error() string {
	return fmt.Sprintf("%s %q belongs to the deployment whose certificate Secret is %s, not to ours (%s); "+
		"set ManagerOptions.OperatorFingerprint to another name, or delete that configuration if its deployment is gone",
		e.Kind, e.Configuration, e.Owner, e.Us)
}

// OwnedByNamespace returns an owner reference to a Namespace. It does not block the Namespace's deletion.
func OwnedByNamespace(ns *corev1.Namespace) *metav1.OwnerReference {
	return &metav1.OwnerReference{APIVersion: "v1", Kind: "Namespace", Name: ns.Name, UID: ns.UID}
}

// with returns the map with the value under the key; an empty value removes the key.
func with(m map[string]string, key, value string) map[string]string {
	all := map[string]string{}
	maps.Copy(all, m)
	if all[key] = value; value == "" {
		delete(all, key)
	}
	return all
}

// withOwner adds an owner, or replaces an earlier one of the same name.
func withOwner(all []metav1.OwnerReference, owner *metav1.OwnerReference) []metav1.OwnerReference {
	if owner == nil {
		return all
	}
	all = slices.DeleteFunc(slices.Clone(all), func(r metav1.OwnerReference) bool {
		return r.APIVersion == owner.APIVersion && r.Kind == owner.Kind && r.Name == owner.Name && r.UID != owner.UID
	})
	if slices.ContainsFunc(all, func(r metav1.OwnerReference) bool { return r.UID == owner.UID }) {
		return all
	}
	return append(all, *owner)
}

// Pinned returns a function that reports whether configurations pin a CA: by its hash, or in a caBundle in force. It
// returns nil if they pin none.
func Pinned(all []Found) func(*x509.Certificate) bool {
	hashes := map[string]bool{}
	for _, f := range all {
		for _, hash := range append(HashesOf(ca.Bundle(f.Bundles...)), f.Pins...) {
			hashes[hash] = true
		}
	}
	if len(hashes) == 0 {
		return nil
	}
	return func(certificate *x509.Certificate) bool { return hashes[HashOf(certificate)] }
}

// Remove deletes the configurations. One that holds none of the entries is skipped if deleting it is forbidden.
func Remove(ctx context.Context, configurations []Configuration, entries []Entry, log logr.Logger) error {
	for _, c := range configurations {
		outcome, err := c.Delete(ctx)
		if apierrors.IsForbidden(err) && !c.Holds(entries) {
			continue
		}
		if err != nil {
			return err
		}
		if outcome != Absent {
			log.Info("unregistered", "configuration", c.String(), "outcome", outcome)
		}
	}
	return nil
}
