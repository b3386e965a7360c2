package patch

// This file writes values, members of whole objects, strings and foreign JSON as encoding/json does.

import (
	"bytes"
	"encoding"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"code.cloudfoundry.org/eirinix/internal/jsontext"
	"code.cloudfoundry.org/eirinix/internal/jsontype"
)

// encode appends a value as encoding/json writes a decoded tree: HTML escaped, with members sorted by name.
func encode(dst []byte, t *jsontype.Type, v reflect.Value) ([]byte, error) {
	shape := t.On(v)
	switch shape {
	case jsontype.Bytes, jsontype.Map, jsontype.List, jsontype.Pointer, jsontype.Interface:
		if v.IsNil() {
			return append(dst, "null"...), nil
		}
	case jsontype.JSON, jsontype.Text:
		if v.Kind() == reflect.Interface && v.IsNil() {
			return append(dst, "null"...), nil
		}
	}
	switch shape {
	case jsontype.Bool, jsontype.Int, jsontype.Uint, jsontype.Float, jsontype.String, jsontype.Number:
		return appendScalar(dst, shape, t.Quoted, v)
	case jsontype.Bytes:
		dst = append(dst, '"')
		dst = base64.StdEncoding.AppendEncode(dst, v.Bytes())
		return append(dst, '"'), nil
	case jsontype.Struct:
		members, err := appendFields(dst, t, v, nil)
		return InBraces(dst, members), err
	case jsontype.Map:
		members, err := appendEntries(dst, t, v, nil)
		return InBraces(dst, members), err
	case jsontype.List, jsontype.Array:
		var err error
		dst = append(dst, '[')
		for i := range v.Len() {
			if i > 0 {
				dst = append(dst, ',')
			}
			if dst, err = encode(dst, t.Elem, v.Index(i)); err != nil {
				return dst, err
			}
		}
		return append(dst, ']'), nil
	case jsontype.Pointer:
		return encode(dst, t.Elem, v.Elem())
	case jsontype.Interface:
		return encode(dst, jsontype.Of(v.Elem().Type()), v.Elem())
	case jsontype.Unstructured:
		return encode(dst, t.Fields[0].Type, v.Field(0))
	case jsontype.JSON:
		text, err := addressed(v).(json.Marshaler).MarshalJSON()
		if err != nil {
			return dst, err
		}
		return appendCompact(dst, text)
	case jsontype.Text:
		text, err := addressed(v).(encoding.TextMarshaler).MarshalText()
		return jsontext.AppendString(dst, text), err
	}
	return dst, &json.UnsupportedTypeError{Type: v.Type()}
}

func appendScalar(dst []byte, shape jsontype.Shape, quoted bool, v reflect.Value) ([]byte, error) {
	if quoted && shape != jsontype.String {
		dst = append(dst, '"')
	}
	switch shape {
	case jsontype.Bool:
		dst = strconv.AppendBool(dst, v.Bool())
	case jsontype.Int:
		dst = strconv.AppendInt(dst, v.Int(), 10)
	case jsontype.Uint:
		dst = strconv.AppendUint(dst, v.Uint(), 10)
	case jsontype.Float:
		var err error
		if dst, err = appendFloat(dst, v.Float(), v.Type().Bits()); err != nil {
			return dst, err
		}
	case jsontype.Number:
		n := v.String()
		if n == "" {
			n = "0" // as in encoding/json
		}
		if !json.Valid([]byte(n)) || !strings.ContainsRune("-0123456789", rune(n[0])) {
			return dst, fmt.Errorf("invalid number literal %q", n)
		}
		dst = append(dst, n...)
	case jsontype.String:
		if !quoted {
			return jsontext.AppendString(dst, v.String()), nil
		}
		return jsontext.AppendString(dst, string(jsontext.AppendString(nil, v.String()))), nil
	}
	if quoted {
		dst = append(dst, '"')
	}
	return dst, nil
}

// appendFloat writes a number as ECMAScript does: without an exponent from 1e-6 up to 1e21, with one otherwise.
func appendFloat(dst []byte, f float64, bits int) ([]byte, error) {
	if math.IsInf(f, 0) || math.IsNaN(f) {
		return dst, fmt.Errorf("unsupported value %v", f)
	}
	format := byte('f')
	if abs := math.Abs(f); abs != 0 {
		if bits == 64 && (abs < 1e-6 || abs >= 1e21) || bits == 32 && (float32(abs) < 1e-6 || float32(abs) >= 1e21) {
			format = 'e'
		}
	}
	dst = strconv.AppendFloat(dst, f, format, -1, bits)
	if n := len(dst); format == 'e' && n >= 4 && dst[n-4] == 'e' && (dst[n-3] == '-' || dst[n-3] == '+') && dst[n-2] == '0' {
		dst[n-2] = dst[n-1] // e-09 is written e-9
		dst = dst[:n-1]
	}
	return dst, nil
}

// addressed returns a pointer to the value if it has an address, else the value. The pointer saves a copy and has the
// methods of both.
func addressed(v reflect.Value) any {
	if v.Kind() != reflect.Interface && v.CanAddr() {
		return v.Addr().Interface()
	}
	return v.Interface()
}

// appendCompact appends JSON from another encoder, in the spelling of encoding/json.
func appendCompact(dst, text []byte) ([]byte, error) {
	var compact bytes.Buffer
	if err := json.Compact(&compact, text); err != nil {
		return dst, err
	}
	return appendEscaped(dst, compact.Bytes()), nil
}

// appendEscaped appends JSON and escapes the characters that HTML treats specially, which occur only in strings.
func appendEscaped(dst, text []byte) []byte {
	if !bytes.ContainsAny(text, "<>&\u2028\u2029") {
		return append(dst, text...)
	}
	b := bytes.NewBuffer(dst)
	json.HTMLEscape(b, text)
	return b.Bytes()
}

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
	written := jsontext.TreeOf(text)
	if !written.IsObject() {
		return dst, fmt.Errorf("it is written as JSON that is no object: %w", jsontext.ErrSyntax)
	}
	for _, m := range written.Items {
		if !slices.Contains(except, m.Name) {
			dst = m.Append(append(jsontext.AppendString(append(dst, ','), m.Name), ':'))
		}
	}
	return dst, nil
}

// appendFields appends the members of a struct.
func appendFields(dst []byte, t *jsontype.Type, v reflect.Value, except []string) ([]byte, error) {
	var buf [3]reflect.Value
	parts := t.Parts(buf[:0], v)
	for i := range t.Fields {
		f := &t.Fields[i]
		fv := f.From(parts)
		if len(except) > 0 && slices.Contains(except, f.Name) || f.IsOmitted(fv) {
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

// appendEntries appends the members of a map, by name.
func appendEntries(dst []byte, t *jsontype.Type, v reflect.Value, except []string) ([]byte, error) {
	type entry struct {
		name  string
		value reflect.Value
	}
	all := make([]entry, 0, v.Len())
	for it := v.MapRange(); it.Next(); {
		name, err := t.Key(it.Key())
		if err != nil {
			return dst, err
		}
		all = append(all, entry{name, it.Value()})
	}
	slices.SortFunc(all, func(x, y entry) int { return strings.Compare(x.name, y.name) })
	for _, e := range all {
		var err error
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
