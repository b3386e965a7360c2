package patch

// This file pairs the items of a list by the members that identify them.

import (
	"reflect"
	"slices"
	"strings"
)

// A keyer identifies the items of a list by one of their members.
type keyer struct {
	name    string
	field   *field // of the item's struct; nil if items are trees, or the struct has no such field
	second  *field // belongs to the key, too; nil for none
	guessed bool   // the type of the list does not name it, so only a text is a key
}

// seconds are the members that belong to a key of Kubernetes' own types, beside the one that a struct tag can name.
var seconds = []string{"protocol", "whenUnsatisfiable"}

// in completes a keyer for items of a type.
func (k *keyer) in(item *plan) *keyer {
	item = item.behindPointers()
	k.field = item.member(k.name)
	for _, name := range seconds {
		if f := item.member(name); f != nil && !k.guessed {
			k.second = f
		}
	}
	return k
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

// memberOf returns the member of an item that holds its key. It is invalid if the item has none, or a zero one.
func memberOf(k *keyer, v reflect.Value) reflect.Value {
	switch v = behindPointers(v); {
	case k.field != nil && v.Kind() == reflect.Struct:
		v = behindPointers(k.field.get(v))
	case v.Kind() == reflect.Map && v.Type().Key().Kind() == reflect.String:
		v = behindPointers(v.MapIndex(reflect.ValueOf(k.name).Convert(v.Type().Key())))
	default:
		return reflect.Value{}
	}
	if !v.IsValid() || v.IsZero() {
		return reflect.Value{}
	}
	return v
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
	key := memberOf(k, v)
	if !key.IsValid() || k.guessed && key.Kind() != reflect.String {
		return "", false
	}
	text := key.String()
	if key.Kind() != reflect.String {
		encoded, err := d.encode(nil, planFor(key.Type()), key)
		if text = string(encoded); err != nil {
			return "", false
		}
	}
	if k.second != nil {
		text += " " + behindPointers(k.second.get(behindPointers(v))).String()
	}
	return text, true
}

// namesIn returns the members that can identify the items of a list whose type names no key: name, key and id. The
// types of most custom resources name none.
func namesIn(item *plan) []*keyer {
	var names []*keyer
	for _, name := range []string{"name", "key", "id"} {
		k := (&keyer{name: name, guessed: true}).in(item)
		if shape := item.behindPointers().shape; k.field != nil || shape == shapeInterface || shape == shapeMap {
			names = append(names, k)
		}
	}
	return names
}

// alignKeys pairs the items whose key occurs once before and once after.
func (d *differ) alignKeys(s *stretch, k *keyer, p *pairing) {
	const several = -1
	find := func(n int, item func(int) reflect.Value, counterparts []int) map[string]int {
		found := make(map[string]int, n)
		for i := range n {
			key, ok := d.keyOf(k, item(i))
			if !ok {
				continue
			}
			if _, again := found[key]; again || counterparts[i] >= 0 {
				i = several
			}
			found[key] = i
		}
		return found
	}
	after := find(s.n, s.after, p.from)
	if len(after) == 0 {
		return
	}
	for key, i := range find(s.m, s.before, p.to) {
		if j, ok := after[key]; ok && i != several && j != several {
			p.pair(i, j)
		}
	}
}

// mayBecome reports whether two items may be paired by their position. Items with different keys are different items,
// unless nothing else differs: then the item has been renamed. Of several keys, one that is equal is enough.
func (d *differ) mayBecome(s *stretch, i, j int, keys []*keyer) bool {
	var other *keyer
	for _, k := range keys {
		was, hadKey := d.keyOf(k, s.before(i))
		is, hasKey := d.keyOf(k, s.after(j))
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
			ofKey := f.name == k.name || k.second != nil && f.name == k.second.name
			if !ofKey && !d.equalField(f, f.get(a), f.get(b)) {
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
