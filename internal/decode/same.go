package decode

// This file compares a text with a Go value, without decoding the text.

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"reflect"
	"slices"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"code.cloudfoundry.org/eirinix/internal/jsontext"
)

// Same reports whether obj, a pointer to an API type or to a tree, surely holds the values of the text. False can also
// mean "not known". Lists and maps that are empty and those that are nil count as the same where the text has no such
// member.
//
// The members in except are ignored, which are members of the whole object. If the text holds a member that the type
// does not know, Same returns the value of unknown.
func Same(raw []byte, obj any, unknown bool, except ...string) bool {
	v := reflect.ValueOf(obj)
	if v.Kind() != reflect.Pointer || v.IsNil() {
		return false
	}
	v = v.Elem()
	c := comparer{decoder: decoder{raw: raw, deepest: maxNesting}, unknown: unknown}
	i := jsontext.SkipSpace(raw, 0)
	p := planFor(v.Type())
	switch {
	case c.at(i) != '{':
		return false
	case p.shape == shapeStruct:
		i = c.members(p, v, i, except)
	case p.shape == shapeMap:
		i = c.entries(p, v, i, except)
	default:
		return false
	}
	return i >= 0 && jsontext.SkipSpace(raw, i) == len(raw)
}

// A comparer reads a text beside a value. Its methods return -1 where the two can differ.
type comparer struct {
	decoder
	unknown bool
}

func (c *comparer) value(p *plan, v reflect.Value, i int) int {
	if c.at(i) == 'n' && p.shape < shapeUnmarshaler {
		return where(v.IsZero(), c.literal(i))
	}
	switch p.shape {
	case shapeString:
		return c.text(v.String(), i)
	case shapeBool:
		return where(v.Bool() == (c.at(i) == 't') && (c.at(i) == 't' || c.at(i) == 'f'), c.literal(i))
	case shapeInt, shapeUint, shapeFloat:
		return c.sameNumber(p, v, i)
	case shapeUnmarshaler:
		end := c.skip(i)
		return where(end >= 0 && marshalsTo(v, c.raw[i:end]), end)
	case shapeTime:
		var space [40]byte
		return c.sameText(v.Interface().(metav1.Time).UTC().AppendFormat(space[:0], time.RFC3339), i)
	case shapePointer:
		if v.IsNil() {
			return -1
		}
		return c.value(p.elem, v.Elem(), i)
	case shapeInterface:
		return c.dynamic(v, i)
	case shapeStruct:
		return c.members(p, v, i, nil)
	case shapeMap:
		return c.entries(p, v, i, nil)
	case shapeBytes:
		return where(!v.IsNil(), c.text(base64.StdEncoding.EncodeToString(v.Bytes()), i))
	case shapeList:
		return c.items(p, v, i)
	}
	return -1 // shapeForeign
}

// where returns end if a condition holds.
func where(ok bool, end int) int {
	if !ok {
		return -1
	}
	return end
}

// text compares a string. Only the comparison of plain bytes needs no memory.
func (c *comparer) text(s string, i int) int {
	inside, end := c.plainText(i)
	return where(string(inside) == s, end)
}

func (c *comparer) sameText(s []byte, i int) int {
	inside, end := c.plainText(i)
	return where(bytes.Equal(inside, s), end)
}

func (c *comparer) sameNumber(p *plan, v reflect.Value, i int) int {
	end := c.literal(i)
	if end < 0 {
		return -1
	}
	var space [24]byte
	var same bool
	switch number := c.raw[i:end]; p.shape {
	case shapeInt:
		same = bytes.Equal(strconv.AppendInt(space[:0], v.Int(), 10), number)
	case shapeUint:
		same = bytes.Equal(strconv.AppendUint(space[:0], v.Uint(), 10), number)
	default:
		n, err := strconv.ParseFloat(string(number), p.bits)
		same = err == nil && n == v.Float()
	}
	return where(same, end)
}

// marshalsTo reports whether a value that reads its own JSON also writes this one.
func marshalsTo(v reflect.Value, text []byte) bool {
	var of any
	if v.CanAddr() {
		of = v.Addr().Interface()
	} else {
		of = v.Interface()
	}
	if fields, ok := of.(*metav1.FieldsV1); ok {
		return bytes.Equal(fields.GetRawBytes(), text)
	}
	m, ok := of.(json.Marshaler)
	if !ok {
		return false
	}
	own, err := m.MarshalJSON()
	return err == nil && bytes.Equal(own, text)
}

// members compares a struct.
func (c *comparer) members(p *plan, v reflect.Value, i int, except []string) int {
	var seen [maxFields / 64]uint64
	i, more := c.first(i, '{')
	for more {
		var name []byte
		name, i = c.member(i)
		f := p.field(name)
		switch {
		case f == nil && !c.unknown && (except == nil || !slices.Contains(except, string(name))):
			return -1
		case f == nil:
			i = c.skip(i)
		default:
			word, bit := &seen[f.number/64], uint64(1)<<(f.number%64)
			if *word&bit != 0 {
				return -1
			}
			*word |= bit
			if except != nil && slices.Contains(except, f.name) {
				i = c.skip(i)
			} else if at := reach(v, f.index); at.IsValid() {
				i = c.value(f.plan, at, i)
			} else {
				return -1
			}
		}
		i, more = c.next(i, '}')
	}
	if i < 0 {
		return -1
	}
	for n := range p.fields {
		f := &p.fields[n]
		if seen[n/64]&(1<<(n%64)) != 0 || except != nil && slices.Contains(except, f.name) {
			continue
		}
		if at := reach(v, f.index); at.IsValid() && !blank(f.plan, at) {
			return -1
		}
	}
	return i
}

