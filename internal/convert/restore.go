package convert

// This file applies the difference that loss.go has found.

import (
	"maps"
	"slices"

	"code.cloudfoundry.org/eirinix/internal/jsontext"
)

// restoration applies entries to the result of a conversion, in one pass over those of its parts to which they lead.
type restoration struct {
	root  *tree
	lists map[*tree]*items
	made  map[*tree]bool // the values that it has made, around or in front of others
}

// items is a list as it was before anything was applied.
type items struct {
	all        []*tree
	identities []string
	at         map[string]*tree // by identity
	names      map[string]bool  // identities without their places

	gone  map[*tree]bool
	added map[string][]addedItem // by the item in front of them
}

type addedItem struct {
	value    *tree
	identity string
}

// restore gives the values of entries back whose place still holds what stood there without them. It returns their number.
func restore(root *tree, entries []entry) (applied int) {
	r := restoration{root, map[*tree]*items{}, map[*tree]bool{}}
	slices.SortStableFunc(entries, func(a, b entry) int { return len(a.Path) - len(b.Path) }) // items before what is in them
	for i := range entries {
		if r.apply(&entries[i]) {
			applied++
		}
	}
	for list, of := range r.lists {
		of.arrange(list)
	}
	return applied
}

func (r *restoration) apply(e *entry) bool {
	at, last := r.root, len(e.Path)-1
	for i, s := range e.Path[:last] {
		next, lost := r.next(at, s), i >= last-e.Above
		switch {
		case next.IsAbsent() && (lost || next != nil): // null is what server-side apply leaves of an object without members
			next = r.make(at, s, e.Path[i+1][:1])
		case lost && s[:1] == item && !r.made[next]:
			return false // another one of its name stands there now
		}
		if at = next; at == nil {
			return false
		}
	}
	name := e.last()
	if e.Path[last][:1] == item {
		return r.applyToItem(e, at, name)
	}
	if !at.IsObject() || !holds(at.Member(name), e.Base) {
		return false
	}
	if e.Value == nil {
		return at.Remove(name)
	}
	at.Set(name, jsontext.TreeOf(e.Value))
	return true
}

// make makes the object or list around what the next step leads to.
func (r *restoration) make(at *tree, step, next string) *tree {
	if step[:1] != member || !at.IsObject() {
		return nil
	}
	kind := byte('{')
	if next == item {
		kind = '['
	}
	at.Set(step[1:], jsontext.NewTree(kind))
	made := at.Member(step[1:])
	r.made[made] = true
	return made
}

// last returns the name of the member, or the identity of the item, to which the path leads.
func (e *entry) last() string { return e.Path[len(e.Path)-1][1:] }

// holds reports whether a value is the one of a digest.
func holds(t *tree, base string) bool {
	if base == "" || t.IsAbsent() {
		return base == "" && t.IsAbsent()
	}
	return digest(t) == base
}

// next returns the value that a step leads to, or nil.
func (r *restoration) next(t *tree, step string) *tree {
	switch {
	case step[:1] == member:
		return t.Member(step[1:])
	case !t.IsList():
		return nil
	}
	return r.items(t).at[step[1:]]
}

func (r *restoration) items(list *tree) *items {
	of := r.lists[list]
	if of == nil {
		of = &items{
			all: list.Items, identities: identities(list.Items), at: map[string]*tree{}, names: map[string]bool{},
			gone: map[*tree]bool{}, added: map[string][]addedItem{},
		}
		for i, identity := range of.identities {
			of.at[identity] = list.Items[i]
			of.names[nameOf(identity)] = true
		}
		r.lists[list] = of
	}
	return of
}

// applyToItem adds or removes a whole item.
func (r *restoration) applyToItem(e *entry, list *tree, identity string) bool {
	if !list.IsList() {
		return false
	}
	of := r.items(list)
	there := of.at[identity]
	switch {
	case e.Base == "" && e.Value != nil && !of.names[nameOf(identity)]:
		value := jsontext.TreeOf(e.Value)
		of.added[e.After], of.at[identity], r.made[value] = append(of.added[e.After], addedItem{value, identity}), value, true
	case e.Value == nil && there != nil && holds(there, e.Base):
		of.gone[there] = true
	default:
		return false
	}
	return true
}

// arrange adds and removes the items of a list. An item whose predecessor is not there becomes the last one.
func (of *items) arrange(list *tree) {
	if len(of.gone)+len(of.added) == 0 {
		return
	}
	list.Items = make([]*tree, 0, len(of.all)+len(of.added))
	of.follow(list, "")
	for i, item := range of.all {
		if !of.gone[item] {
			list.Items = append(list.Items, item)
		}
		of.follow(list, of.identities[i])
	}
	waits := map[string]bool{} // for another added item
	for _, added := range of.added {
		for _, a := range added {
			waits[a.identity] = true
		}
	}
	for _, after := range slices.Sorted(maps.Keys(of.added)) {
		if !waits[after] {
			of.follow(list, after)
		}
	}
	for _, after := range slices.Sorted(maps.Keys(of.added)) { // circles of entries that were copied from other objects
		of.follow(list, after)
	}
}

// follow appends the added items that follow an identity, and those that follow them.
func (of *items) follow(list *tree, identity string) {
	next := of.added[identity]
	delete(of.added, identity)
	for _, a := range next {
		list.Items = append(list.Items, a.value)
		of.follow(list, a.identity)
	}
}
