// Package decode reads JSON into API types: the very result of sigs.k8s.io/json, in a fraction of the time.
//
// What is to be known of a Go type is found out once and kept as a plan; the text is then gone over once, with
// the plan in hand. Whatever is out of the ordinary (malformed text, a value that does not fit its field, a
// member that comes twice, a type with rules of its own) is not dealt with here at all: the target is emptied,
// and sigs.k8s.io/json does the whole of it again. So the rare results and every error are its own, and it can
// stand in for this package at any time.
package decode

import (
	"encoding/base64"
	"encoding/json"
	"reflect"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"
)

// Into reads JSON into obj, a pointer to an API type, exactly as sigs.k8s.io/json's
// UnmarshalCaseSensitivePreserveInts does, whose errors it returns. It is fast if what obj points to is zero, as
// behind new(T); to anything else it adds, at the other's speed.
//
// The object keeps nothing of raw. Its strings share memory in small groups, so one that is kept may keep alive
// some 4 KB of others. An UnmarshalJSON may see the same value twice, the second time with a fresh receiver.
// It may also see a value of a text that is malformed further on.
// Into is safe for concurrent use.
//
// An object takes no more memory than Bound allows for the text; ErrTooLarge is the one error that is not sigs.k8s.io/json's.
func Into(raw []byte, obj any) error {
	_, err := Within(raw, obj, nil)
	return err
}

// unmarshal is the specification of this package.
var unmarshal = kjson.UnmarshalCaseSensitivePreserveInts

// fast is Into as long as nothing is out of the ordinary. If something is, it leaves the target as it was.
func (d *decoder) fast(obj any) bool {
	v := reflect.ValueOf(obj)
	if v.Kind() != reflect.Pointer || v.IsNil() || !v.Elem().IsZero() {
		return false
	}
	v = v.Elem()
	if i := d.value(planFor(v.Type()), v, d.space(0)); i >= 0 && d.space(i) == len(d.raw) {
		return true
	}
	v.SetZero()
	return false
}

const (
	// maxNesting is how deep lists and objects may nest before sigs.k8s.io/json takes over, whose own bound is 10000.
	maxNesting = 500

	// Strings are not worth an allocation each: as many as fit into keptTogether bytes share one, save those
	// beyond longString.
	keptTogether = 4096
	longString   = 512

	// A list whose items are larger together has them counted before there is memory for more, but not if that was
	// done for several of the lists around it, because each has the text gone over once more.
	spareBytes = 64 << 10
	maxCounted = 4
	mostSpare  = 1 << 20 // of a list that is used again
)

// A decoder is one text on its way into one object. Its methods read what stands at i, into a value that is
// zero, and return where it ends, or -1 to give up, which also is what they make of an i of -1.
type decoder struct {
	raw     []byte
	open    int             // how many lists and objects there are around i
	deepest int             // bound on open
	kept    strings.Builder // the latest strings of the object

	made, most int64                  // bytes of memory that the object takes so far, and may take without ask
	take       func(most int64) error // may be nil
	counted    int                    // how many of the lists around i had their items counted beforehand
	err        error                  // why no more memory may be taken
}

// value reads any value into one of the plan's type.
func (d *decoder) value(p *plan, v reflect.Value, i int) int {
	c := d.at(i)
	if c == 'n' && p.shape < shapeUnmarshaler {
		return d.word(i) // which does nothing to scalars; what may be nil is nil
	}
	switch p.shape {
	case shapeString:
		s, end := d.string(i)
		v.SetString(s)
		return end
	case shapeBool:
		v.SetBool(c == 't')
		return d.word(i)
	case shapeInt, shapeUint, shapeFloat:
		return d.number(p, v, i)
	case shapeUnmarshaler:
		end := d.skip(i)
		if end < 0 || !d.makes(unmarshalled(end-i)) || v.Addr().Interface().(json.Unmarshaler).UnmarshalJSON(d.raw[i:end:end]) != nil {
			return -1
		}
		return end
	case shapeTime:
		// What its UnmarshalJSON does, without another decoder for the string.
		s, end := d.string(i)
		t, err := time.Parse(time.RFC3339, s)
		if err != nil {
			return -1
		}
		v.Addr().Interface().(*metav1.Time).Time = t.Local()
		return end
	case shapePointer:
		if !d.makes(p.size) {
			return -1
		}
		target := reflect.New(p.typ.Elem())
		v.Set(target)
		return d.value(p.elem, target.Elem(), i)
	case shapeInterface:
		a, end := d.any(i)
		if end >= 0 {
			v.Set(reflect.ValueOf(a)) // not null, so not nil
		}
		return end
	case shapeStruct:
		return d.members(p, v, i)
	case shapeMap:
		return d.entries(p, v, i)
	case shapeList:
		return d.items(p, v, i)
	case shapeBytes:
		s, end := d.string(i)
		content, err := base64.StdEncoding.DecodeString(s)
		if err != nil {
			return -1
		}
		v.SetBytes(content)
		d.made += int64(len(s))
		return end
	}
	return -1 // shapeForeign
}

