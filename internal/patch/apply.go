package patch

// This file applies patches to JSON, which it parses only as far as a patch reaches.

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"

	"code.cloudfoundry.org/eirinix/internal/jsontext"
)

// Apply applies a JSON patch (RFC 6902) to an object, and counts its operations. The result and the errors are those
// of gopkg.in/evanphx/json-patch.v4, which the API server uses. But Apply reads only the parts of raw that the patch
// reaches, and copies the rest unchanged. raw must be well-formed.
func Apply(raw, operations []byte) (result []byte, count int, err error) {
	decoded, err := jsonpatch.DecodePatch(operations)
	if err != nil {
		return nil, 0, fmt.Errorf("the patch is no JSON patch: %w", err)
	}
	if len(decoded) == 0 {
		return raw, 0, nil
	}
	root := jsontext.TreeOf(raw)
	ok := root.IsObject()
	for _, op := range decoded {
		path, err := op.Path()
		ok = ok && err == nil && edit(root, op.Kind(), path, valueOf(op))
	}
	if ok {
		return root.Append(make([]byte, 0, len(raw)+len(operations))), len(decoded), nil
	}
	// Operations that edit does not handle, and those that fail, are left to the library, which also provides the
	// error.
	if result, err = decoded.Apply(raw); err != nil {
		return nil, 0, fmt.Errorf("the patch does not apply to the object: %w", err)
	}
	return result, len(decoded), nil
}

// valueOf returns the value of an operation, or null if it has none.
func valueOf(op jsonpatch.Operation) []byte {
	if value := op["value"]; value != nil {
		return *value
	}
	return []byte("null")
}

// Apply returns the result of the patch for raw, which is the JSON that the patch was made for.
func (p *Patch) Apply(raw []byte) ([]byte, error) {
	if len(p.ops) == 0 {
		return raw, nil
	}
	root := jsontext.TreeOf(raw)
	ok := root.IsObject()
	for _, o := range p.ops {
		ok = ok && edit(root, o.kind, string(p.pathOf(o)), p.valueOf(o))
	}
	if !ok {
		result, _, err := Apply(raw, p.AppendJSON(nil))
		return result, err
	}
	return root.Append(make([]byte, 0, len(raw)+len(p.buf))), nil
}

// edit applies one add, replace or remove below the root. It reports false for any other operation, and for one that
// does not apply.
func edit(root *jsontext.Tree, kind, path string, value []byte) bool {
	names := strings.Split(path, "/")
	last := len(names) - 1
	if last < 1 || names[0] != "" {
		return false
	}
	at := root
	for i, name := range names[1:] {
		if strings.Contains(name, "~") {
			name = unescaper.Replace(name)
		}
		switch {
		case at.IsObject() && i+1 < last:
			at = at.Member(name)
		case at.IsObject():
			return editMember(at, kind, name, value)
		case !at.IsList():
			return false
		case i+1 == last:
			return editItem(at, kind, name, value)
		default:
			j, ok := index(name)
			if !ok || j >= len(at.Items) {
				return false
			}
			at = at.Items[j]
		}
	}
	return false
}

var unescaper = strings.NewReplacer("~1", "/", "~0", "~")

// index parses an index in its plain form, which consists of digits.
func index(name string) (int, bool) {
	i, err := strconv.ParseUint(name, 10, 31)
	return int(i), err == nil
}

// editMember adds a member also to replace one that the object lacks, as the API server's library does.
func editMember(object *jsontext.Tree, kind, name string, value []byte) bool {
	switch kind {
	case "add", "replace":
		object.Set(name, jsontext.TreeOf(value))
		return true
	case "remove":
		return object.Remove(name)
	}
	return false
}

func editItem(list *jsontext.Tree, kind, name string, value []byte) bool {
	end := len(list.Items)
	i, ok := index(name)
	if name == "-" && kind == "add" {
		i, ok = end, true
	}
	switch {
	case ok && i <= end && kind == "add":
		list.Items = slices.Insert(list.Items, i, jsontext.TreeOf(value))
	case ok && i < end && kind == "replace":
		list.Items[i] = jsontext.TreeOf(value)
	case ok && i < end && kind == "remove":
		list.Items = slices.Delete(list.Items, i, i+1)
	default:
		return false
	}
	return true
}
