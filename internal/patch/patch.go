// Package patch turns a handler's changes to a decoded object into a JSON patch that touches nothing else.
//
// The object arrives as JSON and can hold members that our Go types do not know. So the patch is not the difference
// between that JSON and the re-encoded object. It is the difference between two typed trees, the decoded one and the
// one that the handler left behind, rebased on the JSON. Values on which both trees agree are never mentioned,
// whatever their spelling in the JSON. Members that only the JSON has stay in place, and move with their list item.
//
// The files, in the order in which a call passes through them:
//
//	patch.go  Diff and its errors, and the emitted operations with their JSON
//	diff.go   the walk through both trees
//	frame.go  the position of the walk in the JSON, and the operations emitted there
//	list.go   operations on a list whose items are paired
//	align.go  the pairing of the items of a list
//	equal.go  equality of two values, which means that they marshal to the same JSON
//	encode.go values and foreign JSON as encoding/json writes them
//	apply.go  the JSON that results from a patch, parsed only as far as the patch reaches
//
// All functions are safe for concurrent use. They only read their arguments, and keep none of them.
package patch

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"

	"gomodules.xyz/jsonpatch/v2"

	"code.cloudfoundry.org/eirinix/internal/jsontext"
	"code.cloudfoundry.org/eirinix/internal/jsontype"
)

// ErrMismatch is returned (wrapped, with the place) if the object cannot have been decoded from the raw JSON.
// Examples are a different number of list items, a scalar where the Go type has a struct, and a missing map key. A
// patch made from such a pair could fail to apply or hit the wrong item, so none is made.
var ErrMismatch = errors.New("raw JSON and decoded object disagree")

// ErrDuplicate is returned (wrapped, with the place) if an object that a patch would have to enter holds one member
// twice. JSON readers disagree on the meaning of that, so no patch is right for all of them.
var ErrDuplicate = errors.New("raw JSON holds a member twice")

// Diff returns the RFC 6902 operations that make the handler's changes to raw; nil if there are none.
//
// raw is the JSON of the object as it was received, and before is the object decoded from it. after is a deep copy of
// before that the handler changed. before and after are non-nil pointers to the same Go type, or maps. Decoding is
// assumed to be case-sensitive, as in sigs.k8s.io/json.
//
// Every operation's target was looked up in raw, so the patch applies to raw as a whole. A parent that raw lacks is
// created with everything below it, in one operation.
//
// Items of lists are paired by merge key, or by a unique name, key or id if the type has none. Those that remain are
// paired by equality, then by position if that is unambiguous. A paired item keeps the members that only raw has.
// Items with different keys are paired only if nothing else differs. The operations have no "from", so an item that
// moved is removed and added again, with its bytes from raw.
//
// Operation values are json.RawMessage: compact, HTML escaped and with sorted members (except where a type marshals
// itself), as encoding/json writes a decoded tree.
func Diff(raw []byte, before, after any) ([]jsonpatch.Operation, error) {
	p, err := Compare(raw, jsontext.Index{}, before, after)
	return p.Operations(), err
}

// Compare is Diff with the operations as a Patch. An Index of raw saves the time to make one; any other is not used.
func Compare(raw []byte, doc jsontext.Index, before, after any) (Patch, error) {
	a, b := reflect.ValueOf(before), reflect.ValueOf(after)
	if !a.IsValid() || !b.IsValid() {
		return Patch{}, errors.New("before and after must not be nil")
	}
	if a.Type() != b.Type() {
		return Patch{}, fmt.Errorf("before is %s but after is %s; they must be of one type", a.Type(), b.Type())
	}
	for a.Kind() == reflect.Pointer {
		if a.IsNil() || b.IsNil() {
			return Patch{}, errors.New("before and after must not be nil")
		}
		a, b = a.Elem(), b.Elem()
	}
	d := differs.Get().(*differ)
	d.raw, d.doc = raw, doc
	t := jsontype.Of(a.Type())
	d.frames = append(d.frames, frame{typ: t, after: b, known: true})
	err := d.value(t, a, b)
	p := Patch{slices.Clone(d.ops), bytes.Clone(d.buf)}
	d.release()
	if err != nil {
		return Patch{}, err
	}
	return p, nil
}

// An operation holds the positions of its text in differ.buf: the value, empty for none, followed by the path.
type operation struct {
	kind              string
	value, path, next int32
}

const frameSize = len(`{"op":"replace","path":"","value":},`)

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
	if need := len(p.buf) + frameSize*len(p.ops) + 2; cap(dst)-len(dst) < need {
		dst = append(make([]byte, 0, len(dst)+need), dst...)
	}
	dst = append(dst, '[')
	for i, o := range p.ops {
		dst = appendHead(dst, i, o.kind, p.pathOf(o))
		if value := p.valueOf(o); len(value) > 0 {
			dst = append(append(dst, `,"value":`...), value...)
		}
		dst = append(dst, '}')
	}
	return append(dst, ']')
}

// appendHead appends the beginning of the nth operation.
func appendHead[T string | []byte](dst []byte, n int, kind string, path T) []byte {
	if n > 0 {
		dst = append(dst, ',')
	}
	dst = jsontext.AppendString(append(dst, `{"op":`...), kind)
	return jsontext.AppendString(append(dst, `,"path":`...), path)
}

// AppendJSON appends a patch as json.Marshal would write it, but without reflection. It is meant for operations from
// Diff, whose values are JSON already. Any other value that cannot be marshalled leaves the patch malformed, so that
// it is refused as a whole instead of being applied in part.
func AppendJSON(dst []byte, ops []jsonpatch.Operation) []byte {
	dst = append(dst, '[')
	for i := range ops {
		op := &ops[i]
		dst = appendHead(dst, i, op.Operation, op.Path)
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
	case string:
		return jsontext.AppendString(dst, v)
	case json.RawMessage:
		if v != nil {
			return appendEscaped(dst, v)
		}
	}
	text, err := json.Marshal(value)
	if err != nil {
		return dst
	}
	return append(dst, text...)
}
