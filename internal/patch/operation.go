package patch

// This file holds the operations of a patch, and writes them as JSON.

import (
	"bytes"
	"encoding/json"
	"strconv"

	"gomodules.xyz/jsonpatch/v2"

	"code.cloudfoundry.org/eirinix/internal/jsontext"
)

// An operation holds the positions of its text in differ.buf: the value, empty for none, followed by the path.
type operation struct {
	kind              string
	value, path, next int32
}

// These are special targets of an operation, relative to its frame. Any other number is the index of an item.
const (
	itself = -1
	behind = -2 // behind the last item
)

// emit adds an operation on a frame, or on an item below it. The operation's value is in the buffer from start on.
func (d *differ) emit(kind string, at, index, start int) {
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

// A Patch is the difference between two objects. It holds only operations from Compare, and is never changed. The
// zero value holds none.
type Patch struct {
	ops []operation
	buf []byte
}

// Len returns the number of operations.
func (p *Patch) Len() int { return len(p.ops) }

func (p *Patch) pathOf(o operation) []byte  { return p.buf[o.path:o.next] }
func (p *Patch) valueOf(o operation) []byte { return p.buf[o.value:o.path:o.path] } // empty for none

// Operations returns the operations as values that the caller owns.
func (p *Patch) Operations() []jsonpatch.Operation {
	if len(p.ops) == 0 {
		return nil
	}
	own, text := Patch{p.ops, bytes.Clone(p.buf)}, string(p.buf)
	all := make([]jsonpatch.Operation, 0, len(p.ops))
	for _, o := range p.ops {
		op := jsonpatch.Operation{Operation: o.kind, Path: text[o.path:o.next]}
		if value := own.valueOf(o); len(value) > 0 {
			op.Value = json.RawMessage(value)
		}
		all = append(all, op)
	}
	return all
}

// Is reports whether ops are still the operations that Operations returned.
func (p *Patch) Is(ops []jsonpatch.Operation) bool {
	if len(ops) != len(p.ops) {
		return false
	}
	for i, o := range p.ops {
		value, ok := ops[i].Value.(json.RawMessage)
		if !ok && ops[i].Value != nil || ops[i].Operation != o.kind ||
			ops[i].Path != string(p.pathOf(o)) || !bytes.Equal(value, p.valueOf(o)) {
			return false
		}
	}
	return true
}

// AppendJSON appends the operations as the same JSON array that the function AppendJSON would make of them.
func (p *Patch) AppendJSON(dst []byte) []byte {
	const frame = len(`{"op":"replace","path":"","value":},`)
	if need := len(p.buf) + frame*len(p.ops) + 2; cap(dst)-len(dst) < need {
		dst = append(make([]byte, 0, len(dst)+need), dst...)
	}
	dst = append(dst, '[')
	for i, o := range p.ops {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(append(append(dst, `{"op":"`...), o.kind...), `","path":`...)
		dst = jsontext.AppendString(dst, p.pathOf(o))
		if value := p.valueOf(o); len(value) > 0 {
			dst = append(append(dst, `,"value":`...), value...)
		}
		dst = append(dst, '}')
	}
	return append(dst, ']')
}

// AppendJSON appends a patch as json.Marshal would write it, but without reflection. It is meant for operations from
// Diff, whose values are JSON already. Any other value that cannot be marshalled leaves the patch malformed, so that
// it is refused as a whole instead of being applied in part.
func AppendJSON(dst []byte, ops []jsonpatch.Operation) []byte {
	dst = append(dst, '[')
	for i := range ops {
		op := &ops[i]
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, `{"op":`...)
		dst = jsontext.AppendString(dst, op.Operation)
		dst = append(dst, `,"path":`...)
		dst = jsontext.AppendString(dst, op.Path)
		if op.Value != nil || op.Operation == "add" || op.Operation == "replace" {
			dst = append(dst, `,"value":`...)
			dst = appendOperand(dst, op.Value)
		}
		dst = append(dst, '}')
	}
	return append(dst, ']')
}

func appendOperand(dst []byte, value any) []byte {
	switch v := value.(type) {
	case nil:
		return append(dst, "null"...)
	case string:
		return jsontext.AppendString(dst, v)
	case json.RawMessage:
		if v == nil {
			return append(dst, "null"...)
		}
		return appendEscaped(dst, v)
	}
	text, err := json.Marshal(value)
	if err != nil {
		return dst
	}
	return append(dst, text...)
}
