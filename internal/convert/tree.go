package convert

// This file holds JSON as trees whose values are text, so that no number and no string changes.

import (
	"errors"
	"strconv"

	"code.cloudfoundry.org/eirinix/internal/jsontext"
)

type tree = jsontext.Tree

func stringOf(t *tree) (string, bool) {
	if t == nil {
		return "", false
	}
	return unquoted(t.Text)
}

// sameText reports whether the texts of two values are equal. False can also mean that one of them is parsed.
func sameText(a, b *tree) bool {
	return a != nil && b != nil && a.Text != nil && string(a.Text) == string(b.Text)
}

func isNumber(t *tree) bool { return t.Kind == '-' || '0' <= t.Kind && t.Kind <= '9' }

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

// parseObject returns the value of a text that must be an object. The tree refers to it.
func parseObject(text []byte) (*tree, error) {
	t := jsontext.TreeOf(text)
	if !t.IsObject() {
		return nil, errors.New("it is not a JSON object")
	}
	return t, nil
}
