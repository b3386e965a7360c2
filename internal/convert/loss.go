package convert

// This file finds the difference between an object and the same object after its way back.

import (
	"context"
	"math"
	"slices"
	"strconv"
	"strings"

	"code.cloudfoundry.org/eirinix/internal/jsontext"
)

// workPerByte bounds how often each byte of an object is compared, on average. A list beyond it is one entry.
const workPerByte = 16

// lossOf returns the difference between an object and its way back, without their metadata except labels and
// annotations. It ends early with the context.
//
// There is an entry for each leaf of what was lost, because that is how server-side apply owns it. If these take more than
// room, in bytes of annotations, whole values are kept.
func lossOf(ctx context.Context, version string, object, back *tree, size, room int) ([]entry, error) {
	l := losses{ctx: ctx, version: version, left: workPerByte * size, leaves: true, room: room}
	if l.walk(object, back); l.room < 0 {
		l = losses{ctx: ctx, version: version, left: workPerByte * size, room: math.MaxInt}
		l.walk(object, back)
	}
	return l.found, ctx.Err()
}

func (l *losses) walk(object, back *tree) {
	if object.IsObject() && back.IsObject() {
		l.members(object, back, ours)
	}
	was, is := object.Member("metadata"), back.Member("metadata")
	if !sameText(was, is) {
		l.push(member, "metadata")
		for _, name := range changeable {
			l.push(member, name)
			l.member(was.Member(name), is.Member(name))
			l.pop()
		}
	}
}

// losses walks two trees.
type losses struct {
	ctx     context.Context
	version string
	path    []string
	found   []entry
	left    int // bytes of lists that can still be looked into
	leaves  bool
	room    int // negative if the leaves do not fit
}

const member, item = ".", "["

func (l *losses) push(kind, name string) { l.path = append(l.path, kind+name) }
func (l *losses) pop()                   { l.path = l.path[:len(l.path)-1] }

// add adds entries for the current place. after is for a lost item.
func (l *losses) add(was, is *tree, after string) {
	if l.leaves && is.IsAbsent() {
		l.lose(was, after, len(l.path)-1)
		return
	}
	e := entry{After: after}
	if !was.IsAbsent() {
		e.Value = was.Append(nil)
	}
	if !is.IsAbsent() {
		e.Base = digest(is)
	}
	l.here(e)
}

// here adds an entry for the current place.
func (l *losses) here(e entry) {
	e.Version, e.Path = l.version, slices.Clone(l.path)
	e.text, e.Value = text(e), nil
	l.room -= e.size()
	l.found = append(l.found, e)
}

// lose adds an entry for each leaf of a value, of which nothing is left from a step of the path on.
func (l *losses) lose(was *tree, after string, from int) {
	above := len(l.path) - 1 - from
	switch {
	case l.room < 0: // they do not fit
	case was.IsObject() && len(was.Items) > 0 && l.isTold():
		key := "" // of an item; it stands for the item itself
		if last := l.path[len(l.path)-1]; last[:1] == item {
			key, _, _ = strings.Cut(last[1:], "=")
			value := jsontext.NewTree('{')
			value.Set(key, was.Member(key))
			l.here(entry{Value: value.Append(nil), After: after, Above: above})
		}
		for _, m := range was.Items {
			if (key == "" || m.Name != key) && !m.IsAbsent() {
				l.push(member, m.Name)
				l.lose(m, "", from)
				l.pop()
			}
		}
	case was.IsList() && areTold(was.Items):
		previous := ""
		for i, identity := range identities(was.Items) {
			l.push(item, identity)
			l.lose(was.Items[i], previous, from)
			l.pop()
			previous = identity
		}
	default:
		l.here(entry{Value: was.Append(nil), After: after, Above: above})
	}
}

// isTold reports whether the current place is a member, or an item with a key of its own.
func (l *losses) isTold() bool {
	last := l.path[len(l.path)-1]
	return last[:1] == member || last[1] != '#' && !isCounted(last[1:])
}

