package chain

// This file holds the object of a request while steps change it, bounds its memory, and collects the patches of the steps.

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"code.cloudfoundry.org/eirinix/internal/decode"
	"code.cloudfoundry.org/eirinix/internal/hang"
	"code.cloudfoundry.org/eirinix/internal/jsontext"
	"code.cloudfoundry.org/eirinix/internal/patch"
)

// object is the object of a request during its pass through a chain. It holds the JSON that arrived, and a view of it
// as a Go type that steps change. One decode and one patch serve all steps that ask for the same type. If a step asks
// for another type, or makes its own patch, the changes so far are turned into JSON first.
type object struct {
	raw     []byte      // without the last patch; read it with json
	last    patch.Patch // leads from raw to the object as of the last flush
	patches [][]byte    // JSON arrays of operations that led there from the object as it arrived

	operations int // number in patches

	before  runtime.Object // the view without the changes; nil until a step changes it
	current runtime.Object // the view; nil until a step asks for it

	memory *memory // memory of the view
}

// touched reports whether the object can differ from the one that arrived.
func (o *object) touched() bool { return o.before != nil || len(o.patches) > 0 }

// json returns the object as of the last flush. A patch is applied only when its result is asked for, and the result of
// the last step's patch never is.
func (o *object) json() ([]byte, error) {
	if o.last.Len() > 0 {
		raw, err := o.last.Apply(o.raw)
		if err != nil {
			return nil, err
		}
		o.raw, o.last = raw, patch.Patch{}
	}
	return o.raw, nil
}

// ErrUnreadable is the error for an object that does not decode into the type of a step.
var ErrUnreadable = errors.New("the object cannot be read")

// absent reports whether a request carries no object here.
func absent(raw []byte) bool { return len(raw) == 0 || string(raw) == "null" }

// isOf reports whether the view is of type t.
func (o *object) isOf(t reflect.Type) bool { return o.current != nil && reflect.TypeOf(o.current) == t }

// size returns the memory of the object's text and of its view.
func (o *object) size() int64 { return int64(len(o.raw)) + o.memory.held.Held() }

// view returns the object as the type that newObject makes, for reading. Changes to a view of another type have been
// flushed before.
func (o *object) view(t reflect.Type, newObject func() runtime.Object) (runtime.Object, error) {
	if o.isOf(t) {
		return o.current, nil
	}
	raw, err := o.json()
	if err != nil {
		return nil, err
	}
	current := newObject()
	if err := o.memory.decode(raw, current); err != nil {
		return nil, err
	}
	o.current, o.before = current, nil
	return current, nil
}

// edit returns the view to be changed in place. The first time, a copy of the unchanged view is kept for the patch.
func (o *object) edit(t reflect.Type, newObject func() runtime.Object) (runtime.Object, error) {
	current, err := o.view(t, newObject)
	if err != nil || o.before != nil {
		return current, err
	}
	before, ok := copied(current)
	if !ok { // a step has put a value into it that its type cannot copy, but JSON can hold
		o.current = nil
		if current, err = o.view(t, newObject); err != nil {
			return nil, err
		}
		before = current.DeepCopyObject()
	}
	o.before = before
	return current, nil
}

// copied returns a deep copy. ok is false if the type panics.
func copied(obj runtime.Object) (c runtime.Object, ok bool) {
	defer func() { ok = recover() == nil }()
	return sharing(obj, runtime.Object.DeepCopyObject), true
}

// sharing returns a deep copy that shares the contents of managedFields. They are half of many objects, and are
// replaced where they change, but not written into (metav1.FieldsV1.GetRawBytes).
func sharing[T runtime.Object](obj T, deepCopy func(T) T) T {
	meta := typedMeta(obj)
	if meta == nil {
		return deepCopy(obj)
	}
	managed := meta.ManagedFields
	meta.ManagedFields = nil
	defer func() { meta.ManagedFields = managed }()
	c := deepCopy(obj)
	if its := typedMeta(c); its != nil {
		its.ManagedFields = slices.Clone(managed)
		for i := range its.ManagedFields {
			e := &its.ManagedFields[i]
			e.Time = e.Time.DeepCopy()
			if e.FieldsV1 != nil {
				fields := *e.FieldsV1
				e.FieldsV1 = &fields
			}
		}
	}
	return c
}

// typedMeta returns the metadata of an object of a Go type, or nil for an unstructured tree.
func typedMeta(obj runtime.Object) *metav1.ObjectMeta {
	if typed, ok := obj.(metav1.ObjectMetaAccessor); ok {
		if meta, ok := typed.GetObjectMeta().(*metav1.ObjectMeta); ok {
			return meta
		}
	}
	return nil
}

// isOdd reports whether the view is an unstructured tree with values that no decoder makes, such as int or []string.
// Readers of such trees do not know these types.
func (o *object) isOdd() bool {
	u, ok := o.current.(*unstructured.Unstructured)
	return ok && o.before != nil && !isPlain(u.Object)
}

