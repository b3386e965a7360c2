package convert

// This file holds JSON as a tree whose values are text, so that no number and no string changes.

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

	"code.cloudfoundry.org/eirinix/internal/decode"
	"code.cloudfoundry.org/eirinix/internal/jsontext"
)

// tree is a JSON value. Its methods accept nil, which stands for a member that is missing.
//
// An object or list is parsed when isObject or isList is called, one level at a time. Most parts of an object are only
// compared or written, which needs no more than their text.
type tree struct {
	kind  byte     // '{', '[', or the first byte of the text
	text  []byte   // of scalars, and of what is not parsed yet
	names []string // of members, decoded
	items []tree   // values of members, or items of a list

	index map[string]int // of members, if there are many
}

const (
	// deepest is how deep an object can nest if its members are compared.
	deepest = 1000

	nodeSize = 120 // bytes that a value takes as a tree
)

// treeChecker checks a text, up to a bound of memory.
type treeChecker struct {
	reader
	left int64 // bytes
}

// parseTree checks a text. The tree refers to it.
func parseTree(text []byte) (*tree, error) {
	c := treeChecker{reader: readerOf(text), left: decode.Bound(len(text))}
	c.value(0)
	if c.Peek() != 0 {
		c.Fail()
	}
	if err := c.err(); err != nil {
		return nil, err
	}
	return treeOf(text), nil
}

// treeOf is parseTree for a text that this package has written.
func treeOf(text []byte) *tree {
	r := readerOf(text)
	return &tree{kind: r.Peek(), text: text}
}

func (c *treeChecker) value(depth int) {
	if c.left -= nodeSize; c.left < 0 {
		c.fail("it holds too many values to be compared; send a smaller object")
	}
	if depth > deepest {
		c.fail("it nests deeper than %d", deepest)
	}
	switch c.Peek() {
	case '{':
		c.members(func(name []byte) {
			c.left -= int64(len(name))
			c.value(depth + 1)
		})
	case '[':
		for more := c.Enter('['); more; more = c.More('[') {
			if c.value(depth + 1); c.Failed() {
				return
			}
		}
	default:
		c.Value()
	}
}

// open parses one level.
func (t *tree) open() {
	r := readerOf(t.text)
	t.text = nil
	t.items = make([]tree, 0, 8)
	for more := r.Enter(t.kind); more; more = r.More(t.kind) {
		if t.kind == '{' {
			t.names = append(t.names, string(r.Name()))
		}
		t.items = append(t.items, tree{kind: r.Peek(), text: r.Value()})
	}
}

func (t *tree) isObject() bool { return t.is('{') }
func (t *tree) isList() bool   { return t.is('[') }

func (t *tree) is(kind byte) bool {
	if t == nil || t.kind != kind {
		return false
	}
	if t.text != nil {
		t.open()
	}
	return true
}

// isAbsent reports whether there is no value. null is none.
func (t *tree) isAbsent() bool { return t == nil || t.kind == 'n' }

// present returns the value, or nil if there is none.
func (t *tree) present() *tree {
	if t.isAbsent() {
		return nil
	}
	return t
}

// member returns a member of an object, or nil. The pointer is valid until a member is added or removed.
func (t *tree) member(name string) *tree {
	if i := t.find(name); i >= 0 {
		return &t.items[i]
	}
	return nil
}

func (t *tree) find(name string) int {
	if !t.isObject() {
		return -1
	}
	if len(t.names) <= 32 {
		return slices.Index(t.names, name)
	}
	if t.index == nil {
		t.index = make(map[string]int, len(t.names))
		for i, n := range t.names {
			t.index[n] = i
		}
	}
	if i, ok := t.index[name]; ok {
		return i
	}
	return -1
}

// set sets a member of an object.
func (t *tree) set(name string, value tree) {
	if i := t.find(name); i >= 0 {
		t.items[i] = value
		return
	}
	if t.index != nil {
		t.index[name] = len(t.names)
	}
	t.names, t.items = append(t.names, name), append(t.items, value)
}

// remove removes a member of an object.
func (t *tree) remove(name string) {
	if i := t.find(name); i >= 0 {
		t.names, t.items = slices.Delete(t.names, i, i+1), slices.Delete(t.items, i, i+1)
		t.index = nil
	}
}

// clone returns a copy that shares only text.
func (t *tree) clone() *tree {
	c := &tree{kind: t.kind, text: t.text, names: slices.Clone(t.names), items: make([]tree, len(t.items))}
	for i := range t.items {
		c.items[i] = *t.items[i].clone()
	}
	return c
}

// append appends the value as JSON.
func (t *tree) append(dst []byte) []byte {
	if t.text == nil {
		dst = append(dst, t.kind)
		for i := range t.items {
			if i > 0 {
				dst = append(dst, ',')
			}
			if t.kind == '{' {
				dst = append(jsontext.AppendString(dst, t.names[i]), ':')
			}
			dst = t.items[i].append(dst)
		}
		return append(dst, t.kind+2) // in ASCII, the closing bracket
	}
	return append(dst, t.text...)
}

