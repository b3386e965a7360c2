package eirinixtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// document is an object on its way through admission: JSON, in which everything is kept, and its kind. It does not
// change. The zero document is none.
type document struct {
	kind schema.GroupVersionKind
	raw  []byte
	memo *memo
}

// memo is what a document is as a Go value, which every webhook is matched with.
type memo struct {
	once   sync.Once
	object runtime.Object
	err    error
}

func newDocument(kind schema.GroupVersionKind, raw []byte) document {
	return document{kind: kind, raw: raw, memo: &memo{}}
}

func (d document) absent() bool { return len(d.raw) == 0 }

// unstructured is the object as a tree of the caller's own. It is empty for no document.
func (d document) unstructured() *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{}}
	if !d.absent() {
		_ = kjson.UnmarshalCaseSensitivePreserveInts(d.raw, &u.Object) // read has seen that it is an object
	}
	return u
}

// with gives the document after a change of its tree.
func (d document) with(change func(*unstructured.Unstructured)) document {
	u := d.unstructured()
	change(u)
	raw, _ := json.Marshal(u.Object) // it was JSON before
	return newDocument(d.kind, raw)
}

// read takes an object in any of the forms that Request allows.
func (h *Harness) read(object any) (document, error) {
	var d document
	switch object := object.(type) {
	case nil:
		return document{}, nil
	case document:
		return object, nil
	case []byte:
		d.raw = object
	case json.RawMessage:
		d.raw = object
	case string:
		d.raw = []byte(object)
	case *unstructured.Unstructured:
		raw, err := json.Marshal(object.Object)
		if err != nil {
			return document{}, err
		}
		d.raw = raw
	case runtime.Object:
		return h.encode(object)
	default:
		return document{}, fmt.Errorf("an object is given as %T; give a Kubernetes object, or its JSON or YAML as []byte or string", object)
	}
	raw, err := yaml.YAMLToJSON(d.raw)
	if err != nil {
		return document{}, fmt.Errorf("the object is neither JSON nor YAML: %w", err)
	}
	if json.Valid(d.raw) {
		raw = d.raw // also numbers as they are
	}
	var head struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
	}
	if err := json.Unmarshal(raw, &head); err != nil {
		return document{}, fmt.Errorf("the object is no Kubernetes object: %w", err)
	}
	if head.APIVersion == "" || head.Kind == "" {
		return document{}, errors.New("the object has no apiVersion or no kind; give both")
	}
	return newDocument(schema.FromAPIVersionAndKind(head.APIVersion, head.Kind), raw), nil
}

// encode makes JSON of an object of the scheme, with apiVersion and kind, as an API server sends it.
func (h *Harness) encode(object runtime.Object) (document, error) {
	kind, err := apiutil.GVKForObject(object, h.scheme())
	if err != nil {
		if kind, err = apiutil.GVKForObject(object, clientgoscheme.Scheme); err != nil {
			return document{}, fmt.Errorf("the scheme does not know %T; add its AddToScheme to HarnessOptions.Manager.Scheme: %w", object, err)
		}
	}
	object = object.DeepCopyObject()
	object.GetObjectKind().SetGroupVersionKind(kind)
	raw, err := json.Marshal(object)
	return newDocument(kind, raw), err
}

// typed is the object as an API server holds it: a Go value of a built-in kind, else unstructured. It is nil for no
// document, and shared: read it only.
func (d document) typed() (runtime.Object, error) {
	if d.absent() {
		return nil, nil
	}
	d.memo.once.Do(func() { d.memo.object, d.memo.err = d.in(clientgoscheme.Scheme) })
	return d.memo.object, d.memo.err
}

// in is the object as a Go value of a scheme, or unstructured where that does not know it.
func (d document) in(scheme *runtime.Scheme) (runtime.Object, error) {
	object, err := scheme.New(d.kind)
	if err != nil {
		return d.unstructured(), nil //nolint:nilerr // a kind of which there is no Go type
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(d.raw, object); err != nil {
		return nil, fmt.Errorf("the object is no %s: %w", d.kind.Kind, err)
	}
	object.GetObjectKind().SetGroupVersionKind(d.kind)
	return object, nil
}

// same tells whether the API server would take two documents for equal.
func (d document) same(other document) bool {
	a, errA := d.typed()
	b, errB := other.typed()
	return errA == nil && errB == nil && equality.Semantic.DeepEqual(a, b)
}

// yaml is the object for the eyes of people, without what only machines read.
func (d document) yaml() string {
	if d.absent() {
		return ""
	}
	u := d.unstructured()
	prune(u.Object)
	text, err := yaml.Marshal(u.Object)
	if err != nil {
		return string(d.raw)
	}
	return string(text)
}

// prune takes out what Go's encoding adds to objects that nobody has filled in: a null creationTimestamp, an empty
// status, and empty resources and strategies.
func prune(tree any) {
	switch tree := tree.(type) {
	case map[string]any:
		for key, value := range tree {
			prune(value)
			empty, isMap := value.(map[string]any)
			noise := key == "status" || key == "resources" || key == "strategy" || key == "spec" || key == "loadBalancer"
			if value == nil && key == "creationTimestamp" || isMap && len(empty) == 0 && noise {
				delete(tree, key)
			}
		}
	case []any:
		for _, item := range tree {
			prune(item)
		}
	}
}

// place is where the objects of a kind are found.
type place struct {
	resource   schema.GroupVersionResource
	namespaced bool
}

func (h *Harness) placeOf(kind schema.GroupVersionKind) (place, error) {
	mapping, err := h.mapper().RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return place{}, fmt.Errorf("nothing tells the plural of %s; name it in HarnessOptions.Resources: %w", kind, err)
	}
	return place{resource: mapping.Resource, namespaced: mapping.Scope.Name() == meta.RESTScopeNameNamespace}, nil
}

// namespaceOf is the namespace that a request for the object is sent to.
func (h *Harness) namespaceOf(at place, object *unstructured.Unstructured) string {
	switch namespace := object.GetNamespace(); {
	case !at.namespaced:
		return ""
	case namespace != "":
		return namespace
	}
	if namespace := h.Manager().GetManagerOptions().Namespace; namespace != "" {
		return namespace
	}
	return "default"
}
