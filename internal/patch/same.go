package patch

// This file holds cheap equality tests for types that are frequent in pods.

import (
	"reflect"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// A sameFunc reports whether two values surely marshal to the same JSON. False can also mean "not known".
type sameFunc func(a, b reflect.Value) bool

// sameFor returns the cheapest test for a type that marshals itself. Pods are full of the types named here.
func sameFor(t reflect.Type) sameFunc {
	switch t {
	case reflect.TypeFor[resource.Quantity]():
		return func(a, b reflect.Value) bool {
			return sameQuantity(*pointerTo[resource.Quantity](a), *pointerTo[resource.Quantity](b))
		}
	case reflect.TypeFor[metav1.Time]():
		return func(a, b reflect.Value) bool {
			x, y := pointerTo[metav1.Time](a), pointerTo[metav1.Time](b)
			return x.Time.Equal(y.Time)
		}
	case reflect.TypeFor[metav1.MicroTime]():
		return func(a, b reflect.Value) bool {
			x, y := pointerTo[metav1.MicroTime](a), pointerTo[metav1.MicroTime](b)
			return x.Time.Equal(y.Time)
		}
	case reflect.TypeFor[metav1.FieldsV1]():
		return func(a, b reflect.Value) bool {
			return pointerTo[metav1.FieldsV1](a).Equal(*pointerTo[metav1.FieldsV1](b))
		}
	case reflect.TypeFor[runtime.RawExtension]():
		return func(a, b reflect.Value) bool {
			x, y := pointerTo[runtime.RawExtension](a), pointerTo[runtime.RawExtension](b)
			return x.Object == nil && y.Object == nil && string(x.Raw) == string(y.Raw) && (x.Raw == nil) == (y.Raw == nil)
		}
	}
	switch {
	case t.Kind() == reflect.Interface:
		return func(a, b reflect.Value) bool { return reflect.DeepEqual(a.Interface(), b.Interface()) }
	case t.Comparable() && !holdsInterface(t):
		return func(a, b reflect.Value) bool { return a.Equal(b) }
	}
	return func(a, b reflect.Value) bool {
		if a.CanAddr() && b.CanAddr() {
			return reflect.DeepEqual(a.Addr().Interface(), b.Addr().Interface())
		}
		return reflect.DeepEqual(a.Interface(), b.Interface())
	}
}

// quickFor returns a test by one comparison for the structs that are most frequent in a pod; nil for all others.
// Pointers in these structs differ between an object and its copy. The test is then false, and a closer look follows.
func quickFor(t reflect.Type) sameFunc {
	switch t {
	case reflect.TypeFor[corev1.EnvVar]():
		return identical[corev1.EnvVar]
	case reflect.TypeFor[corev1.EnvFromSource]():
		return identical[corev1.EnvFromSource]
	case reflect.TypeFor[corev1.ContainerPort]():
		return identical[corev1.ContainerPort]
	case reflect.TypeFor[corev1.Toleration]():
		return identical[corev1.Toleration]
	}
	return nil
}

func identical[T comparable](a, b reflect.Value) bool { return *pointerTo[T](a) == *pointerTo[T](b) }

// sameQuantity takes copies, because comparing changes the form in which a Quantity holds its number.
func sameQuantity(x, y resource.Quantity) bool { return x.Format == y.Format && x.Cmp(y) == 0 }

// holdsInterface reports whether comparing two values of a comparable type could panic, or depend on the identity of
// a pointer.
func holdsInterface(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Interface, reflect.Pointer, reflect.Chan:
		return true
	case reflect.Array:
		return holdsInterface(t.Elem())
	case reflect.Struct:
		for i := range t.NumField() {
			if holdsInterface(t.Field(i).Type) {
				return true
			}
		}
	}
	return false
}

// pointerTo returns a pointer to a value. It copies the value to the heap only if the value has no address.
func pointerTo[T any](v reflect.Value) *T {
	if v.CanAddr() {
		return v.Addr().Interface().(*T)
	}
	x := v.Interface().(T)
	return &x
}
