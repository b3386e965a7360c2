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
			child, ok := at.find(name)
			if !ok {
				return false
			}
			at = at.items[child]
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

// A lazy value is JSON that is parsed on demand. It starts as text. An opened object or array becomes a list of
// values.
type lazy struct {
	text   []byte
	doc    *document // the text is part of it; nil for a value from the patch
	node   node      // the position of the text in doc
	opened bool
	items  []*lazy        // items of an array, or members in the order of names; nil for a removed member
	names  [][]byte       // of an object's members, as JSON; nil for an array
	byName map[string]int // the index of each member by its decoded name
}

// enter returns the root value, opened, and reports whether it is an object.
func enter(raw []byte) (*lazy, bool) {
	v := &lazy{text: raw}
	return v, v.open() && v.node.kind == '{'
}

// open reads the members of an object or the items of an array, once. It reports whether that succeeded.
func (v *lazy) open() bool {
	if v.opened {
		return true
	}
	if v.doc == nil {
		doc, root, err := open(v.text)
		if err != nil {
			return false
		}
		v.doc, v.node = &doc, root
	}
	if v.node.kind != '{' && v.node.kind != '[' {
		return false
	}
	entries, err := v.doc.entries(v.node, nil)
	if err != nil {
		return false
	}
	all := make([]lazy, len(entries))
	v.items = make([]*lazy, 0, len(entries)+1)
	if v.node.kind == '{' {
		v.names, v.byName = make([][]byte, 0, len(entries)+1), make(map[string]int, len(entries)+1)
	}
	for i := range entries {
		e := &entries[i]
		all[i] = lazy{text: v.doc.raw[e.start:e.end], doc: v.doc, node: e.node}
		if v.node.kind == '[' {
			v.items = append(v.items, &all[i])
			continue
		}
		v.set(string(v.doc.name(e)), v.doc.raw[e.nameStart-1:e.nameEnd+1], &all[i])
	}
	v.opened = true
	return true
}

// set sets a member of an object. Of two members with one name the last one counts, as in every decoder that we know.
func (v *lazy) set(name string, quoted []byte, item *lazy) {
	if i, ok := v.byName[name]; ok {
		v.items[i] = item
		return
	}
	v.byName[name] = len(v.items)
	v.items, v.names = append(v.items, item), append(v.names, quoted)
}

// find returns the index of a member or an item in items. It reports false if there is none.
func (v *lazy) find(name string) (int, bool) {
	if v.names != nil {
		i, ok := v.byName[name]
		return i, ok
	}
	i, ok := index(name)
	return i, ok && i < len(v.items)
}

// index parses an index in its plain form, which consists of digits.
func index(name string) (int, bool) {
	for i := range len(name) {
		if name[i] < '0' || name[i] > '9' {
			return 0, false
		}
	}
	i, err := strconv.Atoi(name)
	return i, err == nil
}

func (v *lazy) add(name string, value []byte) bool {
	item := &lazy{text: value}
	if v.names != nil {
		v.set(name, jsontext.AppendString(nil, name), item)
		return true
	}
	if name == "-" {
		v.items = append(v.items, item)
		return true
	}
	i, ok := index(name)
	if !ok || i > len(v.items) {
		return false
	}
	v.items = slices.Insert(v.items, i, item)
	return true
}

// replace replaces a member or an item. It adds a member that the object lacks, as the API server's library does.
func (v *lazy) replace(name string, value []byte) bool {
	if v.names != nil {
		return v.add(name, value)
	}
	i, ok := v.find(name)
	if ok {
		v.items[i] = &lazy{text: value}
	}
	return ok
}

func (v *lazy) remove(name string) bool {
	i, ok := v.find(name)
	switch {
	case !ok:
	case v.names == nil:
		v.items = slices.Delete(v.items, i, i+1)
	default:
		v.items[i] = nil
		delete(v.byName, name)
	}
	return ok
}

// append appends the value as JSON.
func (v *lazy) append(dst []byte) []byte {
	if !v.opened {
		return append(dst, v.text...)
	}
	opening := v.node.kind
	dst = append(dst, opening)
	first := true
	for i, item := range v.items {
		if item == nil {
			continue
		}
		if !first {
			dst = append(dst, ',')
		}
		first = false
		if v.names != nil {
			dst = append(append(dst, v.names[i]...), ':')
		}
		dst = item.append(dst)
	}
	return append(dst, opening+2)
}
