// Package decode reads JSON into API types. The result is exactly that of sigs.k8s.io/json, in a fraction of the time.
//
// What there is to know about a Go type is worked out once (internal/jsontype). The text is then read in one pass. Unusual input is not handled here: malformed text, values that do not fit their fields, duplicate members,
// types with rules of their own. For such input, the target is emptied and sigs.k8s.io/json decodes the whole text
// again. The rare results and every error are therefore its own, and it can replace this package at any time.
package decode

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"

	"code.cloudfoundry.org/eirinix/internal/jsontext"
	"code.cloudfoundry.org/eirinix/internal/jsontype"
)

// Into reads JSON into obj, a pointer to an API type, exactly as UnmarshalCaseSensitivePreserveInts of sigs.k8s.io/json
// does, and returns that function's errors. It is fast if obj points to a zero value, as after new(T). Otherwise it
// adds to the value, at the speed of sigs.k8s.io/json.
//
// The object keeps no reference to raw. Its strings share memory in small groups, so a string that is kept can keep
// about 4 KB of others alive. An UnmarshalJSON method can see the same value twice, the second time with a fresh
// receiver. It can also see a value of a text that is malformed further on. Into is safe for concurrent use.
//
// An object takes no more memory than Bound allows for its text. ErrTooLarge is the only error that does not come from
// sigs.k8s.io/json.
func Into(raw []byte, obj any) error {
	_, err := Whole(raw, obj)
	return err
}

// Whole is Into for callers that must not lose a member. all is true if the object knows every member of the text, at every
// depth. It is false, too, if sigs.k8s.io/json had to decode the text.
func Whole(raw []byte, obj any) (all bool, err error) {
	d := decoder{raw: raw, most: Free, deepest: maxNesting}
	if !d.fast(obj) && d.err == nil {
		_, err = d.slow(obj)
		return false, err
	}
	return !d.strange && d.err == nil, d.err
}

// unmarshal is the specification of this package, and its fallback.
var unmarshal = kjson.UnmarshalCaseSensitivePreserveInts

// fast decodes as Into does. For unusual input, it leaves the target as it was and returns false.
func (d *decoder) fast(obj any) bool {
	v := reflect.ValueOf(obj)
	if v.Kind() != reflect.Pointer || v.IsNil() || !v.Elem().IsZero() {
		return false
	}
	v = v.Elem()
	if i := d.value(jsontype.Of(v.Type()), v, jsontext.SkipSpace(d.raw, 0)); i >= 0 && jsontext.SkipSpace(d.raw, i) == len(d.raw) {
		return true
	}
	v.SetZero()
	return false
}

const (
	// maxNesting is how deep lists and objects can nest before sigs.k8s.io/json takes over. Its own bound is 10000.
	maxNesting = 500

	// Strings share allocations of up to keptTogether bytes, because one allocation for each string is too expensive. A
	// string of more than longString bytes that does not fit the current allocation gets its own.
	keptTogether = 4096
	longString   = 512

	// Once the items of a list take spareBytes, the remaining ones are counted before memory is allocated for them.
	// Inside maxCounted such lists, further lists are not counted, because each count scans the text once more.
	spareBytes = 64 << 10
	maxCounted = 4
	maxSpare   = 1 << 20 // bytes of a list that is kept for reuse
)

// A decoder decodes one text into one object. Its methods read the text at i into a value that is zero, and return the
// index where that text ends. They return -1 to give up, and also if i is -1.
type decoder struct {
	raw     []byte
	doc     *jsontext.Index // records the lists and objects; nil if nothing needs it
	open    int             // number of lists and objects around i
	deepest int             // bound on open
	kept    strings.Builder // buffer of the object's latest strings

	made, most int64                  // bytes of memory that the object takes so far, and can take before ask is called
	take       func(most int64) error // may be nil
	strange    bool                   // the text has a member that a Go type does not know
	counted    int                    // number of lists around i whose items were counted beforehand
	err        error                  // reason that no more memory can be taken
}

// value reads any JSON value into a value of a type.
func (d *decoder) value(t *jsontype.Type, v reflect.Value, i int) int {
	c := d.at(i)
	if c == 'n' && t.Reads < jsontype.JSON {
		return d.literal(i) // null changes nothing: scalars stay zero, and pointers, maps and lists stay nil
	}
	switch t.Reads {
	case jsontype.String:
		s, end := d.string(i)
		v.SetString(s)
		return end
	case jsontype.Bool:
		if c != 't' && c != 'f' {
			return -1
		}
		v.SetBool(c == 't')
		return d.literal(i)
	case jsontype.Int, jsontype.Uint, jsontype.Float:
		return d.number(t, v, i)
	case jsontype.JSON:
		end := d.skip(i)
		if end < 0 || !d.makes(unmarshalled(end-i)) || v.Addr().Interface().(json.Unmarshaler).UnmarshalJSON(d.raw[i:end:end]) != nil {
			return -1
		}
		return end
	case jsontype.Time:
		// This does the same as the type's UnmarshalJSON, without a second decoder for the string.
		s, end := d.string(i)
		t, err := time.Parse(time.RFC3339, s)
		if err != nil {
			return -1
		}
		v.Addr().Interface().(*metav1.Time).Time = t.Local()
		return end
	case jsontype.Pointer:
		if !d.makes(t.Size) {
			return -1
		}
		target := reflect.New(t.Go.Elem())
		v.Set(target)
		return d.value(t.Elem, target.Elem(), i)
	case jsontype.Interface:
		a, end := d.any(i)
		if end >= 0 {
			v.Set(reflect.ValueOf(a)) // null was handled above, so a is not nil
		}
		return end
	case jsontype.Struct:
		return d.members(t, v, i)
	case jsontype.Map:
		return d.entries(t, v, i)
	case jsontype.List:
		return d.items(t, v, i)
	case jsontype.Bytes:
		s, end := d.string(i)
		content, err := base64.StdEncoding.DecodeString(s)
		if err != nil {
			return -1
		}
		v.SetBytes(content)
		d.made += int64(len(s))
		return end
	}
	return -1
}

