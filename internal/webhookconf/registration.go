package webhookconf

// This file tells what a version declares from what is registered of it. A step that waits is not added to the
// configurations. But a step in force stays in force, whatever it waits for.

import (
	"maps"
	"slices"
	"strings"

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
	d.Entries = r.group(slices.DeleteFunc(slices.Clone(r.Seen(found).Steps), func(s Step) bool { return s.Waits }))
	if r.Canary != nil && len(d.Entries) > 0 {
		d.Entries = append(d.Entries, *r.Canary)
	}
	d.Entries = append(d.Entries, r.prefixed(r.Conversions)...)
	for _, f := range found {
		for _, path := range f.paths {
			keys, listed := f.steps[path]
			stays := keys == nil && (listed || f.steps == nil) && len(r.Unserved) > 0 || slices.ContainsFunc(keys, func(key string) bool {
				return declares != nil && declares(key) ||
					slices.ContainsFunc(r.Unserved, func(s Step) bool { return s.Validating == f.validating && s.Is(key) })
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
	r.Steps = slices.Clone(r.Steps)
	for _, e := range r.group(r.Steps) {
		for _, waits := range e.Steps {
			if waits.Waits && slices.ContainsFunc(found, func(f Found) bool { return f.calls(waits, e.Path) }) {
				for i, s := range r.Steps {
					r.Steps[i].Waits = s.Waits && (s.Name != waits.Name || s.Validating != waits.Validating)
				}
			}
		}
	}
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

// calls reports whether the API server calls the program for a step, by the webhook with that path or any other.
func (f Found) calls(s Step, path string) bool {
	if f.validating != s.Validating {
		return false
	}
	if f.steps == nil {
		return slices.Contains(f.paths, path)
	}
	return slices.ContainsFunc(f.paths, func(path string) bool { return slices.Contains(f.steps[path], s.Key()) })
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
