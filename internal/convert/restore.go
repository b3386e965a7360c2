package convert

// This file applies the difference that loss.go has found.

import (
	"fmt"
	"runtime/debug"
	"slices"
)

// mostTried is the number of entries that are tried one by one.
const mostTried = 32

// restoration applies entries to the result of a conversion.
//
// The annotation can come from anyone who can write the object, and no schema and no admission webhook has seen its
// contents. An entry is therefore applied only if the version that the object comes from cannot see it. Where the
// entries together can be seen, each is tried alone.
type restoration struct {
	*conversion
	from   *version
	whole  *tree // the source
	result *tree
	back   *tree // the result, converted back
}

func (r *restoration) restore(list *tree) {
	entries, err := entriesOf(list)
	switch {
	case err != nil:
		r.ignored(fmt.Errorf("the entries for %s in the annotation %s are ignored: %w", r.to.Name, Annotation, err))
		return
	case r.try(entries):
		return
	case len(entries) > mostTried:
		r.ignored(fmt.Errorf("all entries for %s in the annotation %s are ignored: together they change the object as %s",
			r.to.Name, Annotation, r.from.Name))
		return
	}
	for i := range entries {
		if !r.try(entries[i : i+1]) {
			r.ignored(fmt.Errorf("entry %d for %s in the annotation %s is ignored: it changes the object as %s",
				i, r.to.Name, Annotation, r.from.Name))
		}
	}
}

// try applies entries, unless the source's version can see them. It reports whether it has.
func (r *restoration) try(entries []entry) (ok bool) {
	defer func() {
		if value := recover(); value != nil {
			r.panicked(value, debug.Stack())
			ok = false
		}
	}()
	t := r.result.Clone()
	applied := false
	for i := range entries {
		applied = entries[i].apply(t) || applied
	}
	if !applied {
		return true
	}
	if !isLabelled(t) {
		return false
	}
	back, err := r.conversion.back(t, r.from)
	if err != nil || !isBetween(back, r.back, r.whole) {
		return false
	}
	r.result, r.back = t, back
	return true
}

// isBetween reports whether each part of a value is as in one of two others.
func isBetween(t, a, b *tree) bool {
	if same(t, a) || same(t, b) {
		return true
	}
	if t.IsList() && a.IsList() && b.IsList() && len(t.Items) == len(a.Items) && len(t.Items) == len(b.Items) {
		for i := range t.Items {
			if !isBetween(t.Items[i], a.Items[i], b.Items[i]) {
				return false
			}
		}
		return true
	}
	if !t.IsObject() || !a.IsObject() || !b.IsObject() {
		return false
	}
	for _, m := range t.Items {
		if !isBetween(m, a.Member(m.Name), b.Member(m.Name)) {
			return false
		}
	}
	for _, m := range a.Items {
		if t.Member(m.Name) == nil && !isBetween(nil, m, b.Member(m.Name)) {
			return false
		}
	}
	return true
}

// apply gives the value of an entry back, and reports whether its place still held the base.
func (e *entry) apply(root *tree) bool {
	at := root
	last := len(e.path) - 1
	for _, s := range e.path[:last] {
		if at = next(at, s); at == nil {
			return false
		}
	}
	switch s := e.path[last]; {
	case e.isItem:
		return e.applyToItem(next(at, s))
	case s.isItem:
		return e.applyToNamed(at, s.name)
	case !at.IsObject() || !same(at.Member(s.name), e.base):
		return false
	case e.value == nil:
		at.Remove(s.name)
	default:
		at.Set(s.name, e.value.Clone())
	}
	return true
}

// next returns the value that a step leads to, or nil.
func next(t *tree, s step) *tree {
	switch {
	case t == nil:
		return nil
	case !s.isItem:
		return t.Member(s.name)
	case !t.IsList():
		return nil
	}
	if names, ok := itemNames(t); ok {
		if i, there := names[s.name]; there {
			return t.Items[i]
		}
	}
	return nil
}

// applyToItem replaces the one item that equals the base.
func (e *entry) applyToItem(list *tree) bool {
	if !list.IsList() || e.base == nil || e.value == nil {
		return false
	}
	found := -1
	for i, item := range list.Items {
		if same(item, e.base) {
			if found >= 0 {
				return false
			}
			found = i
		}
	}
	if found < 0 {
		return false
	}
	list.Items[found] = e.value.Clone()
	return true
}

// applyToNamed inserts or removes a whole item.
func (e *entry) applyToNamed(list *tree, name string) bool {
	if !list.IsList() {
		return false
	}
	names, ok := itemNames(list)
	if !ok {
		return false
	}
	i, there := names[name]
	switch {
	case e.base == nil && !there && e.value != nil:
		at := len(list.Items)
		if previous, ok := names[e.after]; ok {
			at = previous + 1
		} else if e.after == "" {
			at = 0
		}
		list.Items = slices.Insert(list.Items, at, e.value.Clone())
	case e.base != nil && there && same(list.Items[i], e.base) && e.value == nil:
		list.Items = slices.Delete(list.Items, i, i+1)
	default:
		return false
	}
	return true
}

// isLabelled reports whether labels and annotations are objects that hold strings.
func isLabelled(object *tree) bool {
	metadata := object.Member("metadata")
	for _, name := range changeable {
		all := metadata.Member(name)
		if all.IsAbsent() {
			continue
		}
		if !all.IsObject() || slices.ContainsFunc(all.Items, func(t *tree) bool { return t.Kind != '"' }) {
			return false
		}
	}
	return true
}
