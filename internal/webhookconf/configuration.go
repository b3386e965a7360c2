package webhookconf

// This file implements one of a deployment's two webhook configurations in a cluster: its kind, its owner, and how it
// is read and deleted. writer.go changes it. conversion.go implements the third form of a registration.

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	admissionregistrationv1client "k8s.io/client-go/kubernetes/typed/admissionregistration/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"code.cloudfoundry.org/eirinix/internal/ca"
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
	// Read returns the same as Get for an object from a cache, without changing the object. nil means a missing
	// configuration.
	Read(object client.Object) (Found, error)
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
func Configurations(client admissionregistrationv1client.AdmissionregistrationV1Interface, o Options, owner string) []Configuration {
	mutating, validating := client.MutatingWebhookConfigurations(), client.ValidatingWebhookConfigurations()
	return []Configuration{
		newConfiguration(Mutating, calls[*admissionregistrationv1.MutatingWebhookConfiguration]{mutating.Get, mutating.Create, mutating.Update, mutating.Delete}, o, owner),
		newConfiguration(Validating, calls[*admissionregistrationv1.ValidatingWebhookConfiguration]{validating.Get, validating.Create, validating.Update, validating.Delete}, o, owner),
	}
}

// object is implemented by pointers to the configurations of both kinds. No method of a type parameter is called here:
// the linker would keep every method of that name in the program. Those would be the methods of all clients of
// client-go.
type object interface {
	comparable
	client.Object
}

// Kind is one of the two kinds of webhook configuration: C is the configuration, W one of its webhooks. Its methods are
// safe for concurrent use. It has two values, Mutating and Validating.
type Kind[C object, W any] struct {
	Name     string // as in apiVersion and kind
	Resource string // as in RBAC rules

	suffix     string
	validating bool
	make       func(metav1.ObjectMeta) C
	copy       func(C) C // returns nil for nil
	meta       func(C) *metav1.ObjectMeta
	webhooks   func(C) *[]W
	look       func(*W) (name string, client *admissionregistrationv1.WebhookClientConfig)
	build      func(Options, []Entry) []W
}

// Mutating is the kind of webhook configuration whose webhooks can change objects.
var Mutating = Kind[*admissionregistrationv1.MutatingWebhookConfiguration, admissionregistrationv1.MutatingWebhook]{
	Name:     "MutatingWebhookConfiguration",
	Resource: "mutatingwebhookconfigurations",
	suffix:   "-mutating-hook",
	make: func(m metav1.ObjectMeta) *admissionregistrationv1.MutatingWebhookConfiguration {
		return &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: m}
	},
	copy: (*admissionregistrationv1.MutatingWebhookConfiguration).DeepCopy,
	meta: func(c *admissionregistrationv1.MutatingWebhookConfiguration) *metav1.ObjectMeta { return &c.ObjectMeta },
	webhooks: func(c *admissionregistrationv1.MutatingWebhookConfiguration) *[]admissionregistrationv1.MutatingWebhook {
		return &c.Webhooks
	},
	look: func(w *admissionregistrationv1.MutatingWebhook) (string, *admissionregistrationv1.WebhookClientConfig) {
		return w.Name, &w.ClientConfig
	},
	build: Options.Mutating,
}

// Validating is the kind of webhook configuration whose webhooks only allow or deny.
var Validating = Kind[*admissionregistrationv1.ValidatingWebhookConfiguration, admissionregistrationv1.ValidatingWebhook]{
	Name:       "ValidatingWebhookConfiguration",
	Resource:   "validatingwebhookconfigurations",
	suffix:     "-validating-hook",
	validating: true,
	make: func(m metav1.ObjectMeta) *admissionregistrationv1.ValidatingWebhookConfiguration {
		return &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: m}
	},
	copy: (*admissionregistrationv1.ValidatingWebhookConfiguration).DeepCopy,
	meta: func(c *admissionregistrationv1.ValidatingWebhookConfiguration) *metav1.ObjectMeta {
		return &c.ObjectMeta
	},
	webhooks: func(c *admissionregistrationv1.ValidatingWebhookConfiguration) *[]admissionregistrationv1.ValidatingWebhook {
		return &c.Webhooks
	},
	look: func(w *admissionregistrationv1.ValidatingWebhook) (string, *admissionregistrationv1.WebhookClientConfig) {
		return w.Name, &w.ClientConfig
	},
	build: Options.Validating,
}

// ConfigurationName returns the name of a fingerprint's configuration of this kind.
func (k Kind[C, W]) ConfigurationName(fingerprint string) string { return fingerprint + k.suffix }

// Build returns the webhooks of this kind for the entries. Entries of the other kind are skipped.
func (k Kind[C, W]) Build(o Options, entries []Entry) []W { return k.build(o, entries) }

