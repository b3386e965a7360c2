package reads

// This file serves the objects of a test, a preview or a replay.

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// worldKey is the key of a context's value.
type worldKey struct{}

type world struct {
	objects []*unstructured.Unstructured
	fails   func(Declaration) error
}

// WithWorld returns a context for a call in a test, whose steps read these objects and no others. fails returns the error
// with which reads of a declaration fail, or nil; it can be nil itself. It is
// asked at each read, with the declaration of the step that reads.
func WithWorld(ctx context.Context, objects []*unstructured.Unstructured, fails func(Declaration) error) context.Context {
	return context.WithValue(ctx, worldKey{}, world{objects, fails})
}

// Offline is a Set that follows no cluster.
type Offline struct {
	*Set
	Objects func(context.Context) ([]client.Object, error) // nil for none
}

// Waiting returns nil: without a cluster no step waits.
func (Offline) Waiting(string) error { return nil }

// Snapshot returns what the call of the context reads: what a recorded call has read, or the objects of WithWorld, or
// else those of now.
func (o Offline) Snapshot(ctx context.Context) *Snapshot {
	if recorded, ok := ctx.Value(recordedKey{}).([]Recorded); ok {
		return o.Recall(ctx, recorded)
	}
	if w, ok := ctx.Value(worldKey{}).(world); ok {
		return o.Fill(ctx, w.objects, w.fails)
	}
	trees, err := o.now(ctx)
	if err != nil {
		return &Snapshot{err: err}
	}
	return o.Fill(ctx, trees, nil)
}

func (o Offline) now(ctx context.Context) (trees []*unstructured.Unstructured, _ error) {
	if o.Objects == nil {
		return nil, nil
	}
	objects, err := o.Objects(ctx)
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
			kind, err := apiutil.GVKForObject(object, o.scheme)
			if err != nil {
				return nil, err
			}
			u.SetGroupVersionKind(kind)
		}
		trees = append(trees, u)
	}
	return trees, nil
}
