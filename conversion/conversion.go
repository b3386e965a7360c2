// Package conversion converts the objects of a CustomResourceDefinition between its versions. A Manager serves and registers
// what is added to it:
//
//	x.AddExtension(conversion.Of[*v1.CronJob]{
//		CRD: "cronjobs.batch.example.com", Version: "v1",
//		Spokes: []conversion.Spoke[*v1.CronJob]{conversion.NewSpoke("v1beta1", toV1, fromV1)},
//	})
package conversion

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	crconversion "sigs.k8s.io/controller-runtime/pkg/conversion"

	"code.cloudfoundry.org/eirinix/internal/convert"
	"code.cloudfoundry.org/eirinix/internal/seam"
)

// Of converts the objects of one CustomResourceDefinition between the versions that it serves. Hub is a pointer to the
// Go type of one version, such as *v1.CronJob, or *unstructured.Unstructured. All other versions are Spokes, which convert
// to the Hub and back.
//
// A Manager's AddExtension takes it by value. The Manager then serves the conversions, and keeps spec.conversion of the
// definition up to date. It neither creates nor deletes the definition, and waits for one that does not exist yet. No
// other field of the definition is changed.
//
// A conversion may change the labels and annotations of an object, and everything outside of its metadata. Any other
// change of the metadata fails here, as the API server would refuse it. Fields that the Go types do not know are kept.
type Of[Hub runtime.Object] struct {
	// CRD is the name of the CustomResourceDefinition, its plural and its group: "cronjobs.batch.example.com".
	CRD string

	// Version is the version of Hub, such as "v1".
	Version string

	// Spokes are all other versions that the definition serves or stores. NewSpoke and ConvertibleSpoke make them.
	Spokes []Spoke[Hub]

	// Lossy gives up what a version cannot hold. By default it survives in annotations of the object until that is
	// converted back: one for each lost place, under conversion.eirinix.cloudfoundry.org/, signed with a key that the
	// Secret <fingerprint>-conversions holds. All annotations of an object have 256 KiB. What does not fit is lost,
	// largest first, and conversion.eirinix.cloudfoundry.org/incomplete names it.
	Lossy bool
}

// A Spoke is a version other than the Hub, and its conversions. NewSpoke and ConvertibleSpoke make it.
type Spoke[Hub runtime.Object] struct {
	version string
	object  reflect.Type // nil for unstructured objects
	toHub   func(context.Context, runtime.Object) (runtime.Object, error)
	fromHub func(context.Context, runtime.Object) (runtime.Object, error)
	err     error
}

// NewSpoke returns a version whose objects the functions convert to the Hub and from it. S is a pointer to the Go type
// of the version, or *unstructured.Unstructured. The functions run concurrently. The object that they receive is their
// own, and they may return parts of it. They need not set apiVersion and kind.
//
// An error or a panic fails the request, with the name of the object. A context that ends is the end of the API
// server's patience. One object that cannot be converted makes lists and watches of its kind fail. Prefer a lossy result
// to an error.
func NewSpoke[Hub, S runtime.Object](version string, to func(context.Context, S) (Hub, error), from func(context.Context, Hub) (S, error)) Spoke[Hub] {
	s := Spoke[Hub]{version: version}
	if to == nil || from == nil {
		s.err = errors.New("lacks a function; NewSpoke needs one to the Hub and one from it")
		return s
	}
	s.object, s.err = objectType[S]()
	s.toHub = func(ctx context.Context, obj runtime.Object) (runtime.Object, error) {
		return checked(to(ctx, obj.(S)))
	}
	s.fromHub = func(ctx context.Context, obj runtime.Object) (runtime.Object, error) {
		return checked(from(ctx, obj.(Hub)))
	}
	return s
}

// ConvertibleSpoke returns a version whose type converts itself, as controller-runtime asks of spokes. S and Hub are
// pointers to the Go types.
func ConvertibleSpoke[Hub interface {
	runtime.Object
	crconversion.Hub
}, S interface {
	runtime.Object
	crconversion.Convertible
}](version string) Spoke[Hub] {
	return NewSpoke(version,
		func(_ context.Context, from S) (Hub, error) {
			to := reflect.New(reflect.TypeFor[Hub]().Elem()).Interface().(Hub)
			return to, from.ConvertTo(to)
		},
		func(_ context.Context, from Hub) (S, error) {
			to := reflect.New(reflect.TypeFor[S]().Elem()).Interface().(S)
			return to, to.ConvertFrom(from)
		})
}

// objectType returns T, a pointer to a struct. It is nil for unstructured objects.
func objectType[T runtime.Object]() (reflect.Type, error) {
	t := reflect.TypeFor[T]()
	if t.Kind() != reflect.Pointer || t.Elem().Kind() != reflect.Struct {
		return nil, fmt.Errorf("%s is no pointer to an API type, such as *corev1.Pod", t)
	}
	if t.Elem() == reflect.TypeFor[unstructured.Unstructured]() {
		return nil, nil
	}
	return t, nil
}

// checked returns the result of a conversion. A nil object without an error would be sent as null.
func checked[T runtime.Object](obj T, err error) (runtime.Object, error) {
	if v := reflect.ValueOf(obj); err == nil && (!v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil()) {
		err = errors.New("the conversion returned nil without an error")
	}
	if err != nil {
		return nil, err
	}
	return obj, nil
}

// Define returns what a Manager serves and registers. AddExtension calls it, programs need not.
func (c Of[Hub]) Define() (seam.Conversion, error) {
	kind, err := c.kind()
	if err != nil {
		return seam.Conversion{}, err
	}
	return define(c.CRD, kind), nil
}

// kind returns the versions of the kind.
func (c Of[Hub]) kind() (*convert.Kind, error) {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("eirinix: conversion.Of[%s] for %q "+format, append([]any{reflect.TypeFor[Hub](), c.CRD}, args...)...)
	}
	plural, group, _ := strings.Cut(c.CRD, ".")
	if plural == "" || len(validation.IsDNS1123Subdomain(group)) > 0 || len(validation.IsDNS1123Label(plural)) > 0 {
		return nil, bad("names no CustomResourceDefinition; set CRD to its name, <plural>.<group>, such as \"cronjobs.batch.example.com\"")
	}
	hub, err := objectType[Hub]()
	if err != nil {
		return nil, bad("has a Hub that cannot be converted: %w", err)
	}
	kind := &convert.Kind{Group: group, Forget: c.Lossy, Versions: []convert.Version{{Name: c.Version, Type: hub}}}
	if len(c.Spokes) == 0 {
		return nil, bad("has no Spokes; add one for each other version that the definition serves")
	}
	for _, s := range c.Spokes {
		if s.err == nil && s.toHub == nil {
			s.err = errors.New("has no conversions; make it with NewSpoke or ConvertibleSpoke")
		}
		if s.err != nil {
			return nil, bad("has a spoke, version %q, that %w", s.version, s.err)
		}
		kind.Versions = append(kind.Versions, convert.Version{Name: s.version, Type: s.object, ToHub: s.toHub, FromHub: s.fromHub})
	}
	for i, v := range kind.Versions {
		if problems := validation.IsDNS1035Label(v.Name); len(problems) > 0 {
			return nil, bad("has the version %q; give names such as \"v1beta1\" to the Hub and to each spoke", v.Name)
		}
		if slices.ContainsFunc(kind.Versions[:i], func(o convert.Version) bool { return o.Name == v.Name }) {
			return nil, bad("has the version %q twice; each version is the Hub or one spoke", v.Name)
		}
	}
	return kind, nil
}
