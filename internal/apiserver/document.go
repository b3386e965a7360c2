package apiserver

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// Document is an object on its way through admission: JSON, in which everything is kept, and its kind. It does not
// change. The zero Document is none.
type Document struct {
	Kind schema.GroupVersionKind
	Raw  []byte
	memo *memo
}

// memo is what a document is as a Go value, which every webhook is matched with.
type memo struct {
	once   sync.Once
	object runtime.Object
	err    error
}

// NewDocument makes a Document of the JSON of an object of that kind.
func NewDocument(kind schema.GroupVersionKind, raw []byte) Document {
	return Document{Kind: kind, Raw: raw, memo: &memo{}}
}

// Absent tells whether there is no object.
func (d Document) Absent() bool { return len(d.Raw) == 0 }

// isObject tells whether a document of unknown origin is a JSON object at all.
func (d Document) isObject() bool {
	var tree map[string]json.RawMessage
	return json.Unmarshal(d.Raw, &tree) == nil
}

// Unstructured is the object as a tree of the caller's own. It is empty for no document.
func (d Document) Unstructured() *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{}}
	if !d.Absent() {
		_ = kjson.UnmarshalCaseSensitivePreserveInts(d.Raw, &u.Object) // read has seen that it is an object
	}
	return u
}

// With gives the document after a change of its tree.
func (d Document) With(change func(*unstructured.Unstructured)) Document {
	u := d.Unstructured()
	change(u)
	raw, _ := json.Marshal(u.Object) // it was JSON before
	return NewDocument(d.Kind, raw)
}

// Read takes an object in any of the forms that Request allows.
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
	var head struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
	}
	if err := json.Unmarshal(raw, &head); err != nil {
		return Document{}, fmt.Errorf("the object is no Kubernetes object: %w", err)
	}
	if head.APIVersion == "" || head.Kind == "" {
		return Document{}, errors.New("the object has no apiVersion or no kind; give both")
	}
	return NewDocument(schema.FromAPIVersionAndKind(head.APIVersion, head.Kind), raw), nil
}

// oneDocument is the JSON of a text that holds one object and nothing else, as JSON or YAML.
func oneDocument(text []byte) ([]byte, error) {
	if json.Valid(text) {
		return text, nil // also numbers as they are
	}
	all, err := Documents(text)
	switch {
	case err != nil:
		return nil, err
	case len(all) == 0:
		return nil, errors.New("there is no object, but nothing")
	case len(all) > 1:
		return nil, errors.New("there are several objects; give one at a time")
	}
	return all[0], nil
}

// Documents is the JSON of all objects of a text of JSON and YAML documents, as kubectl reads it. Empty documents are left out.
func Documents(text []byte) ([][]byte, error) {
	if bytes.HasPrefix(text, []byte("\xff\xfe")) || bytes.HasPrefix(text, []byte("\xfe\xff")) || bytes.IndexByte(text, 0) >= 0 {
		return nil, errors.New("the text is no UTF-8, but UTF-16 perhaps; convert it")
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

// encode makes JSON of an object of the scheme, with apiVersion and kind, as an API server sends it.
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

// Typed is the object as an API server holds it: a Go value of a built-in kind, else unstructured. It is nil for no
// Document, and shared: read it only.
func (d Document) Typed() (runtime.Object, error) {
	if d.Absent() {
		return nil, nil
	}
	d.memo.once.Do(func() { d.memo.object, d.memo.err = d.In(clientgoscheme.Scheme) })
	return d.memo.object, d.memo.err
}

// In is the object as a Go value of a scheme, or unstructured where that does not know it.
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

// Same tells whether the API server would take two documents for equal.
func (d Document) Same(other Document) bool {
	a, errA := d.Typed()
	b, errB := other.Typed()
	return errA == nil && errB == nil && equality.Semantic.DeepEqual(a, b)
}

// YAML is the object for the eyes of people, without what only machines read.
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
