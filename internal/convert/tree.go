package convert

// This file holds JSON as trees whose values are text.

import (
	"errors"

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

// parseObject returns the value of a text that must be an object. The tree refers to it.
func parseObject(text []byte) (*tree, error) {
	t := jsontext.TreeOf(text)
	if !t.IsObject() {
		return nil, errors.New("it is not a JSON object")
	}
	return t, nil
}
