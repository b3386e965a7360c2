package patch

// This file writes the members of whole objects.

import (
	"fmt"
	"reflect"
	"slices"

	"code.cloudfoundry.org/eirinix/internal/jsontext"
	"code.cloudfoundry.org/eirinix/internal/jsontype"
)

// AppendMembers appends the members of an object as encoding/json writes them, sorted by name where the type is a
// struct or a tree. A comma precedes each of them. The members in except are left out.
func AppendMembers(dst []byte, obj any, except ...string) ([]byte, error) {
	v := reflect.ValueOf(obj)
	for v.Kind() == reflect.Pointer && !v.IsNil() {
		v = v.Elem()
	}
	if !v.IsValid() || v.Kind() == reflect.Pointer {
		return dst, fmt.Errorf("a nil %T has no members", obj)
	}
	t := jsontype.Of(v.Type())
	switch shape := t.On(v); {
	case shape == jsontype.Struct:
		return appendFields(dst, t, v, except)
	case shape == jsontype.Map && !v.IsNil():
		return appendEntries(dst, t, v, except)
	}
	text, err := encode(nil, t, v)
	if err != nil {
		return dst, err
	}
	return appendMembers(dst, text, except)
}

// appendFields appends the members of a struct.
func appendFields(dst []byte, t *jsontype.Type, v reflect.Value, except []string) ([]byte, error) {
	var buf [3]reflect.Value
	parts := t.Parts(buf[:0], v)
	for i := range t.Fields {
		f := &t.Fields[i]
		fv := f.From(parts)
		if len(except) > 0 && slices.Contains(except, f.Name) {
			continue
		}
		if f.IsOmitted(fv) {
			continue
		}
		var err error
		dst = append(append(dst, ','), f.Lead...)
		if dst, err = encode(dst, f.Type, fv); err != nil {
			return dst, fmt.Errorf("%s: %w", f.Name, err)
		}
	}
	return dst, nil
}

// InBraces makes an object of the members that were appended behind dst, each with a comma in front.
func InBraces(dst, members []byte) []byte {
	if len(members) == len(dst) {
		return append(members, '{', '}')
	}
	members[len(dst)] = '{'
	return append(members, '}')
}

// appendEntries appends the members of a map.
func appendEntries(dst []byte, t *jsontype.Type, v reflect.Value, except []string) ([]byte, error) {
	all, err := sorted(t, v)
	if err != nil {
		return dst, err
	}
	for _, e := range all {
		if slices.Contains(except, e.name) {
			continue
		}
		dst = append(jsontext.AppendString(append(dst, ','), e.name), ':')
		if dst, err = encode(dst, t.Elem, e.value); err != nil {
			return dst, fmt.Errorf("%s: %w", e.name, err)
		}
	}
	return dst, nil
}

// appendMembers appends the members of an object in JSON.
func appendMembers(dst, text []byte, except []string) ([]byte, error) {
	t := jsontext.TreeOf(text)
	if !t.IsObject() {
		return dst, fmt.Errorf("it is written as JSON that is no object: %w", jsontext.ErrSyntax)
	}
	for _, m := range t.Items {
		if !slices.Contains(except, m.Name) {
			dst = m.Append(append(jsontext.AppendString(append(dst, ','), m.Name), ':'))
		}
	}
	return dst, nil
}
