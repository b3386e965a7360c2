package patch_test

// This file holds the specs of AppendExact.

import (
	"reflect"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	decoding "code.cloudfoundry.org/eirinix/internal/decode"
	"code.cloudfoundry.org/eirinix/internal/patch"
)

// parted holds its parts behind pointers, lists and maps.
type parted struct {
	Text   string                 `json:"text,omitempty"`
	List   []string               `json:"list,omitempty"`
	Null   []string               `json:"null"`
	Map    map[string]string      `json:"map,omitempty"`
	Other  map[string]string      `json:"other,omitempty"`
	Bytes  []byte                 `json:"bytes,omitempty"`
	Number *int                   `json:"number,omitempty"`
	Far    **int                  `json:"far,omitempty"`
	Lists  *[]string              `json:"lists,omitempty"`
	Any    any                    `json:"any,omitempty"`
	Time   metav1.Time            `json:"time,omitempty"` //nolint:modernize // as API types do
	Zero   intstr.IntOrString     `json:"zero,omitzero"`
	Parts  map[string]partedInner `json:"parts,omitempty"`
	Inner  *partedInner           `json:"inner,omitempty"`
	Again  *partedInner           `json:"again,omitempty"`
	Items  []partedInner          `json:"items,omitempty"`
}

type partedInner struct {
	Name string `json:"name,omitempty"`
}

// secretive has a field that JSON leaves out.
type secretive struct {
	Name   string `json:"name,omitempty"`
	Hidden string `json:"-"`
}

type unexported struct {
	Name   string `json:"name,omitempty"`
	hidden string
}

type around struct {
	*partedInner `json:",inline"`
}

// over has a field that takes the place of an embedded one, and double two that take that of each other.
type over struct {
	named `json:",inline"`
	Name  string
}

type named struct{ Name string }

type double struct {
	named  `json:",inline"`
	called `json:",inline"`
}

type called struct{ Name string }

// within embeds a struct all of whose fields are members.
type within struct {
	partedInner `json:",inline"`
	Other       string `json:"other"`
}

var _ = Describe("AppendExact", func() {
	exact := func(o any) bool {
		GinkgoHelper()
		text, exact, err := patch.AppendExact(nil, o, "metadata")
		Expect(err).NotTo(HaveOccurred())
		want, err := patch.AppendMembers(nil, o, "metadata")
		Expect(err).NotTo(HaveOccurred())
		Expect(string(text)).To(Equal(string(want)))
		return exact
	}
	one, words, labels, inner := 1, []string{"a", "b"}, map[string]string{"a": "b"}, &partedInner{Name: "a"}
	var none *int
	var noList []string

	DescribeTable("recognizes an object that its JSON decodes to",
		func(o any) { Expect(exact(o)).To(BeTrue()) },
		Entry("that is empty", &parted{}),
		Entry("with all that JSON has", &parted{
			Text: "é<", List: words, Map: labels, Bytes: []byte("b"), Number: &one, Time: metav1.Unix(1700000000, 0),
			Zero: intstr.FromInt32(1), Parts: map[string]partedInner{"a": {"b"}}, Inner: inner, Any: map[string]any{"a": []any{1.5, int64(1), nil, true, "s"}},
		}),
		Entry("with empty lists behind a pointer", &parted{Lists: &[]string{}}),
		Entry("with an embedded struct", &within{partedInner{"a"}, "b"}),
		Entry("with the same words twice", &parted{List: words[:1:1], Null: words[1:]}),
		Entry("that is a tree", &map[string]any{"a": map[string]any{"b": []any{"c", int64(-1), -0.5}}}),
		Entry("that is a pod", &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{"cpu": resource.MustParse("500m")}},
			Ports:     []corev1.ContainerPort{{ContainerPort: 1}}, LivenessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Port: intstr.FromString("p")}}},
		}}}}),
	)

	DescribeTable("does not recognize one that its JSON can differ from",
		func(o any) { Expect(exact(o)).To(BeFalse()) },
		Entry("with a field that is no member", &secretive{}),
		Entry("with an unexported field", &unexported{hidden: "x"}),
		Entry("with such a field further in", &struct{ Inner *secretive }{&secretive{}}),
		Entry("with an embedded pointer", &around{}),
		Entry("with a field in the place of an embedded one", &over{}),
		Entry("with two embedded fields of one name", &double{}),
		Entry("with an empty list that is left out", &parted{List: []string{}}),
		Entry("with an empty map that is left out", &parted{Map: map[string]string{}}),
		Entry("with no bytes that are left out", &parted{Bytes: []byte{}}),
		Entry("with a nil pointer behind a pointer", &parted{Far: &none}),
		Entry("with a nil list behind a pointer", &parted{Lists: &noList}),
		Entry("with a broken character", &parted{Text: "a\xff"}),
		Entry("with a broken character in a name", &parted{Map: map[string]string{"a\xff": ""}}),
		Entry("with a part of a second", &parted{Time: metav1.NewTime(time.Unix(1, 1))}),
		Entry("with a time elsewhere", &parted{Time: metav1.NewTime(time.Unix(1, 0).In(time.FixedZone("x", 60)))}),
		Entry("with a number that comes back as another type", &parted{Any: 1.0}),
		Entry("with a number of a type that does not come back", &parted{Any: 1}),
		Entry("with a struct in an interface", &parted{Any: partedInner{}}),
		Entry("with a nil list in an interface", &parted{Any: []any(nil)}),
		Entry("with a value that hides another", &parted{Zero: intstr.IntOrString{IntVal: 1, StrVal: "x"}}),
		Entry("with a quoted number", &struct {
			N int `json:"n,string"`
		}{1}),
		Entry("with an array", &struct{ A [1]int }{}),
	)

	It("never recognizes a random pod that its JSON does not decode to", func() {
		r := newPotter(uint64(GinkgoRandomSeed()))
		recognized := 0
		for range 300 {
			p := r.pod()
			if !exact(p) {
				continue
			}
			recognized++
			text, err := patch.AppendMembers([]byte(`{"kind":""`), p, "kind", "metadata")
			Expect(err).NotTo(HaveOccurred())
			again := &corev1.Pod{}
			Expect(decoding.Into(append(text, '}'), again)).To(Succeed())
			again.TypeMeta, again.ObjectMeta = p.TypeMeta, p.ObjectMeta
			Expect(reflect.DeepEqual(again, p)).To(BeTrue(), "%s", text)
		}
		Expect(recognized).To(BeNumerically(">", 0))
	})
})
