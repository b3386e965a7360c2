package jsontext

// This file holds values that are opened on demand.

import "slices"

// A Tree is a JSON value. Its methods accept nil, which stands for a member that is missing.
//
// It starts as text. An object or list is opened when IsObject or IsList is called, one level at a time. Most parts of an
// object are only compared or written, which needs no more than their text. All levels of one text share an Index, so
// that a text is read once, however deep it nests.
type Tree struct {
	Node          // its Kind is '{', '[', or the first byte of the text
	Name  string  // of a member, decoded
	Text  []byte  // of a scalar, and of what is not opened yet
	Items []*Tree // of a list, or members with a name of their own, whose order means nothing

	doc   *Index         // of the text; nil for a text of its own that is not opened yet
	index map[string]int // of members, if there are many
}

// many is the number of members beyond which they are looked up in a map.
const many = 32

// TreeOf returns the value of a text, and refers to it.
func TreeOf(text []byte) *Tree {
	r := Reader{Text: text}
	return &Tree{Node: Node{Kind: r.Peek()}, Text: text}
}

// NewTree returns a list of items, or an object without members.
func NewTree(kind byte, items ...*Tree) *Tree { return &Tree{Node: Node{Kind: kind}, Items: items} }

// IsObject opens an object. It reports false for any other value, and for one that is malformed.
func (t *Tree) IsObject() bool { return t.is('{') }

// IsList is IsObject for a list.
func (t *Tree) IsList() bool { return t.is('[') }

func (t *Tree) is(kind byte) bool {
	return t != nil && t.Kind == kind && (t.Text == nil || t.open())
}

// open opens one level. Of two members with one name the last one counts, as in every decoder that we know.
func (t *Tree) open() bool {
	if t.doc == nil {
		doc, root, err := NewIndex(t.Text)
		if err != nil {
			return false
		}
		t.doc, t.Node = &doc, root
	}
	parts, err := t.doc.Parts(t.Node, nil)
	if err != nil {
		return false
	}
	all := make([]Tree, len(parts))
	t.Text, t.Items = nil, make([]*Tree, 0, len(parts)+1)
	for i := range parts {
		p := &parts[i]
		m := &all[i]
		*m = Tree{Node: p.Node, Text: t.doc.raw[p.Start:p.End:p.End], doc: t.doc}
		if t.Kind == '[' {
			t.Items = append(t.Items, m)
			continue
		}
		m.Name = string(p.Name)
		t.set(m)
	}
	return true
}

// IsAbsent reports whether there is no value. null is none.
func (t *Tree) IsAbsent() bool { return t == nil || t.Kind == 'n' }

// Member returns a member of an object, or nil.
func (t *Tree) Member(name string) *Tree {
	if i := t.find(name); i >= 0 {
		return t.Items[i]
	}
	return nil
}

func (t *Tree) find(name string) int {
	if !t.IsObject() {
		return -1
	}
	if len(t.Items) <= many {
		return slices.IndexFunc(t.Items, func(m *Tree) bool { return m.Name == name })
	}
	if t.index == nil {
		t.index = make(map[string]int, cap(t.Items))
		for i, m := range t.Items {
			t.index[m.Name] = i
		}
	}
	if i, ok := t.index[name]; ok {
		return i
	}
	return -1
}

// Set sets a member of an object. It takes a copy of the value, which shares what is below it.
func (t *Tree) Set(name string, value *Tree) {
	m := *value
	m.Name = name
	t.set(&m)
}

func (t *Tree) set(m *Tree) {
	if i := t.find(m.Name); i >= 0 {
		t.Items[i] = m
		return
	}
	if t.index != nil {
		t.index[m.Name] = len(t.Items)
	}
	t.Items = append(t.Items, m)
}

// Remove removes a member of an object, and reports whether there was one. The last member takes its place, so that the
// time does not depend on their number.
func (t *Tree) Remove(name string) bool {
	i := t.find(name)
	if i < 0 {
		return false
	}
	last := len(t.Items) - 1
	t.Items[i] = t.Items[last]
	if t.index != nil {
		t.index[t.Items[i].Name] = i
		delete(t.index, name)
	}
	t.Items = slices.Delete(t.Items, last, last+1)
	return true
}

// Clone returns a copy that shares only text.
func (t *Tree) Clone() *Tree {
	c := *t
	c.Items, c.index = make([]*Tree, len(t.Items)), nil
	for i, item := range t.Items {
		c.Items[i] = item.Clone()
	}
	return &c
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
	for i, item := range t.Items {
		if i > 0 {
			dst = append(dst, ',')
		}
		if t.Kind == '{' {
			dst = append(AppendString(dst, item.Name), ':')
		}
		dst = item.Append(dst)
	}
	return append(dst, t.Kind+2) // in ASCII, the closing bracket
}
