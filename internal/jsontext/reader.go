// Package jsontext finds where parts of a JSON text end, without decoding them.
//
// Each function reads the text from an index and returns the index behind the part that it has read. It returns -1 if
// that part is not well-formed by RFC 8259. Every index outside the text counts as its end. A caller can therefore
// chain calls and check only the last index. Like encoding/json, no function checks the encoding of strings.
package jsontext

// This file reads a text from front to back.

import "bytes"

// deepest is how deep a value can nest. It is a little less than in encoding/json, which counts what is around a value,
// too.
const deepest = 9990

// A Reader reads a text value by value. Once it has met something else than it was asked for, it returns nothing more.
type Reader struct {
	Text []byte
	At   int // -1 once it has failed
}

// Fail ends the reading.
func (r *Reader) Fail() { r.At = -1 }

// Failed reports whether the text was not as it was read.
func (r *Reader) Failed() bool { return r.At < 0 }

// Peek returns the first byte of the next token, or 0 at the end.
func (r *Reader) Peek() byte {
	if uint(r.At) < uint(len(r.Text)) && r.Text[r.At] <= ' ' {
		r.At = SkipSpace(r.Text, r.At)
	}
	return at(r.Text, r.At)
}

// Null reports whether null comes next, and reads it.
func (r *Reader) Null() bool {
	if r.Peek() != 'n' {
		return false
	}
	r.At = SkipLiteral(r.Text, r.At)
	return !r.Failed()
}

// Enter goes to the first member or item, and reports whether there is one. null counts as empty.
func (r *Reader) Enter(opening byte) bool {
	if r.Peek() != opening {
		if !r.Null() {
			r.Fail()
		}
		return false
	}
	r.At++
	if r.Peek() == opening+2 { // in ASCII, the closing bracket
		r.At++
		return false
	}
	return true
}

// More goes to the next member or item, and reports whether there is one.
func (r *Reader) More(opening byte) bool {
	switch r.Peek() {
	case ',':
		r.At++
		return true
	case opening + 2:
		r.At++
		return false
	}
	r.Fail()
	return false
}

// Member enters an object, goes to the value of the member with this name, and returns true. If there is no such
// member, it goes past the object and returns false.
func (r *Reader) Member(name string) bool {
	for more := r.Enter('{'); more; more = r.More('{') {
		if string(r.Name()) == name {
			return !r.Failed()
		}
		r.Value()
	}
	return false
}

// Name reads the name of a member and its colon.
func (r *Reader) Name() []byte {
	r.Peek()
	name, plain, end := Text(r.Text, r.At)
	if !plain {
		name = []byte(Unquote(name))
	}
	if r.At = end; !r.Colon() {
		return nil
	}
	return name
}

// Colon reads the colon behind a name. It returns false if there is none.
func (r *Reader) Colon() bool {
	if r.Peek() != ':' {
		r.Fail()
		return false
	}
	r.At++
	return true
}

// String reads a string. null counts as empty. The result is part of the text unless it is written otherwise there.
func (r *Reader) String() []byte {
	if r.Peek() == 'n' && r.Null() {
		return nil
	}
	inside, plain, end := Text(r.Text, r.At)
	if r.At = end; !plain {
		inside = []byte(Unquote(inside))
	}
	return inside
}

// Value reads a value of any type and returns its text.
func (r *Reader) Value() []byte { return r.Skip(deepest) }

// Skip is Value with another bound on the nesting.
func (r *Reader) Skip(nesting int) []byte {
	r.Peek()
	start, end := r.At, SkipValue(r.Text, r.At, nesting)
	if r.At = end; end < 0 {
		return nil
	}
	return r.Text[start:end:end]
}

// Names is the set of names that an object has. Most objects have few, which need no memory.
type Names struct {
	few  [16][]byte
	n    int
	many map[string]struct{}
}

// Add returns false if the set holds the name already.
func (s *Names) Add(name []byte) bool {
	for _, few := range s.few[:s.n] {
		if bytes.Equal(few, name) {
			return false
		}
	}
	if s.n < len(s.few) {
		s.few[s.n] = name
		s.n++
		return true
	}
	if s.many == nil {
		s.many = map[string]struct{}{}
	}
	if _, twice := s.many[string(name)]; twice {
		return false
	}
	s.many[string(name)] = struct{}{}
	return true
}

