// Package patch turns a handler's changes to a decoded object into a JSON patch that touches nothing else.
//
// The object arrives as JSON and can hold members that our Go types do not know. So the patch is not the difference
// between that JSON and the re-encoded object. It is the difference between two typed trees, the decoded one and the
// one that the handler left behind, rebased on the JSON. Values on which both trees agree are never mentioned,
// whatever their spelling in the JSON. Members that only the JSON has stay in place, and move with their list item.
//
// The files, in the order in which a call passes through them:
//
//	patch.go     Diff and its errors
//	diff.go      the walk through both trees
//	frame.go     the position of the walk in the JSON, and the operations emitted there
//	list.go      operations on a list whose items are paired
//	align.go     the pairing of the items of a list
//	keys.go      the same by merge keys
//	equal.go     equality of two values, which means that they marshal to the same JSON
//	encode.go    values and foreign JSON as encoding/json writes them
//	operation.go the emitted operations, and their JSON
//	apply.go     the JSON that results from a patch, parsed only as far as the patch reaches
//
// All functions are safe for concurrent use. They only read their arguments, and keep none of them.
package patch

// This file holds Diff and its errors.

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"slices"

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
