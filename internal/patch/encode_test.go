package patch_test

// This file specifies how operations, and the members of whole objects, are written.

import (
	"encoding/json"
	"math"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"gomodules.xyz/jsonpatch/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"code.cloudfoundry.org/eirinix/internal/patch"
)

// ownText marshals itself.
type ownText string

func (o ownText) MarshalJSON() ([]byte, error) { return []byte(o), nil }

var _ = Describe("AppendMembers", func() {
	It("writes pods as encoding/json does", func() {
		r := newPotter(uint64(GinkgoRandomSeed()))
		for range 50 {
			p := r.pod()
			text, err := patch.AppendMembers(nil, p)
			Expect(err).NotTo(HaveOccurred())
			want, err := json.Marshal(p)
			Expect(err).NotTo(HaveOccurred())
			Expect("{" + strings.TrimPrefix(string(text), ",") + "}").To(MatchJSON(want))
		}
	})

	DescribeTable("leaves members out, and puts a comma in front of the others",
		func(obj any, want string) {
			text, err := patch.AppendMembers([]byte("#"), obj, "metadata", "status", "é")
			Expect(err).NotTo(HaveOccurred())
			Expect(string(text)).To(Equal("#" + want))
		},
		Entry("of a struct", &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{Kind: "ConfigMap"}, Data: map[string]string{"status": "<"}}, `,"data":{"status":"\u003c"},"kind":"ConfigMap"`),
		Entry("of a tree", &map[string]any{"metadata": 1, "b": []any{true}, "a": "x"}, `,"a":"x","b":[true]`),
		Entry("of an empty tree", map[string]any{}, ``),
		Entry("of a type that marshals itself", ownText(`{ "a" : 1 , "\u00e9" : {} , "status":2, "b":3 }`), `,"a":1,"b":3`),
	)

	DescribeTable("fails",
		func(obj any) {
			_, err := patch.AppendMembers(nil, obj)
			Expect(err).To(HaveOccurred())
		},
		Entry("for nil", nil),
		Entry("for a nil pointer", (*corev1.Pod)(nil)),
		Entry("for a nil map", map[string]any(nil)),
		Entry("for a list", []int{1}),
		Entry("for a number that JSON cannot hold", &struct{ F float64 }{math.NaN()}),
		Entry("for a type that writes no JSON", ownText(`{`)),
	)
})

var _ = Describe("AppendJSON", func() {
	DescribeTable("writes the same as json.Marshal, also for operations that are not ours",
		func(op jsonpatch.Operation) {
			want, err := json.Marshal([]jsonpatch.Operation{op, op})
			Expect(err).NotTo(HaveOccurred())
			Expect(string(patch.AppendJSON([]byte("before"), []jsonpatch.Operation{op, op}))).To(Equal("before" + string(want)))
		},
		Entry("remove", jsonpatch.NewOperation("remove", `/a~1"<é`, nil)),
		Entry("add nothing", jsonpatch.NewOperation("add", "/a", nil)),
		Entry("replace by nothing", jsonpatch.NewOperation("replace", "/a", nil)),
		Entry("text", jsonpatch.NewOperation("add", "/a", "<\u2028\x00>")),
		Entry("JSON", jsonpatch.NewOperation("add", "/a", json.RawMessage("{\"<\":\"&\u2029\u2027\"}"))),
		Entry("no JSON", jsonpatch.NewOperation("add", "/a", json.RawMessage(nil))),
		Entry("a tree", jsonpatch.NewOperation("test", "/a", map[string]any{"b": []int{1}, "a": 1.5})),
	)
	It("writes an empty patch", func() {
		Expect(string(patch.AppendJSON(nil, nil))).To(Equal(`[]`))
	})
	It("leaves a patch malformed that has a value which cannot be written", func() {
		Expect(json.Valid(patch.AppendJSON(nil, []jsonpatch.Operation{jsonpatch.NewOperation("add", "/a", make(chan int))}))).To(BeFalse())
	})
})
