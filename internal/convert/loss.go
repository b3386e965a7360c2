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
	if object.IsObject() && back.IsObject() {
		l.members(object, back, ours)
	}
	was, is := object.Member("metadata"), back.Member("metadata")
	if sameText(was, is) {
		return l.found
	}
	l.push("metadata", false)
	for _, name := range changeable {
		l.push(name, false)
		l.member(was.Member(name), is.Member(name))
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
	e.value, e.base = present(e.value), present(e.base)
	l.found = append(l.found, e)
}

func (l *losses) members(was, is *tree, except []string) {
	for _, m := range was.Items {
		if !slices.Contains(except, m.Name) {
			l.push(m.Name, false)
			l.member(m, is.Member(m.Name))
			l.pop()
		}
	}
	for _, m := range is.Items {
		if was.Member(m.Name) == nil && !slices.Contains(except, m.Name) {
			l.push(m.Name, false)
			l.member(nil, m)
			l.pop()
		}
	}
}

func (l *losses) member(was, is *tree) {
	switch {
	case same(was, is):
	case was.IsAbsent() && is.IsList() && len(is.Items) == 0: // adds nothing
	case was.IsObject() && is.IsObject():
		l.members(was, is, nil)
	case was.IsList() && is.IsList():
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
	for _, item := range was.Items {
		name, _ := stringOf(item.Member("name"))
		l.push(name, true)
		if j, there := others[name]; there {
			l.members(item, is.Items[j], nil)
		} else {
			l.add(entry{value: item, after: previous})
		}
		l.pop()
		previous = name
	}
	for _, item := range is.Items {
		name, _ := stringOf(item.Member("name"))
		if _, there := names[name]; !there {
			l.push(name, true)
			l.add(entry{base: item})
			l.pop()
		}
	}
	return true
}

// inOrder reports whether the items of a list that others have, too, stand in the same order there.
func inOrder(list *tree, others map[string]int) bool {
	last := -1
	for _, item := range list.Items {
		name, _ := stringOf(item.Member("name"))
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
	if len(was.Items) != len(is.Items) || len(is.Items) > mostCompared {
		return false
	}
	var differ []int
	for i := range was.Items {
		w, b := was.Items[i], is.Items[i]
		if same(w, b) {
			continue
		}
		if !w.IsObject() || !b.IsObject() || len(b.Items) == 0 {
			return false
		}
		for j := range was.Items {
			if covers(was.Items[j], b) != (i == j) {
				return false
			}
		}
		differ = append(differ, i)
	}
	for _, i := range differ {
		l.add(entry{value: was.Items[i], base: is.Items[i], isItem: true})
	}
	return true
}
