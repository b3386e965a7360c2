package convert

// This file copies the members that a Go type does not know.

import (
	"slices"

	"code.cloudfoundry.org/eirinix/internal/decode"
)

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
func (c *carrier) object(source, target *tree, from, to decode.Known, except []string) {
	if !source.IsObject() || !target.IsObject() {
		return
	}
	for _, m := range source.Items {
		name := m.Name
		if slices.Contains(except, name) {
			continue
		}
		inner, known := from.Member(name)
		other, taken := to.Member(name)
		at := target.Member(name)
		switch {
		case known && at != nil:
			c.value(m, at, inner, other)
		case !known && at == nil && (c.free || !taken):
			target.Set(name, m)
		}
	}
}

func (c *carrier) value(source, target *tree, from, to decode.Known) {
	if source.IsList() && target.IsList() {
		c.list(source, target, from.Item(), to.Item())
		return
	}
	c.object(source, target, from, to, nil)
}

// list pairs items by their keys. It pairs no items without one, because a conversion can have moved them.
func (c *carrier) list(source, target *tree, from, to decode.Known) {
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