// Configuration returns the configuration with the webhooks of the entries, or nil if there are none of this kind.
func (k Kind[C, W]) Configuration(o Options, entries []Entry) (c C) {
	if webhooks := k.Build(o, entries); len(webhooks) > 0 {
		c = k.make(metav1.ObjectMeta{Name: k.ConfigurationName(o.Fingerprint)})
		*k.webhooks(c) = webhooks
	}
	return c
}

// trust replaces the caBundle of every entry whose name ends with ours, and returns the number of these entries.
func (k Kind[C, W]) trust(c C, ours string, change func(name string, bundle []byte) []byte) (entries int) {
	var none C
	if c == none {
		return 0
	}
	webhooks := *k.webhooks(c)
	for i := range webhooks {
		if name, client := k.look(&webhooks[i]); strings.HasSuffix(name, ours) {
			client.CABundle = change(name, client.CABundle)
			entries++
		}
	}
	return entries
}

// trusted returns the caBundle of every entry whose name ends with ours by webhook name, and each distinct caBundle
// once, in order.
func (k Kind[C, W]) trusted(c C, ours string) (byName map[string][]byte, bundles [][]byte) {
	byName = map[string][]byte{}
	k.trust(k.copy(c), ours, func(name string, bundle []byte) []byte {
		byName[name] = bundle
		if !slices.ContainsFunc(bundles, func(b []byte) bool { return bytes.Equal(b, bundle) }) {
			bundles = append(bundles, bundle)
		}
		return bundle
	})
	return byName, bundles
}

// calls holds the methods of client-go's interface for the configurations C that this package uses.
type calls[C any] struct {
	get    func(ctx context.Context, name string, opts metav1.GetOptions) (C, error)
	create func(ctx context.Context, c C, opts metav1.CreateOptions) (C, error)
	update func(ctx context.Context, c C, opts metav1.UpdateOptions) (C, error)
	delete func(ctx context.Context, name string, opts metav1.DeleteOptions) error
}

// configuration implements Configuration for one kind.
type configuration[C object, W any] struct {
	kind   Kind[C, W]
	client calls[C]
	names  Options // only the names of the configuration and of its entries matter
	name   string
	owner  string // the certificate Secret, "namespace/name"
}

func newConfiguration[C object, W any](k Kind[C, W], client calls[C], o Options, owner string) Configuration {
	return &configuration[C, W]{kind: k, client: client, names: o, name: k.ConfigurationName(o.Fingerprint), owner: owner}
}

func (c *configuration[C, W]) String() string { return c.kind.Name + " " + c.name }

func (c *configuration[C, W]) Name() string { return c.name }

func (c *configuration[C, W]) Resource() string { return c.kind.Resource }

func (c *configuration[C, W]) Object() client.Object {
	return c.kind.make(metav1.ObjectMeta{Name: c.name})
}

func (c *configuration[C, W]) Creates() bool { return true }

func (c *configuration[C, W]) Holds(entries []Entry) bool {
	return slices.ContainsFunc(entries, c.kind.holds)
}

// holds reports whether an entry is a webhook of this kind.
func (k Kind[C, W]) holds(e Entry) bool { return e.admits(k.validating) }

// Found is a configuration that was read. It does not change, and shares nothing that its holder could change with the
// object that it was read from. The zero value is a configuration that does not exist.
type Found struct {
	Exists          bool
	ResourceVersion string
	UID             types.UID
	Bundles         [][]byte             // the distinct caBundles of the fingerprint's entries
	Version         string               // the value of VersionAnnotation
	Pins            []string             // the values of PinsAnnotation, in order
	Unneeded        map[string]time.Time // the values of UnneededAnnotation
	Shadows         []string             // the steps in ShadowAnnotation

	managers []metav1.ManagedFieldsEntry

	object client.Object // nil if it does not exist
	of     comparer      // nil in the zero value
}

// comparer compares a configuration that was read with a desired one. object is nil if it does not exist.
type comparer interface {
	missing(object client.Object, d Desired) []string
	intact(object client.Object, d Desired) bool
}

// Missing returns the names of the entries of d, of this configuration's kind, that it does not hold. The zero Found
// has no kind and lacks all of them.
func (f Found) Missing(d Desired) (missing []string) {
	if f.of != nil {
		return f.of.missing(f.object, d)
	}
	for _, e := range d.Entries {
		missing = append(missing, e.Name)
	}
	return missing
}

// Intact reports whether Put with these entries would change nothing but the caBundles and the annotations about CAs.
// Labels and annotations that are not ours do not matter. A missing configuration is intact if d has no entries of its
// kind.
func (f Found) Intact(d Desired) bool {
	if f.of != nil {
		return f.of.intact(f.object, d)
	}
	return len(d.Entries) == 0
}

