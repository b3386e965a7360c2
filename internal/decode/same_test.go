package decode

// This file holds the specs of the comparison of a text with a value.

import (
	"math/rand/v2"
	"reflect"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// sameOuter and sameInner have members of many kinds.
type sameInner struct {
	Name string `json:"name,omitempty"`
	N    int64  `json:"n,omitempty"`
}

type sameOuter struct {
	Name    string               `json:"name"`
	Yes     bool                 `json:"yes"`
	Float   float64              `json:"float"`
	Bytes   []byte               `json:"bytes"`
	Pointer *sameInner           `json:"pointer"`
	List    []sameInner          `json:"list"`
	Texts   map[string]string    `json:"texts"`
	Map     map[string]sameInner `json:"map"`
	Any     any                  `json:"any"`
	Time    metav1.Time          `json:"time"`
}

// isSound fails if Same calls a text and a value the same that are not.
func isSound(raw []byte, obj any, unknown bool, about ...any) {
	GinkgoHelper()
	if !Same(raw, obj, unknown) {
		return
	}
	other := reflect.New(reflect.TypeOf(obj).Elem()).Interface()
	Expect(Into(raw, other)).To(Succeed(), about...)
	if !equality.Semantic.DeepEqual(obj, other) {
		Fail("these are not the same: " + clip(raw))
	}
}

var _ = Describe("Same", func() {
	DescribeTable("compares a text with a value",
		func(raw string, o sameOuter, unknown, same bool) {
			Expect(Same([]byte(raw), &o, unknown)).To(Equal(same))
			if same {
				isSound([]byte(raw), &o, unknown)
			}
		},
		Entry("nothing", `{}`, sameOuter{}, false, true),
		Entry("a string", `{"name":"a"}`, sameOuter{Name: "a"}, false, true),
		Entry("an escaped string", `{"n\u0061me":"\u0061"}`, sameOuter{Name: "a"}, false, true),
		Entry("another string", `{"name":"a"}`, sameOuter{Name: "b"}, false, false),
		Entry("a string that the text lacks", `{}`, sameOuter{Name: "b"}, false, false),
		Entry("null", `{"name":null,"pointer":null}`, sameOuter{}, false, true),
		Entry("null and a value", `{"pointer":null}`, sameOuter{Pointer: &sameInner{}}, false, false),
		Entry("a pointer", `{"pointer":{"n":7}}`, sameOuter{Pointer: &sameInner{N: 7}}, false, true),
		Entry("a pointer to nothing", `{"pointer":{}}`, sameOuter{}, false, false),
		Entry("a pointer that the text lacks", `{}`, sameOuter{Pointer: &sameInner{}}, false, false),
		Entry("a number in another form", `{"pointer":{"n":7.0}}`, sameOuter{Pointer: &sameInner{N: 7}}, false, false),
		Entry("true", `{"yes":true}`, sameOuter{Yes: true}, false, true),
		Entry("false instead", `{"yes":false}`, sameOuter{Yes: true}, false, false),
		Entry("a string instead of false", `{"yes":"f"}`, sameOuter{}, false, false),
		Entry("a float in another form", `{"float":1e3}`, sameOuter{Float: 1000}, false, true),
		Entry("bytes", `{"bytes":"aGVsbG8="}`, sameOuter{Bytes: []byte("hello")}, false, true),
		Entry("other bytes", `{"bytes":"aGVsbG8="}`, sameOuter{Bytes: []byte("hallo")}, false, false),
		Entry("a list", `{"list":[{"name":"a"},{}]}`, sameOuter{List: []sameInner{{Name: "a"}, {}}}, false, true),
		Entry("a list that is longer", `{"list":[{},{}]}`, sameOuter{List: []sameInner{{}}}, false, false),
		Entry("a list that is shorter", `{"list":[{}]}`, sameOuter{List: []sameInner{{}, {}}}, false, false),
		Entry("an empty list that the text lacks", `{}`, sameOuter{List: []sameInner{}}, false, true),
		Entry("an empty list that the value lacks", `{"list":[]}`, sameOuter{}, false, false),
		Entry("a map", `{"texts":{"a":"b"},"map":{"c":{"n":1}}}`, sameOuter{Texts: map[string]string{"a": "b"}, Map: map[string]sameInner{"c": {N: 1}}}, false, true),
		Entry("another key", `{"texts":{"a":"b"}}`, sameOuter{Texts: map[string]string{"c": "b"}}, false, false),
		Entry("one key twice", `{"texts":{"a":"b","a":"b"}}`, sameOuter{Texts: map[string]string{"a": "b", "c": "d"}}, false, false),
		Entry("one key of a map of structs twice", `{"map":{"a":{},"a":{}}}`, sameOuter{Map: map[string]sameInner{"a": {}, "b": {}}}, false, false),
		Entry("one key twice, and nothing else", `{"texts":{"a":"b","a":"b"}}`, sameOuter{Texts: map[string]string{"a": "b"}}, false, false),
		Entry("a member twice", `{"name":"a","name":"a"}`, sameOuter{Name: "a"}, false, false),
		Entry("a tree", `{"any":{"a":[1,2.5,"x",true,{}]}}`, sameOuter{Any: map[string]any{"a": []any{int64(1), 2.5, "x", true, map[string]any{}}}}, false, true),
		Entry("a tree with another number", `{"any":[1]}`, sameOuter{Any: []any{float64(1)}}, false, false),
		Entry("a tree with an int", `{"any":[1]}`, sameOuter{Any: []any{1}}, false, false),
		Entry("a time", `{"time":"2026-01-31T10:00:00Z"}`, sameOuter{Time: metav1.Unix(1769853600, 0)}, false, true),
		Entry("another time", `{"time":"2026-01-31T10:00:01Z"}`, sameOuter{Time: metav1.Unix(1769853600, 0)}, false, false),
		Entry("an unknown member", `{"x":1}`, sameOuter{}, false, false),
		Entry("an unknown member that does not count", `{"x":{"y":[1]},"pointer":{"z":1}}`, sameOuter{Pointer: &sameInner{}}, true, true),
		Entry("an unknown member that is malformed", `{"x":[1}`, sameOuter{}, true, false),
		Entry("more text", `{} x`, sameOuter{}, false, false),
		Entry("a list instead", `[]`, sameOuter{}, false, false),
	)

	It("leaves members of the whole object out", func() {
		o := sameOuter{Name: "a", Pointer: &sameInner{N: 1}}
		Expect(Same([]byte(`{"name":"b","pointer":{"n":1}}`), &o, false, "name")).To(BeTrue())
		Expect(Same([]byte(`{"pointer":{"n":1}}`), &o, false, "name")).To(BeTrue())
		Expect(Same([]byte(`{"pointer":{"n":2}}`), &o, false, "name")).To(BeFalse())
		tree := map[string]any{"a": "b", "kind": "c"}
		Expect(Same([]byte(`{"a":"b","kind":"d"}`), &tree, false, "kind")).To(BeTrue())
		Expect(Same([]byte(`{"kind":"d"}`), &tree, false, "kind")).To(BeFalse())
		Expect(Same([]byte(`{"a":"b"}`), &tree, false, "kind", "absent")).To(BeTrue())
	})

	It("compares only what a pointer leads to", func() {
		Expect(Same([]byte(`{}`), sameOuter{}, true)).To(BeFalse())
		Expect(Same([]byte(`{}`), (*sameOuter)(nil), true)).To(BeFalse())
		Expect(Same([]byte(`{}`), new([]string), true)).To(BeFalse())
		Expect(Same([]byte(`{}`), new(map[string]any), true)).To(BeFalse())
	})

	It("recognizes the random object that a text was decoded into", func() {
		r := rand.New(rand.NewPCG(uint64(GinkgoRandomSeed()), 5))
		recognized, all := 0, 0
		for range 20 {
			for _, t := range apiTypes {
				raw := randomText(r, t)
				obj := reflect.New(t).Interface()
				Expect(Into(raw, obj)).To(Succeed())
				if all++; Same(raw, obj, false) {
					recognized++
				}
				isSound(raw, obj, false)
			}
		}
		Expect(recognized).To(BeNumerically(">", all/3)) // random objects hold empty lists and odd quantities
	})

	It("never calls a random object the same as another text", func() {
		seed := uint64(GinkgoRandomSeed())
		r := rand.New(rand.NewPCG(seed, 6))
		for range 10 {
			for _, t := range apiTypes {
				raw := randomText(r, t)
				obj := reflect.New(t).Interface()
				Expect(Into(raw, obj)).To(Succeed())
				for range 20 {
					isSound(spoil(r, raw), obj, r.IntN(2) == 0, "seed %d", seed)
				}
				if len(raw) > 2000 {
					continue
				}
				for _, s := range spans(raw) {
					other := append(append(append([]byte(nil), raw[:s[0]]...), values[r.IntN(len(values))]...), raw[s[1]:]...)
					isSound(other, obj, false, "seed %d", seed)
				}
			}
		}
	})
})

var _ = Describe("Known", func() {
	pod := KnownTo(&corev1.Pod{})

	DescribeTable("finds members that a type does not know",
		func(raw string, all bool) { Expect(pod.All([]byte(raw))).To(Equal(all)) },
		Entry("nothing", `{}`, true),
		Entry("known members", `{"metadata":{"labels":{"any":"x"}},"spec":{"containers":[{"name":"a","resources":{"limits":{"x":"1"}}}]}}`, true),
		Entry("an embedded member", `{"spec":{"volumes":[{"name":"a","emptyDir":{}}]}}`, true),
		Entry("a member of the object", `{"x":1}`, false),
		Entry("a member of an item", `{"spec":{"containers":[{"name":"a"},{"x":1}]}}`, false),
		Entry("a member in other letters", `{"Spec":{}}`, false),
		Entry("a member below one that reads its own JSON", `{"metadata":{"managedFields":[{"fieldsV1":{"x":{"y":1}}}]}}`, true),
		Entry("text that is malformed", `{"spec":`, false),
	)

	It("leaves members out", func() {
		Expect(pod.All([]byte(`{"x":{"y":1}}`), "x")).To(BeTrue())
		Expect(pod.All([]byte(`{"spec":{"x":1}}`), "x")).To(BeFalse())
	})

	It("knows everything as a tree", func() {
		Expect(Known{}.All([]byte(`{"x":[1,{"y":2}]}`))).To(BeTrue())
		_, known := Known{}.Member("x")
		Expect(known).To(BeTrue())
		Expect(Known{}.Item()).To(Equal(Known{}))
	})

	It("leads from members to items", func() {
		spec, known := pod.Member("spec")
		Expect(known).To(BeTrue())
		containers, _ := spec.Member("containers")
		_, known = containers.Item().Member("image")
		Expect(known).To(BeTrue())
		_, known = containers.Item().Member("picture")
		Expect(known).To(BeFalse())
	})
})