// SkipValue moves past the value at i, and past white space in front of it. It returns -1 also if lists and objects
// nest deeper than nesting.
//
// A request that no step wants spends most of its time here. SkipValue therefore reads names and strings in one place,
// many bytes at a time, and keeps the open brackets as bits of a word.
func SkipValue(text []byte, i, nesting int) int {
	var objects uint64 // one bit for each open bracket, innermost lowest: is it an object?
	open := 0          // number of open brackets
	name := false      // the name of a member comes next
next:
	for uint(i) < uint(len(text)) {
		switch c := text[i]; c {
		case ' ', '\n', '\t', '\r':
			i++
			continue
		case '"':
			if i = skipText(text, i+1); i < 0 {
				return -1
			}
			if name {
				if i >= len(text) || text[i] != ':' {
					if i = SkipSpace(text, i); i >= len(text) || text[i] != ':' {
						return -1
					}
				}
				name = false
				i++
				continue
			}
		case '{', '[':
			if name {
				return -1
			}
			start := i
			if i = SkipSpace(text, i+1); i < len(text) && text[i] == c+2 { // in ASCII, the closing bracket
				i++
				break
			}
			if open == min(nesting, 64) {
				if open == nesting {
					return -1
				}
				// The word has no more bits, so another call reads this value.
				if i = SkipValue(text, start, nesting-open); i < 0 {
					return -1
				}
				break
			}
			open++
			objects <<= 1
			if c == '{' {
				objects |= 1
				name = true
			}
			continue
		default:
			if name {
				return -1
			}
			if i = SkipLiteral(text, i); i < 0 {
				return -1
			}
		}
		// A value has ended. It is the last one, or a comma or closing brackets follow.
		for open > 0 {
			if i >= len(text) {
				return -1
			}
			c := text[i]
			if c <= ' ' {
				if i = SkipSpace(text, i); i >= len(text) {
					return -1
				}
				c = text[i]
			}
			i++
			isObject := objects&1 == 1
			switch {
			case c == ',':
				name = isObject
				continue next
			case c == '}' && isObject, c == ']' && !isObject:
				objects >>= 1
				open--
			default:
				return -1
			}
		}
		return i
	}
	return -1
}

// SkipSpace moves past white space.
func SkipSpace(text []byte, i int) int {
	for uint(i) < uint(len(text)) && (text[i] == ' ' || text[i] == '\n' || text[i] == '\t' || text[i] == '\r') {
		i++
	}
	return i
}

// SkipLiteral moves past a number, true, false or null.
func SkipLiteral(text []byte, i int) int {
	switch at(text, i) {
	case 't':
		return skipWord(text, i, "true")
	case 'f':
		return skipWord(text, i, "false")
	case 'n':
		return skipWord(text, i, "null")
	case '-':
		i++
	}
	// No digit can follow a leading zero.
	if at(text, i) == '0' {
		i++
	} else if i = skipDigits(text, i); i < 0 {
		return -1
	}
	if at(text, i) == '.' {
		if i = skipDigits(text, i+1); i < 0 {
			return -1
		}
	}
	if c := at(text, i); c == 'e' || c == 'E' {
		if c = at(text, i+1); c == '+' || c == '-' {
			i++
		}
		return skipDigits(text, i+1)
	}
	return i
}

func skipWord(text []byte, i int, word string) int {
	if end := i + len(word); end <= len(text) && string(text[i:end]) == word {
		return end
	}
	return -1
}

// skipDigits moves past one or more digits.
func skipDigits(text []byte, i int) int {
	start := i
	for at(text, i)-'0' <= 9 {
		i++
	}
	if i == start {
		return -1
	}
	return i
}

// at returns the byte at i. At the end of the text it returns 0, which occurs nowhere in JSON.
func at(text []byte, i int) byte {
	if uint(i) < uint(len(text)) {
		return text[i]
	}
	return 0
}
