package jsontext

// This file holds the scanner, strings and the index of a text against encoding/json.

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

func TestJSONText(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "JSON text")
}

// texts are strings of all kinds, each followed by something else or by nothing.
var texts = []string{
	`""`, `"a" `, `"12345678"`, `"1234567\"8":1`, `"a\b\f\n\r\t\/\\\""`, `"\u00e9\u0000\uFfFf"`, `"\ud83d\ude00"`, `"\ud83d"`, `"\ud83dx"`, `"\ude00"`,
	`"\ud83d\n"`, `"\ud83d\ud83d\ude00"`, `"日本"`, "\"1234567\xff\"", "\"\xe6\x97\"", "\"\x7f\"", "\"\xed\xa0\x80\"", `"<&>"`, "\"\u2028\"",
	`"` + strings.Repeat("long ", 20) + `\\` + strings.Repeat("long ", 20) + `"`,
	``, `"`, `"\`, `"\"`, `"\x"`, `"\u12g4"`, `"\u12`, `"\u123"`, `'a'`, "\"a\tb\"", "\"1234567\x1f\"", `null`, ` "a"`,
}

var _ = Describe("The scanner", func() {
	DescribeTable("moves past one value",
		func(text string, nesting, end int) {
			Expect(SkipValue([]byte(text), 0, nesting)).To(Equal(end))
		},
		Entry("an object", `{"a":[1,{"b":null}],"c":"}"}`, 3, 28),
		Entry("with space in it", "\t{ \"a\" : [ 1 , 2 ] }\r\n ,", 2, 20),
		Entry("a number before another text", `-0.5E+3}`, 0, 7),
		Entry("a number that begins with two zeros ends behind the first", `00`, 0, 1),
		Entry("as deep as it may be", `[[]]`, 1, 4),
		Entry("deeper than it may be", `[[1]]`, 1, -1),
		Entry("as deep, beyond one word of bits", strings.Repeat("[", 200)+"1"+strings.Repeat("]", 200), 200, 401),
		Entry("deeper, beyond one word of bits", strings.Repeat("[", 200)+"1"+strings.Repeat("]", 200), 199, -1),
		Entry("crossed brackets", `[{]}`, 9, -1),
	)

	It("takes every index outside the text for its end", func() {
		text := []byte(`"`)
		for _, i := range []int{-1, 1, 2, 1 << 40} {
			Expect([]int{SkipValue(text, i, 1), skipString(text, i), SkipLiteral(text, i)}).To(HaveEach(-1))
			_, _, end := Text(text, i)
			Expect(end).To(Equal(-1))
			r := Reader{Text: text, At: i}
			Expect(r.Enter('{') || r.More('{') || r.Colon() || !r.Failed()).To(BeFalse())
		}
	})

	It("finds the end of a string whatever byte stands wherever in it", func() {
		for position := range 20 {
			text := []byte(`"` + strings.Repeat("x", 20) + `"`)
			for c := range 256 {
				text[1+position] = byte(c)
				Expect(skipString(text, 0) == len(text)).To(Equal(json.Valid(text)), "%q", text)
				_, plain, _ := Text(text, 0)
				Expect(plain).To(Equal(c >= ' ' && c < utf8.RuneSelf && c != '\\'), "%q", text)
			}
		}
	})

	It("writes any byte of a string as encoding/json does", func() {
		for c := range 256 {
			text := "a" + string([]byte{byte(c)})
			want, err := json.Marshal(text)
			Expect(err).NotTo(HaveOccurred())
			Expect(string(AppendString(nil, text))).To(Equal(string(want)), "%q", text)
		}
	})

	It("decodes strings as encoding/json does", func() {
		for _, text := range texts {
			inside, plain, end := Text([]byte(text), 0)
			Expect(skipString([]byte(text), 0)).To(Equal(end), text)
			var want string
			if err := json.Unmarshal([]byte(text[:max(end, 0)]), &want); err != nil {
				Expect(end).To(Equal(-1), text)
				continue
			}
			Expect(Unquote(inside)).To(Equal(want), text)
			Expect(plain).To(Equal(string(inside) == want), text)
		}
	})
})

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

