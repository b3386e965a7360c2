package webhookconf

// This file changes a configuration: it derives the desired object from the current one, and writes it.

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"code.cloudfoundry.org/eirinix/internal/ca"
	"code.cloudfoundry.org/eirinix/internal/wait"
)

const (
	// VersionAnnotation holds the version of the program whose entries the configuration contains; see Digest.
	VersionAnnotation = "eirinix.cloudfoundry.org/version"

	// ShadowAnnotation names the steps whose failurePolicy is Ignore because they are in ModeShadow, separated by commas.
	ShadowAnnotation = "eirinix.cloudfoundry.org/shadow"

	// PinsAnnotation holds the hashes of the registered CA certificates, in the form of HashesOf, separated by commas.
	PinsAnnotation = "eirinix.cloudfoundry.org/ca-sha256"

	// UnneededAnnotation holds since when a CA in the caBundles has not been needed: a JSON object of times (RFC 3339,
	// in seconds, UTC) by the CA's hash.
	UnneededAnnotation = "eirinix.cloudfoundry.org/ca-unneeded-since"
)

// Desired is the registration of one version of a program.
type Desired struct {
	Options Options // without CABundle; the fingerprint is the configuration's own
	Entries []Entry
	Version string // the digest of the version, stored in VersionAnnotation with the entries
}

// Change is the change that Put makes. The zero value changes nothing.
type Change struct {
	// Entries replaces all webhooks of the configuration, the version, our label and the owners. nil leaves all of
	// these unchanged. If no entry is of the configuration's kind, an existing configuration loses its webhooks, and a
	// missing one is not created.
	Entries *Desired

	// Bundle is the caBundle of every entry of the fingerprint, in PEM. Its certificates are pinned. nil leaves the
	// caBundles and the pins unchanged, and a new entry trusts all CAs that the other entries trust.
	Bundle []byte

	// Unneeded holds, by hash, since when a CA in the caBundles has not been needed. nil leaves the annotation
	// unchanged; an empty map removes it.
	Unneeded map[string]time.Time
}

func (c *configuration[C, W]) Put(ctx context.Context, from Found, change Change) (Found, Outcome, error) {
	var none C
	existing, err := c.typed(from.object)
	if err != nil {
		return Found{}, "", err
	}
	desired := c.desired(existing, change)
	switch {
	case desired == none:
		return c.found(none), Absent, nil
	case existing == none:
		desired, err = c.client.create(ctx, desired, metav1.CreateOptions{FieldManager: fieldManager})
		return c.wrote(desired, Created, err)
	case equality.Semantic.DeepEqual(existing, desired):
		return c.found(existing), Unchanged, nil
	}
	// The object carries the resourceVersion and the UID of the object that was read, so the API server rejects the
	// update if another client was faster.
	desired, err = c.client.update(ctx, desired, metav1.UpdateOptions{FieldManager: fieldManager})
	return c.wrote(desired, Updated, err)
}

func (c *configuration[C, W]) wrote(object C, outcome Outcome, err error) (Found, Outcome, error) {
	if err != nil {
		return Found{}, "", c.explain("get, create and update", err)
	}
	return c.found(object), outcome, nil
}

// desired returns the configuration with the change applied. It returns nil if none exists and none is needed. existing
// is nil if none exists.
func (c *configuration[C, W]) desired(existing C, change Change) C {
	var none C
	desired := c.kind.copy(existing)
	entries := c.kind.trust(desired, c.names.WebhookName(""), func(_ string, bundle []byte) []byte { return bundle })
	switch d := change.Entries; {
	case d == nil && entries == 0, d != nil && existing == none && !c.Holds(d.Entries):
		return desired
	case d != nil:
		desired = c.replaced(existing, *d)
	}
	if change.Bundle != nil {
		c.kind.trust(desired, c.names.WebhookName(""), func(string, []byte) []byte { return change.Bundle })
		meta := c.kind.meta(desired)
		meta.Annotations = with(meta.Annotations, PinsAnnotation, strings.Join(HashesOf(change.Bundle), ","))
	}
	if change.Unneeded != nil {
		meta := c.kind.meta(desired)
		meta.Annotations = with(meta.Annotations, UnneededAnnotation, unneededText(change.Unneeded))
	}
	return desired
}

