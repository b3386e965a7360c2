package patch_test

// This file holds the specs of writing the members of whole objects.

import (
	"encoding/json"
	"math"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
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
		for range 200 {
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