func (d *decoder) number(t *jsontype.Type, v reflect.Value, i int) int {
	end := d.literal(i)
	if end < 0 {
		return -1
	}
	var err error
	switch number := d.raw[i:end]; t.Reads {
	case jsontype.Int:
		var n int64
		n, err = strconv.ParseInt(string(number), 10, t.Go.Bits())
		v.SetInt(n)
	case jsontype.Uint:
		var n uint64
		n, err = strconv.ParseUint(string(number), 10, t.Go.Bits())
		v.SetUint(n)
	default:
		var n float64
		n, err = strconv.ParseFloat(string(number), t.Go.Bits())
		v.SetFloat(n)
	}
	if err != nil {
		return -1
	}
	return end
}

// members reads a struct.
func (d *decoder) members(t *jsontype.Type, v reflect.Value, i int) int {
	var seen [jsontype.MaxFields / 64]uint64
	i, more := d.first(i, '{')
	for more {
		var name []byte
		name, i = d.member(i)
		if f := t.Field(name); f == nil {
			i, d.strange = d.skip(i), true
		} else {
			// A duplicate member would be merged into the first value. No caller relies on the rules for that, so
			// sigs.k8s.io/json handles it.
			word, bit := &seen[f.Number/64], uint64(1)<<(f.Number%64)
			if *word&bit != 0 {
				return -1
			}
			*word |= bit
			d.made += f.Beside
			at := v.Field(f.Index[0])
			for _, x := range f.Index[1:] {
				if at.Kind() == reflect.Pointer {
					if at.IsNil() {
						at.Set(reflect.New(at.Type().Elem()))
					}
					at = at.Elem()
				}
				at = at.Field(x)
			}
			i = d.value(f.Type, at, i)
		}
		i, more = d.next(i, '}')
	}
	return i
}

// entries reads a map. If a name occurs twice, the last entry wins.
func (d *decoder) entries(t *jsontype.Type, v reflect.Value, i int) int {
	switch m := v.Addr().Interface().(type) {
	case *map[string]string:
		*m, i = d.stringMap(i)
		return i
	case *map[string]any:
		*m, i = d.anyMap(i)
		return i
	}
	m, key := reflect.MakeMap(t.Go), reflect.New(t.Go.Key()).Elem()
	elem := reflect.New(t.Go.Elem()).Elem()
	d.made += mapHead
	i, more := d.first(i, '{')
	for n := 0; more; n++ {
		if !d.makes(entry(t.Size, n)) {
			return -1
		}
		var name string
		name, i = d.name(i)
		key.SetString(name)
		elem.SetZero()
		i = d.value(t.Elem, elem, i)
		m.SetMapIndex(key, elem)
		i, more = d.next(i, '}')
	}
	v.Set(m)
	return i
}

func (d *decoder) stringMap(i int) (map[string]string, int) {
	m := map[string]string{}
	d.made += mapHead
	i, more := d.first(i, '{')
	for n := 0; more; n++ {
		if !d.makes(entry(anyEntry, n)) { // a string is as large as an interface
			return nil, -1
		}
		var name, s string
		if name, i = d.name(i); d.at(i) == 'n' {
			i = d.literal(i)
		} else {
			s, i = d.string(i)
		}
		m[name] = s
		i, more = d.next(i, '}')
	}
	return m, i
}

// items reads a list. The number of items is known only at the end, so they are first collected in a spare list that is
// reused. For many items, the remaining ones are counted instead. Like any list that grows, the spare list moves its
// items, so an item must not keep its own address.
func (d *decoder) items(t *jsontype.Type, v reflect.Value, i int) int {
	i, more := d.first(i, '[')
	if !more {
		v.Set(reflect.MakeSlice(t.Go, 0, 0))
		return i
	}
	list, ok := t.Spare.Get().(*reflect.Value)
	if !ok {
		fresh := reflect.New(t.Go).Elem()
		list = &fresh
	}
	n := 0
	for ; more; n++ {
		if n == list.Cap() {
			if int64(n)*t.Size >= spareBytes && d.counted < maxCounted {
				break
			}
			list.Grow(1) // Grow doubles the capacity
		}
		if !d.makes(t.Size) {
			i = -1
			break
		}
		list.SetLen(n + 1)
		i = d.value(t.Elem, list.Index(n), i)
		i, more = d.next(i, ']')
	}
	if i >= 0 {
		i = d.settle(t, v, list, i, more)
	}
	if int64(list.Cap())*t.Size <= maxSpare {
		list.Clear()
		list.SetLen(0)
		t.Spare.Put(list)
	}
	return i
}

