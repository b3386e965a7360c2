package convert

// This file compares JSON as trees whose values are text, so that no number and no string changes.

import (
	"errors"
	"fmt"
	"strconv"

	"code.cloudfoundry.org/eirinix/internal/decode"
	"code.cloudfoundry.org/eirinix/internal/jsontext"
)

type tree = jsontext.Tree

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
	return jsontext.TreeOf(text), nil
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

// present returns the value, or nil if there is none.
func present(t *tree) *tree {
	if t.IsAbsent() {
		return nil
	}
	return t
}

func stringOf(t *tree) (string, bool) {
	if t == nil {
		return "", false
	}
	return unquoted(t.Text)
}

// same reports whether two values are equal in JSON. A member that is null equals one that is missing.
func same(a, b *tree) bool {
	if a.IsAbsent() || b.IsAbsent() {
		return a.IsAbsent() && b.IsAbsent()
	}
	switch {
	case sameText(a, b):
		return true
	case a.IsObject() && b.IsObject():
		return covers(a, b) && lacksNone(b, a)
	case a.IsList() && b.IsList():
		return sameItems(a.Items, b.Items)
	case a.IsObject() || b.IsObject() || a.IsList() || b.IsList():
		return false
	case a.Kind == '"' && b.Kind == '"':
		x, _ := unquoted(a.Text)
		y, _ := unquoted(b.Text)
		return x == y
	}
	return isNumber(a) && isNumber(b) && sameNumber(string(a.Text), string(b.Text))
}

func sameItems(a, b []*tree) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if !same(a[i], b[i]) {
			return false
		}
	}
	return true
}

// sameText reports whether the texts of two values are equal. False can also mean that one of them is parsed.
func sameText(a, b *tree) bool {
	return a != nil && b != nil && a.Text != nil && string(a.Text) == string(b.Text)
}

// covers reports whether an object holds all that another holds.
func covers(a, b *tree) bool {
	for _, m := range b.Items {
		if !same(a.Member(m.Name), m) {
			return false
		}
	}
	return true
}

// lacksNone reports whether an object has every member of another.
func lacksNone(a, b *tree) bool {
	for _, m := range b.Items {
		if !m.IsAbsent() && a.Member(m.Name).IsAbsent() {
			return false
		}
	}
	return true
}

func isNumber(t *tree) bool { return t.Kind == '-' || '0' <= t.Kind && t.Kind <= '9' }

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
	case from.IsObject() && in.IsObject():
		for _, m := range in.Items {
			if other := from.Member(m.Name); other != nil {
				keepNumbers(other, m)
			}
		}
	case from.IsList() && in.IsList():
		for i := range min(len(from.Items), len(in.Items)) {
			keepNumbers(from.Items[i], in.Items[i])
		}
	case isNumber(from) && isNumber(in) && decodeSame(string(from.Text), string(in.Text)):
		in.Text = from.Text
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
	if err == nil && !t.IsObject() {
		err = errNotObject
	}
	if err != nil {
		return nil, fmt.Errorf("its members cannot be compared: %w", err)
	}
	return t, nil
}
