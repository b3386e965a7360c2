package reads

// This file checks declarations, and finds the rights that they need.

import (
	"fmt"
	"slices"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"code.cloudfoundry.org/eirinix/internal/rights"
)

// KindOf returns the kind of the objects that are declared by an empty one.
func KindOf(object client.Object, scheme *runtime.Scheme) (schema.GroupVersionKind, error) {
	switch object.(type) {
	case *unstructured.Unstructured, *metav1.PartialObjectMetadata:
		if kind := object.GetObjectKind().GroupVersionKind(); kind.Kind == "" || kind.Version == "" {
			return schema.GroupVersionKind{}, fmt.Errorf("Settings.Reads has a %T without apiVersion and kind; set them", object)
		}
	}
	kind, err := apiutil.GVKForObject(object, scheme)
	if err != nil {
		return kind, fmt.Errorf("Settings.Reads is about %T, which the scheme does not know; add its AddToScheme to ManagerOptions.Scheme, or read it as an unstructured object with apiVersion and kind", object)
	}
	return kind, nil
}

// Problems returns the errors of a declaration. Each goes on after the name of the eirinix.Read.
func (d Declaration) Problems(scheme *runtime.Scheme) (all []error) {
	bad := func(format string, args ...any) { all = append(all, fmt.Errorf(format, args...)) }
	if !d.Kind.Empty() {
		if _, err := New(scheme, []Step{{Reads: []Declaration{d}}}, logr.Discard(), nil); err != nil {
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
