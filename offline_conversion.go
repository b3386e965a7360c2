package eirinix

// This file describes Conversions for code that plays the part of the API server.

import (
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"code.cloudfoundry.org/eirinix/internal/convert"
	"code.cloudfoundry.org/eirinix/internal/list"
	"code.cloudfoundry.org/eirinix/internal/resources"
)

// offline describes the conversion, with the Hub as the first version.
func (c conversionOf) offline() OfflineConversion {
	return OfflineConversion{CRD: c.crd, Path: c.path(), Lossy: c.kind.Forget, Versions: list.Of(c.kind.Versions, c.empty)}
}

// empty returns an empty object of a version.
func (c conversionOf) empty(v convert.Version) runtime.Object {
	kind := schema.GroupVersionKind{Group: c.kind.Group, Version: v.Name}
	var object runtime.Object = &unstructured.Unstructured{Object: map[string]any{}}
	if v.Type != nil {
		object = reflect.New(v.Type.Elem()).Interface().(runtime.Object)
		kind.Kind = v.Type.Elem().Name()
	}
	object.GetObjectKind().SetGroupVersionKind(kind)
	return object
}

// resources returns the resources of those versions that are not given. The name of the kind is that of a given
// resource or of a Go type, so there are none if all versions are unstructured and none is given.
func (c conversionOf) resources(given []resources.Resource, scheme *runtime.Scheme) (missing []resources.Resource) {
	plural, _, _ := strings.Cut(c.crd, ".")
	kinds, global := map[string]bool{}, false
	for _, r := range given {
		if r.Kind.Group == c.kind.Group && c.isPlural(plural, r) {
			kinds[r.Kind.Kind] = true
			global = global || r.ClusterScoped
		}
	}
	for kind := range scheme.AllKnownTypes() {
		if kind.Group == c.kind.Group && c.isPlural(plural, resources.Resource{Kind: kind}) {
			kinds[kind.Kind] = true
		}
	}
	for _, v := range c.kind.Versions {
		if kind := c.empty(v).GetObjectKind().GroupVersionKind().Kind; kind != "" && len(kinds) == 0 {
			kinds[kind] = true
		}
	}
	for kind := range kinds {
		for _, v := range c.kind.Versions {
			r := resources.Resource{Kind: schema.GroupVersionKind{Group: c.kind.Group, Version: v.Name, Kind: kind}, Resource: plural, ClusterScoped: global}
			if !slices.ContainsFunc(given, func(o resources.Resource) bool { return o.Kind == r.Kind }) {
				missing = append(missing, r)
			}
		}
	}
	return missing
}

// isPlural reports whether the resource of a kind has this plural.
func (c conversionOf) isPlural(plural string, r resources.Resource) bool {
	if r.Resource != "" {
		return r.Resource == plural
	}
	regular, singular := meta.UnsafeGuessKindToResource(r.Kind)
	return regular.Resource == plural || singular.Resource+"s" == plural
}
