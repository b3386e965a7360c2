package jsontype

// This file specifies what is known of a Go type: its members, and how it is written and read.

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func TestJSONType(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "JSONType")
}

type node struct {
	Next  *node           `json:"next,omitempty"`
	Below map[string]node `json:"below,omitempty"`
}

type near struct {
	Hidden string `json:"hidden"`
	Twice  string `json:"twice"`
	Deep   string `json:"deep"`
}

type other struct {
	Twice string `json:"twice"`
}

type outer struct {
	near
	*other
	Plain    string
	Named    int              `json:"named"`
	Odd      string           `json:"a\"b"` //nolint:staticcheck // no name that encoding/json takes
	Left     string           `json:"-"`
	Dash     string           `json:"-,"` //nolint:staticcheck // its name is a dash
	Hidden   bool             `json:"hidden"`
	Empty    []string         `json:"empty,omitempty"`
	Zero     time.Time        `json:"zero,omitzero"`
	Quoted   *int             `json:"quoted,string"`
	Flag     bool             `json:"flag,string"`
	Items    []map[string]any `json:"items" patchStrategy:"merge" patchMergeKey:"name"`
	Replaced []map[string]any `json:"replaced" patchMergeKey:"name"`
	private  near             //nolint:unused // it is no member
}

var _ = Describe("What is known of a Go type", func() {
	It("are the members that encoding/json writes, sorted by name", func() {
		want := map[string]any{}
		text, err := json.Marshal(outer{other: &other{}, Empty: []string{""}, Zero: time.Unix(1, 0)})
		Expect(err).NotTo(HaveOccurred())
		Expect(json.Unmarshal(text, &want)).To(Succeed())
		of := Of(reflect.TypeFor[outer]())
		Expect(of.Writes).To(Equal(Struct))
		last := ""
		for i := range of.Fields {
			f := &of.Fields[i]
			Expect(want).To(HaveKey(f.Name))
			Expect(strings.Compare(last, f.Name)).To(Equal(-1))
			Expect(of.Field([]byte(f.Name))).To(BeIdenticalTo(f))
			Expect(f.Number).To(Equal(i))
			last = f.Name
		}
		Expect(of.Fields).To(HaveLen(len(want)))
		Expect(of.Field([]byte("twice"))).To(BeNil(), "two of one depth hide each other")
		Expect(of.Field([]byte("hidden")).Type.Writes).To(Equal(Bool), "the nearest counts")
		Expect(of.Field([]byte("Named"))).To(BeNil(), "case counts")
		Expect(Of(reflect.TypeFor[near]()).Field(nil)).To(BeNil())
	})

	It("is how to reach a member of an embedded struct", func() {
		of := Of(reflect.TypeFor[outer]())
		v := reflect.ValueOf(outer{near: near{Deep: "x"}})
		f := of.Field([]byte("deep"))
		Expect(f.Get(v).String()).To(Equal("x"))
		Expect(f.From(of.Parts(nil, v)).String()).To(Equal("x"))
		several := reflect.TypeFor[struct{ near }]()
		Expect(Of(several).Parts(nil, reflect.Zero(several))).To(HaveLen(2), "it is looked up once")
		behind := Of(reflect.TypeFor[struct{ *other }]())
		nothing := reflect.ValueOf(struct{ *other }{})
		f = behind.Field([]byte("twice"))
		Expect(f.Get(nothing).IsValid()).To(BeFalse())
		Expect(f.From(behind.Parts(nil, nothing)).IsValid()).To(BeFalse())
		Expect(f.IsOmitted(f.Get(nothing))).To(BeTrue())
		Expect(behind.Reads).To(Equal(Unsupported), "nothing can be put behind a pointer that is not exported")
	})

	It("is what a tag says beside the name", func() {
		of := Of(reflect.TypeFor[outer]())
		field := func(name string) *Field { return of.Field([]byte(name)) }
		Expect(field("empty").IsOmitted(reflect.ValueOf([]string{}))).To(BeTrue())
		Expect(field("empty").IsOmitted(reflect.ValueOf([]string{""}))).To(BeFalse())
		Expect(field("zero").IsOmitted(reflect.ValueOf(time.Time{}.In(time.FixedZone("", 1))))).To(BeTrue(), "by its method IsZero")
		Expect(field("named").IsOmitted(reflect.ValueOf(0))).To(BeFalse())
		Expect(field("quoted").Type.Elem.Quoted).To(BeTrue())
		Expect(field("flag").Type.Quoted).To(BeTrue())
		Expect(field("quoted").Type.Reads).To(Equal(Unsupported))
		Expect(field("items").MergeKey).To(Equal("name"))
		Expect(field("replaced").MergeKey).To(BeEmpty())
	})

	DescribeTable("is whether omitzero leaves a value out that has a method IsZero:", func(field string, value zeroes, omitted bool) {
		f := Of(reflect.TypeFor[zeroes]()).Field([]byte(field))
		Expect(f.IsOmitted(f.Get(reflect.ValueOf(value)))).To(Equal(omitted))
	},
		Entry("no pointer", "pointer", zeroes{}, true),
		Entry("a pointer to zero", "pointer", zeroes{Pointer: &time.Time{}}, true),
		Entry("another pointer", "pointer", zeroes{Pointer: new(time.Unix(1, 0))}, false),
		Entry("nothing in an interface", "any", zeroes{}, true),
		Entry("zero in an interface", "any", zeroes{Any: time.Time{}}, true),
		Entry("no pointer in an interface", "any", zeroes{Any: (*time.Time)(nil)}, true),
		Entry("a value in an interface", "any", zeroes{Any: time.Unix(1, 0)}, false),
		Entry("a pointer in an interface", "any", zeroes{Any: new(time.Unix(1, 0))}, false),
	)

	It("can hold itself", func() {
		of := Of(reflect.TypeFor[node]())
		Expect(of.Reads).To(Equal(Struct))
		Expect(of.Field([]byte("next")).Type.Elem).To(BeIdenticalTo(of))
		Expect(of.Field([]byte("below")).Type.Elem).To(BeIdenticalTo(of))
		Expect(Of(reflect.TypeFor[node]())).To(BeIdenticalTo(of))
	})

	DescribeTable("is its shape, written and read:", func(v any, writes, reads Shape) {
		of := Of(reflect.TypeOf(v))
		Expect(of.Writes).To(Equal(writes))
		Expect(of.Reads).To(Equal(reads))
	},
		Entry("bytes", []byte{}, Bytes, Bytes),
		Entry("a list", []string{}, List, List),
		Entry("a type with both methods", intstr.IntOrString{}, JSON, JSON),
		Entry("a time", metav1.Time{}, JSON, Time),
		Entry("a number as text", json.Number(""), Number, Unsupported),
		Entry("an array", [2]int{}, Array, Unsupported),
		Entry("a map by numbers", map[int]string{}, Map, Unsupported),
		Entry("a map by the largest numbers", map[int64]string{}, Map, Unsupported),
		Entry("a map by structs", map[near]string{}, Unsupported, Unsupported),
		Entry("a pointer to a pointer", new(*int), Pointer, Unsupported),
		Entry("a function", func() {}, Unsupported, Unsupported),
		Entry("a channel in a struct", struct{ C chan int }{}, Struct, Struct),
	)

	It("is another shape where a method needs an address that a value lacks", func() {
		of := Of(reflect.TypeFor[pointed]())
		v := reflect.New(of.Go).Elem()
		Expect(of.On(v)).To(Equal(Text))
		Expect(of.On(reflect.ValueOf(pointed("")))).To(Equal(String))
	})
})

type zeroes struct {
	Pointer *time.Time `json:"pointer,omitzero"`
	Any     isZeroer   `json:"any,omitzero"`
}

type pointed string

func (*pointed) MarshalText() ([]byte, error) { return nil, nil }
