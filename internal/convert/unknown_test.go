package convert

// This file holds the specs of the members that a type knows.

import (
	"reflect"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"code.cloudfoundry.org/eirinix/internal/jsontype"
)

var _ = Describe("A type", func() {
	It("knows everything as a tree", func() {
		_, known := knownMember(nil, "x")
		Expect(known).To(BeTrue())
		Expect(knownItem(nil)).To(BeNil())
	})

	It("leads from members to items", func() {
		spec, known := knownMember(jsontype.Of(reflect.TypeFor[*corev1.Pod]()), "spec")
		Expect(known).To(BeTrue())
		containers, _ := knownMember(spec, "containers")
		_, known = knownMember(knownItem(containers), "image")
		Expect(known).To(BeTrue())
		_, known = knownMember(knownItem(containers), "picture")
		Expect(known).To(BeFalse())
	})
})