// Object returns the object that was read, for a cache, or nil if the configuration does not exist. The caller must not
// change it.
func (f Found) Object() client.Object { return f.object }

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

func (c *configuration[C, W]) Get(ctx context.Context) (Found, error) {
	found, err := c.client.get(ctx, c.name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		var none C
		return c.found(none), nil
	case err != nil:
		return Found{}, c.explain("get", err)
	}
	if err := c.owned(found); err != nil {
		return Found{}, err
	}
	return c.found(found), nil
}

func (c *configuration[C, W]) Read(object client.Object) (Found, error) {
	found, err := c.typed(object)
	if err != nil {
		return Found{}, err
	}
	return c.found(found), nil
}

// typed returns the object as the kind's own type, or nil for nil. It rejects objects that are not this configuration,
// or not ours.
func (c *configuration[C, W]) typed(object client.Object) (C, error) {
	var none C
	if object == nil {
		return none, nil
	}
	found, ok := object.(C)
	switch {
	case !ok:
		return none, fmt.Errorf("%s %q: read from a %T", c.kind.Name, c.name, object)
	case found == none:
		return none, nil
	case c.kind.meta(found).Name != c.name:
		return none, fmt.Errorf("%s %q: read from %q", c.kind.Name, c.name, c.kind.meta(found).Name)
	}
	return found, c.owned(found)
}

// found returns the Found of an object, which is nil if the configuration does not exist.
func (c *configuration[C, W]) found(object C) Found {
	var none C
	if object == none {
		return Found{of: c}
	}
	_, bundles := c.kind.trusted(object, c.names.WebhookName(""))
	meta := c.kind.meta(object)
	annotations := meta.Annotations
	return Found{
		Exists:          true,
		ResourceVersion: meta.ResourceVersion,
		UID:             meta.UID,
		Bundles:         bundles,
		Version:         annotations[VersionAnnotation],
		Pins:            readPins(annotations[PinsAnnotation]),
		Unneeded:        readUnneeded(annotations[UnneededAnnotation]),
		Shadows:         readShadows(annotations[ShadowAnnotation]),
		managers:        meta.ManagedFields,
		object:          object,
		of:              c,
	}
}

func (c *configuration[C, W]) missing(object client.Object, d Desired) (missing []string) {
	held := map[string]bool{}
	if found, ok := object.(C); ok {
		webhooks := *c.kind.webhooks(found)
		for i := range webhooks {
			name, _ := c.kind.look(&webhooks[i])
			held[name] = true
		}
	}
	for _, e := range d.Entries {
		if c.kind.holds(e) && !held[d.Options.WebhookName(e.Name)] {
			missing = append(missing, e.Name)
		}
	}
	return missing
}

func (c *configuration[C, W]) Delete(ctx context.Context) (Outcome, error) {
	err := retry.OnError(retry.DefaultBackoff, apierrors.IsConflict, func() error {
		existing, err := c.client.get(ctx, c.name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if err := c.owned(existing); err != nil {
			return err
		}
		// The preconditions ensure that only the object that was read is deleted.
		return c.client.delete(ctx, c.name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{
			UID: new(c.kind.meta(existing).UID), ResourceVersion: new(c.kind.meta(existing).ResourceVersion),
		}})
	})
	switch {
	case apierrors.IsNotFound(err):
		return Absent, nil
	case err != nil:
		return "", c.explain("get and delete", err)
	}
	return Deleted, nil
}

// explain names the object and, if rights are missing, the rule that grants them.
func (c *configuration[C, W]) explain(verbs string, err error) error {
	if _, ok := errors.AsType[*OwnedElsewhereError](err); ok {
		return err
	}
	if apierrors.IsForbidden(err) {
		return fmt.Errorf("%s %q (needs %s on %s.admissionregistration.k8s.io in a ClusterRole): %w", c.kind.Name, c.name, verbs, c.kind.Resource, err)
	}
	return fmt.Errorf("%s %q: %w", c.kind.Name, c.name, err)
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

// owned returns an error if the configuration belongs to another deployment. A configuration without an owner may
// become ours.
func (c *configuration[C, W]) owned(found C) error {
	if other := c.kind.meta(found).Annotations[OwnerAnnotation]; other != "" && other != c.owner {
		return &OwnedElsewhereError{Kind: c.kind.Name, Configuration: c.kind.meta(found).Name, Owner: other, Us: c.owner}
	}
	return nil
}

// with returns the map with the value under the key; an empty value removes the key.
func with(m map[string]string, key, value string) map[string]string {
	m = maps.Clone(m)
	if value == "" {
		delete(m, key)
		return m
	}
	if m == nil {
		m = map[string]string{}
	}
	m[key] = value
	return m
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