// tree decodes a text with its numbers as they are written.
func tree(text []byte) (v any, err error) {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	err = dec.Decode(&v)
	return v, err
}

// rebuild decodes a document by nothing but its nodes.
func rebuild(doc *Index, n Node) (any, error) {
	switch n.Kind {
	case '{', '[':
		entries, err := doc.Parts(n, nil)
		if err != nil {
			return nil, err
		}
		object, list := map[string]any{}, []any{}
		for _, e := range entries {
			v, err := rebuild(doc, e.Node)
			if err != nil {
				return nil, err
			}
			object[string(e.Name)], list = v, append(list, v)
		}
		if n.Kind == '{' {
			return object, nil
		}
		return list, nil
	}
	return tree(doc.raw[n.Start:n.End])
}

func compare(raw []byte) error {
	doc, root, err := NewIndex(raw)
	if !json.Valid(raw) {
		if err == nil {
			_, _ = rebuild(&doc, root) // may find out or not, but must come back
		}
		return nil
	}
	if err != nil {
		return err
	}
	have, err := rebuild(&doc, root)
	if err != nil {
		return err
	}
	want, err := tree(raw)
	if err != nil {
		return err
	}
	if !reflect.DeepEqual(have, want) {
		return fmt.Errorf("have %v\nwant %v", have, want)
	}
	return nil
}

var documents = []string{
	`{}`, `[]`, `null`, ` { "a" : [ 1 , -2.5e3 , true , false , null , "x" ] , "b" : { } } `,
	`{"a\"b":"\\","\\\\":"\"","é":"\ud83d\ude00","\u0061":{"":[[],[{}]]}}`,
	`["` + strings.Repeat("long ", 20) + `\\\"","` + strings.Repeat(`\\`, 9) + `","1234567","12345678\"","\n"]`,
	`{"a":1,"a":{"b":2},"a":[3]}`, `{"a":{}`, `{"a":]}`, `{"a" 1}`, `{"a":1 "b":2}`, `[1,]`, `[,1]`, `{"a"}`, `{"a":`, `"\`, `"`, `]`, `{1:2}`, ``, `[1}`, `1 2`, `{"a":tru{}}`,
}

var _ = Describe("The index of raw JSON", func() {
	It("finds the same members as encoding/json", func() {
		for _, d := range documents {
			Expect(compare([]byte(d))).To(Succeed(), d)
		}
	})
	It("reads a document of any depth", func() {
		doc, root, err := NewIndex([]byte(strings.Repeat(`[`, 100000) + strings.Repeat(`]`, 100000)))
		Expect(err).NotTo(HaveOccurred())
		entries, err := doc.Parts(root, nil)
		Expect(err).NotTo(HaveOccurred())
		Expect(entries).To(HaveLen(1))
	})
	It("finds a duplicate among many members", func() {
		var b strings.Builder
		for i := range 100 {
			fmt.Fprintf(&b, `"m%d":%d,`, i, i)
		}
		for _, last := range []string{"m7", `\u006d7`, "new"} {
			doc, root, err := NewIndex([]byte(`{` + b.String() + `"` + last + `":0}`))
			Expect(err).NotTo(HaveOccurred())
			entries, err := doc.Parts(root, nil)
			Expect(err).NotTo(HaveOccurred())
			name, found := Duplicate(entries)
			Expect(found).To(Equal(last != "new"))
			if found {
				Expect(name).To(Equal("m7"))
			}
		}
	})
})

func FuzzIndex(f *testing.F) {
	for _, d := range documents {
		f.Add([]byte(d))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		if err := compare(raw); err != nil {
			t.Fatal(err)
		}
	})
}
