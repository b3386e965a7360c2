package jsontext

// This file holds the scanner against encoding/json.

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

// FuzzSkipValue reads any bytes: exactly the well-formed ones are accepted.
func FuzzSkipValue(f *testing.F) {
	for _, seed := range []string{
		`{}`, `[]`, `{"a":[1,2.5,-0,1e9,1E-2,true,false,null,"x",{"b":{}}]}`, ` [ 1 , { "a" : [ ] } ] `, `[1,]`, `{"a":1,}`, `{,}`, `[,1]`,
		`{"a"}`, `{"a" 1}`, `{1:2}`, `{"a":}`, `[}`, `{]`, `01`, `-`, `1.`, `.5`, `1e`, `1e+`, `+1`, `tru`, `nulll`, `"\u12g4"`, `"\x"`, `"`, `"\`,
		`"\u00e9\n\/"`, "\"a\tb\"", "\"\x7f\xff\"", `"12345678"`, `"1234567\"8"`, "\"1234567\x1f\"", "[\v1]", `[[[[[[]]]]]]`, `[{}{}]`, `"a""b"`, `{"a":1"b":2}`,
		strings.Repeat("[", 130) + strings.Repeat("]", 130), strings.Repeat(`{"a":`, 65) + "1" + strings.Repeat("}", 65), strings.Repeat("[", 64) + "{" + strings.Repeat("]", 64),
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		end := SkipValue(text, 0, len(text))
		if accepted := end >= 0 && SkipSpace(text, end) == len(text); accepted != json.Valid(text) && !tooDeep(text) {
			t.Fatalf("%q: %t", text, accepted)
		}
		if walked := walk(&Reader{Text: text}); walked != end {
			t.Fatalf("%q ends at %d by its items, and at %d as a whole", text, walked, end)
		}
	})
}

// tooDeep reports whether encoding/json might refuse a text for its nesting.
func tooDeep(text []byte) bool {
	return bytes.Count(text, []byte("["))+bytes.Count(text, []byte("{")) > 10_000
}

// walk is SkipValue by the methods of a Reader.
func walk(r *Reader) int {
	switch opening := r.Peek(); opening {
	case '"':
		r.At = skipString(r.Text, r.At)
	case '{', '[':
		for more := r.Enter(opening); more; more = r.More(opening) {
			if opening == '{' {
				r.Name()
			}
			walk(r)
		}
	default:
		r.At = SkipLiteral(r.Text, r.At)
	}
	return r.At
}

// FuzzText decodes any string as encoding/json does.
func FuzzText(f *testing.F) {
	for _, seed := range texts {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		inside, plain, end := Text(text, 0)
		if skipped := skipString(text, 0); skipped != end {
			t.Fatalf("%q ends at %d, and is skipped to %d", text, end, skipped)
		}
		var want string
		if err := json.Unmarshal(text[:max(end, 0)], &want); (err == nil) != (end >= 0) {
			t.Fatalf("%q ends at %d: %v", text, end, err)
		}
		if end < 0 && json.Unmarshal(text, &want) == nil && at(text, SkipSpace(text, 0)) == '"' && text[0] == '"' {
			t.Fatalf("%q is a string", text)
		}
		if plain && (string(inside) != want || bytes.IndexByte(inside, '\\') >= 0 || !utf8.Valid(inside)) || end >= 0 && Unquote(inside) != want {
			t.Fatalf("%q is %q, not %q", text, Unquote(inside), want)
		}
	})
}