// areTold reports whether each item of a list has a key of its own, or is a leaf that stands there once.
func areTold(items []*tree) bool {
	for i, identity := range identities(items) {
		if isCounted(identity) || identity[0] == '#' && (items[i].IsObject() || items[i].IsList()) {
			return false
		}
	}
	return len(items) > 0
}

func (l *losses) members(was, is *tree, except []string) {
	for _, m := range was.Items {
		if !slices.Contains(except, m.Name) {
			l.push(member, m.Name)
			l.member(m, is.Member(m.Name))
			l.pop()
		}
	}
	for _, m := range is.Items {
		if was.Member(m.Name) == nil && !slices.Contains(except, m.Name) {
			l.push(member, m.Name)
			l.member(nil, m)
			l.pop()
		}
	}
}

func (l *losses) member(was, is *tree) {
	switch {
	case l.room < 0 || sameText(was, is) || was.IsAbsent() && is.IsAbsent():
	case was.IsAbsent() && is.IsList() && len(is.Items) == 0: // adds nothing
	case was.IsAbsent() && was != nil && is.IsObject() && len(is.Items) == 0: // server-side apply leaves null in its place
	case was.IsObject() && is.IsObject():
		l.members(was, is, nil)
	case was.IsList() && is.IsList():
		l.list(was, is)
	case !same(was, is):
		l.add(was, is, "")
	}
}

// list finds the difference of two lists. Where it cannot be sure which items belong together, the whole list is one
// entry.
func (l *losses) list(was, is *tree) {
	pairs, sure := l.pair(was, is)
	if !sure {
		if !same(was, is) {
			l.add(was, is, "")
		}
		return
	}
	own, others := identities(was.Items), identities(is.Items)
	previous := ""
	for i, w := range was.Items {
		j := pairs[i]
		if j >= 0 {
			previous = others[j]
			l.push(item, previous)
			l.member(w, is.Items[j])
			others[j] = ""
		} else {
			l.push(item, own[i])
			l.add(w, nil, previous)
			previous = own[i]
		}
		l.pop()
	}
	for j, identity := range others {
		if identity != "" {
			l.push(item, identity)
			l.add(nil, is.Items[j], "")
			l.pop()
		}
	}
}

// pair returns, for each item that was, the index of the one that it has become, or -1. It is not sure if items have
// changed their order, or if one without a key has not only lost members.
func (l *losses) pair(was, is *tree) (pairs []int, sure bool) {
	if l.left -= size(was) + size(is); l.left < 0 || l.ctx.Err() != nil {
		return nil, false
	}
	a, b := keysOf(was.Items), keysOf(is.Items)
	if !nameByPlace(was.Items, is.Items, a, b) {
		nameByDigest(was.Items, a)
		nameByDigest(is.Items, b)
	}
	pairs, sure = paired(a, b)
	last, keyless := -1, 0
	for i, j := range pairs {
		if j < 0 {
			continue
		}
		if sure = sure && j > last; a[i][0] == '#' {
			keyless++
		}
		last = j
	}
	for _, name := range b {
		if name[0] == '#' {
			keyless--
		}
	}
	return pairs, sure && keyless == 0
}

// nameByPlace names the items without a key by their place, if each has at most lost members.
func nameByPlace(was, is []*tree, a, b []string) bool {
	from, to := keyless(a), keyless(b)
	if len(from) != len(to) {
		return false
	}
	for n := range from {
		if !covers(was[from[n]], is[to[n]]) {
			return false
		}
	}
	for n := range from {
		place := "@" + strconv.Itoa(n)
		a[from[n]], b[to[n]] = place, place
	}
	return true
}

func keyless(keys []string) (at []int) {
	for i, key := range keys {
		if key == "" {
			at = append(at, i)
		}
	}
	return at
}
