package webhookconf

// This file changes an object that registers webhooks: it derives the desired object from the current one, and writes
// it.

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"code.cloudfoundry.org/eirinix/internal/ca"
	"code.cloudfoundry.org/eirinix/internal/wait"
)

const (
	// VersionAnnotation holds the version of the program whose entries the configuration contains; see Digest.
	VersionAnnotation = "eirinix.cloudfoundry.org/version"

	// ShadowAnnotation names the steps whose failurePolicy is Ignore because they are in ModeShadow, separated by commas.
	ShadowAnnotation = "eirinix.cloudfoundry.org/shadow"

	// StepsAnnotation says which steps are in force: the version that has written it, and the keys of the steps by path. A
	// build from before it was introduced leaves it as it is, so it counts only beside the same VersionAnnotation.
	StepsAnnotation = "eirinix.cloudfoundry.org/steps"

	// PinsAnnotation holds the hashes of the registered CA certificates, in the form of HashesOf, separated by commas.
	PinsAnnotation = "eirinix.cloudfoundry.org/ca-sha256"

	// UnneededAnnotation holds since when a CA in the caBundles has not been needed: a JSON object of times (RFC 3339,
	// in seconds, UTC) by the CA's hash.
	UnneededAnnotation = "eirinix.cloudfoundry.org/ca-unneeded-since"
)

