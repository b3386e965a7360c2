package patch

import (
	"encoding/json"
	"strconv"

	"gomodules.xyz/jsonpatch/v2"
)

// An operation is where its text stands in differ.buf: the value, empty for none, and behind it the path.
type operation struct {
	kind              string
	value, path, next int32
}

// Where an operation's path leads, below the frame that it is about; any other number is the index of an item.
const (
	itself = -1
	behind = -2 // the last item
)

// emit adds an operation on a frame, or on an item below it. Its value has been appended to the buffer from start.
func (d *differ) emit(kind string, at, index, start int) {
	if d.ops == nil {
		d.ops = make([]operation, 0, 16)
	}
	path := len(d.buf)
	d.buf = d.appendPointer(d.buf, at)
	switch index {
	case itself:
	case behind:
		d.buf = append(d.buf, '/', '-')
	default:
		d.buf = strconv.AppendInt(append(d.buf, '/'), int64(index), 10)
	}
	d.ops = append(d.ops, operation{kind: kind, value: int32(start), path: int32(path), next: int32(len(d.buf))})
}

// operations gives the operations as values.
func (d *differ) operations() []jsonpatch.Operation {
	if len(d.ops) == 0 {
		return nil
	}
	all := make([]jsonpatch.Operation, 0, len(d.ops))
	for _, o := range d.ops {
		op := jsonpatch.Operation{Operation: o.kind, Path: string(d.buf[o.path:o.next])}
		if o.value < o.path {
			op.Value = json.RawMessage(d.buf[o.value:o.path:o.path])
		}
		all = append(all, op)
	}
	return all
}

// appendTo appends the operations as the JSON array that AppendJSON makes of the same values.
func (d *differ) appendTo(dst []byte) []byte {
	const frame = len(`{"op":"replace","path":"","value":},`)
	if need := len(d.buf) + frame*len(d.ops) + 2; cap(dst)-len(dst) < need {
		dst = append(make([]byte, 0, len(dst)+need), dst...)
	}
	dst = append(dst, '[')
	for i, o := range d.ops {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(append(append(dst, `{"op":"`...), o.kind...), `","path":`...)
		dst = appendString(dst, d.buf[o.path:o.next])
		if o.value < o.path {
			dst = append(append(dst, `,"value":`...), d.buf[o.value:o.path]...)
		}
		dst = append(dst, '}')
	}
	return append(dst, ']')
}
