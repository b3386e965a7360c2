package webhookconf

// This file tells what a version declares from what is registered of it. A step that waits is not added to the
// configurations. But a step in force stays in force, whatever it waits for.

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"code.cloudfoundry.org/eirinix/internal/list"
)

// Registration is what one version of a program declares. Its digest is the version: nothing in it depends on what the
// cluster serves at the moment.
type Registration struct {
	Options Options // without CABundle
	Version string
	Prefix  string // of all paths

	Steps       []Step // in their order; those that wait are added once they no longer do
	Unserved    []Step // those whose kind the cluster does not serve; only their names are known
	Canary      *Entry // is registered beside steps; nil for none
	Conversions []Entry
}

func (r Registration) group(steps []Step) []Entry { return r.prefixed(Group(steps)) }

func (r Registration) prefixed(entries []Entry) []Entry {
	all := slices.Clone(entries)
	for i := range all {
		all[i].Path = r.Prefix + all[i].Path
	}
	return all
}

// Desired returns what is to be registered, given the configurations that were read: the steps that do not wait, and
// those that are in force already. A webhook stays as it is while the cluster does not serve the kind of one of its
// steps, or while declares reports that another live version declares one. declares can be nil.
//
// If it is not known which steps a webhook calls, because an earlier build of this library has written it, its steps
// count as in force.
func (r Registration) Desired(found []Found, declares func(key string) bool) Desired {
	d := Desired{Options: r.Options, Version: r.Version, Kept: map[string][]string{}}
	d.Entries = r.group(slices.DeleteFunc(r.Seen(found).Steps, func(s Step) bool { return s.Waits }))
	if r.Canary != nil && len(d.Entries) > 0 {
		d.Entries = append(d.Entries, *r.Canary)
	}
	d.Entries = append(d.Entries, r.prefixed(r.Conversions)...)
	for _, f := range found {
		for _, path := range f.paths {
			keys, listed := f.steps[path]
			stays := keys == nil && (listed || f.steps == nil) && len(r.Unserved) > 0 || slices.ContainsFunc(keys, func(key string) bool {
				return declares != nil && declares(key) ||
					slices.ContainsFunc(r.Unserved, func(s Step) bool { return s.Validating == f.of.kind.validating && s.Is(key) })
			})
			if stays {
				d.Kept[path] = keys
			}
		}
	}
	return d
}

// Seen returns the registration after these configurations were read: a step in force waits no longer, so that a repair
// registers it too after its webhook was deleted.
func (r Registration) Seen(found []Found) Registration {
	if !slices.ContainsFunc(r.Steps, func(s Step) bool { return s.Waits }) {
		return r
	}
	entries := r.group(r.Steps)
	r.Steps = list.Of(r.Steps, func(s Step) Step {
		s.Waits = s.Waits && !slices.ContainsFunc(found, func(f Found) bool { return f.calls(s, entries) })
		return s
	})
	return r
}

// Registered returns the keys of the registered steps, by path.
func (d Desired) Registered() map[string][]string {
	steps := map[string][]string{}
	maps.Copy(steps, d.Kept)
	for _, e := range d.Entries {
		if keys := list.Of(e.Steps, Step.Key); len(keys) > 0 {
			steps[e.Path] = keys
		}
	}
	return steps
}

// calls reports whether the API server calls the program for a step. Where it is not known which steps a webhook calls,
// its path decides, as entries have it.
func (f Found) calls(s Step, entries []Entry) bool {
	return f.of.kind.validating == s.Validating && slices.ContainsFunc(f.paths, func(path string) bool {
		if f.steps != nil {
			return slices.Contains(f.steps[path], s.Key())
		}
		return slices.ContainsFunc(entries, func(e Entry) bool { return e.Path == path && slices.Contains(e.StepNames(), s.Name) })
	})
}

// Is reports whether a key is that of the step. The kind of a step can be unknown while the cluster does not serve it.
func (s Step) Is(key string) bool {
	return key == s.Key() || s.Kind.Empty() && strings.HasPrefix(key, s.Name+"@")
}

// InForce returns the keys of the steps that the API server calls, by path, as far as they are known.
func InForce(found []Found) map[string][]string {
	all := map[string][]string{}
	for _, f := range found {
		for _, path := range f.paths {
			if keys := f.steps[path]; len(keys) > 0 {
				all[path] = keys
			}
		}
	}
	return all
}

// Standing returns the version whose entries the configurations hold, or "" if they hold none: that of the first with an
// entry, where the mutating configuration precedes the validating one, and both precede definitions.
func Standing(found []Found) string {
	for _, f := range found {
		if len(f.Bundles) > 0 && f.Version != "" {
			return f.Version
		}
	}
	return ""
}

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
