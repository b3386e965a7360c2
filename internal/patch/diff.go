package patch

// This file walks the decoded object and the handler's copy in lockstep.

import (
	"bytes"
	"fmt"
	"reflect"
)

// value emits the operations for one pair of values, which is at the top of the frames.
func (d *differ) value(p *plan, a, b reflect.Value) error {
	if same(p, a, b) {
		return nil
	}
	switch p = p.on(b); p.shape {
	case shapeStruct:
		return d.fields(p, a, b)
	case shapePointer:
		if a.IsNil() || b.IsNil() {
			return d.put()
		}
		return d.value(p.elem, a.Elem(), b.Elem())
	case shapeList:
		return d.items(p, nil, a, b)
	case shapeMap:
		return d.members(p, a, b)
	case shapeInterface:
		return d.dynamic(a, b)
	case shapeMarshaler:
		return d.opaque(p, a, b)
	case shapeUnstructured:
		return d.value(p.elem, a.Field(0), b.Field(0))
	case shapeBytes:
		if a.IsNil() == b.IsNil() && bytes.Equal(a.Bytes(), b.Bytes()) {
			return nil
		}
	case shapeTextMarshaler, shapeArray:
		if d.equal(p, a, b) {
			return nil
		}
	case shapeUnsupported:
		return fmt.Errorf("%q has type %s, which JSON cannot hold", d.pointer(len(d.frames)-1), p.typ)
	}
	return d.put()
}

// fields walks the fields of a struct.
func (d *differ) fields(p *plan, a, b reflect.Value) error {
	var bufA, bufB [3]reflect.Value
	partsA, partsB := p.parts(bufA[:0], a), p.parts(bufB[:0], b)
	for i := range p.fields {
		f := &p.fields[i]
		va, vb := f.from(partsA), f.from(partsB)
		if va.IsValid() && vb.IsValid() && same(f.plan, va, vb) || !va.IsValid() && !vb.IsValid() {
			continue
		}
		d.push(f.name, f.plan, vb)
		if err := d.field(f, va, vb); err != nil {
			return err
		}
		d.pop()
	}
	return nil
}

// field emits the operations for one field, which either side can omit.
func (d *differ) field(f *field, a, b reflect.Value) error {
	goneA, goneB := f.omitted(a), f.omitted(b)
	if f.plan.shape == shapeStruct {
		// Only the handler's changes inside the struct count. raw can hold more members than the type, and a struct
		// that has become empty is no reason to drop them.
		if !a.IsValid() {
			a = reflect.Zero(f.plan.typ)
		}
		if !b.IsValid() {
			b = reflect.Zero(f.plan.typ)
			d.top().after = b
		}
		return d.fields(f.plan, a, b)
	}
	switch {
	case goneA && goneB:
		return nil
	case goneB:
		return d.remove()
	case !a.IsValid():
		return d.put()
	case f.plan.shape == shapeList:
		return d.items(f.plan, f.key, a, b)
	}
	return d.value(f.plan, a, b)
}
