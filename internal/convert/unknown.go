package convert

// This file copies the members that a Go type does not know.

import (
	"slices"

	"code.cloudfoundry.org/eirinix/internal/jsontype"
)

// maxPointers bounds the pointers to a value, because a pointer type can point to itself.
const maxPointers = 10

// target returns the type behind pointers. nil knows everything, as a tree does, and a type that reads its own JSON.
func target(t *jsontype.Type) *jsontype.Type {
	for n := 0; t != nil && t.Kind == jsontype.Pointer && n < maxPointers; n++ {
		t = t.Elem
	}
	if t != nil && t.Reads == jsontype.JSON {
		return nil
	}
	return t
}

// knownMember returns the type of a member's value, and reports whether the type of the object knows the member.
func knownMember(t *jsontype.Type, name string) (*jsontype.Type, bool) {
	switch t = target(t); {
	case t == nil:
		return nil, true
	case t.Kind == jsontype.Struct:
		if f := t.Field([]byte(name)); f != nil {
			return f.Type, true
		}
		return nil, false
	case t.Kind == jsontype.Map:
		return t.Elem, true
	}
	return nil, true
}

// knownItem returns the type of the items of a list.
func knownItem(t *jsontype.Type) *jsontype.Type {
	if t = target(t); t != nil && t.Kind == jsontype.List {
		return t.Elem
	}
	return nil
}

// mend gives the latest result the members that the source's type does not know. It returns false if it knows all.
func (c *conversion) mend(source, result *tree, from, to *version) bool {
	if c.all {
		return false
	}
	carries := carrier{free: to.isTree()}
	carries.object(source, result, from.known(), to.known(), ours)
	return true
}

// A carrier copies members to the same place of another object.
type carrier struct {
	free  bool // the target is a tree, which takes every member
	exact bool // both objects are of one version, so that their lists have the same items
}

// object copies the members that the source's type does not know. It leaves out those that the target's type does know,
// because a conversion decides on them. from and to are the parts of the types.
func (c *carrier) object(source, target *tree, from, to *jsontype.Type, except []string) {
	if !source.IsObject() || !target.IsObject() {
		return
	}
	for _, m := range source.Items {
		name := m.Name
		if slices.Contains(except, name) {
			continue
		}
		inner, known := knownMember(from, name)
		other, taken := knownMember(to, name)
		at := target.Member(name)
		switch {
		case known && at != nil:
			c.value(m, at, inner, other)
		case !known && at == nil && (c.free || !taken):
			target.Set(name, m)
		}
	}
}

func (c *carrier) value(source, target *tree, from, to *jsontype.Type) {
	if source.IsList() && target.IsList() {
		c.list(source, target, knownItem(from), knownItem(to))
		return
	}
	c.object(source, target, from, to, nil)
}

// list pairs items by their keys. It pairs no items without one, because a conversion can have moved them.
func (c *carrier) list(source, target *tree, from, to *jsontype.Type) {
	if c.exact && len(source.Items) == len(target.Items) {
		for i := range source.Items {
			c.value(source.Items[i], target.Items[i], from, to)
		}
		return
	}
	pairs, ok := paired(keysOf(source.Items), keysOf(target.Items))
	for i, j := range pairs {
		if ok && j >= 0 {
			c.value(source.Items[i], target.Items[j], from, to)
		}
	}
}
