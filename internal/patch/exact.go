package patch

// This file finds out whether a value is the one that its JSON decodes to.

import (
	"encoding/json"
	"math"
	"reflect"
	"time"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// AppendExact is AppendMembers that also reports whether the object is surely the one that the text decodes to: its type
// has no field that JSON leaves out, and no value changes on the way through JSON. The object can hold the same memory
// twice, which decoding does not give. The members in except are not looked at.
func AppendExact(dst []byte, obj any, except ...string) (text []byte, exact bool, err error) {
	e := &exactness{}
	d := differ{exact: e}
	text, err = d.appendMembers(dst, obj, except)
	return text, err == nil && !e.lost, err
}

// exactness is the knowledge about a value that is being written.
type exactness struct{ lost bool }

// omitted looks at a field that is left out. Decoding leaves it zero.
func (e *exactness) omitted(f *field, v reflect.Value) {
	if e.lost || !v.IsValid() {
		return
	}
	switch v.Kind() {
	case reflect.Slice, reflect.Map:
		e.lost = !v.IsNil()
	default:
		e.lost = f.omitZero && !v.IsZero()
	}
}

// text looks at a string.
func (e *exactness) text(s string) {
	if !utf8.ValidString(s) {
		e.lost = true
	}
}

// look looks at a value, without its parts.
func (e *exactness) look(p *plan, v reflect.Value) {
	if e.lost {
		return
	}
	switch p.shape {
	case shapeBool, shapeInt, shapeUint, shapeFloat, shapeString: // text looks at strings
		e.lost = p.quoted
	case shapeBytes, shapeList:
	case shapeMap:
		e.lost = p.typ.Key().Kind() != reflect.String || p.typ.Key().Implements(textMarshalerType)
	case shapeStruct:
		e.lost = p.hides
	case shapePointer:
		if !v.IsNil() {
			e.lost = isNil(v.Elem())
		}
	case shapeInterface:
		e.lost = !v.IsNil() && !isOfTree(v.Interface())
	case shapeMarshaler:
		e.lost = p.native != nil && !v.CanAddr() || !comesBack(v)
	default:
		e.lost = true
	}
}

// isNil reports whether a value is written as null.
func isNil(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Pointer, reflect.Map, reflect.Slice, reflect.Interface:
		return v.IsNil()
	}
	return false
}

// isOfTree reports whether a value is one that decoding puts into an interface.
func isOfTree(a any) bool {
	switch a := a.(type) {
	case string, bool, int64:
		return true
	case float64:
		return a != math.Trunc(a) // it would become an int64
	case map[string]any:
		return a != nil
	case []any:
		return a != nil
	}
	return false
}

// comesBack reports whether a value that marshals itself reads its own JSON as the same value.
func comesBack(v reflect.Value) bool {
	if v.Type() == timeType {
		t := v.Interface().(metav1.Time).Time
		return t == time.Time{} || t == time.Unix(t.Unix(), 0) && t.Year() > 0 && t.Year() < 9999
	}
	if v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface {
		return false
	}
	text, err := addressed(v).(json.Marshaler).MarshalJSON()
	if err != nil {
		return false
	}
	again := reflect.New(v.Type())
	reader, ok := again.Interface().(json.Unmarshaler)
	return ok && reader.UnmarshalJSON(text) == nil && reflect.DeepEqual(again.Elem().Interface(), v.Interface())
}

var timeType = reflect.TypeFor[metav1.Time]()
