package decode

// This file holds the specs of the members that a type knows.

import (
	"reflect"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
)

var _ = Describe("Known", func() {
	pod := KnownTo(reflect.TypeFor[*corev1.Pod]())

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
