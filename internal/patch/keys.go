package patch

import (
	"reflect"
	"slices"
)

// A keyer tells the items of a list apart by one of their members.
type keyer struct {
	name  string
	field *field // of the item's struct; nil where items are trees
}

// resolver looks up the key's field once all plans are complete; list types may contain themselves.
func (k *keyer) resolver(list *plan) func() {
	return func() {
		item := list.elem
		for item != nil && item.shape == shapePointer {
			item = item.elem
		}
		if item == nil || item.shape != shapeStruct {
			return
		}
		for i := range item.fields {
			if item.fields[i].name == k.name {
				k.field = &item.fields[i]
			}
		}
	}
}

// keyOf returns an item's key. An item whose key is missing or zero has none: it is nobody in particular.
func (d *differ) keyOf(k *keyer, v reflect.Value) (string, bool) {
	for v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface {
		if v.IsNil() {
			return "", false
		}
		v = v.Elem()
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
		return "", false
	}
	for v.IsValid() && (v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface) {
		v, p = v.Elem(), nil
	}
	if !v.IsValid() || v.IsZero() {
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

// alignKeys pairs items by their key, and returns those that have none. Equal items have equal keys, so equality
// decides first only among the items that share one.
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

// alignAlike pairs items that share a key but not their number: each with the one it has most members in
// common with, and with the first of several. Port 53 over UDP is not port 53 over TCP.
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
	case shapeInterface:
		if !a.IsNil() && !b.IsNil() && a.Elem().Type() == b.Elem().Type() {
			return d.alike(planFor(a.Elem().Type()), a.Elem(), b.Elem())
		}
	case shapeStruct:
		for i := range p.fields {
			f := &p.fields[i]
			if d.equalField(f, f.get(a), f.get(b)) {
				n++
			}
		}
	case shapeMap:
		for it := a.MapRange(); it.Next(); {
			if w := b.MapIndex(it.Key()); w.IsValid() && d.equal(p.elem, it.Value(), w) {
				n++
			}
		}
	}
	return n
}
