package apiserver

// This file reads objects from JSON and YAML, and decodes them into Go values.

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// Document is an object on its way through admission: its kind, and its JSON, which loses nothing. It does not
// change. The zero Document is no object.
type Document struct {
	Kind schema.GroupVersionKind
	Raw  []byte
	memo *memo
}

// memo caches a document as a Go value, with which every webhook is matched.
type memo struct {
	once   sync.Once
	object runtime.Object
	err    error
}

// NewDocument returns a Document of this kind with this JSON.
func NewDocument(kind schema.GroupVersionKind, raw []byte) Document {
	return Document{Kind: kind, Raw: raw, memo: &memo{}}
}

// Absent reports whether there is no object.
func (d Document) Absent() bool { return len(d.Raw) == 0 }

// Unstructured returns the object as a tree that the caller owns. It is empty for no document.
func (d Document) Unstructured() *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{}}
	if !d.Absent() {
		_ = kjson.UnmarshalCaseSensitivePreserveInts(d.Raw, &u.Object) // already verified to be an object
	}
	return u
}

// With returns a new document, after change has been applied to the tree of this one.
func (d Document) With(change func(*unstructured.Unstructured)) Document {
	u := d.Unstructured()
	change(u)
	raw, _ := json.Marshal(u.Object) // it was decoded from JSON
	return NewDocument(d.Kind, raw)
}

// Read reads an object in any of the forms that Request allows.
func (s *Server) Read(object any) (Document, error) {
	switch object := object.(type) {
	case nil:
		return Document{}, nil
	case Document:
		return object, nil
	case []byte:
		return ReadDocument(object)
	case json.RawMessage:
		return ReadDocument(object)
	case string:
		return ReadDocument([]byte(object))
	case *unstructured.Unstructured:
		raw, err := json.Marshal(object.Object)
		if err != nil {
			return Document{}, err
		}
		return ReadDocument(raw)
	case runtime.Object:
		return s.encode(object)
	}
	return Document{}, fmt.Errorf("an object is given as %T; give a Kubernetes object, or its JSON or YAML as []byte or string", object)
}

// ReadDocument reads a text that holds one object, as JSON or YAML.
func ReadDocument(text []byte) (Document, error) {
	raw, err := oneDocument(text)
	if err != nil {
		return Document{}, err
	}
	var head metav1.TypeMeta
	if err := json.Unmarshal(raw, &head); err != nil {
		return Document{}, fmt.Errorf("the object is no Kubernetes object: %w", err)
	}
	if head.APIVersion == "" || head.Kind == "" {
		return Document{}, errors.New("the object has no apiVersion or no kind; give both")
	}
	return NewDocument(head.GroupVersionKind(), raw), nil
}

// oneDocument returns the JSON of a text that holds exactly one object, as JSON or YAML.
func oneDocument(text []byte) ([]byte, error) {
	if json.Valid(text) {
		return text, nil // this keeps the spelling of numbers
	}
	all, err := Documents(text)
	switch {
	case err != nil:
		return nil, err
	case len(all) == 0:
		return nil, errors.New("the text holds no object")
	case len(all) > 1:
		return nil, errors.New("there are several objects; give one at a time")
	}
	return all[0], nil
}

// Documents returns the JSON of all objects in a text of JSON and YAML documents, as kubectl reads it. Empty
// documents are left out.
func Documents(text []byte) ([][]byte, error) {
	if bytes.HasPrefix(text, []byte("\xff\xfe")) || bytes.HasPrefix(text, []byte("\xfe\xff")) || bytes.IndexByte(text, 0) >= 0 {
		return nil, errors.New("the text is not UTF-8 but perhaps UTF-16; convert it")
	}
	var all [][]byte
	decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), len(text)+1)
	for {
		var document runtime.RawExtension
		err := decoder.Decode(&document)
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, fmt.Errorf("the object is neither JSON nor YAML: %w", err)
		}
		if raw := bytes.TrimSpace(document.Raw); len(raw) > 0 && string(raw) != "null" {
			all = append(all, raw)
		}
	}
}

// encode returns the JSON of an object of the scheme, with apiVersion and kind, as an API server sends it.
func (s *Server) encode(object runtime.Object) (Document, error) {
	kind, err := apiutil.GVKForObject(object, s.Scheme)
	if err != nil {
		if kind, err = apiutil.GVKForObject(object, clientgoscheme.Scheme); err != nil {
			return Document{}, fmt.Errorf("the scheme does not know %T; add its AddToScheme to the Manager's Scheme: %w", object, err)
		}
	}
	object = object.DeepCopyObject()
	object.GetObjectKind().SetGroupVersionKind(kind)
	raw, err := json.Marshal(object)
	return NewDocument(kind, raw), err
}

// Typed returns the object as an API server holds it: a Go value of a built-in kind, else unstructured. It is nil for
// no Document. The result is shared and must not be changed.
func (d Document) Typed() (runtime.Object, error) {
	if d.Absent() {
		return nil, nil
	}
	d.memo.once.Do(func() { d.memo.object, d.memo.err = d.In(clientgoscheme.Scheme) })
	return d.memo.object, d.memo.err
}

// bothTyped returns two objects as an API server holds them.
func bothTyped(object, oldObject Document) (typed, typedOld runtime.Object, err error) {
	if typed, err = object.Typed(); err == nil {
		typedOld, err = oldObject.Typed()
	}
	return typed, typedOld, err
}

// In returns the object as a Go value of a scheme, or unstructured if the scheme does not know its kind.
func (d Document) In(scheme *runtime.Scheme) (runtime.Object, error) {
	object, err := scheme.New(d.Kind)
	if err != nil {
		return d.Unstructured(), nil //nolint:nilerr // a kind of which there is no Go type
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(d.Raw, object); err != nil {
		return nil, fmt.Errorf("the object is no %s: %w", d.Kind.Kind, err)
	}
	object.GetObjectKind().SetGroupVersionKind(d.Kind)
	return object, nil
}

// Same reports whether the API server would consider two documents equal.
func (d Document) Same(other Document) bool {
	a, errA := d.Typed()
	b, errB := other.Typed()
	return errA == nil && errB == nil && equality.Semantic.DeepEqual(a, b)
}

// YAML returns the object as YAML for people to read, without the fields that only Go's encoding adds.
func (d Document) YAML() string {
	if d.Absent() {
		return ""
	}
	u := d.Unstructured()
	prune(u.Object)
	text, err := yaml.Marshal(u.Object)
	if err != nil {
		return string(d.Raw)
	}
	return string(text)
}

// prune removes the fields that Go's encoding adds to objects: a null creationTimestamp, and empty objects such as
// status, resources and strategy.
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