// settle allocates the list, copies the items that were read, and reads the items that follow. It counts those first,
// to allocate once.
func (d *decoder) settle(t *jsontype.Type, v reflect.Value, list *reflect.Value, i int, more bool) int {
	n := list.Len()
	all := n
	if more {
		all += d.countItems(i)
	}
	if all < n || !d.makes(int64(all-n)*t.Size) {
		return -1
	}
	v.Grow(all)
	v.SetLen(all)
	reflect.Copy(v, *list)
	d.counted++
	for ; more; n++ {
		i = d.value(t.Elem, v.Index(n), i)
		i, more = d.next(i, ']')
	}
	d.counted--
	return i
}

// any reads a value for which no Go type is given. A number becomes an int64 if it is written as an integer and fits,
// and a float64 otherwise.
func (d *decoder) any(i int) (any, int) {
	switch d.at(i) {
	case '"':
		d.made += anySize
		return anyOf(d.string(i))
	case '{':
		return anyOf(d.anyMap(i))
	case '[':
		return anyOf(d.anyList(i))
	case 't', 'f':
		return d.at(i) == 't', d.literal(i)
	case 'n':
		return nil, d.literal(i)
	}
	end := d.literal(i)
	if end < 0 {
		return nil, -1
	}
	d.made += anySize / 2
	if n, err := strconv.ParseInt(string(d.raw[i:end]), 10, 64); err == nil {
		return n, end
	}
	n, err := strconv.ParseFloat(string(d.raw[i:end]), 64)
	if err != nil {
		return nil, -1
	}
	return n, end
}

func anyOf[T any](a T, end int) (any, int) { return a, end }

func (d *decoder) anyMap(i int) (map[string]any, int) {
	m := map[string]any{}
	d.made += mapHead
	i, more := d.first(i, '{')
	for n := 0; more; n++ {
		if !d.makes(entry(anyEntry, n)) {
			return nil, -1
		}
		var name string
		name, i = d.name(i)
		m[name], i = d.any(i)
		i, more = d.next(i, '}')
	}
	return m, i
}

func (d *decoder) anyList(i int) ([]any, int) {
	list, counted := []any{}, 0
	d.made += mapHead
	i, more := d.first(i, '[')
	for more {
		if n := len(list); n == cap(list) {
			room := max(1, n)
			if n*anySize >= spareBytes && d.counted < maxCounted {
				room, counted = d.countItems(i), 1
				d.counted++
			}
			if room < 0 || !d.makes(anySize*int64(room)) {
				return nil, -1
			}
			list = append(make([]any, 0, n+room), list...)
		}
		var a any
		a, i = d.any(i)
		list = append(list, a)
		i, more = d.next(i, ']')
	}
	d.counted -= counted
	return list, i
}

// Misfit returns an error for the first value in raw that does not fit its place in the type of obj, a pointer. The error
// holds the value's path, such as spec.containers[0].image, and wraps that of sigs.k8s.io/json for the value alone. It is
// nil if each value fits: Into then decodes raw, or fails for another reason. raw must be well-formed.
func Misfit(raw []byte, obj any) error {
	d := decoder{raw: raw, deepest: deepestOfAll}
	d.misfit(jsontype.Of(reflect.TypeOf(obj).Elem()), jsontext.SkipSpace(raw, 0), "")
	return d.err
}

func (d *decoder) misfit(t *jsontype.Type, i int, path string) int {
	opening := d.at(i)
	switch {
	case t == nil || i < 0:
		return d.skip(i)
	case t.Reads == jsontype.Pointer && opening != 'n':
		return d.misfit(t.Elem, i, path)
	case opening == '{' && (t.Reads == jsontype.Struct || t.Reads == jsontype.Map), opening == '[' && t.Reads == jsontype.List:
	default:
		end := d.skip(i)
		if err := unmarshal(d.raw[i:max(i, end)], reflect.New(t.Go).Interface()); end >= 0 && err != nil {
			d.err = fmt.Errorf("%s cannot be read: %w", cmp.Or(strings.TrimPrefix(path, "."), "the object"), err)
		}
		return end
	}
	i, more := d.first(i, opening)
	for n := 0; more && d.err == nil; n++ {
		of, place := t.Elem, "["+strconv.Itoa(n)+"]"
		if opening == '{' {
			name, value := d.member(i)
			if i, place = value, "."+string(name); t.Reads == jsontype.Struct {
				if f := t.Field(name); f != nil {
					of = f.Type
				}
			}
		}
		i = d.misfit(of, i, path+place)
		i, more = d.next(i, opening+2)
	}
	return i
}
