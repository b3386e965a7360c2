package webhookconf

// This file computes hashes: of a version of a program, and of the CA certificates that a configuration pins.

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"code.cloudfoundry.org/eirinix/internal/ca"
)

// digestLength is in bytes. A version needs no protection against forgery: a client that could forge one can edit the
// entries.
const digestLength = 16

// version holds everything that distinguishes one version of a program from another.
type version struct {
	Fingerprint string                                    `json:"fingerprint"`
	Mutating    []admissionregistrationv1.MutatingWebhook `json:"mutating"`
	Validating  []admissionregistrationv1.MutatingWebhook `json:"validating"` // their JSON is that of validating ones
	Entries     []versionEntry                            `json:"entries"`
}

// versionEntry is an entry with the steps that run on its calls. Two versions can register the same webhooks and run
// different steps behind them.
type versionEntry struct {
	Name       string        `json:"name"`
	Path       string        `json:"path"`
	Validating bool          `json:"validating,omitempty"`
	Converts   string        `json:"converts,omitempty"`
	Steps      []versionStep `json:"steps,omitempty"`
}

// versionStep is a step with its members in the order of the digest. Rules has the place of Settings.Rules.
type versionStep struct {
	Name       string
	Validating bool
	Rules      []admissionregistrationv1.RuleWithOperations
	Kind       schema.GroupVersionKind
	Shadow     bool `json:",omitempty"`
	Settings
}

// Digest returns the digest of a version, in 32 hexadecimal digits. It covers the content of both configurations,
// without caBundles and owners, and all settings of each step behind each entry. Replicas, and builds of the same
// program, have the same digest.
func Digest(d Desired) string {
	o := d.Options
	o.CABundle, o.OwnedBy = nil, nil
	v := version{Fingerprint: o.Fingerprint, Mutating: o.webhooks(Mutating, d.Entries), Validating: o.webhooks(Validating, d.Entries), Entries: []versionEntry{}}
	for _, e := range d.Entries {
		entry := versionEntry{Name: e.Name, Path: e.Path, Validating: e.Validating, Converts: e.Converts}
		for _, s := range e.Steps {
			entry.Steps = append(entry.Steps, versionStep{s.Name, s.Validating, s.Rules, s.Kind, s.Shadow, s.Settings})
		}
		v.Entries = append(v.Entries, entry)
	}
	// The form is the API's own JSON, which sorts maps and omits unset fields. A later version of this library that
	// builds the same webhooks therefore computes the same digest. A new setting must be omitted when it is zero.
	text, _ := json.Marshal(v) // strings, numbers, lists and maps of strings
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:digestLength])
}

func (o Options) webhooks(k Kind, entries []Entry) []admissionregistrationv1.MutatingWebhook {
	webhooks := []admissionregistrationv1.MutatingWebhook{} // a digest distinguishes an empty list from none
	for _, e := range entries {
		if k.Holds(e) {
			webhooks = append(webhooks, o.Webhook(e))
		}
	}
	return webhooks
}

// HashOf returns the SHA-256 of a certificate (DER), in lower-case hexadecimal digits.
func HashOf(cert *x509.Certificate) string {
	sum := sha256.Sum256(cert.Raw)
	return hex.EncodeToString(sum[:])
}

// HashesOf returns the hash of each certificate in a bundle (PEM) once, in order. Unreadable parts are skipped.
func HashesOf(bundle []byte) (hashes []string) {
	for _, certificate := range ca.SplitBundle(bundle) {
		if hash := HashOf(certificate); !slices.Contains(hashes, hash) {
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