func (d *decoder) number(p *plan, v reflect.Value, i int) int {
	end := d.skipNumber(i)
	if end < 0 {
		return -1
	}
	var err error
	switch number := d.raw[i:end]; p.shape {
	case shapeInt:
		var n int64
		n, err = strconv.ParseInt(string(number), 10, p.bits)
		v.SetInt(n)
	case shapeUint:
		var n uint64
		n, err = strconv.ParseUint(string(number), 10, p.bits)
		v.SetUint(n)
	default:
		var n float64
		n, err = strconv.ParseFloat(string(number), p.bits)
		v.SetFloat(n)
	}
	if err != nil {
		return -1
	}
	return end
}

// members reads a struct.
func (d *decoder) members(p *plan, v reflect.Value, i int) int {
	var seen [maxFields / 64]uint64
	i, more := d.first(i, '{')
	for more {
		name, plain, end := d.quoted(i)
		if !plain {
			name = []byte(unquote(name))
		}
		i = d.colon(end)
		if f := p.field(name); f == nil {
			i = d.skip(i)
		} else {
			// A second value would be read into the first one, by rules that nobody relies on.
			word, bit := &seen[f.number/64], uint64(1)<<(f.number%64)
			if *word&bit != 0 {
				return -1
			}
			*word |= bit
			d.made += f.beside
			at := v.Field(f.index[0])
			for _, x := range f.index[1:] {
				if at.Kind() == reflect.Pointer {
					if at.IsNil() {
						at.Set(reflect.New(at.Type().Elem()))
					}
					at = at.Elem()
				}
				at = at.Field(x)
			}
			i = d.value(f.plan, at, i)
		}
		i, more = d.next(i, '}')
	}
	return i
}

// entries reads a map. Of entries of the same name, the last one counts.
func (d *decoder) entries(p *plan, v reflect.Value, i int) int {
	switch m := v.Addr().Interface().(type) {
	case *map[string]string:
		*m, i = d.stringMap(i)
		return i
	case *map[string]any:
		*m, i = d.anyMap(i)
		return i
	}
	m, key := reflect.MakeMap(p.typ), reflect.New(p.typ.Key()).Elem()
	elem := reflect.New(p.typ.Elem()).Elem()
	d.made += mapHead
	i, more := d.first(i, '{')
	for n := 0; more; n++ {
		if !d.makes(entry(p.size, n)) {
			return -1
		}
		var name string
		name, i = d.name(i)
		key.SetString(name)
		elem.SetZero()
		i = d.value(p.elem, elem, i)
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
			i = d.word(i)
		} else {
			s, i = d.string(i)
		}
		m[name] = s
		i, more = d.next(i, '}')
	}
	return m, i
}

// items reads a list. How many they are is known at the end only: until then, they stand in one that is used
// again and again, unless they are many. Like any list that grows, this one moves its items about, so none may keep its
// own address.
func (d *decoder) items(p *plan, v reflect.Value, i int) int {
	i, more := d.first(i, '[')
	if !more {
		v.Set(reflect.MakeSlice(p.typ, 0, 0))
		return i
	}
	list, ok := p.spare.Get().(*reflect.Value)
	if !ok {
		fresh := reflect.New(p.typ).Elem()
		list = &fresh
	}
	n := 0
	for ; more; n++ {
		if n == list.Cap() {
			if int64(n)*p.size >= spareBytes && d.counted < maxCounted {
				break
			}
			list.Grow(1) // which doubles
		}
		if !d.makes(p.size) {
			i = -1
			break
		}
		list.SetLen(n + 1)
		i = d.value(p.elem, list.Index(n), i)
		i, more = d.next(i, ']')
	}
	if i >= 0 {
		i = d.settle(p, v, list, i, more)
	}
	if int64(list.Cap())*p.size <= mostSpare {
		list.Clear()
		list.SetLen(0)
		p.spare.Put(list)
	}
	return i
}

// settle makes the list of the items that were read, and goes on with those that follow: their number is counted now.
func (d *decoder) settle(p *plan, v reflect.Value, list *reflect.Value, i int, more bool) int {
	n := list.Len()
	all := n
	if more {
		all += d.countItems(i)
	}
	if all < n || !d.makes(int64(all)*p.size) {
		return -1
	}
	v.Grow(all)
	v.SetLen(all)
	reflect.Copy(v, *list)
	d.counted++
	for ; more; n++ {
		i = d.value(p.elem, v.Index(n), i)
		i, more = d.next(i, ']')
	}
	d.counted--
	return i
}

// any reads what no Go type is given for. Numbers become int64 if they are written so and fit, else float64.
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
		return d.at(i) == 't', d.word(i)
	case 'n':
		return nil, d.word(i)
	}
	end := d.skipNumber(i)
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
	list := []any{}
	d.made += mapHead // as much as its header, at least
	i, more := d.first(i, '[')
	for more {
		if len(list) == cap(list) && !d.makes(anySize*int64(max(1, 2*cap(list)))) { // append doubles
			return nil, -1
		}
		var a any
		a, i = d.any(i)
		list = append(list, a)
		i, more = d.next(i, ']')
	}
	return list, i
}
