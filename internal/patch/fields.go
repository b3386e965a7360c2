package patch

// This file plans the fields of a struct by the rules of encoding/json.

import (
	"cmp"
	"encoding"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"code.cloudfoundry.org/eirinix/internal/jsontext"
)

// A field is a struct field that becomes a member of a JSON object. It can belong to an embedded struct.
type field struct {
	name      string
	quoted    string // the name as JSON, with its colon
	index     []int  // the indices of the embedded structs around it, then its own
	part, at  int    // the same as an index into the result of plan.parts, and one into that part
	plan      *plan
	omitEmpty bool
	omitZero  bool
	zero      func(reflect.Value) bool
	key       *keyer // identifies the items of a list; nil without a merge key
}

// get returns the field's value, or an invalid one if an embedded pointer on the way is nil.
func (f *field) get(v reflect.Value) reflect.Value { return reach(v, f.index) }

func reach(v reflect.Value, index []int) reflect.Value {
	for i, x := range index {
		if i > 0 && v.Kind() == reflect.Pointer {
			if v.IsNil() {
				return reflect.Value{}
			}
			v = v.Elem()
		}
		v = v.Field(x)
	}
	return v
}

// from is get for many fields of one struct. parts is the result of plan.parts for that struct.
func (f *field) from(parts []reflect.Value) reflect.Value {
	if part := parts[f.part]; part.IsValid() {
		return part.Field(f.at)
	}
	return reflect.Value{}
}

// parts appends a struct and the structs embedded in it. Each is looked up once instead of once per field.
func (p *plan) parts(dst []reflect.Value, v reflect.Value) []reflect.Value {
	dst = append(dst, v)
	for _, index := range p.embedded {
		part := reach(v, index)
		if part.IsValid() && part.Kind() == reflect.Pointer {
			part = part.Elem() // invalid if nil
		}
		dst = append(dst, part)
	}
	return dst
}

// omitted reports whether encoding/json leaves the member out.
func (f *field) omitted(v reflect.Value) bool {
	return !v.IsValid() || f.omitEmpty && empty(v) || f.omitZero && f.zero(v)
}

// empty reports whether a value is empty in the sense of "omitempty". Structs never are.
func empty(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Array, reflect.Map, reflect.Slice, reflect.String:
		return v.Len() == 0
	case reflect.Struct:
		return false
	default:
		return v.IsZero()
	}
}

type isZeroer interface{ IsZero() bool }

var isZeroerType = reflect.TypeFor[isZeroer]()

func zeroFor(t reflect.Type) func(reflect.Value) bool {
	switch {
	case t.Kind() == reflect.Pointer || t.Kind() == reflect.Interface:
		if !t.Implements(isZeroerType) {
			return reflect.Value.IsZero
		}
		return func(v reflect.Value) bool {
			return v.IsNil() || v.Kind() == reflect.Interface && v.Elem().Kind() == reflect.Pointer && v.Elem().IsNil() ||
				v.Interface().(isZeroer).IsZero()
		}
	case reflect.PointerTo(t).Implements(isZeroerType):
		return func(v reflect.Value) bool {
			if !v.CanAddr() {
				w := reflect.New(v.Type()).Elem()
				w.Set(v)
				v = w
			}
			return v.Addr().Interface().(isZeroer).IsZero()
		}
	}
	return reflect.Value.IsZero
}

// candidate is a field to which encoding/json's rules for fields with equal names have not been applied yet.
type candidate struct {
	field
	typ      reflect.Type
	untagged int    // 1 for a field without a name in its tag
	merge    string // patchMergeKey

	asString bool // the "string" option
}

// part returns the index of the struct around a field, and the field's index in it. It adds the struct to the plan if
// necessary.
func (p *plan) part(index []int) (part, at int) {
	around, at := index[:len(index)-1], index[len(index)-1]
	if len(around) == 0 {
		return 0, at
	}
	for i, known := range p.embedded {
		if slices.Equal(known, around) {
			return i + 1, at
		}
	}
	p.embedded = append(p.embedded, around)
	return len(p.embedded), at
}

