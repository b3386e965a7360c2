package main

import (
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var _ = Describe("a unified diff", func() {
	DescribeTable("shows", func(before, after, want string) {
		var lines []string
		for _, e := range unified(edits(strings.Fields(before), strings.Fields(after))) {
			lines = append(lines, string(e.kind)+e.text)
		}
		Expect(strings.Join(lines, "|")).To(Equal(want))
	},
		Entry("nothing for equals", "a b c", "a b c", ""),
		Entry("nothing for nothing", "", "", ""),
		Entry("an addition", "a b", "a x b", "@@ -1,2 +1,3 @@| a|+x| b"),
		Entry("a removal", "a x b", "a b", "@@ -1,3 +1,2 @@| a|-x| b"),
		Entry("a change, the old line first", "a b c", "a x c", "@@ -1,3 +1,3 @@| a|-b|+x| c"),
		Entry("three lines of context", "1 2 3 4 5 6 7 8 9", "1 2 3 4 x 6 7 8 9", "@@ -2,7 +2,7 @@| 2| 3| 4|-5|+x| 6| 7| 8"),
		Entry("one hunk for changes whose contexts meet", "1 2 3 4 5 6 7 8", "x 2 3 4 5 6 7 y",
			"@@ -1,8 +1,8 @@|-1|+x| 2| 3| 4| 5| 6| 7|-8|+y"),
		Entry("two hunks for changes further apart", "1 2 3 4 5 6 7 8 9", "x 2 3 4 5 6 7 8 y",
			"@@ -1,4 +1,4 @@|-1|+x| 2| 3| 4|@@ -6,4 +6,4 @@| 6| 7| 8|-9|+y"),
		Entry("everything new", "", "a b", "@@ -1,0 +1,2 @@|+a|+b"),
	)

	It("leaves out the fields that differ between any two pods", func() {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Name: "hello", UID: "u", ResourceVersion: "7", Generation: 1, CreationTimestamp: metav1.Now(),
				ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m"}},
			},
			Spec:   corev1.PodSpec{NodeName: "node", Containers: []corev1.Container{{Name: "main"}}},
			Status: corev1.PodStatus{Phase: corev1.PodRunning},
		}
		Expect(podYAML(pod)).To(Equal("metadata:\n  name: hello\nspec:\n  containers:\n  - name: main\n    resources: {}"))
	})
})
