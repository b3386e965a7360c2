package patch

// This file compares two values by the JSON that they marshal to.

import (
	"bytes"
	"maps"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// same reports, in a few instructions, whether two values are surely equal. False only means that a closer look is
// needed.
func same(p *plan, a, b reflect.Value) bool {
	switch p.shape {
	case shapeString, shapeNumber:
		return a.String() == b.String()
	case shapeBool:
		return a.Bool() == b.Bool()
	case shapeInt:
		return a.Int() == b.Int()
	case shapeUint:
		return a.Uint() == b.Uint()
	case shapeFloat:
		return a.Float() == b.Float()
	case shapePointer, shapeMap:
		return a.UnsafePointer() == b.UnsafePointer()
	case shapeList, shapeBytes:
		return a.UnsafePointer() == b.UnsafePointer() && a.Len() == b.Len()
	case shapeInterface:
		return a.IsNil() && b.IsNil()
	}
	return false
}

var envVarType = reflect.TypeFor[corev1.EnvVar]()

// equal reports whether two values marshal to the same JSON.
func (d *differ) equal(p *plan, a, b reflect.Value) bool {
	if same(p, a, b) {
		return true
	}
	switch p = p.on(b); p.shape {
	case shapeStruct:
		if p.typ == envVarType && sameEnvVar(a, b) {
			return true
		}
		var bufA, bufB [3]reflect.Value
		partsA, partsB := p.parts(bufA[:0], a), p.parts(bufB[:0], b)
		for i := range p.fields {
			if f := &p.fields[i]; !d.equalField(f, f.from(partsA), f.from(partsB)) {
				return false
			}
		}
		return true
	case shapePointer:
		return !a.IsNil() && !b.IsNil() && d.equal(p.elem, a.Elem(), b.Elem())
	case shapeList:
		if a.IsNil() != b.IsNil() || a.Len() != b.Len() {
			return false
		}
		fallthrough
	case shapeArray:
		for i := range a.Len() {
			if !d.equal(p.elem, a.Index(i), b.Index(i)) {
				return false
			}
		}
		return true
	case shapeBytes:
		return a.IsNil() == b.IsNil() && bytes.Equal(a.Bytes(), b.Bytes())
	case shapeMap:
		return a.IsNil() == b.IsNil() && a.Len() == b.Len() && d.equalMaps(p, a, b)
	case shapeInterface:
		return !a.IsNil() && !b.IsNil() && d.equalDynamic(a, b)
	case shapeMarshaler, shapeTextMarshaler:
		return sameInMemory(a, b) || d.equalText(p, p, a, b)
	case shapeUnstructured:
		return d.equal(p.elem, a.Field(0), b.Field(0))
	}
	return false
}

func (d *differ) equalField(f *field, a, b reflect.Value) bool {
	if !a.IsValid() || !b.IsValid() {
		return f.omitted(a) && f.omitted(b)
	}
	if same(f.plan, a, b) {
		return true
	}
	if f.plan.shape != shapeStruct && (f.omitEmpty || f.omitZero) {
		if oa, ob := f.omitted(a), f.omitted(b); oa || ob {
			return oa && ob
		}
	}
	return d.equal(f.plan, a, b)
}

func (d *differ) equalMaps(p *plan, a, b reflect.Value) bool {
	if x, y, ok := mapsOf[map[string]string](a, b); ok {
		return maps.Equal(x, y)
	}
	if x, y, ok := mapsOf[corev1.ResourceList](a, b); ok && maps.EqualFunc(x, y, sameQuantity) {
		return true
	}
	for it := a.MapRange(); it.Next(); {
		w := b.MapIndex(it.Key())
		if !w.IsValid() || !d.equal(p.elem, it.Value(), w) {
			return false
		}
	}
	return true
}

// mapsOf returns both values as maps of type M, if they are. It saves the cost of reflection for the maps that every
// pod has.
func mapsOf[M any](a, b reflect.Value) (x, y M, ok bool) {
	if !a.CanInterface() || !b.CanInterface() {
		return x, y, false
	}
	if x, ok = a.Interface().(M); !ok {
		return x, y, false
	}
	y, ok = b.Interface().(M)
	return x, y, ok
}

// equalDynamic compares the values in two interfaces.
func (d *differ) equalDynamic(a, b reflect.Value) bool {
	a, b = a.Elem(), b.Elem()
	if a.Type() == b.Type() {
		return d.equal(planFor(a.Type()), a, b)
	}
	// Only the JSON counts for int and int64, or []any and []string.
	return d.equalText(planFor(a.Type()), planFor(b.Type()), a, b)
}

// equalText compares the JSON of two values. A value that cannot be marshalled is equal to
// nothing, so that the walk reaches it and reports the error.
func (d *differ) equalText(pa, pb *plan, a, b reflect.Value) bool {
	x, errA := d.encode(nil, pa, a)
	y, errB := d.encode(nil, pb, b)
	return errA == nil && errB == nil && bytes.Equal(x, y)
}

// sameInMemory reports whether two values of a type that marshals itself surely marshal to the same JSON. False can
// also mean "not known".
func sameInMemory(a, b reflect.Value) bool {
	if a.CanAddr() && b.CanAddr() { // saves a copy
		return reflect.DeepEqual(a.Addr().Interface(), b.Addr().Interface())
	}
	return reflect.DeepEqual(a.Interface(), b.Interface())
}

// sameEnvVar compares the structs that are most frequent in a pod by one comparison, which saves a third of the time of
// a Diff without changes. Their pointers differ between an object and its copy. False is then "not known".
func sameEnvVar(a, b reflect.Value) bool {
	if a.CanAddr() && b.CanAddr() {
		return *a.Addr().Interface().(*corev1.EnvVar) == *b.Addr().Interface().(*corev1.EnvVar)
	}
	return false
}

// sameQuantity takes copies, because comparing changes the form in which a Quantity holds its number.
func sameQuantity(x, y resource.Quantity) bool { return x.Format == y.Format && x.Cmp(y) == 0 }
