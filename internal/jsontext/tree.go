package jsontext

// This file holds values that are read on demand.

import (
	"slices"
	"strconv"
)

// A Tree is a JSON value. Its methods accept nil, which stands for a member that is missing.
//
// It starts as text. An object or list is opened once IsObject or IsList is called, one level at a time. Most parts of
// an object are only compared or written, which needs no more than their text.
type Tree struct {
	Name  string // of a member, decoded
	Kind  byte   // '{', '[', or the first byte of the text
	Text  []byte // of a scalar, and of what is not opened yet
	Items []Tree // the members of an object, each with a name of its own, or the items of a list

	index map[string]int // of members, if there are many; a member that was removed leaves those behind it too high
}

// TreeOf returns the value of a text, and refers to it.
func TreeOf(text []byte) *Tree {
	r := Reader{Text: text}
	return &Tree{Kind: r.Peek(), Text: text}
}

// Parts are the members and items of a value that are opened together with it, each with parts of its own. The name of an
// item is its index.
type Parts map[string]Parts

// IsObject opens an object. It reports false for any other value, and if a part of the text is not well-formed.
func (t *Tree) IsObject() bool { return t != nil && t.Kind == '{' && t.Open(nil) }

// IsList is IsObject for a list.
func (t *Tree) IsList() bool { return t != nil && t.Kind == '[' && t.Open(nil) }

// Open opens an object or list and its parts in one pass over the text, and reports whether it is one.
func (t *Tree) Open(parts Parts) bool {
	if t.Text == nil {
		return true
	}
	r := Reader{Text: t.Text}
	opened := Tree{Name: t.Name}
	opened.read(&r, parts)
	if r.Peek(); r.At != len(t.Text) || opened.Text != nil {
		return false
	}
	*t = opened
	return true
}

// read reads and opens a value. Of two members with one name the last one counts, as in every decoder that we know.
func (t *Tree) read(r *Reader, parts Parts) {
	if t.Kind = r.Peek(); t.Kind != '{' && t.Kind != '[' {
		t.Text = r.Value()
		return
	}
	t.Items = make([]Tree, 0, 8)
	for more := r.Enter(t.Kind); more; more = r.More(t.Kind) {
		var name string
		if t.Kind == '{' {
			name = string(r.Name())
		} else if len(parts) > 0 {
			name = strconv.Itoa(len(t.Items))
		}
		item := t.place(name)
		if inner, ok := parts[name]; ok {
			item.read(r, inner)
		} else {
			item.Kind, item.Text = r.Peek(), r.Value()
		}
	}
}

// place returns the place of a member, or of one more item.
func (t *Tree) place(name string) *Tree {
	i := t.find(name)
	if i < 0 {
		i = len(t.Items)
		if t.index != nil {
			t.index[name] = i
		}
		t.Items = append(t.Items, Tree{})
	}
	t.Items[i] = Tree{Name: name}
	return &t.Items[i]
}

// IsAbsent reports whether there is no value. null is none.
func (t *Tree) IsAbsent() bool { return t == nil || t.Kind == 'n' }

// Member returns a member of an object, or nil. The pointer is valid until a member is added or removed.
func (t *Tree) Member(name string) *Tree {
	if i := t.find(name); i >= 0 {
		return &t.Items[i]
	}
	return nil
}

func (t *Tree) find(name string) int {
	if !t.IsObject() {
		return -1
	}
	i := len(t.Items) - 1
	if len(t.Items) > 32 {
		if t.index == nil {
			t.index = make(map[string]int, len(t.Items))
			for i := range t.Items {
				t.index[t.Items[i].Name] = i
			}
		}
		at, ok := t.index[name]
		if !ok {
			return -1
		}
		i = min(i, at)
	}
	for i >= 0 && t.Items[i].Name != name {
		i--
	}
	return i
}

// Set sets a member of an object.
func (t *Tree) Set(name string, value Tree) {
	value.Name = name
	*t.place(name) = value
}

// Remove removes a member of an object, and reports whether there was one.
func (t *Tree) Remove(name string) bool {
	i := t.find(name)
	if i < 0 {
		return false
	}
	t.Items = slices.Delete(t.Items, i, i+1)
	delete(t.index, name)
	return true
}

// Clone returns a copy that shares only text.
func (t *Tree) Clone() *Tree {
	c := &Tree{Name: t.Name, Kind: t.Kind, Text: t.Text, Items: make([]Tree, len(t.Items))}
	for i := range t.Items {
		c.Items[i] = *t.Items[i].Clone()
	}
	return c
}

// Append appends the value as JSON. What was never opened stays as it was written.
func (t *Tree) Append(dst []byte) []byte {
	switch {
	case t == nil:
		return append(dst, "null"...)
	case t.Text != nil:
		return append(dst, t.Text...)
	}
	dst = append(dst, t.Kind)
	for i := range t.Items {
		if i > 0 {
			dst = append(dst, ',')
		}
		if t.Kind == '{' {
			dst = append(AppendString(dst, t.Items[i].Name), ':')
		}
		dst = t.Items[i].Append(dst)
	}
	return append(dst, t.Kind+2) // in ASCII, the closing bracket
}
