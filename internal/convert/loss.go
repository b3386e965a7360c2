package convert

// This file finds the difference between an object and the same object after its way back.

import "slices"

// An entry is one value that the way back gives otherwise than it was.
type entry struct {
	path  []step
	value *tree // the value that was lost; nil if the way back adds one
	base  *tree // the value that the way back gives; nil if it gives none

	// after is the name of the item in front of a lost item; empty for the first one.
	after string
	// isItem marks an item without a name. The path is that of its list.
	isItem bool
}

// A step leads to a member, or to the item of a list that has this name.
type step struct {
	name   string
	isItem bool
}

// mostCompared is the number of items without names that are compared with each other.
const mostCompared = 64

// lossOf returns the difference between an object and its way back, without their metadata except labels and
// annotations.
func lossOf(object, back *tree) []entry {
	l := losses{}
	if object.isObject() && back.isObject() {
		l.members(object, back, ours)
	}
	was, is := object.member("metadata"), back.member("metadata")
	if sameText(was, is) {
		return l.found
	}
	l.push("metadata", false)
	for _, name := range changeable {
		l.push(name, false)
		l.member(was.member(name), is.member(name))
		l.pop()
	}
	l.pop()
	return l.found
}

// losses walks two trees.
type losses struct {
	path  []step
	found []entry
}

func (l *losses) push(name string, isItem bool) { l.path = append(l.path, step{name, isItem}) }
func (l *losses) pop()                          { l.path = l.path[:len(l.path)-1] }

// add adds an entry for the current place. An absent value counts as nil.
func (l *losses) add(e entry) {
	e.path = slices.Clone(l.path)
	e.value, e.base = e.value.present(), e.base.present()
	l.found = append(l.found, e)
}

func (l *losses) members(was, is *tree, except []string) {
	for i, name := range was.names {
		if !slices.Contains(except, name) {
			l.push(name, false)
			l.member(&was.items[i], is.member(name))
			l.pop()
		}
	}
	for i, name := range is.names {
		if was.member(name) == nil && !slices.Contains(except, name) {
			l.push(name, false)
			l.member(nil, &is.items[i])
			l.pop()
		}
	}
}

func (l *losses) member(was, is *tree) {
	switch {
	case same(was, is):
	case was.isAbsent() && is.isList() && len(is.items) == 0: // adds nothing
	case was.isObject() && is.isObject():
		l.members(was, is, nil)
	case was.isList() && is.isList():
		l.list(was, is)
	default:
		l.add(entry{value: was, base: is})
	}
}

// list finds the difference of two lists. Where it cannot be sure which items belong together, the whole list is one
// entry.
func (l *losses) list(was, is *tree) {
	if l.named(was, is) || l.unnamed(was, is) {
		return
	}
	l.add(entry{value: was, base: is})
}

// named pairs the items by name. It returns false if they have no names, or stand in another order.
func (l *losses) named(was, is *tree) bool {
	names, ok := itemNames(was)
	others, okOthers := itemNames(is)
	if !ok || !okOthers || !inOrder(is, names) {
		return false
	}
	previous := ""
	for i := range was.items {
		name, _ := was.items[i].member("name").string()
		l.push(name, true)
		if j, there := others[name]; there {
			l.members(&was.items[i], &is.items[j], nil)
		} else {
			l.add(entry{value: &was.items[i], after: previous})
		}
		l.pop()
		previous = name
	}
	for i := range is.items {
		name, _ := is.items[i].member("name").string()
		if _, there := names[name]; !there {
			l.push(name, true)
			l.add(entry{base: &is.items[i]})
			l.pop()
		}
	}
	return true
}

// inOrder reports whether the items of a list that others have, too, stand in the same order there.
func inOrder(list *tree, others map[string]int) bool {
	last := -1
	for i := range list.items {
		name, _ := list.items[i].member("name").string()
		if j, there := others[name]; there {
			if j < last {
				return false
			}
			last = j
		}
	}
	return true
}

// unnamed pairs items by their place, if each has lost members and nothing else, and if it cannot belong to another
// item.
func (l *losses) unnamed(was, is *tree) bool {
	if len(was.items) != len(is.items) || len(is.items) > mostCompared {
		return false
	}
	var differ []int
	for i := range was.items {
		w, b := &was.items[i], &is.items[i]
		if same(w, b) {
			continue
		}
		if !w.isObject() || !b.isObject() || len(b.names) == 0 {
			return false
		}
		for j := range was.items {
			if covers(&was.items[j], b) != (i == j) {
				return false
			}
		}
		differ = append(differ, i)
	}
	for _, i := range differ {
		l.add(entry{value: &was.items[i], base: &is.items[i], isItem: true})
	}
	return true
}
