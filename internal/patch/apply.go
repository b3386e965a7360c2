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
	edits := make([]edit, len(decoded))
	for i, op := range decoded {
		if path, err := op.Path(); err == nil {
			edits[i] = edit{op.Kind(), namesOf(path), valueOf(op)}
		}
	}
	if result, ok := applied(raw, edits); ok {
		return result, len(decoded), nil
	}
	// Operations of other forms, and those that fail, are left to the library, which also provides the
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
	edits := make([]edit, len(p.ops))
	for i, o := range p.ops {
		edits[i] = edit{o.kind, namesOf(string(p.pathOf(o))), p.valueOf(o)}
	}
	if result, ok := applied(raw, edits); ok {
		return result, nil
	}
	result, _, err := Apply(raw, p.AppendJSON(nil))
	return result, err
}

// An edit is an operation that is about to be applied.
type edit struct {
	kind  string
	path  []string // nil for the root, and for a path that is malformed
	value []byte
}

// namesOf returns the names in a JSON pointer.
func namesOf(path string) []string {
	path, ok := strings.CutPrefix(path, "/")
	if !ok {
		return nil
	}
	names := strings.Split(path, "/")
	for i, name := range names {
		if strings.Contains(name, "~") {
			names[i] = unescaper.Replace(name)
		}
	}
	return names
}

var unescaper = strings.NewReplacer("~1", "/", "~0", "~")

// applied applies edits below the root. It reports false if one of them has another form, or does not apply.
func applied(raw []byte, edits []edit) ([]byte, bool) {
	size := len(raw)
	reached := jsontext.Parts{}
	for i := range edits {
		e := &edits[i]
		if len(e.path) == 0 {
			return nil, false
		}
		at := reached
		for _, name := range e.path[:len(e.path)-1] {
			if at[name] == nil {
				at[name] = jsontext.Parts{}
			}
			at = at[name]
		}
		size += len(e.value) + len(e.path[len(e.path)-1]) + len(`,"":`)
	}
	root := jsontext.TreeOf(raw)
	if root.Kind != '{' || !root.Open(reached) {
		return nil, false
	}
	for i := range edits {
		if !edits[i].apply(root) {
			return nil, false
		}
	}
	return root.Append(make([]byte, 0, size)), true
}

func (e *edit) apply(at *jsontext.Tree) bool {
	last := len(e.path) - 1
	for _, name := range e.path[:last] {
		if at = child(at, name); at == nil {
			return false
		}
	}
	switch {
	case !at.Open(nil):
		return false
	case at.Kind == '{':
		return e.applyToMember(at, e.path[last])
	}
	return e.applyToItem(at, e.path[last])
}

// indexOf parses the index of an item in its plain form, which consists of digits.
func indexOf(name string) (int, bool) {
	i, err := strconv.ParseUint(name, 10, 31)
	return int(i), err == nil
}

// child returns a member or an item; nil if it does not exist.
func child(t *jsontext.Tree, name string) *jsontext.Tree {
	if !t.IsList() {
		return t.Member(name)
	}
	if i, ok := indexOf(name); ok && i < len(t.Items) {
		return &t.Items[i]
	}
	return nil
}

// applyToMember replaces even a member that the object lacks, as the API server's library does.
func (e *edit) applyToMember(object *jsontext.Tree, name string) bool {
	switch e.kind {
	case "add", "replace":
		object.Set(name, *jsontext.TreeOf(e.value))
		return true
	case "remove":
		return object.Remove(name)
	}
	return false
}

func (e *edit) applyToItem(list *jsontext.Tree, name string) bool {
	end := len(list.Items)
	i, ok := indexOf(name)
	if name == "-" {
		i, ok = end, true
	}
	switch {
	case ok && i <= end && e.kind == "add":
		list.Items = slices.Insert(list.Items, i, *jsontext.TreeOf(e.value))
	case ok && i < end && e.kind == "replace":
		list.Items[i] = *jsontext.TreeOf(e.value)
	case ok && i < end && e.kind == "remove":
		list.Items = slices.Delete(list.Items, i, i+1)
	default:
		return false
	}
	return true
}
