package patch

// This file pairs the items of the list before with those of the list after.

import (
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
