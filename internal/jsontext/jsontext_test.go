package jsontext

// This file holds the specs of the scanner.

import (
	"encoding/json"
	"strings"
	"unicode/utf8"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

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
		Entry("before another value", `[][]`, 1, 2),
		Entry("a scalar without brackets", `true,`, 0, 4),
		Entry("a number before another text", `-0.5E+3}`, 0, 7),
		Entry("a number that begins with two zeros ends behind the first", `00`, 0, 1),
		Entry("as deep as it may be", `[[]]`, 1, 4),
		Entry("empty brackets are not nested", `{}`, 0, 2),
		Entry("deeper than it may be", `[[1]]`, 1, -1),
		Entry("as deep, beyond one word of bits", strings.Repeat("[", 200)+"1"+strings.Repeat("]", 200), 200, 401),
		Entry("deeper, beyond one word of bits", strings.Repeat("[", 200)+"1"+strings.Repeat("]", 200), 199, -1),
		Entry("crossed brackets", `[{]}`, 9, -1),
		Entry("nothing", ` `, 9, -1),
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
