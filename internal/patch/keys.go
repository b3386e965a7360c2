package patch

// This file pairs the items of a list by the members that identify them.

import (
	"cmp"
	"reflect"

	"code.cloudfoundry.org/eirinix/internal/jsontype"
)

// A keyer identifies the items of a list by one of their members.
type keyer struct {
	name    string
	field   *jsontype.Field // of the item's struct; nil if items are trees, or the struct has no such field
	second  *jsontype.Field // belongs to the key, too; nil for none
	guessed bool            // the type of the list does not name it, so only a text is a key
}

// seconds are the members that belong to a key of Kubernetes' own types, beside the one that a struct tag can name.
var seconds = []string{"protocol", "whenUnsatisfiable"}

// keysOf appends what can identify the items of a list: its merge key, or, as for most custom resources, whose types name
// none, the members name, key and id.
func keysOf(keys []keyer, item *jsontype.Type, mergeKey string) []keyer {
	for item.Kind == jsontype.Pointer {
		item = item.Elem
	}
	field := func(name string) *jsontype.Field {
		if item.Writes != jsontype.Struct {
			return nil
		}
		return item.Field([]byte(name))
	}
	if mergeKey != "" {
		k := keyer{name: mergeKey, field: field(mergeKey)}
		for _, name := range seconds {
			k.second = cmp.Or(field(name), k.second)
		}
		return append(keys, k)
	}
	for _, name := range []string{"name", "key", "id"} {
		k := keyer{name: name, field: field(name), guessed: true}
		if k.field != nil || item.Writes == jsontype.Interface || item.Writes == jsontype.Map {
			keys = append(keys, k)
		}
	}
	return keys
}

// memberOf returns the member of an item that holds its key. It is invalid if the item has none, or a zero one.
func memberOf(k *keyer, v reflect.Value) reflect.Value {
	switch v = behindPointers(v); {
	case k.field != nil && v.Kind() == reflect.Struct:
		v = behindPointers(k.field.Get(v))
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
func keyOf(k *keyer, v reflect.Value) (string, bool) {
	key := memberOf(k, v)
	if !key.IsValid() || k.guessed && key.Kind() != reflect.String {
		return "", false
	}
	text := key.String()
	if key.Kind() != reflect.String {
		encoded, err := encode(nil, jsontype.Of(key.Type()), key)
		if text = string(encoded); err != nil {
			return "", false
		}
	}
	if k.second != nil {
		text += " " + behindPointers(k.second.Get(behindPointers(v))).String()
	}
	return text, true
}

// alignKeys pairs the items whose key occurs once before and once after.
func alignKeys(s *stretch, k *keyer, p *pairing) {
	const several = -1
	find := func(n int, item func(int) reflect.Value, counterparts []int) map[string]int {
		found := make(map[string]int, n)
		for i := range n {
			key, ok := keyOf(k, item(i))
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
func mayBecome(s *stretch, i, j int, keys []keyer) bool {
	var other *keyer
	for n := range keys {
		k := &keys[n]
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
	return other == nil || equalBut(s.before(i), s.after(j), other)
}

// equalBut reports whether two items are equal in all members but the key.
func equalBut(a, b reflect.Value, k *keyer) bool {
	a, b = behindPointers(a), behindPointers(b)
	if !a.IsValid() || !b.IsValid() || a.Type() != b.Type() {
		return false
	}
	switch t := jsontype.Of(a.Type()); t.On(b) {
	case jsontype.Struct:
		for i := range t.Fields {
			f := &t.Fields[i]
			ofKey := f.Name == k.name || k.second != nil && f.Name == k.second.Name
			if !ofKey && !equalField(f, f.Get(a), f.Get(b)) {
				return false
			}
		}
		return true
	case jsontype.Map:
		key := reflect.ValueOf(k.name).Convert(a.Type().Key())
		for it := a.MapRange(); it.Next(); {
			w := b.MapIndex(it.Key())
			if it.Key().Equal(key) {
				continue
			}
			if !w.IsValid() || !equal(t.Elem, it.Value(), w) {
				return false
			}
		}
		return a.Len() == b.Len()
	}
	return false
}
