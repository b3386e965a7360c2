package jsontype

// This file finds the fields of a struct by the rules of encoding/json.

import (
	"cmp"
	"reflect"
	"slices"
	"strings"
	"unicode"

	"code.cloudfoundry.org/eirinix/internal/jsontext"
)

// A Field is a struct field that is a member of a JSON object. It can belong to an embedded struct.
type Field struct {
	Name      string
	Lead      string // the name as JSON, with its colon
	Index     []int  // the indices of the embedded structs around it, then its own
	Type      *Type
	Number    int    // in Type.Fields
	Beside    int64  // bytes of the embedded pointers' targets on the way to it
	MergeKey  string // of its tag patchMergeKey, if patches merge the list by it
	OmitEmpty bool
	OmitZero  func(reflect.Value) bool // nil without that option

	part, at int    // Index as an index into the result of Type.Parts, and one into that part
	next     *Field // the next field with the same hash
	plain    bool   // it can be read without special rules
	untagged int    // 1 for a field without a name in its tag
}

// Get returns the field's value, or an invalid one if an embedded pointer on the way is nil.
func (f *Field) Get(v reflect.Value) reflect.Value { return reach(v, f.Index) }

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

// From is Get for many fields of one struct. parts is the result of Type.Parts for that struct.
func (f *Field) From(parts []reflect.Value) reflect.Value {
	if part := parts[f.part]; part.IsValid() {
		return part.Field(f.at)
	}
	return reflect.Value{}
}

// Parts appends a struct and the structs embedded in it. Each is looked up once instead of once per field.
func (of *Type) Parts(dst []reflect.Value, v reflect.Value) []reflect.Value {
	dst = append(dst, v)
	for _, index := range of.embedded {
		part := reach(v, index)
		if part.IsValid() && part.Kind() == reflect.Pointer {
			part = part.Elem() // invalid if nil
		}
		dst = append(dst, part)
	}
	return dst
}

// IsOmitted reports whether encoding/json leaves the member out.
func (f *Field) IsOmitted(v reflect.Value) bool {
	return !v.IsValid() || f.OmitEmpty && isEmpty(v) || f.OmitZero != nil && f.OmitZero(v)
}

// isEmpty reports whether a value is empty in the sense of "omitempty". Structs never are.
func isEmpty(v reflect.Value) bool {
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

func zeroOf(t reflect.Type) func(reflect.Value) bool {
	zeroer := reflect.TypeFor[isZeroer]()
	switch {
	case t.Kind() == reflect.Pointer || t.Kind() == reflect.Interface:
		if !t.Implements(zeroer) {
			return reflect.Value.IsZero
		}
		return func(v reflect.Value) bool {
			return v.IsNil() || v.Kind() == reflect.Interface && v.Elem().Kind() == reflect.Pointer && v.Elem().IsNil() ||
				v.Interface().(isZeroer).IsZero()
		}
	case reflect.PointerTo(t).Implements(zeroer):
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

// fields fills in the fields of a struct, of which those that hide each other are none.
func (b builder) fields(of *Type) {
	found := b.candidates(of.Go)
	slices.SortStableFunc(found, func(x, y Field) int {
		return cmp.Or(strings.Compare(x.Name, y.Name), cmp.Compare(len(x.Index), len(y.Index)), x.untagged-y.untagged)
	})
	for i, f := range found {
		if i > 0 && found[i-1].Name == f.Name {
			continue // hidden by one that is nearer, or has a tag
		}
		// Two fields of the same name, depth and tagging hide each other.
		if i+1 < len(found) {
			if o := &found[i+1]; o.Name == f.Name && len(o.Index) == len(f.Index) && o.untagged == f.untagged {
				continue
			}
		}
		f.Lead = string(jsontext.AppendString(nil, f.Name)) + ":"
		f.part, f.at = of.part(f.Index)
		of.Fields = append(of.Fields, f)
	}
	of.index()
}

// part returns the index of the struct around a field, and the field's index in it. It adds the struct to the embedded
// ones if necessary.
func (of *Type) part(index []int) (part, at int) {
	around, at := index[:len(index)-1], index[len(index)-1]
	if len(around) == 0 {
		return 0, at
	}
	i := slices.IndexFunc(of.embedded, func(known []int) bool { return slices.Equal(known, around) })
	if i < 0 {
		i, of.embedded = len(of.embedded), append(of.embedded, around)
	}
	return i + 1, at
}

// A level is a struct whose fields are looked at.
type level struct {
	typ    reflect.Type
	index  []int
	beside int64
	plain  bool
}

// candidates returns the fields of a struct and of the structs embedded in it, nearest first.
func (b builder) candidates(root reflect.Type) (found []Field) {
	seen := map[reflect.Type]bool{}
	for current := []level{{typ: root, plain: true}}; len(current) > 0; {
		var next []level
		for _, l := range current {
			if seen[l.typ] { // seen on a nearer level; two of one level are both listed, and so found to be ambiguous
				continue
			}
			for i := range l.typ.NumField() {
				sf := l.typ.Field(i)
				if f, inner := b.candidate(&l, i, &sf); f != nil {
					found = append(found, *f)
				} else if inner != nil {
					next = append(next, *inner)
				}
			}
		}
		for _, l := range current {
			seen[l.typ] = true
		}
		current = next
	}
	return found
}

// candidate returns a field, or the struct that it embeds, if it has a part in JSON.
func (b builder) candidate(l *level, i int, sf *reflect.StructField) (*Field, *level) {
	ft, inner := sf.Type, *l
	if ft.Name() == "" && ft.Kind() == reflect.Pointer {
		ft = ft.Elem()
		inner.beside += int64(ft.Size())
		inner.plain = l.plain && sf.IsExported() // nothing can be put behind a pointer that is not
	}
	tag := sf.Tag.Get("json")
	if tag == "-" || !sf.IsExported() && !(sf.Anonymous && ft.Kind() == reflect.Struct) {
		return nil, nil
	}
	name, rest, _ := strings.Cut(tag, ",")
	if !isValidName(name) {
		name = ""
	}
	inner.typ, inner.index = ft, append(slices.Clone(l.index), i)
	if name == "" && sf.Anonymous && ft.Kind() == reflect.Struct {
		return nil, &inner
	}
	f := &Field{Name: cmp.Or(name, sf.Name), Index: inner.index, Type: b.of(sf.Type), Beside: l.beside, plain: l.plain && sf.IsExported()}
	if name == "" {
		f.untagged = 1
	}
	for option := range strings.SplitSeq(rest, ",") {
		switch option {
		case "omitempty":
			f.OmitEmpty = true
		case "omitzero":
			f.OmitZero = zeroOf(sf.Type)
		case "string":
			if k := ft.Kind(); k >= reflect.Bool && k <= reflect.Float64 || k == reflect.String {
				f.Type, f.plain = f.Type.inQuotes(), false
			}
		}
	}
	if strings.Contains(sf.Tag.Get("patchStrategy"), "merge") {
		f.MergeKey = sf.Tag.Get("patchMergeKey")
	}
	return f, nil
}

// isValidName reports whether encoding/json takes a name from a tag.
func isValidName(s string) bool {
	return !strings.ContainsFunc(s, func(c rune) bool {
		return !strings.ContainsRune("!#$%&()*+-./:;<=>?@[]^_{|}~ ", c) && !unicode.IsLetter(c) && !unicode.IsDigit(c)
	})
}
