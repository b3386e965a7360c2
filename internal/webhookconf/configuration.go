package webhookconf

// This file implements an object that registers webhooks: its kind, its owner, and how it is read and deleted. writer.go
// changes it, and forms.go knows where its webhooks are.

import (
	"bytes"
	"context"
	"crypto/x509"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
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
	// CustomResourceDefinition. It leaves that of a version alone for which unless returns true; nil is for none.
	Delete(ctx context.Context, unless func(version string) bool) (Outcome, error)
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
func Configurations(client dynamic.Interface, o Options, owner string) []Configuration {
	return list.Of([]Kind{Mutating, Validating}, func(k Kind) Configuration {
		return k.object(client, k.ConfigurationName(o.Fingerprint), owner, o)
	})
}

// Conversions returns the conversion webhook of each of these CustomResourceDefinitions. owner is the certificate
// Secret, "namespace/name".
func Conversions(client dynamic.Interface, crds []string, owner string) []Configuration {
	return list.Of(crds, func(crd string) Configuration { return CRD.object(client, crd, owner, Options{}) })
}

// Kind is a kind of object that registers webhooks: of version v1, and not in a namespace.
type Kind struct {
	Group    string
	Name     string // as in apiVersion and kind
	Resource string // as in RBAC rules

	suffix               string
	puts, removes        string // the verbs that Put and Delete need
	validating, converts bool
}

// Mutating is the kind of webhook configuration whose webhooks can change objects. Those of Validating only allow or
// deny. CRD is the kind of CustomResourceDefinitions.
var (
	Mutating   = kindOf("MutatingWebhookConfiguration", "-mutating-hook", false)
	Validating = kindOf("ValidatingWebhookConfiguration", "-validating-hook", true)
	CRD        = Kind{
		Group: "apiextensions.k8s.io", Name: "CustomResourceDefinition", Resource: "customresourcedefinitions",
		puts: "get and patch", removes: "get and patch", converts: true,
	}
)

func kindOf(name, suffix string, validating bool) Kind {
	return Kind{
		Group: admissionregistrationv1.GroupName, Name: name, Resource: strings.ToLower(name) + "s", suffix: suffix,
		puts: "get, create and update", removes: "get and delete", validating: validating,
	}
}

// ConfigurationName returns the name of a fingerprint's configuration of this kind.
func (k Kind) ConfigurationName(fingerprint string) string { return fingerprint + k.suffix }

// Holds reports whether an entry is a webhook of this kind.
func (k Kind) Holds(e Entry) bool {
	return (e.Converts != "") == k.converts && e.Validating == k.validating
}

func (k Kind) version() schema.GroupVersion {
	return schema.GroupVersion{Group: k.Group, Version: "v1"}
}

func (k Kind) object(client dynamic.Interface, name, owner string, names Options) object {
	return object{kind: k, client: client.Resource(k.version().WithResource(k.Resource)), name: name, owner: owner, names: names}
}

// object implements Configuration for an object in a cluster. It is untyped, so that what our Go types do not know
// survives each write. Below, an object that is nil does not exist.
type object struct {
	kind   Kind
	client dynamic.ResourceInterface
	name   string
	owner  string  // the certificate Secret, "namespace/name"
	names  Options // of a webhook configuration; only its name and those of its entries matter
}

func (o object) String() string { return o.kind.Name + " " + o.name }

func (o object) Name() string { return o.name }

func (o object) Object() client.Object { return o.empty() }

func (o object) Creates() bool { return !o.kind.converts }

func (o object) Holds(entries []Entry) bool { return slices.ContainsFunc(entries, o.holds) }

func (o object) holds(e Entry) bool {
	return o.kind.Holds(e) && (e.Converts == "" || e.Converts == o.name)
}

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

func (o object) Delete(ctx context.Context, unless func(string) bool) (outcome Outcome, err error) {
	err = retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		found, err := o.get(ctx, o.kind.removes)
		if outcome = Absent; err == nil && found.Exists && (unless == nil || !unless(found.Version)) {
			outcome, err = o.remove(ctx, found.object)
		}
		return err
	})
	if apierrors.IsNotFound(err) {
		return Absent, nil
	}
	return outcome, err
}

