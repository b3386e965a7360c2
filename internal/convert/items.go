package convert

// This file tells the items of lists apart, and the values of trees.

import (
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"

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

// keysOf returns the key of each item, as "name=web". The members that identify items are those by which patches pair
// them, too: name, key and id, if they hold a text. It is empty for an item without one.
func keysOf(items []*tree) []string {
	keys := make([]string, len(items))
	for i, item := range items {
		for _, name := range []string{"name", "key", "id"} {
			if value, ok := stringOf(item.Member(name)); ok && value != "" {
				keys[i] = name + "=" + value
				break
			}
		}
	}
	return keys
}

// identities returns a text for each item that no other item of the list has: its key, or "#" and its digest. Of several
// items that have the same, the second of three has "1/3 name=web".
func identities(items []*tree) []string {
	names := keysOf(items)
	nameByDigest(items, names)
	count, seen := map[string]int{}, map[string]int{}
	for _, name := range names {
		count[name]++
	}
	for i, name := range names {
		if n := count[name]; n > 1 {
			names[i] = fmt.Sprintf("%d/%d %s", seen[name], n, name)
			seen[name]++
		}
	}
	return names
}

// nameOf returns an identity without its place.
func nameOf(identity string) string {
	if isCounted(identity) {
		_, identity, _ = strings.Cut(identity, " ")
	}
	return identity
}

// isCounted reports whether several items of the list have the same name.
func isCounted(identity string) bool {
	return identity != "" && '0' <= identity[0] && identity[0] <= '9'
}

func nameByDigest(items []*tree, names []string) {
	for i, name := range names {
		if name == "" {
			names[i] = "#" + digest(items[i])
		}
	}
}

// paired maps names to those of another list: the first of equal ones to the first, and so on. An empty name and one that
// is not there are mapped to -1. It returns false if a name occurs in both lists, but not equally often.
func paired(names, others []string) (to []int, ok bool) {
	at := make(map[string][]int, len(others))
	for j, name := range others {
		at[name] = append(at[name], j)
	}
	to = make([]int, len(names))
	for i, name := range names {
		to[i] = -1
		if left := at[name]; name != "" && len(left) > 0 {
			to[i], at[name] = left[0], left[1:]
		} else if left != nil && name != "" {
			return nil, false
		}
	}
	for _, i := range to {
		if i >= 0 && len(at[others[i]]) > 0 {
			return nil, false
		}
	}
	return to, true
}

// digest returns a short hash of a value. Values that are the same in JSON have the same.
func digest(t *tree) string {
	hash := sha256.Sum256(appendCanonical(nil, t))
	return base64.RawURLEncoding.EncodeToString(hash[:12])
}

// same reports whether two values are equal in JSON. A member that is null equals one that is missing.
func same(a, b *tree) bool {
	return sameText(a, b) || string(appendCanonical(nil, a)) == string(appendCanonical(nil, b))
}

// appendCanonical appends the one form of all values that are the same. Numbers have one form already: API servers write
// them as encoding/json writes an int64 or a float64.
func appendCanonical(dst []byte, t *tree) []byte {
	switch {
	case t.IsAbsent():
		return append(dst, "null"...)
	case t.IsObject():
		members := slices.Clone(t.Items)
		slices.SortFunc(members, func(a, b *tree) int { return strings.Compare(a.Name, b.Name) })
		dst = append(dst, '{')
		for _, m := range members {
			if !m.IsAbsent() {
				dst = append(appendCanonical(append(jsontext.AppendString(dst, m.Name), ':'), m), ',')
			}
		}
		return append(dst, '}')
	case t.IsList():
		dst = append(dst, '[')
		for _, item := range t.Items {
			dst = append(appendCanonical(dst, item), ',')
		}
		return append(dst, ']')
	case t.Kind == '"':
		s, _ := unquoted(t.Text)
		return jsontext.AppendString(dst, s)
	}
	return append(dst, t.Text...)
}

// covers reports whether a value holds all that another holds.
func covers(a, b *tree) bool {
	if !a.IsObject() || !b.IsObject() {
		return same(a, b)
	}
	for _, m := range b.Items {
		if !covers(a.Member(m.Name), m) {
			return false
		}
	}
	return true
}

// size returns the number of bytes of a value's text, as it arrived.
func size(t *tree) int { return max(int(t.End-t.Start), len(t.Text)) }
