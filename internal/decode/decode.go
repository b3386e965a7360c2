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
	d := newDecoder(raw, maxNesting)
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
	d.value(jsontype.Of(v.Type()), v)
	if d.Peek(); d.At == len(d.Text) {
		return true
	}
	if v.SetZero(); d.doc != nil {
		*d.doc = jsontext.Index{}
	}
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

// A decoder decodes one text into one object. Its methods read what comes next into a value that is zero. They fail to
// give up.
type decoder struct {
	jsontext.Reader
	doc     *jsontext.Index // records the lists and objects; nil if nothing needs it
	open    int             // number of lists and objects around what comes next
	deepest int             // bound on open
	kept    strings.Builder // buffer of the object's latest strings

	made, most int64                  // bytes of memory that the object takes so far, and can take before ask is called
	take       func(most int64) error // may be nil
	strange    bool                   // the text has a member that a Go type does not know
	counted    int                    // number of lists around what comes next whose items were counted beforehand
	err        error                  // reason that no more memory can be taken
}

func newDecoder(raw []byte, deepest int) *decoder {
	return &decoder{Reader: jsontext.Reader{Text: raw}, most: Free, deepest: deepest}
}

// value reads any JSON value into a value of a type.
func (d *decoder) value(t *jsontype.Type, v reflect.Value) {
	c := d.Peek()
	if c == 'n' && t.Reads < jsontype.JSON {
		d.skip() // null changes nothing: scalars stay zero, and pointers, maps and lists stay nil
		return
	}
	switch t.Reads {
	case jsontype.String:
		v.SetString(d.string())
	case jsontype.Bool:
		if c != 't' && c != 'f' {
			d.Fail()
		}
		v.SetBool(c == 't')
		d.skip()
	case jsontype.Int, jsontype.Uint, jsontype.Float:
		d.number(t, v)
	case jsontype.JSON:
		text := d.skip()
		if d.Failed() || !d.makes(unmarshalled(len(text))) || v.Addr().Interface().(json.Unmarshaler).UnmarshalJSON(text) != nil {
			d.Fail()
		}
	case jsontype.Time:
		// This does the same as the type's UnmarshalJSON, without a second decoder for the string.
		t, err := time.Parse(time.RFC3339, d.string())
		if err != nil {
			d.Fail()
		}
		v.Addr().Interface().(*metav1.Time).Time = t.Local()
	case jsontype.Pointer:
		if d.makes(t.Size) {
			target := reflect.New(t.Go.Elem())
			v.Set(target)
			d.value(t.Elem, target.Elem())
		}
	case jsontype.Interface:
		if a := d.any(); !d.Failed() {
			v.Set(reflect.ValueOf(a)) // null was handled above, so a is not nil
		}
	case jsontype.Struct:
		d.members(t, v)
	case jsontype.Map:
		d.entries(t, v)
	case jsontype.List:
		d.items(t, v)
	case jsontype.Bytes:
		s := d.string()
		content, err := base64.StdEncoding.DecodeString(s)
		if err != nil {
			d.Fail()
		}
		v.SetBytes(content)
		d.made += int64(len(s))
	default:
		d.Fail()
	}
}

func (d *decoder) number(t *jsontype.Type, v reflect.Value) {
	var err error
	switch number := d.skip(); t.Reads {
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
		d.Fail()
	}
}