// orNull returns the value as JSON, for a message.
func (t *tree) orNull() []byte {
	if t == nil {
		return []byte("null")
	}
	return t.append(nil)
}

func (t *tree) string() (string, bool) {
	if t == nil || t.kind != '"' {
		return "", false
	}
	return unquoted(t.text)
}

// same reports whether two values are equal in JSON. A member that is null equals one that is missing.
func same(a, b *tree) bool {
	if a.isAbsent() || b.isAbsent() {
		return a.isAbsent() && b.isAbsent()
	}
	switch {
	case sameText(a, b):
		return true
	case a.isObject() && b.isObject():
		return covers(a, b) && lacksNone(b, a)
	case a.isList() && b.isList():
		return sameItems(a.items, b.items)
	case a.isObject() || b.isObject() || a.isList() || b.isList():
		return false
	case a.kind == '"' && b.kind == '"':
		x, _ := unquoted(a.text)
		y, _ := unquoted(b.text)
		return x == y
	}
	return isNumber(a) && isNumber(b) && sameNumber(string(a.text), string(b.text))
}

func sameItems(a, b []tree) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if !same(&a[i], &b[i]) {
			return false
		}
	}
	return true
}

// sameText reports whether the texts of two values are equal. False can also mean that one of them is parsed.
func sameText(a, b *tree) bool {
	return a != nil && b != nil && a.text != nil && string(a.text) == string(b.text)
}

// covers reports whether an object holds all that another holds.
func covers(a, b *tree) bool {
	for i, name := range b.names {
		if !same(a.member(name), &b.items[i]) {
			return false
		}
	}
	return true
}

// lacksNone reports whether an object has every member of another.
func lacksNone(a, b *tree) bool {
	for i, name := range b.names {
		if !b.items[i].isAbsent() && a.member(name).isAbsent() {
			return false
		}
	}
	return true
}

func isNumber(t *tree) bool { return t.kind == '-' || '0' <= t.kind && t.kind <= '9' }

// sameNumber compares two numbers. Integers that differ are never the same, however large they are.
func sameNumber(a, b string) bool {
	if isInteger(a) && isInteger(b) {
		m, errM := strconv.ParseInt(a, 10, 64)
		n, errN := strconv.ParseInt(b, 10, 64)
		return a == b || errM == nil && errN == nil && m == n
	}
	x, errX := strconv.ParseFloat(a, 64)
	y, errY := strconv.ParseFloat(b, 64)
	return errX == nil && errY == nil && x == y
}

func isInteger(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c != '-' || i > 0) {
			return false
		}
	}
	return true
}

// keepNumbers gives the numbers of a tree the form that they have in another, at the same place. A decoder that makes
// float64 of them has changed it.
func keepNumbers(from, in *tree) {
	switch {
	case from.isObject() && in.isObject():
		for i, name := range in.names {
			if other := from.member(name); other != nil {
				keepNumbers(other, &in.items[i])
			}
		}
	case from.isList() && in.isList():
		for i := range min(len(from.items), len(in.items)) {
			keepNumbers(&from.items[i], &in.items[i])
		}
	case isNumber(from) && isNumber(in) && decodeSame(string(from.text), string(in.text)):
		in.text = from.text
	}
}

// decodeSame reports whether a decoder makes the same int64 or float64 of two numbers.
func decodeSame(a, b string) bool {
	m, errM := strconv.ParseInt(a, 10, 64)
	n, errN := strconv.ParseInt(b, 10, 64)
	if errM == nil && errN == nil {
		return m == n
	}
	x, errX := strconv.ParseFloat(a, 64)
	y, errY := strconv.ParseFloat(b, 64)
	return errX == nil && errY == nil && x == y
}

// holdsOddNumber reports whether a text can hold a number that a decoded tree would write in another form.
func holdsOddNumber(text []byte) bool {
	for i := 0; i >= 0 && i < len(text); {
		switch c := text[i]; {
		case c == '"':
			i = jsontext.SkipString(text, i)
		case c == '-' || '0' <= c && c <= '9':
			end := jsontext.SkipLiteral(text, i)
			if end < 0 || end-i > 18 || !isInteger(string(text[i:end])) || string(text[i:end]) == "-0" {
				return true
			}
			i = end
		default:
			i++
		}
	}
	return false
}

var errNotObject = errors.New("it is not a JSON object")

// parseObject is parseTree for a text that must be an object.
func parseObject(text []byte) (*tree, error) {
	t, err := parseTree(text)
	if err == nil && !t.isObject() {
		err = errNotObject
	}
	if err != nil {
		return nil, fmt.Errorf("its members cannot be compared: %w", err)
	}
	return t, nil
}
