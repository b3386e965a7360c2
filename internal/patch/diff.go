package patch

// This file walks the decoded object and the handler's copy in lockstep.

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"code.cloudfoundry.org/eirinix/internal/jsontype"
)

// value emits the operations for one pair of values, which is at the top of the frames.
func (d *differ) value(t *jsontype.Type, a, b reflect.Value) error {
	if same(t, a, b) {
		return nil
	}
	switch t.On(b) {
	case jsontype.Struct:
		return d.fields(t, a, b)
	case jsontype.Pointer:
		if a.IsNil() || b.IsNil() {
			return d.put()
		}
		return d.value(t.Elem, a.Elem(), b.Elem())
	case jsontype.List:
		return d.items(t, "", a, b)
	case jsontype.Map:
		return d.members(t, a, b)
	case jsontype.Interface:
		return d.dynamic(a, b)
	case jsontype.JSON:
		if sameInMemory(a, b) {
			return nil
		}
		return d.trees(t, t, a, b)
	case jsontype.Unstructured:
		return d.value(t.Fields[0].Type, a.Field(0), b.Field(0))
	case jsontype.Bytes:
		if a.IsNil() == b.IsNil() && bytes.Equal(a.Bytes(), b.Bytes()) {
			return nil
		}
	case jsontype.Text, jsontype.Array:
		if equal(t, a, b) {
			return nil
		}
	case jsontype.Unsupported:
		return fmt.Errorf("%q has type %s, which JSON cannot hold", d.pointer(len(d.frames)-1), t.Go)
	}
	return d.put()
}

// fields walks the fields of a struct.
func (d *differ) fields(t *jsontype.Type, a, b reflect.Value) error {
	var bufA, bufB [3]reflect.Value
	partsA, partsB := t.Parts(bufA[:0], a), t.Parts(bufB[:0], b)
	for i := range t.Fields {
		f := &t.Fields[i]
		va, vb := f.From(partsA), f.From(partsB)
		if va.IsValid() && vb.IsValid() && same(f.Type, va, vb) || !va.IsValid() && !vb.IsValid() {
			continue
		}
		d.push(f.Name, f.Type, vb)
		if err := d.field(f, va, vb); err != nil {
			return err
		}
		d.pop()
	}
	return nil
}

// field emits the operations for one field, which either side can omit.
func (d *differ) field(f *jsontype.Field, a, b reflect.Value) error {
	goneA, goneB := f.IsOmitted(a), f.IsOmitted(b)
	if f.Type.Writes == jsontype.Struct {
		// Only the handler's changes inside the struct count. raw can hold more members than the type, and a struct
		// that has become empty is no reason to drop them.
		if !a.IsValid() {
			a = reflect.Zero(f.Type.Go)
		}
		if !b.IsValid() {
			b = reflect.Zero(f.Type.Go)
			d.top().after = b
		}
		return d.fields(f.Type, a, b)
	}
	switch {
	case goneA && goneB:
		return nil
	case goneB:
		return d.remove()
	case !a.IsValid():
		return d.put()
	case f.Type.Writes == jsontype.List:
		return d.items(f.Type, f.MergeKey, a, b)
	}
	return d.value(f.Type, a, b)
}

// A change is a map key under which two maps differ.
type change struct {
	name string
	a, b reflect.Value // invalid if the map lacks the key
}

// members walks two maps in the order of their keys, so that equal calls produce equal patches.
func (d *differ) members(t *jsontype.Type, a, b reflect.Value) error {
	if a.IsNil() != b.IsNil() && (b.IsNil() || b.Len() == 0) {
		return d.put() // between null and {}
	}
	if a.Len() == b.Len() && equalMaps(t, a, b) {
		return nil
	}
	var space [8]change
	all, err := changes(space[:0], t, a, b)
	if err != nil {
		return err
	}
	slices.SortFunc(all, func(x, y change) int { return strings.Compare(x.name, y.name) })
	for _, c := range all {
		d.push(c.name, t.Elem, c.b)
		if err := d.member(t, c); err != nil {
			return err
		}
		d.pop()
	}
	return nil
}