func (b *planner) fields(p *plan) []field {
	found := collect(p.typ)
	slices.SortStableFunc(found, func(x, y candidate) int {
		return cmp.Or(strings.Compare(x.name, y.name), cmp.Compare(len(x.index), len(y.index)), x.untagged-y.untagged)
	})
	var out []field
	for i := 0; i < len(found); {
		n := i + 1
		for n < len(found) && found[n].name == found[i].name {
			n++
		}
		c := &found[i]
		// Two fields of the same name, depth and tagging hide each other.
		ambiguous := n > i+1 && len(found[i+1].index) == len(c.index) && found[i+1].untagged == c.untagged
		if !ambiguous {
			f := c.field
			f.part, f.at = p.part(f.index)
			f.plan = b.plan(c.typ)
			if c.asString {
				f.plan = f.plan.inQuotes()
			}
			f.quoted = string(jsontext.AppendString(nil, f.name)) + ":"
			if f.omitZero {
				f.zero = zeroFor(c.typ)
			}
			if c.merge != "" {
				list, key := f.plan, &keyer{name: c.merge}
				f.key = key
				b.later = append(b.later, func() { // once all plans are complete, because list types can contain themselves
					if list.elem != nil {
						key.in(list.elem)
					}
				})
			}
			out = append(out, f)
		}
		i = n
	}
	return out
}

// collect lists the fields of a struct and of the structs embedded in it, nearest first.
func collect(root reflect.Type) (found []candidate) {
	type level struct {
		typ   reflect.Type
		index []int
	}
	seen := map[reflect.Type]bool{}
	for current := []level{{typ: root}}; len(current) > 0; {
		var next []level
		for _, l := range current {
			if seen[l.typ] { // seen on a nearer level; two of one level are both listed, and so found to be ambiguous
				continue
			}
			for i := range l.typ.NumField() {
				sf := l.typ.Field(i)
				ft := sf.Type
				if ft.Name() == "" && ft.Kind() == reflect.Pointer {
					ft = ft.Elem()
				}
				tag := sf.Tag.Get("json")
				if tag == "-" || !sf.IsExported() && !(sf.Anonymous && ft.Kind() == reflect.Struct) {
					continue
				}
				name, rest, _ := strings.Cut(tag, ",")
				if !validName(name) {
					name = ""
				}
				index := append(slices.Clone(l.index), i)
				if name == "" && sf.Anonymous && ft.Kind() == reflect.Struct {
					next = append(next, level{ft, index})
					continue
				}
				c := candidate{typ: sf.Type, field: field{name: cmp.Or(name, sf.Name), index: index}}
				if name == "" {
					c.untagged = 1
				}
				for opt := range strings.SplitSeq(rest, ",") {
					switch opt {
					case "omitempty":
						c.omitEmpty = true
					case "omitzero":
						c.omitZero = true
					case "string":
						c.asString = quotable(ft.Kind())
					}
				}
				if strings.Contains(sf.Tag.Get("patchStrategy"), "merge") {
					c.merge = sf.Tag.Get("patchMergeKey")
				}
				found = append(found, c)
			}
		}
		for _, l := range current {
			seen[l.typ] = true
		}
		current = next
	}
	return found
}

func validName(s string) bool {
	for _, c := range s {
		if !strings.ContainsRune("!#$%&()*+-./:;<=>?@[]^_{|}~ ", c) && !unicode.IsLetter(c) && !unicode.IsDigit(c) {
			return false
		}
	}
	return true
}

func quotable(k reflect.Kind) bool {
	return k >= reflect.Bool && k <= reflect.Float64 || k == reflect.String
}

// A keyNamer returns the member name for a map key.
type keyNamer func(reflect.Value) (string, error)

func keyNamerFor(t reflect.Type) keyNamer {
	switch {
	case t.Kind() == reflect.String:
		return func(v reflect.Value) (string, error) { return v.String(), nil }
	case t.Implements(textMarshalerType):
		return func(v reflect.Value) (string, error) {
			if v.Kind() == reflect.Pointer && v.IsNil() {
				return "", nil
			}
			text, err := v.Interface().(encoding.TextMarshaler).MarshalText()
			return string(text), err
		}
	case t.Kind() >= reflect.Int && t.Kind() <= reflect.Int64:
		return func(v reflect.Value) (string, error) { return strconv.FormatInt(v.Int(), 10), nil }
	case t.Kind() >= reflect.Uint && t.Kind() <= reflect.Uintptr:
		return func(v reflect.Value) (string, error) { return strconv.FormatUint(v.Uint(), 10), nil }
	}
	return nil
}
