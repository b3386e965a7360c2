package patch

import (
	"slices"
	"strconv"
)

// A lazy value is JSON that has been read as far as was needed. It begins as text; an object or array that is opened
// becomes a list of values.
type lazy struct {
	text   []byte
	doc    *document // that the text is part of; nil for a value that came with the patch
	node   node      // where it stands there
	opened bool
	items  []*lazy        // of an array; of an object, in the order of names, with nil for a member that was removed
	names  [][]byte       // of an object's members, as JSON; nil for an array
	byName map[string]int // the same, decoded
}

// enter returns the root of an object.
func enter(raw []byte) (*lazy, bool) {
	v := &lazy{text: raw}
	return v, v.open() && v.node.kind == '{'
}

// open reads the members of an object or the items of an array, once.
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
		name := e.name
		if name == "" {
			name = string(v.doc.raw[e.nameStart:e.nameEnd])
		}
		v.set(name, v.doc.raw[e.nameStart-1:e.nameEnd+1], &all[i])
	}
	v.opened = true
	return true
}

// set gives an object a member. Of two of one name the last one counts, as for every decoder that we know.
func (v *lazy) set(name string, quoted []byte, item *lazy) {
	if i, ok := v.byName[name]; ok {
		v.items[i] = item
		return
	}
	v.byName[name] = len(v.items)
	v.items, v.names = append(v.items, item), append(v.names, quoted)
}

// child returns a member or an item; nil when there is none.
func (v *lazy) child(name string) *lazy {
	if v.names == nil {
		if i, ok := v.index(name); ok && i < len(v.items) {
			return v.items[i]
		}
		return nil
	}
	if i, ok := v.byName[name]; ok {
		return v.items[i]
	}
	return nil
}

// index reads the plain form of an index.
func (v *lazy) index(name string) (int, bool) {
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
		v.set(name, appendString(nil, name), item)
		return true
	}
	if name == "-" {
		v.items = append(v.items, item)
		return true
	}
	i, ok := v.index(name)
	if !ok || i > len(v.items) {
		return false
	}
	v.items = slices.Insert(v.items, i, item)
	return true
}

// replace adds a member that an object lacks, as the API server's library does.
func (v *lazy) replace(name string, value []byte) bool {
	if v.names != nil {
		return v.add(name, value)
	}
	i, ok := v.index(name)
	if !ok || i >= len(v.items) {
		return false
	}
	v.items[i] = &lazy{text: value}
	return true
}

func (v *lazy) remove(name string) bool {
	if v.names == nil {
		i, ok := v.index(name)
		if !ok || i >= len(v.items) {
			return false
		}
		v.items = slices.Delete(v.items, i, i+1)
		return true
	}
	i, ok := v.byName[name]
	if !ok {
		return false
	}
	v.items[i] = nil
	delete(v.byName, name)
	return true
}

// append writes the value.
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