func isPlain(v any) bool {
	switch v := v.(type) {
	case nil, bool, string, int64, float64:
		return true
	case []any:
		return !slices.ContainsFunc(v, func(item any) bool { return !isPlain(item) })
	case map[string]any:
		for _, member := range v {
			if !isPlain(member) {
				return false
			}
		}
		return true
	}
	return false
}

// flush turns the changes to the view into a patch.
func (o *object) flush() error {
	if o.before == nil {
		return nil
	}
	raw, err := o.json()
	if err != nil {
		return err
	}
	p, err := patch.Compare(raw, o.memory.index, o.before, o.current)
	if err != nil {
		return fmt.Errorf("the change to the object cannot be written as a patch: %w", err)
	}
	view := o.current
	if o.isOdd() {
		view = nil
	}
	o.adopt(p, view)
	return nil
}

// adopt adds a patch that was made for the object, and stores the view that it leads to, if there is one.
func (o *object) adopt(p patch.Patch, view runtime.Object) {
	o.before, o.current = nil, view
	if p.Len() > 0 {
		o.last, o.patches, o.operations = p, append(o.patches, p.AppendJSON(nil)), o.operations+p.Len()
	}
}

// apply applies a patch that a step has written. It fails where the API server would fail. The API server would refuse
// the user's object without naming the webhook, and regardless of failurePolicy.
func (o *object) apply(operations []byte) error {
	was, err := o.json()
	if err != nil {
		return err
	}
	raw, count, err := patch.Apply(was, operations)
	if err != nil || count == 0 {
		return err
	}
	o.raw, o.before, o.current = raw, nil, nil
	o.patches, o.operations = append(o.patches, operations), o.operations+count
	return nil
}

// patch returns the changes as of the last flush as one JSON array, or nil if there are none.
func (o *object) patch() []byte {
	switch len(o.patches) {
	case 0:
		return nil
	case 1:
		return o.patches[0]
	}
	joined := []byte{'['}
	for i, operations := range o.patches {
		if i > 0 {
			joined = append(joined, ',')
		}
		operations = bytes.TrimSpace(operations)
		joined = append(joined, operations[1:len(operations)-1]...)
	}
	return append(joined, ']')
}

// restored returns the object as it was before a step that is undone. The step's view is dropped, because the step may
// still be changing it. The copy that was made for the patch replaces it.
func (o object) restored(was object) object {
	was.current, was.before = o.before, nil
	return was
}

// An object is counted twice, because steps change a copy. While it is decoded, the most that it can take is reserved
// once. An object that takes no more than decode.Free is not counted.
const copies = 2

// A Budget bounds the memory of the decoded objects of all calls together, or of all shadows. Old objects have an account
// of their own, so that a call that holds one object and waits for the other never waits for a call that does the reverse.
// What steps hold that were left behind no longer delays others, so it is in no account. It is safe for concurrent use.
type Budget struct {
	LeftBehind          hang.LeftBehind
	objects, oldObjects account
}

// NewBudget returns the budget of the calls.
func NewBudget() *Budget { return newBudget(decode.MaxMemory) }

func newBudget(most int64) *Budget {
	return &Budget{LeftBehind: hang.LeftBehind{Max: most}, objects: newAccount(most), oldObjects: newAccount(most / 2)}
}

// account is memory for decoded objects. A step that takes its time with an object thus delays no decoding of another,
// as long as there is room for what both take.
type account struct{ decoding, held hang.Account }

func newAccount(most int64) account {
	return account{hang.NewAccount(decode.MaxMemory), hang.NewAccount(most)}
}

// memory is the share of one object of a call in an account.
type memory struct {
	decoding, held hang.Memory
	record         *jsontext.Index // index, if a patch may be made for the object; else nil
	index          jsontext.Index  // of the text that was read last
}

func (a account) share(ctx context.Context) *memory {
	return &memory{decoding: hang.Memory{Of: a.decoding, Context: ctx}, held: hang.Memory{Of: a.held, Context: ctx}}
}

// decode reads an object into a Go type. It first releases the memory of the object that was read before.
func (m *memory) decode(raw []byte, into runtime.Object) error {
	target := any(into)
	if u, ok := into.(*unstructured.Unstructured); ok {
		target = &u.Object // its own decoder requires a kind, and reads the text twice
	}
	m.held.Release()
	defer m.decoding.Release()
	made, err := decode.Within(raw, target, m.record, m.decoding.Take)
	if err == nil && m.decoding.Held() > 0 {
		err = m.held.Take(copies * made)
	}
	if err != nil && !errors.Is(err, hang.ErrNoMemory) {
		err = fmt.Errorf("%w as %T: %w", ErrUnreadable, into, err)
	}
	return err
}

func (m *memory) waits() bool { return m.decoding.Waits() || m.held.Waits() }
