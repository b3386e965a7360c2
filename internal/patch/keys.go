package patch

// This file pairs the items of a list by the members that identify them.

import (
	"reflect"
	"slices"
	"strings"
)

// A keyer identifies the items of a list by one of their members.
type keyer struct {
	name  string
	field *field // of the item's struct; nil if items are trees, or the struct has no such field
}

// behindPointers returns the plan of the values that pointers lead to.
func (p *plan) behindPointers() *plan {
	for p.shape == shapePointer {
		p = p.elem
	}
	return p
}

// member returns the field of a struct that has this name in JSON, or nil.
func (p *plan) member(name string) *field {
	i, ok := slices.BinarySearchFunc(p.fields, name, func(f field, name string) int { return strings.Compare(f.name, name) })
	if !ok {
		return nil
	}
	return &p.fields[i]
}

// memberOf returns the member of an item that holds its key, and the plan of that member if it is known. The member
// is invalid if the item has none, or a zero one.
func memberOf(k *keyer, v reflect.Value) (reflect.Value, *plan) {
	if v = behindPointers(v); !v.IsValid() {
		return v, nil
	}
	var p *plan
	switch {
	case k.field != nil && v.Kind() == reflect.Struct:
		v, p = k.field.get(v), k.field.plan
	case v.Kind() == reflect.Map && v.Type().Key().Kind() == reflect.String:
		v = v.MapIndex(reflect.ValueOf(k.name).Convert(v.Type().Key()))
		if v.IsValid() {
			p = planFor(v.Type())
		}
	default:
		return reflect.Value{}, nil
	}
	for v.IsValid() && (v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface) {
		v, p = v.Elem(), nil
	}
	if !v.IsValid() || v.IsZero() {
		return reflect.Value{}, nil
	}
	return v, p
}

// behindPointers returns the value behind pointers and interfaces; an invalid value for nil.
func behindPointers(v reflect.Value) reflect.Value {
	for v.IsValid() && (v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface) {
		v = v.Elem()
	}
	return v
}

// keyOf returns an item's key. A key that is missing or zero identifies no item, so such an item has none.
func (d *differ) keyOf(k *keyer, v reflect.Value) (string, bool) {
	v, p := memberOf(k, v)
	if !v.IsValid() {
		return "", false
	}
	if v.Kind() == reflect.String {
		return v.String(), true
	}
	if p == nil {
		p = planFor(v.Type())
	}
	text, err := d.encode(nil, p, v)
	return string(text), err == nil
}

// namesIn returns the members that can identify the items of a list whose type names no key: name, key and id. The
// types of most custom resources name none.
func namesIn(item *plan) []*keyer {
	item = item.behindPointers()
	var names []*keyer
	for _, name := range []string{"name", "key", "id"} {
		k := &keyer{name: name, field: item.member(name)}
		if k.field != nil || item.shape == shapeInterface || item.shape == shapeMap {
			names = append(names, k)
		}
	}
	return names
}

// nameOf returns the text of a member that namesIn returned. It reports false if the item has none.
func nameOf(k *keyer, v reflect.Value) (string, bool) {
	if v, _ = memberOf(k, v); v.IsValid() && v.Kind() == reflect.String {
		return v.String(), true
	}
	return "", false
}

// alignNames pairs the items whose name occurs once before and once after.
func (d *differ) alignNames(s *stretch, k *keyer, p *pairing) {
	const several = -1
	find := func(n int, item func(int) reflect.Value, counterparts []int) map[string]int {
		found := map[string]int{}
		for i := range n {
			name, ok := nameOf(k, item(i))
			if !ok {
				continue
			}
			if _, again := found[name]; again || counterparts[i] >= 0 {
				i = several
			}
			found[name] = i
		}
		return found
	}
	after := find(s.n, s.after, p.from)
	if len(after) == 0 {
		return
	}
	for name, i := range find(s.m, s.before, p.to) {
		if j, ok := after[name]; ok && i != several && j != several {
			p.pair(i, j)
		}
	}
}