// changes appends the keys under which two maps differ.
func changes(out []change, t *jsontype.Type, a, b reflect.Value) ([]change, error) {
	if x, y, ok := mapsOf[map[string]string](a, b); ok {
		return textChanges(out, x, y), nil
	}
	var failed error
	add := func(k, va, vb reflect.Value) {
		name, err := t.Key(k)
		failed = errors.Join(failed, err)
		out = append(out, change{name, va, vb})
	}
	for it := a.MapRange(); it.Next(); {
		v, w := it.Value(), b.MapIndex(it.Key())
		if !w.IsValid() || !equal(t.Elem, v, w) {
			add(it.Key(), v, w)
		}
	}
	for it := b.MapRange(); it.Next(); {
		if !a.MapIndex(it.Key()).IsValid() {
			add(it.Key(), reflect.Value{}, it.Value())
		}
	}
	return out, failed
}

// textChanges is changes without reflection. Labels and annotations are the maps that change most.
func textChanges(out []change, x, y map[string]string) []change {
	for k, v := range x {
		if w, ok := y[k]; !ok {
			out = append(out, change{name: k, a: reflect.ValueOf(v)})
		} else if v != w {
			out = append(out, change{k, reflect.ValueOf(v), reflect.ValueOf(w)})
		}
	}
	for k, w := range y {
		if _, ok := x[k]; !ok {
			out = append(out, change{name: k, b: reflect.ValueOf(w)})
		}
	}
	return out
}

func (d *differ) member(t *jsontype.Type, c change) error {
	at, err := d.locate()
	if err != nil {
		return err
	}
	if top := len(d.frames) - 1; c.a.IsValid() && at == top && d.top().node.Kind == 0 {
		// For instance 01 in raw and 1 in a map of integers: the member's name in raw is unknown.
		return d.mismatch(top, "no member that is in the decoded map")
	}
	switch {
	case !c.b.IsValid():
		return d.remove()
	case !c.a.IsValid():
		return d.put()
	}
	return d.value(t.Elem, c.a, c.b)
}

// dynamic compares the values in two interfaces.
func (d *differ) dynamic(a, b reflect.Value) error {
	if a.IsNil() || b.IsNil() {
		return d.put()
	}
	a, b = a.Elem(), b.Elem()
	if a.Type() == b.Type() {
		return d.value(jsontype.Of(a.Type()), a, b)
	}
	return d.trees(jsontype.Of(a.Type()), jsontype.Of(b.Type()), a, b)
}

// trees compares the JSON of two values. If both are objects, or both are lists, only the difference is written. A
// type that marshals itself can have members that do not, and raw can know more about those.
func (d *differ) trees(ta, tb *jsontype.Type, a, b reflect.Value) error {
	x, err := encode(nil, ta, a)
	if err != nil {
		return d.put()
	}
	y, err := encode(nil, tb, b)
	if err != nil {
		return d.put()
	}
	if bytes.Equal(x, y) {
		return nil
	}
	if len(x) == 0 || len(y) == 0 || x[0] != y[0] || x[0] != '{' && x[0] != '[' {
		return d.put()
	}
	tx, errX := tree(x)
	ty, errY := tree(y)
	if errX != nil || errY != nil {
		return d.put()
	}
	ops, depth := len(d.ops), len(d.frames)
	va, vb := reflect.ValueOf(tx), reflect.ValueOf(ty)
	err = d.value(jsontype.Of(va.Type()), va, vb)
	if errors.Is(err, ErrMismatch) && depth > 1 {
		// The type writes another form than the one that it reads, so its members have no counterpart in raw.
		for len(d.frames) > depth {
			d.pop()
		}
		d.ops = d.ops[:ops]
		return d.put()
	}
	return err
}

func tree(text []byte) (any, error) {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	var v any
	err := dec.Decode(&v)
	return v, err
}