// replaced returns the configuration with these entries, marked as ours. The rest of it and the caBundles are
// unchanged. existing is nil if none exists.
func (c *configuration[C, W]) replaced(existing C, d Desired) C {
	var none C
	replaced := c.kind.make(metav1.ObjectMeta{Name: c.name})
	if existing != none {
		replaced = c.kind.copy(existing)
	}
	meta := c.kind.meta(replaced)
	meta.Labels = with(meta.Labels, managedByLabel, managedBy)
	meta.Annotations = with(with(meta.Annotations, OwnerAnnotation, c.owner), VersionAnnotation, d.Version)
	meta.Annotations = with(meta.Annotations, ShadowAnnotation, strings.Join(c.kind.shadows(d.Entries), ","))
	meta.OwnerReferences = withOwner(meta.OwnerReferences, d.Options.OwnedBy)
	o := d.Options
	o.Fingerprint, o.Domain, o.CABundle = c.names.Fingerprint, c.names.Domain, nil
	*c.kind.webhooks(replaced) = c.kind.Build(o, d.Entries)
	trusted, bundles := c.kind.trusted(existing, c.names.WebhookName(""))
	c.kind.trust(replaced, c.names.WebhookName(""), func(name string, _ []byte) []byte {
		if bundle, ok := trusted[name]; ok {
			return bundle
		}
		return ca.Bundle(bundles...)
	})
	return replaced
}

func (c *configuration[C, W]) intact(object client.Object, d Desired) bool {
	found, ok := object.(C)
	if !ok {
		return !c.Holds(d.Entries)
	}
	return equality.Semantic.DeepEqual(found, c.replaced(found, d))
}

// Outgrow returns the caBundle for a process without history: the needed CAs, and the current CAs that have been
// unneeded for less than retain. The map unneeded holds since when the latter have not been needed. It is pure.
func (f Found) Outgrow(need []byte, retain time.Duration, now time.Time) (bundle []byte, unneeded map[string]time.Time) {
	bundle, unneeded = need, map[string]time.Time{}
	for _, certificate := range ca.SplitBundle(ca.Bundle(f.Bundles...)) {
		text, hash := ca.EncodeCertificate(certificate), HashOf(certificate)
		if ca.Contains(need, text) {
			continue
		}
		since, known := f.Unneeded[hash]
		if !known {
			since = now.Truncate(time.Second).UTC()
		}
		if now.Sub(since) < retain && now.Before(certificate.NotAfter) {
			bundle, unneeded[hash] = ca.Bundle(bundle, text), since
		}
	}
	return bundle, unneeded
}

// shadows returns the names of the steps of this kind that are shadows, in order.
func (k Kind[C, W]) shadows(entries []Entry) (all []string) {
	for _, e := range entries {
		for _, s := range e.Steps {
			if k.holds(e) && s.Shadow {
				all = append(all, s.Name)
			}
		}
	}
	slices.Sort(all)
	return all
}

// readShadows returns the names in the annotation.
func readShadows(annotation string) []string {
	return strings.FieldsFunc(annotation, func(r rune) bool { return r == ',' })
}

// readPins returns the hashes in the annotation. Parts that are not hashes are skipped.
func readPins(annotation string) (pins []string) {
	for pin := range strings.SplitSeq(annotation, ",") {
		if isHash(pin) {
			pins = append(pins, pin)
		}
	}
	return pins
}

// readUnneeded returns the times in the annotation. Parts that are not a hash with a time are skipped.
func readUnneeded(annotation string) map[string]time.Time {
	var texts map[string]any
	if json.Unmarshal([]byte(annotation), &texts) != nil {
		return nil
	}
	var unneeded map[string]time.Time
	for hash, value := range texts {
		text, _ := value.(string)
		since, err := time.Parse(time.RFC3339, text)
		if err != nil || !isHash(hash) {
			continue
		}
		if unneeded == nil {
			unneeded = map[string]time.Time{}
		}
		unneeded[hash] = since.UTC()
	}
	return unneeded
}

// unneededText returns the annotation for the times. It is empty if there are none.
func unneededText(unneeded map[string]time.Time) string {
	if len(unneeded) == 0 {
		return ""
	}
	texts := map[string]string{}
	for hash, since := range unneeded {
		texts[hash] = since.UTC().Format(time.RFC3339)
	}
	text, _ := json.Marshal(texts) // strings, sorted
	return string(text)
}

// ExplainSize adds the remedy to an error for an object that exceeds etcd's limit.
func ExplainSize(err error, bundle []byte, entries int) error {
	if wait.Transient(err) || !apierrors.IsRequestEntityTooLargeError(err) && !strings.Contains(err.Error(), "too large") && !strings.Contains(err.Error(), "larger than max") {
		return err
	}
	return fmt.Errorf("a caBundle of %d CAs (%d KB) in each of up to %d webhooks is too large to be stored; give the certificate source a ca.crt that holds only the CA that issues the certificates: %w",
		len(ca.SplitBundle(bundle)), len(bundle)/1024, entries, err)
}
