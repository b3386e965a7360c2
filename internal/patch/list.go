package patch

// This file turns the pairing of two lists into operations: on single items, or one that replaces the list.

import (
	"fmt"
	"reflect"
	"sort"
	"strconv"

	"code.cloudfoundry.org/eirinix/internal/jsontext"
	"code.cloudfoundry.org/eirinix/internal/jsontype"
)

// These bounds decide when a list is replaced rather than rearranged. Measured with the library that the API server
// uses, an operation with an index takes as long as about 100 bytes of JSON. It takes another byte for every five
// items of the list, which the library copies. Any change in a list makes the library decode it, so that replacing it
// is never much slower. But a replacement makes the patch as long as the list, so up to these bounds items are moved,
// added and removed one by one.
const (
	freeMoves      = 2  // items that may always move one by one, if that makes the patch shorter
	maxMoves       = 64 // most items that may move one by one; each takes two operations
	freeOperations = 64 // items that may always be added or removed one by one
	costOfChange   = 100
	itemsPerCost   = 5
)

// items emits the operations that turn one list into another.
func (d *differ) items(t *jsontype.Type, mergeKey string, a, b reflect.Value) error {
	m, n := a.Len(), b.Len()
	head, tail := 0, 0
	for head < m && head < n && equal(t.Elem, a.Index(head), b.Index(head)) {
		head++
	}
	if head == m && head == n {
		if a.IsNil() != b.IsNil() {
			return d.put() // between null and []
		}
		return nil
	}
	at, err := d.locate()
	if err != nil {
		return err
	}
	top := len(d.frames) - 1
	if m == 0 || n == 0 || at < top || !d.top().node.Holds() {
		return d.put()
	}
	if d.top().node.Kind != '[' {
		return d.mismatch(top, "another kind of value than the Go type")
	}
	if err := d.enumerate(d.top(), top); err != nil {
		return err
	}
	if have := d.top().high - d.top().low; have != m {
		return d.mismatch(top, strconv.Itoa(have)+" items and the decoded list "+strconv.Itoa(m))
	}
	for tail < m-head && tail < n-head && equal(t.Elem, a.Index(m-1-tail), b.Index(n-1-tail)) {
		tail++
	}
	s := &stretch{list: t, a: a, b: b, head: head, m: m - head - tail, n: n - head - tail}
	if s.m == 0 && (s.n <= freeOperations || tail == 0) {
		for j := range s.n { // the most frequent change
			if err := d.add(s, -1, j, tail); err != nil {
				return err
			}
		}
		return nil
	}
	first, start := len(d.ops), len(d.buf)
	pairs := align(s, mergeKey)
	if err := d.rearrange(s, &pairs, tail); err != nil {
		return err
	}
	for j, i := range pairs.from {
		if i < 0 {
			continue
		}
		d.frames = append(d.frames, frame{item: true, from: head + i, to: head + j, typ: t.Elem, after: s.after(j)})
		if err := d.value(t.Elem, s.before(i), s.after(j)); err != nil {
			return err
		}
		d.pop()
	}
	d.shorten(first, start)
	return nil
}

// shorten replaces many operations in a list, from the first on, by one that replaces the list, if that takes less than
// three quarters of the bytes. Its value is the list in raw with the operations applied. Their texts begin at start.
func (d *differ) shorten(first, start int) {
	top, node, operations := len(d.frames)-1, d.top().node, d.ops[first:]
	most := (len(d.buf) - start + frameSize*len(operations)) * 3 / 4
	if len(operations) <= freeOperations || most <= int(node.End-node.Start) {
		return
	}
	list, path := jsontext.TreeOf(d.raw[node.Start:node.End]), len(d.pointer(top))
	for _, o := range operations {
		value, below := d.buf[o.value:o.path], d.buf[int(o.path)+path:o.next]
		if len(below) == 0 {
			list = jsontext.TreeOf(value)
		} else if !edit(list, o.kind, string(below), value) {
			return
		}
	}
	text, err := appendCompact(nil, list.Append(nil))
	if err == nil && len(text) < most {
		d.ops, d.buf = d.ops[:first], append(d.buf[:start], text...)
		d.emit("replace", top, itself, start)
	}
}

// add emits the operation that adds an item at its index, in front of others. If there are no others, the item is
// appended.
func (d *differ) add(s *stretch, i, j, others int) error {
	start := len(d.buf)
	if err := d.appendItem(s, i, j); err != nil {
		return err
	}
	index := behind
	if others > 0 {
		index = s.head + j
	}
	d.emit("add", len(d.frames)-1, index, start)
	return nil
}

