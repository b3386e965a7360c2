package jsontext

// This file finds members and items, in any order.

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
)

// ErrSyntax is returned (wrapped, with the place) if a text is not JSON.
var ErrSyntax = errors.New("raw JSON is malformed")

// An Index finds the position of members and items in a text, without decoding it.
//
// One pass over the bytes records where each object and array ends. After that, listing the members of an object
// takes time in proportion to their number, whatever is below them. The caller has decoded the JSON already, so an
// Index is no validator and tolerates errors that cannot mislead it. But no input makes it panic.
type Index struct {
	raw   []byte
	spans []span
}

// A span belongs to one object or array. Spans are in the order of the opening brackets.
type span struct {
	end  int32 // just behind the closing bracket
	next int32 // the span of the next object or array that is not inside this one
}

// A Node is the position and kind of a JSON value.
type Node struct {
	Start, End int32
	span       int32
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

// spanPool holds the spans of closed indexes.
var spanPool = sync.Pool{New: func() any { return new([]span) }}

// maxPooled bounds the spans that an Index may return to the pool. Some megabytes of JSON have that many.
const maxPooled = 1 << 16

// Close returns the spans to the pool. Lookups are not possible any more.
func (doc *Index) Close() {
	if 0 < cap(doc.spans) && cap(doc.spans) <= maxPooled {
		spans := doc.spans[:0]
		spanPool.Put(&spans)
	}
	doc.spans = nil
}

// NewIndex makes the pass over the bytes, and returns the node of the whole document.
func NewIndex(raw []byte) (Index, Node, error) {
	doc := Index{raw: raw}
	if len(raw) >= math.MaxInt32 {
		return doc, Node{}, fmt.Errorf("raw JSON has %d bytes; at most %d can be patched", len(raw), math.MaxInt32-1)
	}
	if pooled, ok := spanPool.Get().(*[]span); ok {
		doc.spans = *pooled
	}
	doc.spans = slices.Grow(doc.spans, 16+len(raw)/32)
	var nesting [64]int32 // enough for most documents
	stack := nesting[:0]
	for i := 0; i < len(raw); i++ {
		switch raw[i] {
		case '"':
			end := skipString(raw, i)
			if end < 0 {
				return doc, Node{}, Malformed(i)
			}
			i = end - 1
		case '{', '[':
			stack = append(stack, int32(len(doc.spans)))
			doc.spans = append(doc.spans, span{end: -int32(raw[i])})
		case '}', ']':
			if len(stack) == 0 {
				return doc, Node{}, Malformed(i)
			}
			s := &doc.spans[stack[len(stack)-1]]
			stack = stack[:len(stack)-1]
			if s.end != -int32(raw[i]-2) { // in ASCII, an opening bracket is two below its closing one
				return doc, Node{}, Malformed(i)
			}
			s.end, s.next = int32(i+1), int32(len(doc.spans))
		}
	}
	if len(stack) > 0 {
		return doc, Node{}, Malformed(len(raw))
	}
	r := Reader{Text: raw}
	root, _ := doc.value(&r, 0)
	if r.Peek(); r.At != len(raw) {
		return doc, root, Malformed(int(max(root.Start, root.End)))
	}
	return doc, root, nil
}

// value reads a value. span is the index of the first span that does not start in front of it. value also returns the
// index of the first span behind it.
func (doc *Index) value(r *Reader, span int32) (Node, int32) {
	n := Node{Kind: r.Peek()}
	n.Start = int32(r.At)
	switch {
	case n.Kind == '"':
		r.At = skipString(r.Text, r.At)
	case n.Kind != '{' && n.Kind != '[':
		r.At = SkipLiteral(r.Text, r.At)
	case int(span) < len(doc.spans):
		n.span = span
		r.At, span = int(doc.spans[span].end), doc.spans[span].next
	default:
		r.Fail()
	}
	n.End = int32(r.At)
	return n, span
}

// Parts appends the members of an object or the items of an array.
func (doc *Index) Parts(n Node, out []Part) ([]Part, error) {
	r, at, span := Reader{Text: doc.raw, At: int(n.Start)}, n.Start, n.span+1
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
