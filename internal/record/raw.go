package record

// This file navigates and edits JSON text without decoding it.

import (
	"bytes"
	"encoding/json"
	"iter"
	"slices"
)

// span is a part of a text, from its first byte to just behind its last.
type span struct{ start, end int }

// member is a member of an object: its name, with the quotes, and its value.
type member struct{ name, value span }

// text is valid JSON, which makes it simple to navigate.
type text []byte

func (t text) at(s span) []byte { return t[s.start:s.end] }

// all returns the span of the whole value, without the space around it.
func (t text) all() span {
	end := len(t)
	for t[end-1] <= ' ' {
		end--
	}
	return span{t.skipSpace(0), end}
}

// kind returns the first byte of a value.
func (t text) kind(s span) byte { return t[s.start] }

func (t text) isNull(s span) bool { return t.kind(s) == 'n' }

// members iterates over the members of an object. Other values have none.
func (t text) members(object span) iter.Seq[member] {
	return func(yield func(member) bool) {
		for i, more := t.enter(object, '{'); more; i, more = t.next(i) {
			name := span{i, t.skip(i)}
			value := t.skipSpace(t.skipSpace(name.end) + len(":"))
			i = t.skip(value)
			if !yield(member{name, span{value, i}}) {
				return
			}
		}
	}
}

// elements iterates over the elements of an array. Other values have none.
func (t text) elements(array span) iter.Seq[span] {
	return func(yield func(span) bool) {
		for i, more := t.enter(array, '['); more; i, more = t.next(i) {
			start := i
			i = t.skip(i)
			if !yield(span{start, i}) {
				return
			}
		}
	}
}

// strings iterates over the strings in a value, at any depth, and reports which are names.
func (t text) strings(in span) iter.Seq2[span, bool] {
	return func(yield func(span, bool) bool) {
		for i := in.start; i < in.end; i++ {
			if t[i] != '"' {
				continue
			}
			s := span{i, t.skipString(i)}
			after := t.skipSpace(s.end)
			if !yield(s, after < in.end && t[after] == ':') {
				return
			}
			i = s.end - 1
		}
	}
}

// enter returns the position of the first member or element. It reports false if there is none, or if the value
// begins with another bracket.
func (t text) enter(s span, bracket byte) (i int, more bool) {
	if t.kind(s) != bracket {
		return s.end, false
	}
	i = t.skipSpace(s.start + 1)
	return i, t[i] != bracket+2 // in ASCII, the closing bracket
}

// next returns the position of the member or element behind a comma.
func (t text) next(i int) (_ int, more bool) {
	i = t.skipSpace(i)
	if t[i] != ',' {
		return i, false
	}
	return t.skipSpace(i + 1), true
}

func (t text) skipSpace(i int) int {
	for i < len(t) && t[i] <= ' ' {
		i++
	}
	return i
}

// skip returns the end of the value that begins at i.
func (t text) skip(i int) int {
	switch t[i] {
	case '"':
		return t.skipString(i)
	case '{', '[':
	default:
		for i < len(t) && t[i] > ' ' && t[i] != ',' && t[i] != '}' && t[i] != ']' {
			i++
		}
		return i
	}
	for open := 0; ; {
		switch t[i] {
		case '"':
			i = t.skipString(i)
			continue
		case '{', '[':
			open++
		case '}', ']':
			if open--; open == 0 {
				return i + 1
			}
		}
		i++
	}
}

func (t text) skipString(i int) int {
	for i++; ; i++ {
		i += bytes.IndexByte(t[i:], '"')
		// A quote behind an odd number of backslashes is escaped.
		slashes := 0
		for t[i-1-slashes] == '\\' {
			slashes++
		}
		if slashes%2 == 0 {
			return i + 1
		}
	}
}

// word returns the text of a string; empty for another value.
func (t text) word(s span) string {
	if t.kind(s) != '"' {
		return ""
	}
	inner := t[s.start+1 : s.end-1]
	if bytes.IndexByte(inner, '\\') < 0 {
		return string(inner)
	}
	var word string
	if json.Unmarshal(t.at(s), &word) != nil {
		return string(inner)
	}
	return word
}

// is reports whether a string equals one of words. It ignores case, as decoders do.
func (t text) is(s span, words ...string) bool {
	if t.kind(s) != '"' {
		return false
	}
	inner := t[s.start+1 : s.end-1]
	if bytes.IndexByte(inner, '\\') >= 0 {
		inner = []byte(t.word(s))
	}
	return slices.ContainsFunc(words, func(word string) bool {
		return bytes.EqualFold(inner, []byte(word))
	})
}

// edit replaces a span with other text.
type edit struct {
	span
	by string
}

// edited returns the text with edits applied. The edits are in the order of the text.
func (t text) edited(edits []edit) []byte {
	size := len(t)
	for _, e := range edits {
		size += len(e.by)
	}
	out := make([]byte, 0, size)
	done := 0
	for _, e := range edits {
		out = append(out, t[done:e.start]...)
		out = append(out, e.by...)
		done = e.end
	}
	return append(out, t[done:]...)
}

// removals makes edits that remove members of an object or elements of an array, each with one comma. The caller must
// report all of them in order.
type removals struct {
	to    *[]edit
	stays int // end of the last one that stays; 0 if there is none
	open  int // the edit, from 1, that reaches up to the next one; 0 if there is none
}

// next reports the start of the next member or element.
func (r *removals) next(start int) {
	if r.open > 0 {
		(*r.to)[r.open-1].end = start
		r.open = 0
	}
}

func (r *removals) keep(end int) { r.stays = end }

func (r *removals) remove(s span) {
	if r.stays > 0 {
		*r.to = append(*r.to, edit{span: span{r.stays, s.end}})
		r.stays = s.end
		return
	}
	*r.to = append(*r.to, edit{span: s})
	r.open = len(*r.to)
}
