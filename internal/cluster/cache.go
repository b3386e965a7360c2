package cluster

// This file defines a cache of objects, and holds the one of a short-lived process. Objects are read untyped, so that
// nothing is lost that a newer API server knows.

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// ErrUnseen reports that reading an object is forbidden, or that it has not been read yet. The reason is wrapped too,
// if it is known.
var ErrUnseen = errors.New("it cannot be read")

// unseen returns ErrUnseen with the reason. It hides a NotFound, because a missing kind must not be taken for a missing
// object.
func unseen(why error) error {
	if apierrors.IsNotFound(why) {
		why = errors.New(why.Error())
	}
	return fmt.Errorf("%w: %w", ErrUnseen, why)
}

// Cache holds copies of objects, as the API server has sent them. Get fills in a typed object, or an untyped one that
// has its apiVersion and kind, without the managed fields. It fails with ErrUnseen or NotFound. Wrote tells it that this
// process has just written an object: a copy that is polled is read again at once. Polls reports whether a copy is.
type Cache interface {
	Get(ctx context.Context, into client.Object) error
	Wrote(object client.Object)
	Polls(object client.Object) bool
}

// Direct is the Cache of a short-lived process. It stores nothing and sends a request for each Get.
type Direct struct{ client dynamic.Interface }

// NewDirect returns a Direct. It sends no request.
func NewDirect(config *rest.Config) (*Direct, error) {
	c, err := dynamic.NewForConfig(config)
	return &Direct{client: c}, err
}

// Get implements Cache.
func (d *Direct) Get(ctx context.Context, into client.Object) error {
	at, _, err := locate(d.client, into)
	if err != nil {
		return err
	}
	found, err := at.Get(ctx, into.GetName(), metav1.GetOptions{})
	switch {
	case apierrors.IsForbidden(err):
		return unseen(err)
	case err != nil:
		return err
	}
	return fill(into, withoutManagedFields(found))
}

// Wrote implements Cache.
func (*Direct) Wrote(client.Object) {}

// Polls implements Cache.
func (*Direct) Polls(client.Object) bool { return false }

// locate returns where the API server serves an object. The guess from the kind to the resource is exact for the kinds
// that the library follows.
func locate(c dynamic.Interface, object client.Object) (dynamic.ResourceInterface, schema.GroupVersionKind, error) {
	kind, err := apiutil.GVKForObject(object, scheme.Scheme)
	if err != nil {
		return nil, kind, err
	}
	resource, _ := meta.UnsafeGuessKindToResource(kind)
	if ns := object.GetNamespace(); ns != "" {
		return c.Resource(resource).Namespace(ns), kind, nil
	}
	return c.Resource(resource), kind, nil
}

// withoutManagedFields drops the managed fields, which are half of many objects.
func withoutManagedFields(object *unstructured.Unstructured) *unstructured.Unstructured {
	if object != nil {
		unstructured.RemoveNestedField(object.Object, "metadata", "managedFields")
	}
	return object
}

// fill copies an untyped object to one of any type. Like client-go, it leaves the kind of a typed object empty.
func fill(into client.Object, from *unstructured.Unstructured) error {
	if tree, ok := into.(*unstructured.Unstructured); ok {
		tree.Object = runtime.DeepCopyJSON(from.Object)
		return nil
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(from.Object, into); err != nil {
		return fmt.Errorf("%s %s: %w", from.GetKind(), from.GetName(), err)
	}
	into.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	return nil
}