// mayBecome reports whether two items may be paired by their position. Items with different keys are different items,
// unless nothing else differs: then the item has been renamed. Of several keys, one that is equal is enough.
func (d *differ) mayBecome(s *stretch, i, j int, keys []*keyer, keyOf func(*keyer, reflect.Value) (string, bool)) bool {
	var other *keyer
	for _, k := range keys {
		was, hadKey := keyOf(k, s.before(i))
		is, hasKey := keyOf(k, s.after(j))
		switch {
		case !hadKey || !hasKey:
		case was == is:
			return true
		case other == nil:
			other = k
		}
	}
	return other == nil || d.equalBut(s.before(i), s.after(j), other)
}

// equalBut reports whether two items are equal in all members but the key.
func (d *differ) equalBut(a, b reflect.Value, k *keyer) bool {
	a, b = behindPointers(a), behindPointers(b)
	if !a.IsValid() || !b.IsValid() || a.Type() != b.Type() {
		return false
	}
	switch p := planFor(a.Type()).on(b); p.shape {
	case shapeStruct:
		for i := range p.fields {
			f := &p.fields[i]
			if f.name != k.name && !d.equalField(f, f.get(a), f.get(b)) {
				return false
			}
		}
		return true
	case shapeMap:
		key := reflect.ValueOf(k.name).Convert(a.Type().Key())
		for it := a.MapRange(); it.Next(); {
			w := b.MapIndex(it.Key())
			if it.Key().Equal(key) {
				continue
			}
			if !w.IsValid() || !d.equal(p.elem, it.Value(), w) {
				return false
			}
		}
		return a.Len() == b.Len()
	}
	return false
}

// alignKeys pairs items by their key, and returns those without one. Equal items have equal keys, so equality decides
// first only among the items that share a key.
func (d *differ) alignKeys(s *stretch, k *keyer, p *pairing) (a, b []int) {
	type group struct{ a, b []int }
	groups := make(map[string]*group, s.m)
	for i := range s.m {
		key, ok := d.keyOf(k, s.before(i))
		if !ok {
			a = append(a, i)
			continue
		}
		g := groups[key]
		if g == nil {
			g = &group{}
			groups[key] = g
		}
		g.a = append(g.a, i)
	}
	for j := range s.n {
		key, ok := d.keyOf(k, s.after(j))
		if !ok {
			b = append(b, j)
			continue
		}
		if g := groups[key]; g != nil {
			g.b = append(g.b, j)
		}
	}
	for _, g := range groups {
		if len(g.a) > 1 || len(g.b) > 1 {
			d.alignEqual(s, g.a, g.b, p)
			g.a = slices.DeleteFunc(g.a, func(i int) bool { return p.to[i] >= 0 })
			g.b = slices.DeleteFunc(g.b, func(j int) bool { return p.from[j] >= 0 })
			if len(g.a) != len(g.b) {
				d.alignAlike(s, g.a, g.b, p)
				continue
			}
		}
		for n := range min(len(g.a), len(g.b)) {
			p.pair(g.a[n], g.b[n])
		}
	}
	return a, b
}

// alignAlike pairs items that share a key, if their number before and after differs. Each is paired with the item
// that has most members in common with it, or with the first of several such. By their order, port 53 over UDP would get
// the members of port 53 over TCP that only raw has.
func (d *differ) alignAlike(s *stretch, a, b []int, p *pairing) {
	if len(a) == 0 || len(b) == 0 {
		return
	}
	if len(a)*len(b) > 1<<10 {
		for n := range min(len(a), len(b)) {
			p.pair(a[n], b[n])
		}
		return
	}
	type match struct{ i, j, alike int }
	var all []match
	for _, i := range a {
		for _, j := range b {
			all = append(all, match{i, j, d.alike(s.list.elem, s.before(i), s.after(j))})
		}
	}
	slices.SortStableFunc(all, func(x, y match) int { return y.alike - x.alike })
	for _, m := range all {
		if p.to[m.i] < 0 && p.from[m.j] < 0 {
			p.pair(m.i, m.j)
		}
	}
}

// alike counts the members that two items have in common.
func (d *differ) alike(p *plan, a, b reflect.Value) int {
	n := 0
	switch p = p.on(b); p.shape {
	case shapePointer:
		if !a.IsNil() && !b.IsNil() {
			return d.alike(p.elem, a.Elem(), b.Elem())
		}
	case shapeStruct:
		for i := range p.fields {
			f := &p.fields[i]
			if d.equalField(f, f.get(a), f.get(b)) {
				n++
			}
		}
	}
	return n
}
