package patch

import (
	"errors"
	"fmt"
	"reflect"
	"strings"

	"gomodules.xyz/jsonpatch/v2"
)

// ErrMismatch is returned (wrapped, with the place) when the raw JSON cannot be what the object was decoded
// from: another number of list items, a scalar where the Go type has a struct, a missing map key. A patch
// made from such a pair could fail to apply or hit the wrong item, so there is none.
var ErrMismatch = errors.New("raw JSON and decoded object disagree")

// ErrDuplicate is returned (wrapped, with the place) when an object that a patch would have to enter holds
// one member twice. Readers of JSON disagree on what that means, so no patch is right for all of them.
var ErrDuplicate = errors.New("raw JSON holds a member twice")

// ErrSyntax is returned (wrapped, with the place) when the raw JSON is not JSON.
var ErrSyntax = errors.New("raw JSON is malformed")

// Option changes how Diff sees an object.
type Option func(*options)

type options struct {
	listKeys []listKey
}

type listKey struct{ path, key string }

// WithListKey names the member that identifies the items of a list, for lists whose Go field carries no
// patchMergeKey tag: those of most custom resources, and all of an Unstructured.
//
// The path is that of the list, as a JSON pointer from the root of the object, in which "*" stands for
// any index and any map key: "/spec/routes" or "/spec/groups/*/members". A merge key in the
// Go type wins over this option, and of several options that fit, the last one counts.
func WithListKey(path, key string) Option {
	return func(o *options) {
		o.listKeys = append(o.listKeys, listKey{strings.TrimSuffix(path, "/"), key})
	}
}

// Diff returns the RFC 6902 operations that turn raw into what the handler made of it; nil when it made nothing.
//
// raw is the JSON of the object as it was received, before is what it decodes to, and after is a deep copy of
// before that the handler changed. before and after are non-nil pointers to the same Go type, or maps.
// Decoding is taken to be case-sensitive, as sigs.k8s.io/json does it.
//
// Every operation's target was looked up in raw, so the patch applies to raw as a whole. A parent that raw lacks is
// created with all that stands below it, in one operation. Items of lists are paired by merge key, or by a unique name, key
// or id where the type has none, by equality, then by position where that is unambiguous; a paired item keeps what raw knows
// about it, and items of different keys are paired only where nothing else differs. The
// operations have no "from", hence an item that moved is removed and added again, with the bytes it has in raw.
//
// Operation values are json.RawMessage: compact, escaped for HTML and with sorted members (except where a type
// marshals itself), as encoding/json writes a decoded tree.
func Diff(raw []byte, before, after any, opts ...Option) ([]jsonpatch.Operation, error) {
	p, err := Compare(raw, before, after, opts...)
	return p.Operations(), err
}

// Compare returns what Diff returns as a Patch.
func Compare(raw []byte, before, after any, opts ...Option) (Patch, error) {
	d, err := diff(raw, before, after, opts)
	if err != nil {
		return Patch{}, err
	}
	return Patch{d.ops, d.buf}, nil
}

func diff(raw []byte, before, after any, opts []Option) (*differ, error) {
	a, b := reflect.ValueOf(before), reflect.ValueOf(after)
	if !a.IsValid() || !b.IsValid() {
		return nil, errors.New("before and after must not be nil")
	}
	if a.Type() != b.Type() {
		return nil, fmt.Errorf("before is %s but after is %s; they must be of one type", a.Type(), b.Type())
	}
	for a.Kind() == reflect.Pointer {
		if a.IsNil() || b.IsNil() {
			return nil, errors.New("before and after must not be nil")
		}
		a, b = a.Elem(), b.Elem()
	}
	d := &differ{raw: raw}
	for _, o := range opts {
		o(&d.opts)
	}
	p := planFor(a.Type())
	d.frames = append(d.stack[:0], frame{plan: p, after: b, known: true})
	err := d.value(p, a, b)
	d.doc.close() // the operations hold bytes of their own
	if err != nil {
		return nil, err
	}
	return d, nil
}
