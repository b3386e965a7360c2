package convert

// This file applies the difference that loss.go has found.

import "slices"

// apply gives the value of an entry back, and reports whether its place still held the base.
func (e *entry) apply(root *tree) bool {
	at := root
	last := len(e.path) - 1
	for _, s := range e.path[:last] {
		if at = at.next(s); at == nil {
			return false
		}
	}
	switch s := e.path[last]; {
	case e.isItem:
		return e.applyToItem(at.next(s))
	case s.isItem:
		return e.applyToNamed(at, s.name)
	case !at.isObject() || !same(at.member(s.name), e.base):
		return false
	case e.value == nil:
		at.remove(s.name)
	default:
		at.set(s.name, *e.value.clone())
	}
	return true
}

// next returns the value that a step leads to, or nil.
func (t *tree) next(s step) *tree {
	switch {
	case t == nil:
		return nil
	case !s.isItem:
		return t.member(s.name)
	case !t.isList():
		return nil
	}
	if names, ok := itemNames(t); ok {
		if i, there := names[s.name]; there {
			return &t.items[i]
		}
	}
	return nil
}

// applyToItem replaces the one item that equals the base.
func (e *entry) applyToItem(list *tree) bool {
	if !list.isList() || e.base == nil || e.value == nil {
		return false
	}
	found := -1
	for i := range list.items {
		if same(&list.items[i], e.base) {
			if found >= 0 {
				return false
			}
			found = i
		}
	}
	if found < 0 {
		return false
	}
	list.items[found] = *e.value.clone()
	return true
}

// applyToNamed inserts or removes a whole item.
func (e *entry) applyToNamed(list *tree, name string) bool {
	if !list.isList() {
		return false
	}
	names, ok := itemNames(list)
	if !ok {
		return false
	}
	i, there := names[name]
	switch {
	case e.base == nil && !there && e.value != nil:
		at := len(list.items)
		if previous, ok := names[e.after]; ok {
			at = previous + 1
		} else if e.after == "" {
			at = 0
		}
		list.items = slices.Insert(list.items, at, *e.value.clone())
	case e.base != nil && there && same(&list.items[i], e.base) && e.value == nil:
		list.items = slices.Delete(list.items, i, i+1)
	default:
		return false
	}
	return true
}

// isLabelled reports whether labels and annotations are objects that hold strings.
func isLabelled(object *tree) bool {
	metadata := object.member("metadata")
	for _, name := range changeable {
		all := metadata.memberOrNil(name)
		if all.isAbsent() {
			continue
		}
		if !all.isObject() || slices.ContainsFunc(all.items, func(t tree) bool { return t.kind != '"' }) {
			return false
		}
	}
	return true
}
