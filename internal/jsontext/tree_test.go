package jsontext_test

// This file specifies how a Tree is opened, changed and written.

import (
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"code.cloudfoundry.org/eirinix/internal/jsontext"
)

var _ = Describe("A Tree", func() {
	// opened opens the values that lie on a path, one level after the other.
	opened := func(text string, path ...string) *jsontext.Tree {
		t := jsontext.TreeOf([]byte(text))
		at := t
		for at.IsObject() && len(path) > 0 {
			at, path = at.Member(path[0]), path[1:]
		}
		at.IsList()
		return t
	}

	DescribeTable("opens as much as it is asked for, and writes the rest as it was:",
		func(text, want string, path ...string) {
			Expect(string(opened(text, path...).Append(nil))).To(Equal(want))
		},
		Entry("an object", ` { "a" : [ 1 ] , "b" : { } } `, `{"a":[ 1 ],"b":{ }}`),
		Entry("a list", ` [ 1 , { "a" : 1e0 } ] `, `[1,{ "a" : 1e0 }]`),
		Entry("two levels", `{"x":[{},[]],"a":{ "b":[ 1, [ ] ], "c" : 2 }}`, `{"x":[{},[]],"a":{"b":[1,[ ]],"c":2}}`, "a", "b"),
		Entry("a scalar, and a member that there is not", `{"a": 1}`, `{"a":1}`, "a", "b"),
		Entry("names", `{"\u0061<":1,"é":2}`, `{"a\u003c":1,"é":2}`),
		Entry("a name twice, whose last value counts", `{"a":{"x":1},"b":2,"a":3}`, `{"a":3,"b":2}`),
		Entry("a name twice, spelled otherwise", `{"a":3,"\u0061":{ }}`, `{"a":{}}`, "a"),
	)

	DescribeTable("does not open", func(text string) {
		t := jsontext.TreeOf([]byte(text))
		Expect(t.IsObject() || t.IsList()).To(BeFalse())
		Expect(t.Member("a")).To(BeNil())
		Expect(string(t.Append(nil))).To(Equal(text))
	},
		Entry("a scalar", `1`), Entry("null", `null`), Entry("two values", `{} {}`), Entry("a byte behind it", "{}\x00"), Entry("half an object", `{"a":1`),
		Entry("a wrong comma", `{"a":1,}`), Entry("no value", `{"a":}`),
	)

	It("stands for a member that is missing, if it is nil", func() {
		var t *jsontext.Tree
		Expect(t.IsAbsent()).To(BeTrue())
		Expect(t.IsObject() || t.IsList() || t.Remove("a")).To(BeFalse())
		Expect(t.Member("a").Member("b")).To(BeNil())
		Expect(string(t.Append(nil))).To(Equal("null"))
	})

	It("leaves a value its name that becomes a member elsewhere", func() {
		from, to := jsontext.TreeOf([]byte(`{"a":{"x":1}}`)), jsontext.NewTree('{')
		to.Set("b", from.Member("a"))
		Expect(string(to.Append(nil))).To(Equal(`{"b":{"x":1}}`))
		Expect(string(from.Append(nil))).To(Equal(`{"a":{"x":1}}`))
		to.Member("b").Set("y", jsontext.NewTree('[', jsontext.TreeOf([]byte(`2`))))
		Expect(string(to.Append(nil))).To(Equal(`{"b":{"x":1,"y":[2]}}`))
		Expect(string(from.Append(nil))).To(Equal(`{"a":{"x":1}}`))
	})

	DescribeTable("finds each member after others were set and removed:", func(count int) {
		var text strings.Builder
		want := map[string]string{}
		for i := range count {
			fmt.Fprintf(&text, `,"%d":%d`, i, i)
			want[fmt.Sprint(i)] = fmt.Sprint(i)
		}
		t := jsontext.TreeOf([]byte("{" + text.String()[1:] + "}"))
		for i := 0; i < count; i += 3 {
			Expect(t.Remove(fmt.Sprint(i))).To(BeTrue())
			Expect(t.Remove(fmt.Sprint(i))).To(BeFalse())
			t.Set(fmt.Sprint("n", i), jsontext.TreeOf([]byte(`"new"`)))
			delete(want, fmt.Sprint(i))
			want[fmt.Sprint("n", i)] = `"new"`
		}
		for _, t := range []*jsontext.Tree{t, t.Clone()} {
			Expect(t.Items).To(HaveLen(count))
			for name, value := range want {
				Expect(string(t.Member(name).Append(nil))).To(Equal(value), name)
			}
			Expect(t.Member("0")).To(BeNil())
			for name := range want {
				Expect(t.Remove(name)).To(BeTrue(), name)
			}
			Expect(string(t.Append(nil))).To(Equal(`{}`))
		}
	}, Entry("few", 10), Entry("as many as are searched one by one", 32), Entry("one more", 33))
})
