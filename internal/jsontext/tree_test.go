package jsontext_test

import (
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"code.cloudfoundry.org/eirinix/internal/jsontext"
)

var _ = Describe("A Tree", func() {
	DescribeTable("opens as much as it is asked for, and writes the rest as it was:",
		func(text string, parts jsontext.Parts, want string) {
			t := jsontext.TreeOf([]byte(text))
			Expect(t.Open(parts)).To(BeTrue())
			Expect(string(t.Append(nil))).To(Equal(want))
		},
		Entry("an object", ` { "a" : [ 1 ] , "b" : { } } `, nil, `{"a":[ 1 ],"b":{ }}`),
		Entry("a list", ` [ 1 , { "a" : 1e0 } ] `, nil, `[1,{ "a" : 1e0 }]`),
		Entry("nothing", `[ ]`, nil, `[]`),
		Entry("a part", `{"a":{ "b":[ 1 ], "c" : 2 }}`, jsontext.Parts{"a": {}}, `{"a":{"b":[ 1 ],"c":2}}`),
		Entry("an item", `[[ 0 ],[ 1, { } ]]`, jsontext.Parts{"1": {"1": {}}}, `[[ 0 ],[1,{}]]`),
		Entry("a part that is a scalar, and one that there is not", `{"a": 1}`, jsontext.Parts{"a": {"b": {}}, "c": {}}, `{"a":1}`),
		Entry("names", `{"\u0061<":1,"é":2}`, nil, `{"a\u003c":1,"é":2}`),
		Entry("a name twice, whose last value counts", `{"a":{"x":1},"b":2,"a":3}`, jsontext.Parts{"a": {}}, `{"a":3,"b":2}`),
		Entry("a name twice, spelled otherwise", `{"a":3,"\u0061":{ }}`, jsontext.Parts{"a": {}}, `{"a":{}}`),
	)

	DescribeTable("does not open", func(text string) {
		t := jsontext.TreeOf([]byte(text))
		Expect(t.Open(nil)).To(BeFalse())
		Expect(t.IsObject()).To(BeFalse())
		Expect(string(t.Append(nil))).To(Equal(text))
	},
		Entry("a scalar", `1`), Entry("null", `null`), Entry("two values", `{} {}`), Entry("a byte behind it", "{}\x00"), Entry("half an object", `{"a":1`),
		Entry("a wrong comma", `{"a":1,}`), Entry("a wrong bracket", `{"a":1]`),
	)

	It("stands for a member that is missing, if it is nil", func() {
		var t *jsontext.Tree
		Expect(t.IsAbsent()).To(BeTrue())
		Expect(t.IsObject() || t.IsList() || t.Remove("a")).To(BeFalse())
		Expect(t.Member("a").Member("b")).To(BeNil())
		Expect(string(t.Append(nil))).To(Equal("null"))
	})

	DescribeTable("finds each member after others were set and removed:", func(count int) {
		var text strings.Builder
		for i := range count {
			fmt.Fprintf(&text, `,"%d":%d`, i, i)
		}
		t := jsontext.TreeOf([]byte("{" + text.String()[1:] + "}"))
		want := map[string]string{}
		for i := range count {
			want[fmt.Sprint(i)] = fmt.Sprint(i)
		}
		for i := 0; i < count; i += 3 {
			Expect(t.Remove(fmt.Sprint(i))).To(BeTrue())
			Expect(t.Remove(fmt.Sprint(i))).To(BeFalse())
			t.Set(fmt.Sprint("n", i), *jsontext.TreeOf([]byte(`"new"`)))
			delete(want, fmt.Sprint(i))
			want[fmt.Sprint("n", i)] = `"new"`
		}
		Expect(t.Items).To(HaveLen(count))
		for _, t := range []*jsontext.Tree{t, t.Clone()} {
			for name, value := range want {
				Expect(string(t.Member(name).Append(nil))).To(Equal(value), name)
			}
			Expect(t.Member("0")).To(BeNil())
		}
	}, Entry("few", 10), Entry("as many as are searched one by one", 32), Entry("many", 100))
})
