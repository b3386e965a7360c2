package patch

// This file tracks the position of the walk in the raw JSON and emits operations there.

import (
	"fmt"
	"reflect"
	"strconv"
	"sync"

	"code.cloudfoundry.org/eirinix/internal/jsontext"
	"code.cloudfoundry.org/eirinix/internal/jsontype"
)

// A frame is one step of the path from the root to the walk's current position: a member or a list item.
//
// Its position in the raw JSON is looked up once, and only if something below it has changed.
type frame struct {
	name string // the member, unless this is an item
	item bool
	from int // the item's index in raw
	to   int // the item's index once all earlier operations are applied

	typ   *jsontype.Type
	after reflect.Value

	node    jsontext.Node
	known   bool // node has been looked up
	written bool // an operation has written the whole value, so that nothing below needs one
	listed  bool // its entries have been listed
	low     int  // the first of them in differ.entries
	high    int
	byName  map[string]int // the same by name, for objects with many members
}

// A differ walks two trees in lockstep.
type differ struct {
	raw     []byte
	doc     jsontext.Index
	frames  []frame
	entries []jsontext.Part // of all listed frames, in the order of the frames
	ops     []operation
	buf     []byte // values and paths of operations, back to back
	scratch []byte
}

// differs holds differs whose memory can be used again.
var differs = sync.Pool{New: func() any { return new(differ) }}

// maxPooled bounds the entries, the operations and the bytes that a differ can return to the pool.
const maxPooled = 1 << 12

// release returns a differ to the pool, without references to the objects.
func (d *differ) release() {
	if max(cap(d.frames), cap(d.entries), cap(d.ops), cap(d.buf)/64) > maxPooled {
		return
	}
	clear(d.frames[:cap(d.frames)])
	clear(d.entries[:cap(d.entries)])
	*d = differ{frames: d.frames[:0], entries: d.entries[:0], ops: d.ops[:0], buf: d.buf[:0], scratch: d.scratch[:0]}
	differs.Put(d)
}

func (d *differ) top() *frame { return &d.frames[len(d.frames)-1] }

func (d *differ) push(name string, t *jsontype.Type, after reflect.Value) {
	d.frames = append(d.frames, frame{name: name, typ: t, after: after})
}

func (d *differ) pop() {
	if f := d.top(); f.listed {
		d.entries = d.entries[:f.low]
	}
	d.frames = d.frames[:len(d.frames)-1]
}

// locate looks up the walk's position in raw. It returns the index of the first frame that is missing or null in raw,
// or else of the top frame.
func (d *differ) locate() (int, error) {
	if root := &d.frames[0]; root.node.Kind == 0 {
		if !d.doc.IsOf(d.raw) {
			doc, _, err := jsontext.NewIndex(d.raw)
			if err != nil {
				return 0, err
			}
			d.doc = doc
		}
		if root.node = d.doc.Root(); root.node.Kind != '{' {
			return 0, fmt.Errorf("%w: raw is no JSON object", ErrMismatch)
		}
	}
	top := len(d.frames) - 1
	known := top
	for !d.frames[known].known {
		known--
	}
	for i := known; i < top; i++ {
		if err := d.lookUp(i, i+1); err != nil {
			return 0, err
		}
	}
	for i := 1; i < top; i++ {
		if !d.frames[i].node.Holds() {
			return i, nil
		}
	}
	return top, nil
}

// lookUp finds the node of one frame among the entries of its parent.
func (d *differ) lookUp(parent, child int) error {
	p, c := &d.frames[parent], &d.frames[child]
	if !p.node.Holds() {
		c.known = true
		return nil
	}
	if c.item && p.node.Kind != '[' || !c.item && p.node.Kind != '{' {
		return d.mismatch(parent, "another kind of value than the Go type")
	}
	if err := d.enumerate(p, parent); err != nil {
		return err
	}
	at, found := c.from, true
	switch all := d.entries[p.low:p.high]; {
	case c.item && at >= len(all):
		return d.mismatch(parent, "fewer items than the decoded list")
	case c.item:
	case p.byName != nil:
		at, found = p.byName[c.name]
	default:
		for at = 0; at < len(all) && string(all[at].Name) != c.name; {
			at++
		}
		found = at < len(all)
	}
	if c.known = true; found {
		c.node = d.entries[p.low+at].Node
	}
	return nil
}

// enumerate lists the members or items of a frame's value, once. It returns ErrDuplicate if an object holds a member
// twice.
func (d *differ) enumerate(f *frame, at int) error {
	if f.listed {
		return nil
	}
	low := len(d.entries)
	entries, err := d.doc.Parts(f.node, d.entries)
	if err != nil {
		return err
	}
	d.entries = entries
	f.listed, f.low, f.high = true, low, len(entries)
	if f.node.Kind == '[' {
		return nil
	}
	members := entries[low:]
	if name, ok := jsontext.Duplicate(members); ok {
		return fmt.Errorf("%w: %q in %q", ErrDuplicate, name, d.pointer(at))
	}
	if len(members) > 32 {
		f.byName = make(map[string]int, len(members))
		for i := range members {
			f.byName[string(members[i].Name)] = i
		}
	}
	return nil
}

func (d *differ) mismatch(at int, what string) error {
	return fmt.Errorf("%w: raw has %s at %q", ErrMismatch, what, d.pointer(at))
}

// put writes the handler's value at the top of the walk. If raw lacks a parent of it, put writes the topmost missing
// parent with everything below.
func (d *differ) put() error {
	at, err := d.locate()
	if err != nil {
		return err
	}
	f := &d.frames[at]
	if f.written {
		return nil
	}
	if at == 0 {
		return fmt.Errorf("%w: the object itself cannot be replaced", ErrMismatch)
	}
	if at < len(d.frames)-1 {
		f.written = true
	}
	op := "add"
	if f.item || f.node.Holds() {
		op = "replace"
	}
	start := len(d.buf)
	if d.buf, err = encode(d.buf, f.typ, f.after); err != nil {
		return fmt.Errorf("%q cannot be written as JSON: %w", d.pointer(at), err)
	}
	d.emit(op, at, itself, start)
	return nil
}

// remove emits the removal of the member at the top of the walk, if raw has it.
func (d *differ) remove() error {
	if _, err := d.locate(); err != nil {
		return err
	}
	if f := d.top(); f.node.Kind != 0 {
		d.emit("remove", len(d.frames)-1, itself, len(d.buf))
	}
	return nil
}

// pointer returns the JSON pointer (RFC 6901) of a frame.
func (d *differ) pointer(at int) string {
	d.scratch = d.appendPointer(d.scratch[:0], at)
	return string(d.scratch)
}

func (d *differ) appendPointer(dst []byte, at int) []byte {
	for i := 1; i <= at; i++ {
		f := &d.frames[i]
		dst = append(dst, '/')
		if f.item {
			dst = strconv.AppendInt(dst, int64(f.to), 10)
			continue
		}
		for j := range len(f.name) {
			switch c := f.name[j]; c {
			case '~':
				dst = append(dst, '~', '0')
			case '/':
				dst = append(dst, '~', '1')
			default:
				dst = append(dst, c)
			}
		}
	}
	return dst
}
