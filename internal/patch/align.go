package patch

// This file pairs the items of the list before with those of the list after: by the members that identify them, by
// equality, and by position.

import (
	"cmp"
	"reflect"
	"slices"

	"code.cloudfoundry.org/eirinix/internal/jsontype"
	"code.cloudfoundry.org/eirinix/internal/list"
)

// A pairing maps the items of the list before to those of the list after, and back.
type pairing struct {
	from []int // for each item after: its index before, or -1 if it is new
	to   []int // for each item before: its index after, or -1 if it is gone
}

func (p *pairing) pair(i, j int) { p.from[j], p.to[i] = i, j }

// A stretch is the rest of two lists without their common head and tail.
type stretch struct {
	list *jsontype.Type
	a, b reflect.Value
	head int // number of items in front of the stretch
	m, n int // its length before and after
}

func (s *stretch) before(i int) reflect.Value { return s.a.Index(s.head + i) }
func (s *stretch) after(j int) reflect.Value  { return s.b.Index(s.head + j) }

// align pairs the items of a stretch by key or name, then by equality, then by position if nothing else decides.
func align(s *stretch, mergeKey string) pairing {
	p := pairing{from: slices.Repeat([]int{-1}, s.n), to: slices.Repeat([]int{-1}, s.m)}
	if s.m == 0 || s.n == 0 {
		return p
	}
	var space [3]keyer
	keys := keysOf(space[:0], s.list.Elem, mergeKey)
	for i := range keys {
		alignKeys(s, &keys[i], &p)
	}
	if a, b := unpaired(p.to), unpaired(p.from); len(a) > 0 && len(b) > 0 && s.m+s.n > 2 {
		alignEqual(s, a, b, &p)
		if mergeKey != "" { // several items can have one key
			ca, cb := s.classes(a, b, func(dst []byte, v reflect.Value) ([]byte, bool) {
				key, ok := keyOf(&keys[0], v)
				return append(dst, key...), ok
			})
			p.inOrder(a, b, ca, cb)
		}
	}
	alignPositions(&p, func(i, j int) bool { return mayBecome(s, i, j, keys) })
	return p
}

// unpaired lists the items that have no counterpart yet.
func unpaired(counterparts []int) []int {
	out := make([]int, 0, len(counterparts))
	for i, j := range counterparts {
		if j < 0 {
			out = append(out, i)
		}
	}
	return out
}

// alignEqual pairs equal items out of two subsets, preferring those that keep their order.
func alignEqual(s *stretch, a, b []int, p *pairing) {
	ca, cb := s.classes(a, b, func(dst []byte, v reflect.Value) ([]byte, bool) {
		text, err := encode(dst, s.list.Elem, v)
		return text, err == nil // the error is reported when the item is written
	})
	// The longest common subsequence takes quadratic time. Beyond this bound, equal items are paired in order.
	if len(ca)*len(cb) <= 1<<16 {
		for _, match := range list.Common(ca, cb) {
			p.pair(a[match[0]], b[match[1]])
		}
	}
	p.inOrder(a, b, ca, cb)
}

// inOrder pairs those items of two subsets that are not paired yet: the first of each class with the first, and so on.
func (p *pairing) inOrder(a, b, ca, cb []int) {
	waiting := map[int][]int{}
	for n, c := range ca {
		if p.to[a[n]] < 0 {
			waiting[c] = append(waiting[c], a[n])
		}
	}
	for n, c := range cb {
		if w := waiting[c]; len(w) > 0 && p.from[b[n]] < 0 {
			p.pair(w[0], b[n])
			waiting[c] = w[1:]
		}
	}
}

// classes numbers items so that exactly those with the same text share a number. An item without a text shares none.
func (s *stretch) classes(a, b []int, appendText func([]byte, reflect.Value) ([]byte, bool)) (ca, cb []int) {
	known := make(map[string]int, len(a))
	var text []byte
	without := 0
	number := func(v reflect.Value) int {
		var ok bool
		if text, ok = appendText(text[:0], v); !ok {
			without++
			return -without
		}
		c, ok := known[string(text)]
		if !ok {
			c = len(known)
			known[string(text)] = c
		}
		return c
	}
	ca, cb = make([]int, len(a)), make([]int, len(b))
	for n, i := range a {
		ca[n] = number(s.before(i))
	}
	for n, j := range b {
		cb[n] = number(s.after(j))
	}
	return ca, cb
}

// alignPositions pairs the remaining items if their position leaves no doubt. That is the case between two neighbours
// that are paired, or the ends of the stretch, if as many items remain before as after. Of those, the k-th is paired
// with the k-th, unless fits rejects the pair.
func alignPositions(p *pairing, fits func(i, j int) bool) {
	for j := 0; j < len(p.from); j++ {
		if p.from[j] >= 0 {
			continue
		}
		end := j
		for end < len(p.from) && p.from[end] < 0 {
			end++
		}
		left, right := -1, len(p.to)
		if j > 0 {
			left = p.from[j-1]
		}
		if end < len(p.from) {
			right = p.from[end]
		}
		equal := right-left-1 == end-j
		for i := left + 1; equal && i < right; i++ {
			equal = p.to[i] < 0
		}
		for n := 0; equal && n < end-j; n++ {
			if fits(left+1+n, j+n) {
				p.pair(left+1+n, j+n)
			}
		}
		j = end
	}
}

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
