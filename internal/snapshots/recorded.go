package snapshots

// This file writes down what the steps of a call have read, and serves the steps of a replay from it.

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"code.cloudfoundry.org/eirinix/internal/reads"
)

// Recorded is what the steps of a call have read of one declaration.
type Recorded struct {
	Declaration string            `json:"declaration"`      // as it stands in the program
	Steps       []string          `json:"steps"`            // that have read it
	Failed      map[string]string `json:"failed,omitempty"` // why a step could not read it, by its name
	Objects     []map[string]any  `json:"objects"`          // as Read.Transform left them
}

// place is the place of an object among those of a declaration.
type place struct {
	of  *reads.Declaration
	key client.ObjectKey
}

// Record returns what the Notes of a call say, by declaration. It is never nil. If an object was noted in two states,
// only the last one counts.
func Record(all []reads.Note) ([]Recorded, error) {
	recorded, of, objects := []Recorded{}, map[*reads.Declaration]int{}, map[place]int{}
	for _, n := range all {
		d := n.Declaration()
		if d == nil {
			continue
		}
		at, known := of[d]
		if !known {
			at = len(recorded)
			of[d] = at
			recorded = append(recorded, Recorded{Declaration: d.String(), Steps: []string{}, Objects: []map[string]any{}})
		}
		r := &recorded[at]
		if !n.IsObject() {
			if !slices.Contains(r.Steps, n.Step) {
				r.Steps = append(r.Steps, n.Step)
			}
			if n.Failure != "" {
				if r.Failed == nil {
					r.Failed = map[string]string{}
				}
				r.Failed[n.Step] = n.Failure
			}
			continue
		}
		tree, err := treeOf(n)
		if err != nil {
			return nil, fmt.Errorf("a %s cannot be decoded", d.Kind.Kind)
		}
		p := place{d, client.ObjectKeyFromObject(tree)}
		if i, again := objects[p]; again {
			r.Objects[i] = tree.Object
			continue
		}
		objects[p] = len(r.Objects)
		r.Objects = append(r.Objects, tree.Object)
	}
	return recorded, nil
}

// treeOf returns the object of a Note as JSON would show it.
func treeOf(n reads.Note) (*unstructured.Unstructured, error) {
	object, err := n.Object()
	if err != nil {
		return nil, err
	}
	tree, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return nil, err
	}
	u := &unstructured.Unstructured{Object: tree}
	u.SetGroupVersionKind(n.Declaration().Kind)
	return u, nil
}

// recordedKey is the key of a context's value.
type recordedKey struct{}

// WithRecorded returns a context for the replay of a call, whose steps read what those of the recorded call have read,
// and nothing else.
func WithRecorded(ctx context.Context, all []Recorded) context.Context {
	return context.WithValue(ctx, recordedKey{}, all)
}

// Recall returns a Snapshot of what a recorded call has read. A declaration serves the objects that were read of it,
// without a look at its selectors: Transform can have removed the labels that the API server has selected by. A declaration
// that was not read at that time serves all recorded objects that it selects.
//
// The recording holds only the objects that were read, so that a missing Required object shows as a recorded failure.
func Recall(ctx context.Context, set *reads.Set, all []Recorded) *reads.Snapshot {
	return set.Fixed(ctx, reads.Fixed{
		Partial: true,
		Objects: func(d reads.Declaration, steps []string) ([]client.Object, error) {
			parts, known := recordedFor(d.String(), steps, all)
			var objects []*unstructured.Unstructured
			for _, r := range parts {
				for _, tree := range r.Objects {
					objects = append(objects, &unstructured.Unstructured{Object: tree})
				}
			}
			return convert(d, objects, func(o *unstructured.Unstructured) bool {
				return known && o.GroupVersionKind() == d.Kind || Selects(d, o)
			})
		},
		Fails: func(step string, d reads.Declaration) (err error) {
			declaration := d.String()
			for _, r := range all {
				if why, failed := r.Failed[step]; failed && r.Declaration == declaration {
					err = errors.New(why)
				}
			}
			return err
		},
	})
}

// recordedFor returns what was read of a declaration of these steps, or everything if that is not known. A step is looked
// for by its name, because two steps can declare the same selectors with a different Transform. If it has a new name, the
// declaration decides.
func recordedFor(declaration string, steps []string, all []Recorded) (parts []Recorded, known bool) {
	var alike []Recorded
	for _, r := range all {
		if r.Declaration != declaration {
			continue
		}
		alike = append(alike, r)
		if slices.ContainsFunc(r.Steps, func(step string) bool { return slices.Contains(steps, step) }) {
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
