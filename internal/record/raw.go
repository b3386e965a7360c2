package record

import (
	"bytes"
	"encoding/json"
	"iter"
	"slices"
)

// span is a part of a text: from its first byte to behind its last.
type span struct{ start, end int }

// member is a member of an object: its name, with the quotes, and its value.
type member struct{ name, value span }

// text is JSON that has been found valid, which makes it simple to find one's way in.
type text []byte

func (t text) at(s span) []byte { return t[s.start:s.end] }

// all is the value that the text is.
func (t text) all() span {
	end := len(t)
	for t[end-1] <= ' ' {
		end--
	}
	return span{t.skipSpace(0), end}
}

// kind is the byte that a value begins with.
func (t text) kind(s span) byte { return t[s.start] }

func (t text) isNull(s span) bool { return t.kind(s) == 'n' }

// members gives those of an object; of another value none.
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

// elements gives those of an array; of another value none.
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

// strings gives those in a value, at whatever depth, and tells which are names.
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

// enter finds the first thing in brackets.
func (t text) enter(s span, bracket byte) (i int, more bool) {
	if t.kind(s) != bracket {
		return s.end, false
	}
	i = t.skipSpace(s.start + 1)
	return i, t[i] != bracket+2 // in ASCII, the closing bracket
}

// next finds what follows behind a comma.
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

// skip returns where the value ends that begins at i.
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
		// A quote behind an odd number of backslashes belongs to the text.
		slashes := 0
		for t[i-1-slashes] == '\\' {
			slashes++
		}
		if slashes%2 == 0 {
			return i + 1
		}
	}
}

// word is what a string says; of another value nothing.
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

// is tells whether a string says word, in whatever case, as decoders are content with.
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

// edit puts other text in the place of a span.
type edit struct {
	span
	by string
}

// edited applies edits, which come in the order of the text.
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

// removals makes edits that remove members of an object or elements of an array, each with one comma. It is told of all
// of them in turn.
type removals struct {
	to    *[]edit
	stays int // where the last one ends that stays; 0 when there is none
	open  int // which edit, from 1, reaches up to the next one; 0 when there is none
}

// next is where the next one begins.
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
