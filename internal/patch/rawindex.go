package patch

// This file finds members and items in the raw JSON.

import (
	"fmt"
	"math"
	"slices"
	"sync"

	"code.cloudfoundry.org/eirinix/internal/jsontext"
)

// A document finds the position of members and items in the raw JSON, without decoding it.
//
// One pass over the bytes records where each object and array ends. After that, listing the members of an object
// takes time in proportion to their number, whatever is below them. The caller has decoded the JSON already, so a
// document is no validator and tolerates errors that cannot mislead it. But no input makes it panic.
type document struct {
	raw   []byte
	spans []span
}

// A span belongs to one object or array. Spans are in the order of the opening brackets.
type span struct {
	end  int32 // just behind the closing bracket
	next int32 // the span of the next object or array that is not inside this one
}

// A node is the position and kind of a JSON value.
type node struct {
	start, end int32
	span       int32
	kind       byte // '{', '[', '"', 'n' for null, '0' for other scalars; 0 if there is no such value
}

// holds reports whether there is a value and it is not null.
func (n node) holds() bool { return n.kind != 0 && n.kind != 'n' }

// An entry is a member of an object or an item of an array.
type entry struct {
	node
	nameStart, nameEnd int32
	name               string // decoded; empty if the bytes of the name decode to themselves
}

// name returns the decoded name of a member.
func (doc *document) name(e *entry) []byte {
	if e.name != "" {
		return []byte(e.name)
	}
	return doc.raw[e.nameStart:e.nameEnd]
}

func malformed(at int) error { return fmt.Errorf("%w at byte %d", ErrSyntax, at) }

// spanPool holds the spans of closed documents.
var spanPool = sync.Pool{New: func() any { return new([]span) }}

// mostPooled bounds the spans that a document may return to the pool. Some megabytes of JSON have that many.
const mostPooled = 1 << 16

// close returns the spans to the pool. Lookups are not possible any more.
func (doc *document) close() {
	if 0 < cap(doc.spans) && cap(doc.spans) <= mostPooled {
		spans := doc.spans[:0]
		spanPool.Put(&spans)
	}
	doc.spans = nil
}

// open makes the pass over the bytes, and returns the node of the whole document.
func open(raw []byte) (document, node, error) {
	doc := document{raw: raw}
	if len(raw) >= math.MaxInt32 {
		return doc, node{}, fmt.Errorf("raw JSON has %d bytes; at most %d can be patched", len(raw), math.MaxInt32-1)
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
			end := jsontext.SkipString(raw, i)
			if end < 0 {
				return doc, node{}, malformed(i)
			}
			i = end - 1
		case '{', '[':
			stack = append(stack, int32(len(doc.spans)))
			doc.spans = append(doc.spans, span{end: -int32(raw[i])})
		case '}', ']':
			if len(stack) == 0 {
				return doc, node{}, malformed(i)
			}
			s := &doc.spans[stack[len(stack)-1]]
			stack = stack[:len(stack)-1]
			if s.end != -int32(raw[i]-2) { // in ASCII, an opening bracket is two below its closing one
				return doc, node{}, malformed(i)
			}
			s.end, s.next = int32(i+1), int32(len(doc.spans))
		}
	}
	if len(stack) > 0 {
		return doc, node{}, malformed(len(raw))
	}
	at := jsontext.SkipSpace(raw, 0)
	root, _, err := doc.value(at, 0)
	if err == nil && jsontext.SkipSpace(raw, int(root.end)) != len(raw) {
		err = malformed(int(root.end))
	}
	return doc, root, err
}

// value reads the value at a position. span is the index of the first span that does not start before the position.
// value also returns the index of the first span behind the value.
func (doc *document) value(at int, span int32) (node, int32, error) {
	raw := doc.raw
	if uint(at) >= uint(len(raw)) {
		return node{}, 0, malformed(at)
	}
	n := node{start: int32(at), kind: raw[at]}
	switch n.kind {
	case '{', '[':
		if int(span) >= len(doc.spans) {
			return node{}, 0, malformed(at)
		}
		s := doc.spans[span]
		n.end, n.span = s.end, span
		return n, s.next, nil
	case '"':
		n.end = int32(jsontext.SkipString(raw, at))
	default:
		if n.end = int32(jsontext.SkipLiteral(raw, at)); n.kind != 'n' {
			n.kind = '0'
		}
	}
	if n.end < 0 {
		return node{}, 0, malformed(at)
	}
	return n, span, nil
}

// entries appends the members of an object or the items of an array.
func (doc *document) entries(n node, out []entry) ([]entry, error) {
	raw, span := doc.raw, n.span+1
	at, more := jsontext.First(raw, int(n.start), n.kind)
	for more {
		var e entry
		var err error
		if n.kind == '{' {
			if e, at, err = doc.memberName(at); err != nil {
				return nil, err
			}
		}
		if e.node, span, err = doc.value(at, span); err != nil {
			return nil, err
		}
		out = append(out, e)
		if at, more = jsontext.Next(raw, int(e.end), n.kind+2); at < 0 {
			return nil, malformed(int(e.end))
		}
	}
	return out, nil
}

// memberName reads a name and its colon, and returns the position of the value.
func (doc *document) memberName(at int) (entry, int, error) {
	name, plain, end := jsontext.Text(doc.raw, at)
	next := jsontext.Colon(doc.raw, end)
	if next < 0 {
		return entry{}, 0, malformed(at)
	}
	e := entry{nameStart: int32(at + 1), nameEnd: int32(end - 1)}
	if !plain {
		e.name = jsontext.Unquote(name)
	}
	return e, next, nil
}

// duplicate returns a name that two members share, if there is one.
func (doc *document) duplicate(members []entry) (string, bool) {
	var seen jsontext.Names
	for i := range members {
		if name := doc.name(&members[i]); !seen.Add(name) {
			return string(name), true
		}
	}
	return "", false
}
