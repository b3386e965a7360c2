// Package convert answers ConversionReviews, in which an API server asks for objects in another version of their kind.
//
// It knows neither HTTP nor a cluster. A Kind holds the versions of one kind, of which one is the hub. Each other
// version, a spoke, is converted to the hub and from it. An object of one spoke reaches another through the hub.
//
// The conversions of most programs lose something, and this package keeps it:
//
//   - A member that the Go type of the source does not know is copied to the same place in the result.
//   - Everything else that the way back would not restore stands in annotations, until the object is converted back: one
//     for each lost place, signed with a key of the program.
//
// The files, in the order in which a call passes through them:
//
//	kind.go       the versions of a kind
//	review.go     the parsing of a ConversionReview
//	answer.go     the answer, and isolation from conversions that panic
//	object.go     the conversion of one object
//	metadata.go   the metadata, of which a conversion can change labels and annotations alone
//	keep.go       the members that the way back does not restore
//	items.go      the identity of items, and the equality of values
//	unknown.go    the members that a Go type does not know
//	loss.go       the difference between an object and its way back
//	restore.go    the same difference, applied
//	annotation.go the annotations that hold it
//	keys.go       the keys that sign them
//	trip.go       an object to another version and back, for audits
package convert

import (
	"context"
	"reflect"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"code.cloudfoundry.org/eirinix/internal/jsontype"
)

// A Func converts an object to another version. It can change its argument, and return parts of it. A panic fails only
// the object. The annotations of this package are hidden from it.
type Func = func(context.Context, runtime.Object) (runtime.Object, error)

// Version is one version of a kind and how it is converted.
type Version struct {
	Name    string       // for instance "v1alpha1"
	Type    reflect.Type // of its objects, a pointer to a struct; nil for *unstructured.Unstructured
	ToHub   Func         // nil for the hub
	FromHub Func         // nil for the hub
}

// Kind is the versions of the kind that one CustomResourceDefinition defines. conversion.Of checks them. Its methods
// are safe for concurrent use, as long as no field changes.
type Kind struct {
	Group    string    // for instance "batch.example.com"
	Kind     string    // for instance "CronJob"; empty accepts any kind
	Versions []Version // exactly one of them is the hub

	// Elsewhere are versions that other replicas convert and this one does not. A review that needs one of them is
	// refused with 503, so that the API server asks another replica.
	Elsewhere []string

	// Forget switches the annotations off: members that a version cannot hold are lost. Annotations that an object has
	// already are removed, and their contents are lost, too.
	Forget bool

	Keys *Keys // sign the annotations; needed unless Forget is set

	Observer Observer // can be nil
}

// Observer counts objects. Its methods must be safe for concurrent use, and must not panic.
type Observer interface {
	// Converted is called for each object that was converted, even if a later object fails the answer.
	Converted(from, to string)
	// Failed is called for the object that fails an answer. Its versions are empty if they are not known.
	Failed(from, to string, err error)
	// Panicked is called before Failed if the conversion panicked.
	Panicked(from, to string, value any, stack []byte)
	// Ignored is called for annotations of an object that are not applied, once for all of them.
	Ignored(from, to string, reason error)
	// Incomplete is called for an object that has lost values because its annotations cannot hold them.
	Incomplete(from, to string, reason error)
}

type unobserved struct{}

func (unobserved) Converted(_, _ string)                 {}
func (unobserved) Failed(_, _ string, _ error)           {}
func (unobserved) Panicked(_, _ string, _ any, _ []byte) {}
func (unobserved) Ignored(_, _ string, _ error)          {}
func (unobserved) Incomplete(_, _ string, _ error)       {}

// version is a Version as it is used for one answer.
type version struct {
	*Version
	apiVersion string
	gv         schema.GroupVersion
}

// versions returns the versions, and the hub.
func (k *Kind) versions() (all []version, hub *version) {
	all = make([]version, len(k.Versions))
	for i := range k.Versions {
		v := &all[i]
		v.Version = &k.Versions[i]
		v.gv = schema.GroupVersion{Group: k.Group, Version: v.Name}
		v.apiVersion = v.gv.String()
		if v.ToHub == nil {
			hub = v
		}
	}
	return all, hub
}

// known returns its type; nil for a tree, which knows everything.
func (v *version) known() *jsontype.Type {
	if v.isTree() {
		return nil
	}
	return jsontype.Of(v.Type)
}

// isTree reports whether the objects of the version are *unstructured.Unstructured.
func (v *version) isTree() bool { return v.Type == nil }
