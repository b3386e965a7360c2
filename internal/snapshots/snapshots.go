// Package snapshots makes the Snapshots of steps that read without a cluster: of the objects of a test or a preview, and
// of those that a recorded call has read.
package snapshots

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"code.cloudfoundry.org/eirinix/internal/reads"
)

// Source makes the Snapshots of a Set that follows no cluster.
type Source struct {
	Set     *reads.Set
	Scheme  *runtime.Scheme
	Objects func(context.Context) ([]client.Object, error) // nil for none
}

// worldKey is the key of a context's value.
type worldKey struct{}

type world struct {
	objects []*unstructured.Unstructured
	fails   func(reads.Declaration) error
}

// WithWorld returns a context for a call in a test, whose steps read these objects and no others. fails returns the error
// with which reads of a declaration fail, or nil; it can be nil itself. It is asked at each read, with the declaration of
// the step that reads.
func WithWorld(ctx context.Context, objects []*unstructured.Unstructured, fails func(reads.Declaration) error) context.Context {
	return context.WithValue(ctx, worldKey{}, world{objects, fails})
}

// Waiting returns nil: without a cluster no step waits.
func (Source) Waiting(string) error { return nil }

// Snapshot returns what the call of the context reads: what a recorded call has read, or the objects of WithWorld, or
// else those of now.
func (s Source) Snapshot(ctx context.Context) *reads.Snapshot {
	if recorded, ok := ctx.Value(recordedKey{}).([]Recorded); ok {
		return Recall(ctx, s.Set, recorded)
	}
	w, ok := ctx.Value(worldKey{}).(world)
	if !ok {
		var err error
		if w.objects, err = s.now(ctx); err != nil {
			w.fails = func(reads.Declaration) error { return err }
		}
	}
	return Fill(ctx, s.Set, w.objects, w.fails)
}

func (s Source) now(ctx context.Context) (trees []*unstructured.Unstructured, _ error) {
	if s.Objects == nil {
		return nil, nil
	}
	objects, err := s.Objects(ctx)
	if err != nil {
		return nil, err
	}
	for _, object := range objects {
		tree, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
		if err != nil {
			return nil, err
		}
		u := &unstructured.Unstructured{Object: tree}
		if u.GroupVersionKind().Empty() {
			kind, err := apiutil.GVKForObject(object, s.Scheme)
			if err != nil {
				return nil, err
			}
			u.SetGroupVersionKind(kind)
		}
		trees = append(trees, u)
	}
	return trees, nil
}

// Fill returns a Snapshot of these objects, as if the API server held them and no others. fails returns the error with
// which reads of a declaration fail; nil for none.
func Fill(ctx context.Context, set *reads.Set, objects []*unstructured.Unstructured, fails func(reads.Declaration) error) *reads.Snapshot {
	fixed := reads.Fixed{Objects: func(d reads.Declaration, _ []string) ([]client.Object, error) {
		return convert(d, objects, func(o *unstructured.Unstructured) bool { return Selects(d, o) })
	}}
	if fails != nil {
		fixed.Fails = func(_ string, d reads.Declaration) error { return fails(d) }
	}
	return set.Fixed(ctx, fixed)
}

// convert returns copies of those objects that are selected, in the declared type.
func convert(d reads.Declaration, objects []*unstructured.Unstructured, selected func(*unstructured.Unstructured) bool) (all []client.Object, _ error) {
	for _, o := range objects {
		if !selected(o) {
			continue
		}
		if _, untyped := d.Object.(*unstructured.Unstructured); untyped {
			all = append(all, o.DeepCopy())
			continue
		}
		made, _ := reflect.New(reflect.TypeOf(d.Object).Elem()).Interface().(client.Object) // the declared object is one
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, made); err != nil {
			return nil, fmt.Errorf("%s %s/%s: %w", o.GetKind(), o.GetNamespace(), o.GetName(), err)
		}
		all = append(all, made)
	}
	return all, nil
}

// Selects reports whether a declaration selects an object, as an API server would.
func Selects(d reads.Declaration, o *unstructured.Unstructured) bool {
	if o.GroupVersionKind() != d.Kind || len(d.Namespaces) > 0 && !slices.Contains(d.Namespaces, o.GetNamespace()) {
		return false
	}
	return (d.Labels == nil || d.Labels.Matches(labels.Set(o.GetLabels()))) &&
		(d.Fields == nil || d.Fields.Matches(FieldsOf{o}))
}

// FieldsOf serves the fields of an object to a selector. An API server knows some of them by a path, such as
// spec.nodeName or type.
type FieldsOf struct{ *unstructured.Unstructured }

// Has reports whether the object has a value at a path.
func (f FieldsOf) Has(path string) bool { return f.Get(path) != "" }

// Get returns the value at a path as a text.
func (f FieldsOf) Get(path string) string {
	value, _, _ := unstructured.NestedFieldNoCopy(f.Object, strings.Split(path, ".")...)
	if value == nil {
		return ""
	}
	return fmt.Sprint(value)
}