// rearrange emits the operations that remove, add and move items until every item is in its place.
func (d *differ) rearrange(s *stretch, p *pairing, tail int) error {
	stays := inOrder(p.from)
	kept, moves := 0, 0
	for j, i := range p.from {
		switch {
		case stays[j]:
			kept++
		case i >= 0:
			moves++
		}
	}
	if kept == s.m && kept == s.n {
		return nil
	}
	top := len(d.frames) - 1
	if d.cheaperToReplace(s, p, stays, moves, tail, len(d.pointer(top))+1) {
		return d.rewrite(s, p)
	}
	// Items are removed from the back, so that those still to be removed keep their index.
	for i := s.m - 1; i >= 0; i-- {
		if j := p.to[i]; j < 0 || !stays[j] {
			d.emit("remove", top, s.head+i, len(d.buf))
		}
	}
	// Items are added from the front, so that all items before the next one are already in their place.
	later := kept + tail // items behind the current one that are already in their place
	for j, i := range p.from {
		if stays[j] {
			later--
			continue
		}
		if err := d.add(s, i, j, later); err != nil {
			return err
		}
	}
	return nil
}

// cheaperToReplace reports whether a list is cheaper to replace than to rearrange.
func (d *differ) cheaperToReplace(s *stretch, p *pairing, stays []bool, moves, tail, path int) bool {
	f := d.top()
	size := int(f.node.End - f.node.Start)
	changes, moved := 0, 0
	for i, j := range p.to {
		if j >= 0 && stays[j] {
			continue
		}
		changes++
		if j >= 0 {
			n := d.entries[f.low+s.head+i].Node
			moved += int(n.End-n.Start) + 2*(path+len(`{"op":"remove","path":"12"},`))
		}
	}
	appended := tail == 0
	for j := len(stays) - 1; j >= 0; j-- {
		appended = appended && !stays[j]
		if !stays[j] && !appended { // appending is free, however many items
			changes++
		}
	}
	cost := costOfChange + max(s.a.Len(), s.b.Len())/itemsPerCost
	return moved >= size || moves > maxMoves ||
		moves > freeMoves && 2*moves*cost > size/4 ||
		changes > freeOperations && changes*cost > size
}

// rewrite emits one operation that replaces the list. Items that raw has keep their bytes.
func (d *differ) rewrite(s *stretch, p *pairing) error {
	start := len(d.buf)
	d.buf = append(d.buf, '[')
	m, n := s.a.Len(), s.b.Len()
	for at := range n {
		if at > 0 {
			d.buf = append(d.buf, ',')
		}
		j := at - s.head
		i := j
		switch {
		case j >= s.n:
			i = j + m - n
		case j >= 0:
			i = p.from[j]
		}
		if err := d.appendItem(s, i, j); err != nil {
			return err
		}
	}
	d.buf = append(d.buf, ']')
	d.emit("replace", len(d.frames)-1, itself, start)
	return nil
}

// appendItem appends the raw bytes of the item that was at i, or the new item at j. Both are indices in the stretch,
// and negative in front of it; for a new item only i is negative.
func (d *differ) appendItem(s *stretch, i, j int) error {
	var err error
	if i < 0 && j >= 0 {
		if d.buf, err = encode(d.buf, s.list.Elem, s.after(j)); err != nil {
			return fmt.Errorf("an item of %q cannot be written as JSON: %w", d.pointer(len(d.frames)-1), err)
		}
		return nil
	}
	f := d.top()
	n := d.entries[f.low+s.head+i].Node
	if d.buf, err = appendCompact(d.buf, d.raw[n.Start:n.End]); err != nil {
		return jsontext.Malformed(int(n.Start))
	}
	return nil
}

// inOrder reports which of the paired items can stay in place while the others move around them. They are those of a
// longest increasing subsequence.
func inOrder(from []int) []bool {
	var tails []int // tails[l] is the index of the last item of the best subsequence of length l+1
	prev := make([]int, len(from))
	for j, i := range from {
		if i < 0 {
			continue
		}
		l := sort.Search(len(tails), func(l int) bool { return from[tails[l]] >= i })
		prev[j] = -1
		if l > 0 {
			prev[j] = tails[l-1]
		}
		if l == len(tails) {
			tails = append(tails, j)
		} else {
			tails[l] = j
		}
	}
	stays := make([]bool, len(from))
	if len(tails) > 0 {
		for j := tails[len(tails)-1]; j >= 0; j = prev[j] {
			stays[j] = true
		}
	}
	return stays
}
