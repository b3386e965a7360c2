package decode

// This file bounds the memory that a decoded object takes. A text of a few bytes can decode to a thousand times its
// size. An empty list item is two characters of JSON, but a container takes hundreds of bytes in memory.

import (
	"errors"
	"fmt"
	"reflect"

	"code.cloudfoundry.org/eirinix/internal/jsontext"
	"code.cloudfoundry.org/eirinix/internal/jsontype"
)

const (
	// Free is the number of bytes that an object can take without asking for more.
	Free = 256 << 10

	// Objects from API servers become at most ten times as large in a Go type, and twenty times in a tree of maps.
	maxPerByte = 32
	maxBeside  = 2 << 20

	// MaxMemory is the largest number of bytes that any object can take. An API server accepts objects of up to 3 MB.
	MaxMemory = 32 << 20
)

// Bound returns the largest number of bytes that an object can take if its JSON has this length.
func Bound(length int) int64 { return min(int64(length)*maxPerByte+maxBeside, MaxMemory) }

// ErrTooLarge reports a text that would take more memory than its length allows.
var ErrTooLarge = errors.New("it takes too much memory")

// Within is Into for callers that share memory. When the object takes more than Free bytes, Within calls take once with
// the most bytes that the object can take. An error from take ends the decoding. made is the number of bytes that the
// object has taken, even if it was decoded only in part. doc becomes an Index of raw, or an empty one if sigs.k8s.io/json
// had to decode it or the decoding failed. nil saves the time to record it.
func Within(raw []byte, obj any, doc *jsontext.Index, take func(most int64) error) (made int64, err error) {
	d := newDecoder(raw, maxNesting)
	if d.doc, d.take = doc, take; doc != nil {
		*doc = jsontext.Record(raw)
	}
	if !d.fast(obj) && d.err == nil {
		return d.slow(obj)
	}
	return d.made, d.err
}

// makes records that the object is about to take this many bytes. It fails if that is too much.
func (d *decoder) makes(bytes int64) bool {
	d.made += bytes
	if d.made <= d.most || d.ask() {
		return true
	}
	d.Fail()
	return false
}

func (d *decoder) ask() bool {
	bound := Bound(len(d.Text))
	if d.err == nil && d.made > bound {
		d.err = fmt.Errorf("%w: its JSON of %d bytes would become more than %d; send a smaller object, lists of empty or tiny items take most", ErrTooLarge, len(d.Text), bound)
	}
	if d.err == nil && d.most < bound && d.take != nil {
		d.err = d.take(bound)
	}
	d.most = bound
	return d.err == nil
}

// slow decodes with sigs.k8s.io/json, which does not count memory. The memory is therefore counted beforehand, and a
// duplicate member counts twice. Malformed text takes none, because sigs.k8s.io/json checks the syntax first. What fast
// has made is not kept.
func (d *decoder) slow(obj any) (int64, error) {
	counting := newDecoder(d.Text, deepestOfAll)
	counting.most, counting.take = d.most, d.take
	if v := reflect.ValueOf(obj); v.Kind() == reflect.Pointer && !v.IsNil() {
		counting.count(jsontype.Of(v.Type().Elem()))
	}
	if counting.err != nil {
		return counting.made, counting.err
	}
	return counting.made, unmarshal(d.Text, obj)
}

// deepestOfAll is how deep sigs.k8s.io/json lets lists and objects nest.
const deepestOfAll = 10000

// count walks a value as value does, including values that do not fit the type, and records the memory that they take.
func (d *decoder) count(t *jsontype.Type) {
	for pointers := 0; t.Elem != nil && t.Go.Kind() == reflect.Pointer && pointers < maxPointers; pointers++ {
		d.makes(t.Size)
		t = t.Elem
	}
	opening := d.Peek()
	kind, elem, size := t.Go.Kind(), t.Elem, t.Size
	if kind == reflect.Interface { // a JSON object or list becomes a map[string]any or a []any
		elem, size = t, anySize
		if d.makes(anySize); opening == '{' {
			kind, size = reflect.Map, anyEntry
		}
	}
	switch {
	case t.Reads == jsontype.JSON || t.Reads == jsontype.Time:
		d.makes(unmarshalled(len(d.skip())))
		return
	case opening == '{' && (kind == reflect.Struct || kind == reflect.Map && elem != nil):
	case opening == '[' && kind != reflect.Map && elem != nil:
	default:
		d.makes(int64(len(d.skip())))
		return
	}
	if kind == reflect.Map || elem == t {
		d.makes(mapHead)
	}
	more := d.enter(opening)
	for n := 0; more && d.err == nil; n++ {
		switch {
		case opening == '[':
			d.makes(2 * size) // the list doubles when it grows
			d.count(elem)
		case kind == reflect.Map:
			d.makes(entry(size, n) + int64(len(d.Name())|15))
			d.count(elem)
		default:
			if f := t.Field(d.Name()); f == nil {
				d.skip()
			} else {
				d.makes(f.Beside)
				d.count(f.Type)
			}
		}
		more = d.more(opening)
	}
}

const (
	maxPointers = 10

	anySize  = 16           // bytes of an interface
	anyEntry = 16 + anySize // bytes of an entry of map[string]any
	mapHead  = 48           // bytes of an empty map; the header of a list takes less

	groupSize   = 8        // map entries that are allocated together
	largestSlot = 16 + 128 // a map holds a larger value as a pointer to it
	growing     = 3        // entries beyond the first group take this many times their size at most
)

// entry returns the bytes that the nth entry of a map takes, counted from 0, if its key and value take slot bytes. It is
// what the map holds in the end: the groups that it copies when it grows are free then.
func entry(slot int64, n int) (bytes int64) {
	if slot > largestSlot {
		bytes, slot = slot, 16+8
	}
	if n == 0 || n == groupSize {
		bytes += jsontype.Rounded(groupSize * slot)
	}
	if n >= groupSize {
		bytes += growing * slot
	}
	return bytes
}

// unmarshalled estimates the bytes that a type with its own UnmarshalJSON takes for a text of this length.
func unmarshalled(text int) int64 { return 32 + 2*int64(text) }