// Desired is what is registered of one version of a program.
type Desired struct {
	Options Options // without CABundle; the fingerprint is the configuration's own
	Entries []Entry
	Version string // the digest of the version, stored in VersionAnnotation with the entries

	// Kept holds webhooks that stay as they are, apart from their caBundles: the keys of their steps by path.
	Kept map[string][]string
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

func (o object) Put(ctx context.Context, from Found, change Change) (Found, Outcome, error) {
	if err := o.owned(from.object); err != nil {
		return Found{}, "", err
	}
	desired := o.desired(from.object, change)
	if desired == nil {
		return o.found(nil), Absent, nil
	}
	written, outcome, err := o.write(ctx, from.object, desired)
	if err != nil {
		return Found{}, "", o.explain(o.kind.puts, err)
	}
	return o.found(written), outcome, nil
}

// write sends the request that makes the object as desired, if it is not. All requests carry the resourceVersion of the
// object that was read, so the API server rejects them if another client was faster.
//
// A definition belongs to its user, so it is patched: only what is ours is written. Server-side apply cannot do that: it
// cannot remove a url of another manager, and the API server refuses a url beside a Service.
func (o object) write(ctx context.Context, existing, desired *unstructured.Unstructured) (written *unstructured.Unstructured, outcome Outcome, err error) {
	outcome = Updated
	switch {
	case existing == nil:
		outcome = Created
		written, err = o.client.Create(ctx, desired, metav1.CreateOptions{FieldManager: fieldManager})
	case equality.Semantic.DeepEqual(existing.Object, desired.Object):
		return existing, Unchanged, nil
	case o.Creates():
		written, err = o.client.Update(ctx, desired, metav1.UpdateOptions{FieldManager: fieldManager})
	default:
		var body []byte
		if body, err = mergePatch(existing, desired); err == nil {
			written, err = o.client.Patch(ctx, o.name, types.MergePatchType, body, metav1.PatchOptions{FieldManager: fieldManager})
		}
	}
	return written, outcome, err
}

// mergePatch returns the JSON merge patch from one form of an object to the other, with its resourceVersion.
func mergePatch(existing, desired *unstructured.Unstructured) ([]byte, error) {
	existing = existing.DeepCopy()
	existing.SetResourceVersion("")
	from, err := existing.MarshalJSON()
	if err != nil {
		return nil, err
	}
	to, err := desired.MarshalJSON()
	if err != nil {
		return nil, err
	}
	return jsonpatch.CreateMergePatch(from, to)
}

// idle reports whether the object holds no webhook of ours, and is to hold none.
func (o object) idle(existing *unstructured.Unstructured, d *Desired) bool {
	return len(o.ours(existing)) == 0 && (d == nil || !o.Holds(d.Entries) || existing == nil && !o.Creates())
}

// desired returns the object with the change applied. It returns nil if none exists and none is needed.
func (o object) desired(existing *unstructured.Unstructured, change Change) *unstructured.Unstructured {
	if o.idle(existing, change.Entries) {
		return existing
	}
	desired := o.replaced(existing, change.Entries)
	if change.Bundle != nil {
		for _, w := range o.ours(desired) {
			w.trust(change.Bundle)
		}
		annotate(desired, PinsAnnotation, strings.Join(HashesOf(change.Bundle), ","))
	}
	if change.Unneeded != nil {
		annotate(desired, UnneededAnnotation, unneededText(change.Unneeded))
	}
	return desired
}

func annotate(object *unstructured.Unstructured, key, value string) {
	if value != "" || object.GetAnnotations()[key] != "" {
		object.SetAnnotations(with(object.GetAnnotations(), key, value))
	}
}

// replaced returns a copy of the object with the entries of d, marked as ours. The rest of it and the caBundles are
// unchanged. A definition keeps its webhook while d has no other.
func (o object) replaced(existing *unstructured.Unstructured, d *Desired) *unstructured.Unstructured {
	replaced := o.empty()
	if existing != nil {
		replaced = existing.DeepCopy()
	}
	if d != nil && (o.Creates() || o.Holds(d.Entries)) {
		if o.Creates() {
			o.register(replaced, *d)
		} else {
			o.convert(replaced, *d)
		}
		annotate(replaced, OwnerAnnotation, o.owner)
		annotate(replaced, VersionAnnotation, d.Version)
	}
	return replaced
}

// renewed returns a value of the API as a tree, with those members of old that its Go type does not know.
func renewed[T any](old map[string]any, value T) map[string]any {
	var known T
	convert := runtime.DefaultUnstructuredConverter
	tree, _ := convert.ToUnstructured(&value) // cannot fail for a type of the API
	if old == nil || equality.Semantic.DeepEqual(old, tree) || convert.FromUnstructured(old, &known) != nil {
		return tree
	}
	read, _ := convert.ToUnstructured(&known)
	merged, _ := withUnknown(old, read, tree).(map[string]any)
	return merged
}

// withUnknown returns next with what was there and is not known. A part that is as desired stays as it was.
func withUnknown(was, known, next any) any {
	if equality.Semantic.DeepEqual(known, next) {
		return was
	}
	all, ok := was.(map[string]any)
	read, readOK := known.(map[string]any)
	desired, desiredOK := next.(map[string]any)
	if !ok || !readOK || !desiredOK {
		return next
	}
	for key, value := range all {
		of, isKnown := read[key]
		if now, wanted := desired[key]; wanted && isKnown {
			desired[key] = withUnknown(value, of, now)
		} else if !wanted && !isKnown {
			desired[key] = value
		}
	}
	return desired
}

// AskedFor is how long a CA stays after a replica has noted that it is not needed. A replica that needs it takes the note away
// meanwhile.
const AskedFor = 2 * time.Minute

// Outgrow returns the caBundle for a process: the needed CAs, those to keep, and those current CAs that have been noted as not
// needed for less than retain, if asks selects them. noted holds since when, by hash: the notes themselves for a process without
// history, and for a replica when it has first seen them, because clocks differ. The map unneeded holds the notes. It is pure.
func (f Found) Outgrow(need, keep []byte, noted map[string]time.Time, asks func(*x509.Certificate) bool, retain time.Duration, now time.Time) (bundle []byte, unneeded map[string]time.Time) {
	bundle, unneeded = ca.Bundle(need, keep), map[string]time.Time{}
	for _, certificate := range ca.SplitBundle(ca.Bundle(f.Bundles...)) {
		text, hash := ca.EncodeCertificate(certificate), ca.HashOf(certificate)
		since, there := f.Unneeded[hash]
		if !ca.Contains(bundle, text) {
			from, seen := noted[hash]
			if !there || !seen {
				from = now
			}
			if !asks(certificate) || now.Sub(from) >= retain || !now.Before(certificate.NotAfter) {
				continue
			}
			bundle = ca.Bundle(bundle, text)
			if !there && !seen { // else another replica has just taken the note away
				since, there = now.Truncate(time.Second).UTC(), true
			}
		}
		if there && !ca.Contains(need, text) {
			unneeded[hash] = since
		}
	}
	return bundle, unneeded
}

// stepsInForce is the value of StepsAnnotation.
type stepsInForce struct {
	Version string              `json:"version"`
	Steps   map[string][]string `json:"steps"`
}

// readSteps returns the steps in the annotation, or nil if another build of the library has written the version.
func readSteps(annotation, version string) map[string][]string {
	var s stepsInForce
	if json.Unmarshal([]byte(annotation), &s) != nil || s.Version != version || s.Steps == nil {
		return nil
	}
	return s.Steps
}

// readPins returns the hashes in the annotation. Parts that are not hashes are skipped.
func readPins(annotation string) []string {
	return slices.DeleteFunc(strings.Split(annotation, ","), func(pin string) bool { return !isHash(pin) })
}

// readUnneeded returns the times in the annotation. Parts that are not a hash with a time are skipped.
func readUnneeded(annotation string) map[string]time.Time {
	var texts map[string]any
	_ = json.Unmarshal([]byte(annotation), &texts) // nothing is read from anything but an object
	unneeded := map[string]time.Time{}
	for hash, value := range texts {
		text, _ := value.(string)
		if since, err := time.Parse(time.RFC3339, text); err == nil && isHash(hash) {
			unneeded[hash] = since.UTC()
		}
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

// HashesOf returns the hash of each certificate in a bundle (PEM) once, in order. Unreadable parts are skipped.
func HashesOf(bundle []byte) (hashes []string) {
	for _, certificate := range ca.SplitBundle(bundle) {
		if hash := ca.HashOf(certificate); !slices.Contains(hashes, hash) {
			hashes = append(hashes, hash)
		}
	}
	return hashes
}

// isHash reports whether the text has the form of a hash from HashOf.
func isHash(text string) bool {
	sum, err := hex.DecodeString(text)
	return err == nil && len(sum) == sha256.Size && text == strings.ToLower(text)
}
