package conversion

// This file shows a Manager what it serves and registers.

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"code.cloudfoundry.org/eirinix/internal/convert"
	"code.cloudfoundry.org/eirinix/internal/convert/stored"
	"code.cloudfoundry.org/eirinix/internal/list"
	"code.cloudfoundry.org/eirinix/internal/resources"
	"code.cloudfoundry.org/eirinix/internal/seam"
)

func define(crd string, kind *convert.Kind) seam.Conversion {
	return seam.Conversion{
		CRD: crd, Lossy: kind.Forget,
		Versions: list.Of(kind.Versions, func(v convert.Version) runtime.Object { return empty(kind.Group, v) }),
		Resources: func(given []resources.Resource, scheme *runtime.Scheme) []resources.Resource {
			return resourcesOf(crd, kind, given, scheme)
		},
		NewKeys: newKeys, RoundTrip: kind.RoundTrip, Stored: stored.Check,
		Answer: func(s seam.Serving) seam.Answer {
			served := *kind
			served.Elsewhere, served.Observer = s.Elsewhere, observer{s.Counts, s.Log}
			if s.Keys != nil {
				served.Keys = &s.Keys.(*keys).Keys
			}
			return served.Answer
		},
	}
}

// empty returns an empty object of a version.
func empty(group string, v convert.Version) runtime.Object {
	kind := schema.GroupVersionKind{Group: group, Version: v.Name}
	var object runtime.Object = &unstructured.Unstructured{Object: map[string]any{}}
	if v.Type != nil {
		object = reflect.New(v.Type.Elem()).Interface().(runtime.Object)
		kind.Kind = v.Type.Elem().Name()
	}
	object.GetObjectKind().SetGroupVersionKind(kind)
	return object
}

// resourcesOf returns the resources of those versions that are not given. The name of the kind is that of a given
// resource or of a Go type, so there are none if all versions are unstructured and none is given.
func resourcesOf(crd string, kind *convert.Kind, given []resources.Resource, scheme *runtime.Scheme) (missing []resources.Resource) {
	plural, _, _ := strings.Cut(crd, ".")
	kinds, global := map[string]bool{}, false
	for _, r := range given {
		if r.Kind.Group == kind.Group && isPlural(plural, r) {
			kinds[r.Kind.Kind] = true
			global = global || r.ClusterScoped
		}
	}
	for known := range scheme.AllKnownTypes() {
		if known.Group == kind.Group && isPlural(plural, resources.Resource{Kind: known}) {
			kinds[known.Kind] = true
		}
	}
	for _, v := range kind.Versions {
		if name := empty(kind.Group, v).GetObjectKind().GroupVersionKind().Kind; name != "" && len(kinds) == 0 {
			kinds[name] = true
		}
	}
	for name := range kinds {
		for _, v := range kind.Versions {
			r := resources.Resource{Kind: schema.GroupVersionKind{Group: kind.Group, Version: v.Name, Kind: name}, Resource: plural, ClusterScoped: global}
			if !slices.ContainsFunc(given, func(o resources.Resource) bool { return o.Kind == r.Kind }) {
				missing = append(missing, r)
			}
		}
	}
	return missing
}

// isPlural reports whether the resource of a kind has this plural.
func isPlural(plural string, r resources.Resource) bool {
	if r.Resource != "" {
		return r.Resource == plural
	}
	regular, singular := meta.UnsafeGuessKindToResource(r.Kind)
	return regular.Resource == plural || singular.Resource+"s" == plural
}

// observer counts the conversions of a definition, and logs those that fail.
type observer struct {
	seam.ConversionCounts
	log logr.Logger
}

// Converted implements convert.Observer.
func (o observer) Converted(string, string) { o.ConversionCounts.Converted() }

// Failed implements convert.Observer.
func (o observer) Failed(from, to string, err error) {
	o.ConversionCounts.Failed()
	o.log.Error(err, "an object could not be converted", "from", from, "to", to)
}

// Panicked implements convert.Observer.
func (o observer) Panicked(from, to string, value any, stack []byte) {
	o.ConversionCounts.Panicked()
	o.log.Info("a conversion panicked", "from", from, "to", to, "value", fmt.Sprint(value), "stack", string(stack))
}

// Ignored implements convert.Observer.
func (o observer) Ignored(from, to string, reason error) {
	o.ConversionCounts.Ignored()
	o.log.Info("what an earlier conversion kept is ignored, in whole or in part", "from", from, "to", to, "reason", reason.Error())
}

// Incomplete implements convert.Observer.
func (o observer) Incomplete(from, to string, reason error) {
	o.ConversionCounts.Incomplete()
	o.log.Error(reason, "an object has lost values; make it smaller, or its versions alike", "from", from, "to", to)
}