// members reads a struct.
func (d *decoder) members(t *jsontype.Type, v reflect.Value) {
	var seen [jsontype.MaxFields / 64]uint64
	for more := d.enter('{'); more; more = d.more('{') {
		f := t.Field(d.Name())
		if f == nil {
			d.skip()
			d.strange = true
			continue
		}
		// A duplicate member would be merged into the first value. No caller relies on the rules for that, so
		// sigs.k8s.io/json handles it.
		word, bit := &seen[f.Number/64], uint64(1)<<(f.Number%64)
		if *word&bit != 0 {
			d.Fail()
			return
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
		d.value(f.Type, at)
	}
}

// entries reads a map. If a name occurs twice, the last entry wins.
func (d *decoder) entries(t *jsontype.Type, v reflect.Value) {
	switch m := v.Addr().Interface().(type) {
	case *map[string]string:
		*m = d.stringMap()
		return
	case *map[string]any:
		*m = d.anyMap()
		return
	}
	m, key := reflect.MakeMap(t.Go), reflect.New(t.Go.Key()).Elem()
	elem := reflect.New(t.Go.Elem()).Elem()
	v.Set(m)
	d.eachEntry(t.Size, func(name string) {
		key.SetString(name)
		elem.SetZero()
		d.value(t.Elem, elem)
		m.SetMapIndex(key, elem)
	})
}

// eachEntry reads a map whose keys and values take size bytes each.
func (d *decoder) eachEntry(size int64, read func(name string)) {
	d.made += mapHead
	more := d.enter('{')
	for n := 0; more && d.makes(entry(size, n)); n++ {
		read(d.name())
		more = d.more('{')
	}
}

func (d *decoder) stringMap() map[string]string {
	m := map[string]string{}
	d.eachEntry(anyEntry, func(name string) { // a string is as large as an interface
		if m[name] = ""; !d.Null() {
			m[name] = d.string()
		}
	})
	return m
}

// items reads a list. The number of items is known only at the end, so they are first collected in a spare list that is
// reused. For many items, the remaining ones are counted instead. Like any list that grows, the spare list moves its
// items, so an item must not keep its own address.
func (d *decoder) items(t *jsontype.Type, v reflect.Value) {
	more := d.enter('[')
	if !more {
		v.Set(reflect.MakeSlice(t.Go, 0, 0))
		return
	}
	list, ok := t.Spare.Get().(*reflect.Value)
	if !ok {
		fresh := reflect.New(t.Go).Elem()
		list = &fresh
	}
	for n := 0; more; n++ {
		if n == list.Cap() {
			if int64(n)*t.Size >= spareBytes && d.counted < maxCounted {
				break
			}
			list.Grow(1) // Grow doubles the capacity
		}
		if !d.makes(t.Size) {
			break
		}
		list.SetLen(n + 1)
		d.value(t.Elem, list.Index(n))
		more = d.more('[')
	}
	if !d.Failed() {
		d.settle(t, v, list, more)
	}
	if int64(list.Cap())*t.Size <= maxSpare {
		list.Clear()
		list.SetLen(0)
		t.Spare.Put(list)
	}
}

// settle allocates the list, copies the items that were read, and reads the items that follow. It counts those first,
// to allocate once.
func (d *decoder) settle(t *jsontype.Type, v reflect.Value, list *reflect.Value, more bool) {
	n, rest := list.Len(), 0
	if more {
		rest = d.countItems()
	}
	if d.Failed() || !d.makes(int64(rest)*t.Size) {
		return
	}
	v.Grow(n + rest)
	v.SetLen(n + rest)
	reflect.Copy(v, *list)
	d.counted++
	for ; more; n++ {
		d.value(t.Elem, v.Index(n))
		more = d.more('[')
	}
	d.counted--
}

// any reads a value for which no Go type is given. A number becomes an int64 if it is written as an integer and fits,
// and a float64 otherwise.
func (d *decoder) any() any {
	c := d.Peek()
	switch c {
	case '"':
		d.made += anySize
		return d.string()
	case '{':
		return d.anyMap()
	case '[':
		return d.anyList()
	}
	text := d.skip()
	switch c {
	case 't', 'f':
		return c == 't'
	case 'n':
		return nil
	}
	d.made += anySize / 2
	if n, err := strconv.ParseInt(string(text), 10, 64); err == nil {
		return n
	}
	n, err := strconv.ParseFloat(string(text), 64)
	if err != nil {
		d.Fail()
	}
	return n
}

func (d *decoder) anyMap() map[string]any {
	m := map[string]any{}
	d.eachEntry(anyEntry, func(name string) { m[name] = d.any() })
	return m
}

func (d *decoder) anyList() []any {
	list, counted := []any{}, 0
	d.made += mapHead
	for more := d.enter('['); more; more = d.more('[') {
		if n := len(list); n == cap(list) {
			room := max(1, n)
			if n*anySize >= spareBytes && d.counted < maxCounted {
				room, counted = d.countItems(), 1
				d.counted++
			}
			if d.Failed() || !d.makes(anySize*int64(room)) {
				return nil
			}
			list = append(make([]any, 0, n+room), list...)
		}
		list = append(list, d.any())
	}
	d.counted -= counted
	return list
}

// string reads a string that comes next, without white space in front.
func (d *decoder) string() string {
	text, plain, end := jsontext.Text(d.Text, d.At)
	left := (len(d.Text) - d.At) / 2
	if d.At = end; !plain {
		d.made += int64(len(text) | 7)
		return jsontext.Unquote(text)
	}
	if len(text) > d.kept.Cap()-d.kept.Len() {
		if len(text) > longString {
			d.made += int64(len(text))
			return string(text)
		}
		d.kept = strings.Builder{}
		d.kept.Grow(max(len(text), min(keptTogether, left)))
		d.made += int64(d.kept.Cap())
	}
	start := d.kept.Len()
	d.kept.Write(text)
	return d.kept.String()[start:]
}

// name is Name for names that are kept.
func (d *decoder) name() string {
	d.Peek()
	name := d.string()
	d.Colon()
	return name
}

// enter is Enter within the bound on the nesting.
func (d *decoder) enter(opening byte) bool {
	at := d.At
	if !d.Enter(opening) {
		return false
	}
	if d.open++; d.open > d.deepest {
		d.Fail()
		return false
	}
	if d.doc != nil {
		d.doc.Open(at)
	}
	return true
}

// more is More for what enter has entered.
func (d *decoder) more(opening byte) bool {
	if d.More(opening) {
		return true
	}
	if d.open--; d.doc != nil {
		d.doc.Close(d.At)
	}
	return false
}

// skip reads any value and returns its text.
func (d *decoder) skip() []byte { return d.Skip(d.deepest - d.open) }

// countItems returns the number of items from the next one to the end of the list.
func (d *decoder) countItems() (n int) {
	r := d.Reader
	for more := true; more; more = r.More('[') {
		r.Skip(d.deepest - d.open)
		n++
	}
	if r.Failed() {
		d.Fail()
	}
	return n
}

// Misfit returns an error for the first value in raw that does not fit its place in the type of obj, a pointer. The error
// holds the value's path, such as spec.containers[0].image, and wraps that of sigs.k8s.io/json for the value alone. It is
// nil if each value fits: Into then decodes raw, or fails for another reason. raw must be well-formed.
func Misfit(raw []byte, obj any) error {
	d := newDecoder(raw, deepestOfAll)
	d.misfit(jsontype.Of(reflect.TypeOf(obj).Elem()), "")
	return d.err
}

func (d *decoder) misfit(t *jsontype.Type, path string) {
	opening := d.Peek()
	switch {
	case t == nil || d.Failed():
		d.skip()
		return
	case t.Reads == jsontype.Pointer && opening != 'n':
		d.misfit(t.Elem, path)
		return
	case opening == '{' && (t.Reads == jsontype.Struct || t.Reads == jsontype.Map), opening == '[' && t.Reads == jsontype.List:
	default:
		if err := unmarshal(d.skip(), reflect.New(t.Go).Interface()); err != nil && !d.Failed() {
			d.err = fmt.Errorf("%s cannot be read: %w", cmp.Or(strings.TrimPrefix(path, "."), "the object"), err)
		}
		return
	}
	more := d.enter(opening)
	for n := 0; more && d.err == nil; n++ {
		of, place := t.Elem, "["+strconv.Itoa(n)+"]"
		if opening == '{' {
			name := d.Name()
			if place = "." + string(name); t.Reads == jsontype.Struct {
				if f := t.Field(name); f != nil {
					of = f.Type
				}
			}
		}
		d.misfit(of, path+place)
		more = d.more(opening)
	}
}
