package decode

// This file holds the specs of texts whose members a type knows.

import (
	"encoding/json"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
)

var _ = Describe("Whole", func() {
	DescribeTable("finds members that a type does not know",
		func(raw string, all bool) {
			got, err := Whole([]byte(raw), &corev1.Pod{})
			Expect(got).To(Equal(all))
			Expect(err == nil).To(Equal(json.Valid([]byte(raw))))
		},
		Entry("nothing", `{}`, true),
		Entry("known members", `{"metadata":{"labels":{"any":"x"}},"spec":{"containers":[{"name":"a","resources":{"limits":{"x":"1"}}}]}}`, true),
		Entry("an embedded member", `{"spec":{"volumes":[{"name":"a","emptyDir":{}}]}}`, true),
		Entry("a member of the object", `{"x":1}`, false),
		Entry("a member of an item", `{"spec":{"containers":[{"name":"a"},{"x":1}]}}`, false),
		Entry("a member in other letters", `{"Spec":{}}`, false),
		Entry("a member below one that reads its own JSON", `{"metadata":{"managedFields":[{"fieldsV1":{"x":{"y":1}}}]}}`, true),
		Entry("a member twice", `{"spec":{"nodeName":"a","nodeName":"b"}}`, false),
		Entry("text that is malformed", `{"spec":`, false),
	)

	It("knows every member of a tree", func() {
		var tree map[string]any
		all, err := Whole([]byte(`{"x":[1,{"y":2}]}`), &tree)
		Expect(all).To(BeTrue())
		Expect(err).NotTo(HaveOccurred())
		Expect(tree).To(HaveKeyWithValue("x", HaveLen(2)))
	})
})
