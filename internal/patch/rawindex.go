package patch

// This file finds members and items in the raw JSON.

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"sync"
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
	name               string // decoded; empty if it is plain ASCII without escapes
}

func (doc *document) named(e *entry, name string) bool {
	if e.name != "" {
		return e.name == name
	}
	return string(doc.raw[e.nameStart:e.nameEnd]) == name
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
			end := closingQuote(raw, i+1)
			if end < 0 {
				return doc, node{}, malformed(i)
			}
			i = end
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
	at := skipSpace(raw, 0)
	root, _, err := doc.value(at, 0)
	if err == nil && skipSpace(raw, int(root.end)) != len(raw) {
		err = malformed(int(root.end))
	}
	return doc, root, err
}

// closingQuote finds the end of a string whose text starts at i. It returns -1 if there is none. Half of all bytes
// are in strings, so it checks eight of them at a time.
func closingQuote(raw []byte, i int) int {
	const all = 0x0101010101010101
	for i+8 <= len(raw) {
		eight := binary.LittleEndian.Uint64(raw[i:])
		found := zeroBytes(eight^('"'*all)) | zeroBytes(eight^('\\'*all))
		if found == 0 {
			i += 8
			continue
		}
		i += bits.TrailingZeros64(found) / 8
		if raw[i] == '"' {
			return i
		}
		i += 2 // an escape, and the byte that it escapes
	}
	for ; i < len(raw); i++ {
		switch raw[i] {
		case '"':
			return i
		case '\\':
			i++
		}
	}
	return -1
}

// zeroBytes sets the highest bit of the lowest byte that is zero. Bits above that one can be set or not.
func zeroBytes(x uint64) uint64 { return (x - 0x0101010101010101) &^ x & 0x8080808080808080 }

func skipSpace(raw []byte, i int) int {
	for i < len(raw) && (raw[i] == ' ' || raw[i] == '\n' || raw[i] == '\t' || raw[i] == '\r') {
		i++
	}
	return i
}

// value reads the value at a position. span is the index of the first span that does not start before the position.
// value also returns the index of the first span behind the value.
func (doc *document) value(at int, span int32) (node, int32, error) {
	raw := doc.raw
	if at >= len(raw) {
		return node{}, 0, malformed(at)
	}
	switch c := raw[at]; c {
	case '{', '[':
		if int(span) >= len(doc.spans) {
			return node{}, 0, malformed(at)
		}
		s := doc.spans[span]
		return node{start: int32(at), end: s.end, span: span, kind: c}, s.next, nil
	case '"':
		end := closingQuote(raw, at+1)
		if end < 0 {
			return node{}, 0, malformed(at)
		}
		return node{start: int32(at), end: int32(end + 1), kind: c}, span, nil
	}
	end := at
scan:
	for end < len(raw) {
		switch raw[end] {
		case ',', ']', '}', ' ', '\n', '\t', '\r', '{', '[', '"', ':':
			break scan
		}
		end++
	}
	if end == at {
		return node{}, 0, malformed(at)
	}
	kind := byte('0')
	if string(raw[at:end]) == "null" {
		kind = 'n'
	}
	return node{start: int32(at), end: int32(end), kind: kind}, span, nil
}

// entries appends the members of an object or the items of an array.
func (doc *document) entries(n node, out []entry) ([]entry, error) {
	raw, closing := doc.raw, n.kind+2
	at, span := skipSpace(raw, int(n.start)+1), n.span+1
	if at < len(raw) && raw[at] == closing {
		return out, nil
	}
	for {
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
		at = skipSpace(raw, int(e.end))
		switch {
		case at < len(raw) && raw[at] == ',':
			at = skipSpace(raw, at+1)
		case at < len(raw) && raw[at] == closing:
			return out, nil
		default:
			return nil, malformed(at)
		}
	}
}

// memberName reads a name and its colon, and returns the position of the value.
func (doc *document) memberName(at int) (entry, int, error) {
	raw := doc.raw
	if at >= len(raw) || raw[at] != '"' {
		return entry{}, 0, malformed(at)
	}
	end := closingQuote(raw, at+1)
	if end < 0 {
		return entry{}, 0, malformed(at)
	}
	e := entry{nameStart: int32(at + 1), nameEnd: int32(end)}
	for _, c := range raw[at+1 : end] {
		if c == '\\' || c >= 0x80 {
			// The name has escapes, or bytes that decoding replaces if they are not UTF-8.
			var name string
			if err := json.Unmarshal(raw[at:end+1], &name); err != nil {
				return entry{}, 0, malformed(at)
			}
			e.name = name
			break
		}
	}
	at = skipSpace(raw, end+1)
	if at >= len(raw) || raw[at] != ':' {
		return entry{}, 0, malformed(at)
	}
	return e, skipSpace(raw, at+1), nil
}

// duplicate returns a name that two members share, if there is one.
func (doc *document) duplicate(members []entry) (string, bool) {
	name := func(e *entry) []byte {
		if e.name != "" {
			return []byte(e.name)
		}
		return doc.raw[e.nameStart:e.nameEnd]
	}
	if len(members) <= 24 {
		for i := range members {
			for j := range i {
				if bytes.Equal(name(&members[i]), name(&members[j])) {
					return string(name(&members[i])), true
				}
			}
		}
		return "", false
	}
	seen := make(map[string]struct{}, len(members))
	for i := range members {
		n := string(name(&members[i]))
		if _, ok := seen[n]; ok {
			return n, true
		}
		seen[n] = struct{}{}
	}
	return "", false
}
