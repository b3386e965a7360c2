package reads

// This file describes what a step reads: how declarations are compared and checked, and the rights that they need.

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"code.cloudfoundry.org/eirinix/internal/rights"
)

// Declaration describes objects that a step looks at. It is eirinix.Read with its defaults resolved.
type Declaration struct {
	Object     client.Object // of the Go type in which the objects are served
	Kind       schema.GroupVersionKind
	Namespaces []string // empty: all
	Labels     labels.Selector
	Fields     fields.Selector
	Transform  func(client.Object)
	Index      map[string]client.IndexerFunc
	MaxStale   time.Duration // 0: objects of any age will do
	Required   bool

	// Same identifies a declaration that several steps share. Declarations with equal and non-nil values are the same.
	Same any
}

// SelectorOf returns the selector of labels that a declaration has. nil selects all, as in the API.
func SelectorOf(l *metav1.LabelSelector) (labels.Selector, error) {
	if l == nil {
		return nil, nil //nolint:nilnil // no selector
	}
	return metav1.LabelSelectorAsSelector(l)
}

// KindOf returns the kind of the objects that are declared by an empty one.
func KindOf(object client.Object, scheme *runtime.Scheme) (schema.GroupVersionKind, error) {
	if kind := object.GetObjectKind().GroupVersionKind(); formOf(object) != typed && (kind.Kind == "" || kind.Version == "") {
		return schema.GroupVersionKind{}, fmt.Errorf("Settings.Reads has a %T without apiVersion and kind; set them", object)
	}
	kind, err := apiutil.GVKForObject(object, scheme)
	if err != nil {
		return kind, fmt.Errorf("Settings.Reads is about %T, which the scheme does not know; add its AddToScheme to ManagerOptions.Scheme, or read it as an unstructured object with apiVersion and kind", object)
	}
	return kind, nil
}

// text returns a selector of labels or fields as it is sent.
func text(s interface {
	Empty() bool
	String() string
},
) string {
	if s == nil || s.Empty() {
		return ""
	}
	return s.String()
}

// form is the form in which objects are served. An API server sends it as it is, so that it is part of a source.
type form int

const (
	typed form = iota
	untyped
	metadata
)

func formOf(o client.Object) form {
	switch o.(type) {
	case *metav1.PartialObjectMetadata:
		return metadata
	case runtime.Unstructured:
		return untyped
	}
	return typed
}

// equal reports whether two declarations keep the same objects in the same way. Functions cannot be compared, so that
// declarations with functions are equal only if they are the same.
func (d Declaration) equal(other Declaration) bool {
	return (d.Same != nil && d.Same == other.Same || d.Transform == nil && other.Transform == nil && len(d.Index)+len(other.Index) == 0) &&
		d.Kind == other.Kind && formOf(d.Object) == formOf(other.Object) && slices.Equal(d.Namespaces, other.Namespaces) &&
		text(d.Labels) == text(other.Labels) && text(d.Fields) == text(other.Fields)
}

// String returns the declaration as it stands in a program.
func (d Declaration) String() string {
	object := fmt.Sprintf("&%s{}", strings.TrimPrefix(fmt.Sprintf("%T", d.Object), "*"))
	switch formOf(d.Object) {
	case untyped:
		object = "an unstructured " + d.Kind.Kind
	case metadata:
		object = "the metadata of a " + d.Kind.Kind
	}
	s := "eirinix.Read{Object: " + object
	if len(d.Namespaces) > 0 {
		s += fmt.Sprintf(", Namespaces: %q", d.Namespaces)
	}
	if l := text(d.Labels); l != "" {
		s += ", Labels: " + l
	}
	if f := text(d.Fields); f != "" {
		s += ", Fields: " + f
	}
	return s + "}"
}

// OnlyName returns the name that the field selector requires.
func (d Declaration) OnlyName() (string, bool) {
	if d.Fields == nil {
		return "", false
	}
	return d.Fields.RequiresExactMatch(metav1.ObjectNameField)
}

// Problems returns the errors of a declaration. Each goes on after the name of the eirinix.Read.
func (d Declaration) Problems(scheme *runtime.Scheme) (all []error) {
	bad := func(format string, args ...any) { all = append(all, fmt.Errorf(format, args...)) }
	if !d.Kind.Empty() {
		if _, err := newView(scheme, d); err != nil {
			bad(".Object: %T cannot be listed: %w; add its list to ManagerOptions.Scheme", d.Object, err)
		}
	}
	for n, namespace := range d.Namespaces {
		if problems := validation.ValidateNamespaceName(namespace, false); len(problems) > 0 {
			bad(".Namespaces has %q; give names of namespaces, or leave it out for all: %s", namespace, problems[0])
		}
		if slices.Contains(d.Namespaces[:n], namespace) {
			bad(".Namespaces has %q twice; leave out one", namespace)
		}
	}
	if d.Fields != nil && !d.Fields.Empty() && d.Fields.String() == "" {
		bad(".Fields selects nothing, which no API server can be asked for; leave out the Read, or select by a field")
	}
	for name, index := range d.Index {
		if name == "" || index == nil {
			bad(".Index has %q without a name or a function; give both", name)
		}
	}
	return all
}

// Rights returns the objects that are read, one for each namespace. Its error goes on after the name of the eirinix.Read.
func (d Declaration) Rights(mapper meta.RESTMapper) (all []rights.Read, _ error) {
	mapping, err := mapper.RESTMapping(d.Kind.GroupKind(), d.Kind.Version)
	if err != nil {
		return nil, fmt.Errorf(": the resource of %T is not known without a cluster; add its kind to ManagerOptions.Scheme: %w", d.Object, err)
	}
	namespaces := d.Namespaces
	if len(namespaces) == 0 {
		namespaces = []string{metav1.NamespaceAll}
	} else if mapping.Scope.Name() == meta.RESTScopeNameRoot {
		return nil, fmt.Errorf(".Namespaces is set, but %s is in no namespace; leave it out", d.Kind.Kind)
	}
	for _, namespace := range namespaces {
		read := rights.Read{Group: mapping.Resource.Group, Resource: mapping.Resource.Resource, Namespace: namespace}
		read.Name, _ = d.OnlyName()
		all = append(all, read)
	}
	return all, nil
}
