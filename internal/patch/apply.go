package patch

// This file applies patches to JSON.

import (
	"fmt"
	"strings"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
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
	root, ok := enter(raw)
	for i := 0; ok && i < len(decoded); i++ {
		op := decoded[i]
		path, err := op.Path()
		ok = err == nil && root.do(op.Kind(), path, valueOf(op))
	}
	if ok {
		return root.append(make([]byte, 0, len(raw)+len(operations))), len(decoded), nil
	}
	// Operations that do does not handle, and those that fail, are left to the library, which also provides the
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
	root, ok := enter(raw)
	for i := 0; ok && i < len(p.ops); i++ {
		o := p.ops[i]
		ok = root.do(o.kind, string(p.pathOf(o)), p.valueOf(o))
	}
	if !ok {
		result, _, err := Apply(raw, p.AppendJSON(nil))
		return result, err
	}
	return root.append(make([]byte, 0, len(raw)+len(p.buf))), nil
}

// do applies one add, replace or remove below the root. It reports false for any other operation, and for one that
// does not apply.
func (v *lazy) do(kind, path string, value []byte) bool {
	names := strings.Split(path, "/")
	if len(names) < 2 || names[0] != "" {
		return false
	}
	at := v
	for i, name := range names[1:] {
		if strings.Contains(name, "~") {
			name = unescaper.Replace(name)
		}
		if !at.open() {
			return false
		}
		if i < len(names)-2 {
			if at = at.child(name); at == nil {
				return false
			}
			continue
		}
		switch kind {
		case "add":
			return at.add(name, value)
		case "replace":
			return at.replace(name, value)
		case "remove":
			return at.remove(name)
		}
	}
	return false
}

var unescaper = strings.NewReplacer("~1", "/", "~0", "~")