// remove deletes a configuration, which is ours as a whole, but removes only what is ours from a definition.
func (o object) remove(ctx context.Context, existing *unstructured.Unstructured) (Outcome, error) {
	if o.Creates() {
		// The preconditions ensure that only the object that was read is deleted.
		err := o.client.Delete(ctx, o.name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{
			UID: new(existing.GetUID()), ResourceVersion: new(existing.GetResourceVersion()),
		}})
		return Deleted, o.explain(o.kind.removes, err)
	}
	without, err := unconverted(existing)
	if err != nil || without == nil {
		return Absent, err
	}
	_, _, err = o.write(ctx, existing, without)
	return Deleted, o.explain(o.kind.removes, err)
}

// found returns the Found of an object.
func (o object) found(existing *unstructured.Unstructured) Found {
	f := Found{object: existing, of: o}
	if existing == nil {
		return f
	}
	annotations := existing.GetAnnotations()
	f.Exists, f.ResourceVersion, f.UID, f.managers = true, existing.GetResourceVersion(), existing.GetUID(), existing.GetManagedFields()
	if annotations[OwnerAnnotation] == "" && !o.Creates() {
		return f // the webhook, if any, is not ours yet
	}
	f.Version, f.Pins, f.Unneeded = annotations[VersionAnnotation], readPins(annotations[PinsAnnotation]), readUnneeded(annotations[UnneededAnnotation])
	f.Shadows = strings.FieldsFunc(annotations[ShadowAnnotation], func(r rune) bool { return r == ',' })
	f.steps = readSteps(annotations[StepsAnnotation], f.Version)
	for _, w := range o.ours(existing) {
		if o.Creates() {
			f.paths = append(f.paths, w.path())
		}
		if bundle := w.bundle(); !slices.ContainsFunc(f.Bundles, func(b []byte) bool { return bytes.Equal(b, bundle) }) {
			f.Bundles = append(f.Bundles, bundle)
		}
	}
	return f
}

// owned returns an error if the object is another one, or belongs to another deployment. One without an owner may become
// ours.
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
	if err == nil {
		return nil
	}
	needs := ""
	if apierrors.IsForbidden(err) {
		needs = fmt.Sprintf(" (needs %s on %s.%s in a ClusterRole)", verbs, o.kind.Resource, o.kind.Group)
	}
	return fmt.Errorf("%s %q%s: %w", o.kind.Name, o.name, needs, err)
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

	paths    []string            // of the fingerprint's entries
	steps    map[string][]string // keys of the steps by path; nil if an earlier build has written it
	managers []metav1.ManagedFieldsEntry

	object *unstructured.Unstructured
	of     object
}

// Missing returns the names of the entries of d, of this configuration's kind, that it does not hold. A definition that
// does not exist lacks none.
func (f Found) Missing(d Desired) (missing []string) {
	ours := f.of.ours(f.object)
	for _, e := range d.Entries {
		held := func(w webhook) bool { return e.Converts != "" || w.name() == d.Options.WebhookName(e.Name) }
		if f.of.holds(e) && (f.Exists || f.of.Creates()) && !slices.ContainsFunc(ours, held) {
			missing = append(missing, e.Name)
		}
	}
	return missing
}

// Intact reports whether Put with these entries would change nothing but the caBundles and the annotations about CAs.
// Labels and annotations that are not ours do not matter. A configuration without our webhooks is intact if d has no
// entries of its kind, and so is a definition that does not exist.
func (f Found) Intact(d Desired) bool {
	return f.of.idle(f.object, &d) || f.Exists && equality.Semantic.DeepEqual(f.object.Object, f.of.replaced(f.object, &d).Object)
}

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
	return func(certificate *x509.Certificate) bool { return hashes[ca.HashOf(certificate)] }
}
