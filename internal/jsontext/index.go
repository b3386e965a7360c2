package jsontext

// This file finds members and items, in any order.

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// ErrSyntax is returned (wrapped, with the place) if a text is not JSON.
var ErrSyntax = errors.New("raw JSON is malformed")

// An Index finds the position of members and items in a text, without decoding it.
//
// It holds where each object and list ends. Listing the members of an object then takes time in proportion to their
// number, whatever is below them. Either NewIndex finds these ends in one pass over the bytes, or a decoder records them
// on its way. The JSON is decoded in both cases, so an Index is no validator and tolerates errors that cannot mislead it.
// But no input makes it panic.
//
// Short objects and lists are not kept, because they are skipped faster than found.
type Index struct {
	raw   []byte
	spans []span
	open  int32 // number of the innermost span that has no end yet, counted from 1; 0 if there is none
}

const short = 64 // bytes

// A span belongs to one object or list. Spans are in the order of the opening brackets.
type span struct {
	start int32
	end   int32 // just behind the closing bracket; until that is known, the number of the open span around this one
	next  int32 // the index of the first span that does not start inside this one
}

// A Node is the position and kind of a JSON value.
type Node struct {
	Start, End int32
	Kind       byte // the first byte of the value; 0 if there is no such value
}

// Holds reports whether there is a value and it is not null.
func (n Node) Holds() bool { return n.Kind != 0 && n.Kind != 'n' }

// A Part is a member of an object or an item of an array.
type Part struct {
	Node
	Name []byte // of a member, decoded
}

// Malformed returns ErrSyntax with its place.
func Malformed(at int) error { return fmt.Errorf("%w at byte %d", ErrSyntax, at) }

// Record starts an Index of raw. Open and Close then record objects and lists. Any can be left out with all below it: if
// Parts needs them, it makes the pass.
func Record(raw []byte) Index { return Index{raw: raw, spans: make([]span, 0, len(raw)/short/2)} }

// Open records an opening bracket.
func (doc *Index) Open(at int) {
	doc.spans = append(doc.spans, span{start: int32(at), end: doc.open})
	doc.open = int32(len(doc.spans))
}

// Close records the end of what was opened last.
func (doc *Index) Close(end int) {
	n := doc.open - 1
	s := &doc.spans[n]
	doc.open, s.end, s.next = s.end, int32(end), int32(len(doc.spans))
	if s.end-s.start < short {
		doc.spans = doc.spans[:n] // those inside are shorter, so none is left
	}
}

// IsOf reports whether this is an Index of raw, and of no other text.
func (doc *Index) IsOf(raw []byte) bool {
	return 0 < len(raw) && len(raw) < math.MaxInt32 && len(raw) == len(doc.raw) && &raw[0] == &doc.raw[0]
}

// NewIndex makes the pass over the bytes, and returns the node of the whole document.
func NewIndex(raw []byte) (Index, Node, error) {
	if len(raw) >= math.MaxInt32 {
		return Index{}, Node{}, fmt.Errorf("raw JSON has %d bytes; at most %d can be patched", len(raw), math.MaxInt32-1)
	}
	doc := Record(raw)
	for i := 0; i < len(raw); i++ {
		switch raw[i] {
		case '"':
			end := skipString(raw, i)
			if end < 0 {
				return doc, Node{}, Malformed(i)
			}
			i = end - 1
		case '{', '[':
			doc.Open(i)
		case '}', ']':
			if doc.open == 0 || raw[doc.spans[doc.open-1].start] != raw[i]-2 { // in ASCII, the opening bracket
				return doc, Node{}, Malformed(i)
			}
			doc.Close(i + 1)
		}
	}
	if doc.open > 0 {
		return doc, Node{}, Malformed(len(raw))
	}
	r := Reader{Text: raw}
	root, _ := doc.value(&r, 0)
	if r.Peek(); r.At != len(raw) {
		return doc, root, Malformed(int(max(root.Start, root.End)))
	}
	return doc, root, nil
}

// Root returns the node of the whole document.
func (doc *Index) Root() Node {
	root, _ := doc.value(&Reader{Text: doc.raw}, 0)
	return root
}

// value reads a value. span is the index of the first span that does not start in front of it. value also returns the
// index of the first span behind it.
func (doc *Index) value(r *Reader, span int) (Node, int) {
	n := Node{Kind: r.Peek(), Start: int32(r.At)}
	if span < len(doc.spans) && doc.spans[span].start == n.Start {
		r.At, span = int(doc.spans[span].end), int(doc.spans[span].next)
	} else {
		r.Value()
	}
	n.End = int32(r.At)
	return n, span
}

// find returns the index of the first span that does not start in front of an index, and whether it starts there.
func (doc *Index) find(at int32) (int, bool) {
	return slices.BinarySearchFunc(doc.spans, at, func(s span, at int32) int { return int(s.start - at) })
}

// Parts appends the members of an object or the items of an array.
func (doc *Index) Parts(n Node, out []Part) ([]Part, error) {
	span, known := doc.find(n.Start)
	if !known && n.End-n.Start >= short {
		all, _, err := NewIndex(doc.raw)
		if err != nil {
			return nil, err
		}
		*doc = all
		span, known = doc.find(n.Start)
	}
	if known {
		span++
	}
	r, at := Reader{Text: doc.raw, At: int(n.Start)}, n.Start
	for more := r.Enter(n.Kind); more; more = r.More(n.Kind) {
		var p Part
		if n.Kind == '{' {
			p.Name = r.Name()
		}
		p.Node, span = doc.value(&r, span)
		out, at = append(out, p), max(at, p.End)
	}
	if r.Failed() {
		return nil, Malformed(int(at))
	}
	return out, nil
}

// Duplicate returns a name that two members share, if there is one.
func Duplicate(members []Part) (string, bool) {
	var seen Names
	for i := range members {
		if name := members[i].Name; !seen.Add(name) {
			return string(name), true
		}
	}
	return "", false
}
