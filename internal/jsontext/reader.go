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
		name = unquoted(name)
	}
	if at(r.Text, end) != ':' {
		if end = SkipSpace(r.Text, end); at(r.Text, end) != ':' {
			r.Fail()
			return nil
		}
	}
	r.At = end + 1
	return name
}

// String reads a string. null counts as empty. The result is part of the text unless it is written otherwise there.
func (r *Reader) String() []byte {
	if r.Peek() == 'n' && r.Null() {
		return nil
	}
	inside, plain, end := Text(r.Text, r.At)
	if r.At = end; !plain {
		inside = unquoted(inside)
	}
	return inside
}

func unquoted(inside []byte) []byte { return []byte(Unquote(inside)) }

// Value reads a value of any type and returns its text.
func (r *Reader) Value() []byte {
	r.Peek()
	start, end := r.At, SkipValue(r.Text, r.At, deepest)
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
