package reads

// This file notes what the steps of a call read, for a recording, and serves the steps of a replay from it.

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Note says something about the reads of a call. It is one of three: a step can read; a step has read a declaration,
// with a failure or without; a step was served an object. Notes are comparable, and equal if they say the same. A Note
// shares the memory of its object with the Set.
type Note struct {
	step    string // empty in a Note about an object
	view    *view  // nil if the step has not read yet
	entry   *entry // of a Note about an object
	failure string // why the step could not read the declaration
}

// IsObject reports whether the Note is about an object.
func (n Note) IsObject() bool { return n.entry != nil }

// Bytes is the memory that the object of the Note takes.
func (n Note) Bytes() int {
	if n.entry == nil {
		return 0
	}
	return len(n.entry.text) + len(n.entry.namespace) + len(n.entry.name)
}

// noting is the key of a context's value.
type noting struct{}

// WithNotes returns a context for the requests of a call. noted receives the Notes of the call, on the goroutines of
// the steps, also after the call if a step was left behind. An object that is served twice is noted twice.
func WithNotes(ctx context.Context, noted func(Note)) context.Context {
	return context.WithValue(ctx, noting{}, noted)
}

func notes(ctx context.Context) func(Note) {
	noted, _ := ctx.Value(noting{}).(func(Note))
	return noted
}

// Begin notes that a step of the context's call can read.
func Begin(ctx context.Context, step string) {
	if noted := notes(ctx); noted != nil {
		noted(Note{step: step})
	}
}

// Recorded is what the steps of a call have read of one declaration.
type Recorded struct {
	Declaration string            `json:"declaration"`      // as it stands in the program
	Steps       []string          `json:"steps"`            // that have read it
	Failed      map[string]string `json:"failed,omitempty"` // why a step could not read it, by its name
	Objects     []map[string]any  `json:"objects"`          // as Read.Transform left them
}

// Record returns what the Notes of a call say, by declaration. It is never nil. If an object was noted in two states,
// only the last one counts.
func Record(all []Note) ([]Recorded, error) {
	recorded, of, objects := []Recorded{}, map[*view]int{}, map[*view]map[[2]string]int{}
	for _, n := range all {
		if n.view == nil {
			continue
		}
		at, known := of[n.view]
		if !known {
			at = len(recorded)
			of[n.view], objects[n.view] = at, map[[2]string]int{}
			recorded = append(recorded, Recorded{Declaration: n.view.declaration.String(), Steps: []string{}, Objects: []map[string]any{}})
		}
		r := &recorded[at]
		if !n.IsObject() {
			if !slices.Contains(r.Steps, n.step) {
				r.Steps = append(r.Steps, n.step)
			}
			if n.failure != "" {
				if r.Failed == nil {
					r.Failed = map[string]string{}
				}
				r.Failed[n.step] = n.failure
			}
			continue
		}
		tree, err := n.view.tree(n.entry.text)
		if err != nil {
			return nil, fmt.Errorf("a %s cannot be decoded", n.view.declaration.Kind.Kind)
		}
		key := [2]string{n.entry.namespace, n.entry.name}
		if i, again := objects[n.view][key]; again {
			r.Objects[i] = tree
			continue
		}
		objects[n.view][key] = len(r.Objects)
		r.Objects = append(r.Objects, tree)
	}
	return recorded, nil
}

// recordedKey is the key of a context's value.
type recordedKey struct{}

// WithRecorded returns a context for the replay of a call, whose steps read what those of the recorded call have read,
// and nothing else.
func WithRecorded(ctx context.Context, all []Recorded) context.Context {
	return context.WithValue(ctx, recordedKey{}, all)
}

// failing is a read that fails.
type failing struct {
	step string
	view int
}

// Recall returns a Snapshot of what a recorded call has read. A declaration serves the objects that were read of it,
// without a look at its selectors: Transform can have removed the labels that the API server has selected by. A declaration
// that was not read at that time serves all recorded objects that it selects.
//
// The recording holds only the objects that were read, so that a missing Required object shows as a recorded failure.
func (s *Set) Recall(ctx context.Context, all []Recorded) *Snapshot {
	recalled := &Snapshot{set: s, broken: make([]time.Duration, len(s.views)), fixed: true, partial: true, noted: notes(ctx)}
	failed := map[failing]string{}
	for _, v := range s.views {
		parts, known := s.recordedFor(v, all)
		var objects []*unstructured.Unstructured
		for _, r := range parts {
			for _, tree := range r.Objects {
				objects = append(objects, &unstructured.Unstructured{Object: tree})
			}
			for step, why := range r.Failed {
				if known {
					failed[failing{step, v.at}] = why
				}
			}
		}
		recalled.states = append(recalled.states, v.fill(objects, known))
	}
	recalled.fails = func(step string, u use) error {
		if why, ok := failed[failing{step, u.at}]; ok {
			return errors.New(why)
		}
		return nil
	}
	return recalled
}

// recordedFor returns what was read of a view, or everything if that is not known. A step is looked for by its name,
// because two steps can declare the same selectors with a different Transform. If it has a new name, the declaration
// decides.
func (s *Set) recordedFor(v *view, all []Recorded) (parts []Recorded, known bool) {
	var alike []Recorded
	declaration := v.declaration.String()
	for _, r := range all {
		if r.Declaration != declaration {
			continue
		}
		alike = append(alike, r)
		if slices.ContainsFunc(r.Steps, func(step string) bool {
			return slices.ContainsFunc(s.steps[step], func(u use) bool { return u.view == v })
		}) {
			parts = append(parts, r)
		}
	}
	if len(alike) == 0 {
		return all, false
	}
	if len(parts) == 0 {
		parts = alike
	}
	return parts, true
}
