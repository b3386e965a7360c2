package decode

// Specs of the errors that name the place of a value. That there is one exactly where sigs.k8s.io/json fails is compared
// in disagreement.

import (
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
)

var _ = DescribeTable("A value that does not fit is named with its path", func(raw string, obj any, want string) {
	misfit := Misfit([]byte(raw), obj)
	if want == "" {
		Expect(misfit).NotTo(HaveOccurred())
		return
	}
	Expect(misfit).To(MatchError(HavePrefix(want)))
	Expect(Into([]byte(raw), obj)).NotTo(Succeed())
},
	Entry("in a map in a list", `{"kind":"Pod","x":[{}],"spec":{"containers":[{"name":"a"},{"name":"b","resources":{"limits":{"memory":"1Gi","cpu":"1x"}}}]}}`, &corev1.Pod{},
		"spec.containers[1].resources.limits.cpu cannot be read: quantities must match the regular expression"),
	Entry("behind a pointer", ` { "spec" : { "replicas" : null, "terminationGracePeriodSeconds" : "30" } } `, &corev1.Pod{},
		"spec.terminationGracePeriodSeconds cannot be read: json: cannot unmarshal string into Go value of type int64"),
	Entry("of an embedded type", `{"metadata":{"creationTimestamp":"yesterday"}}`, &corev1.Pod{}, `metadata.creationTimestamp cannot be read: parsing time "yesterday"`),
	Entry("in place of a list", `{"spec":{"containers":{}}}`, &corev1.Pod{}, "spec.containers cannot be read: json: cannot unmarshal object into Go value of type []v1.Container"),
	Entry("in place of an object", `{"spec":[]}`, &corev1.Pod{}, "spec cannot be read: json: cannot unmarshal array into Go value of type v1.PodSpec"),
	Entry("in a list in a list", `{"a":[["x"],["y",5]]}`, &map[string][][]string{}, "a[1][1] cannot be read: json: cannot unmarshal number"),
	Entry("as the first of several", `{"metadata":{"name":1},"spec":{"nodeName":2}}`, &corev1.Pod{}, "metadata.name cannot be read"),
	Entry("as the whole", `"text"`, &corev1.Pod{}, "the object cannot be read: json: cannot unmarshal string into Go value of type v1.Pod"),
	Entry("in a tree", `{"a":{"b":1e999}}`, &map[string]any{}, "a cannot be read: json: cannot unmarshal number 1e999"),
	Entry("unless it has no place", `{"spec":{"none":"1x","containers":null}}`, &corev1.Pod{}, ""),
	Entry("unless the text nests too deep", `{"x":`+strings.Repeat("[", deepestOfAll+1)+strings.Repeat("]", deepestOfAll+1)+`,"spec":5}`, &corev1.Pod{}, ""),
)