// reach returns a field of a struct, or an invalid value if an embedded pointer on the way is nil.
func reach(v reflect.Value, index []int) reflect.Value {
	if len(index) == 1 {
		return v.Field(index[0])
	}
	for n, x := range index {
		if n > 0 && v.Kind() == reflect.Pointer {
			if v.IsNil() {
				return reflect.Value{}
			}
			v = v.Elem()
		}
		v = v.Field(x)
	}
	return v
}

// blank reports whether a value is the one that decoding leaves where there is no member.
func blank(p *plan, v reflect.Value) bool {
	switch p.shape {
	case shapePointer, shapeInterface:
		return v.IsNil()
	case shapeString, shapeList, shapeMap, shapeBytes:
		return v.Len() == 0
	case shapeStruct:
		for n := range p.fields {
			f := &p.fields[n]
			if at := reach(v, f.index); at.IsValid() && !blank(f.plan, at) {
				return false
			}
		}
		return true
	}
	return v.IsZero()
}

// entries compares a map.
func (c *comparer) entries(p *plan, v reflect.Value, i int, except []string) int {
	if v.IsNil() {
		return -1
	}
	texts, isTexts := v.Interface().(map[string]string)
	left := v.Len()
	for _, name := range except {
		if v.MapIndex(reflect.ValueOf(name).Convert(p.typ.Key())).IsValid() {
			left--
		}
	}
	var seen jsontext.Names
	i, more := c.first(i, '{')
	for more {
		var name []byte
		name, i = c.member(i)
		if !seen.Add(name) {
			return -1
		}
		switch {
		case except != nil && slices.Contains(except, string(name)):
			i = c.skip(i)
		case isTexts:
			s, ok := texts[string(name)]
			i = where(ok, c.text(s, i))
			left--
		default:
			at := v.MapIndex(reflect.ValueOf(string(name)).Convert(p.typ.Key()))
			if !at.IsValid() {
				return -1
			}
			i = c.value(p.elem, at, i)
			left--
		}
		i, more = c.next(i, '}')
	}
	return where(left == 0, i)
}

func (c *comparer) items(p *plan, v reflect.Value, i int) int {
	if v.IsNil() {
		return -1
	}
	n := 0
	i, more := c.first(i, '[')
	for ; more; n++ {
		if n >= v.Len() {
			return -1
		}
		i = c.value(p.elem, v.Index(n), i)
		i, more = c.next(i, ']')
	}
	return where(n == v.Len(), i)
}

// dynamic compares the value in an interface with the one that any makes of the text.
func (c *comparer) dynamic(v reflect.Value, i int) int {
	if v.IsNil() {
		return -1
	}
	switch held := v.Interface().(type) {
	case string:
		return c.text(held, i)
	case bool:
		return where(held == (c.at(i) == 't') && (c.at(i) == 't' || c.at(i) == 'f'), c.literal(i))
	case int64, float64:
		if c := c.at(i); c != '-' && (c < '0' || c > '9') {
			return -1
		}
		number, end := c.any(i)
		return where(end >= 0 && number == held, end)
	case map[string]any, []any:
		return c.value(planFor(v.Elem().Type()), v.Elem(), i)
	}
	return -1
}

// Known is the part of a JSON value that a Go type knows. The zero value knows everything, as a tree of maps does.
type Known struct{ p *plan }

// KnownTo returns the members that the type of obj knows.
func KnownTo(obj any) Known { return Known{planFor(reflect.TypeOf(obj))} }

// target returns the plan behind pointers.
func (k Known) target() *plan {
	p := k.p
	for range maxPointers {
		if p == nil || p.elem == nil || p.typ.Kind() != reflect.Pointer {
			break
		}
		p = p.elem
	}
	return p
}

// Member returns the knowledge of a member's value, and reports whether the member is known. A type that reads its own
// JSON knows every member.
func (k Known) Member(name string) (Known, bool) {
	p := k.target()
	switch {
	case p == nil || p.shape == shapeUnmarshaler:
		return Known{}, true
	case p.typ.Kind() == reflect.Struct && len(p.heads) > 0:
		if f := p.field([]byte(name)); f != nil {
			return Known{f.plan}, true
		}
		return Known{}, false
	case p.typ.Kind() == reflect.Map:
		return Known{p.elem}, true
	}
	return Known{}, true
}

// Item returns the knowledge of the items of a list.
func (k Known) Item() Known {
	if p := k.target(); p != nil && p.typ.Kind() == reflect.Slice {
		return Known{p.elem}
	}
	return Known{}
}

// All reports whether the type knows every member of a text, at every depth. False can also mean that a member occurs
// twice, or that the text is not well-formed.
func (k Known) All(raw []byte, except ...string) bool {
	d := decoder{raw: raw, deepest: maxNesting}
	return d.knows(k, jsontext.SkipSpace(raw, 0), except) >= 0
}

func (d *decoder) knows(k Known, i int, except []string) int {
	opening := d.at(i)
	if k.target() == nil || opening != '{' && opening != '[' {
		return d.skip(i)
	}
	i, more := d.first(i, opening)
	for more {
		inner := k.Item()
		if opening == '{' {
			var name []byte
			var known bool
			name, i = d.member(i)
			if except != nil && slices.Contains(except, string(name)) {
				inner = Known{}
			} else if inner, known = k.Member(string(name)); !known {
				return -1
			}
		}
		i = d.knows(inner, i, nil)
		i, more = d.next(i, opening+2)
	}
	return i
}
