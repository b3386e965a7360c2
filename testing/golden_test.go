package eirinixtest_test

import (
	"context"
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"code.cloudfoundry.org/eirinix"
	eirinixtest "code.cloudfoundry.org/eirinix/testing"
)

var _ = Describe("Golden files", func() {
	var folder string
	BeforeEach(func() { folder = GinkgoT().TempDir() })
	write := func(name, text string) {
		Expect(os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600)).To(Succeed())
	}
	read := func(name string) string {
		GinkgoHelper()
		text, err := os.ReadFile(filepath.Join(folder, name))
		Expect(err).NotTo(HaveOccurred())
		return string(text)
	}
	golden := func() string {
		return failureOf(func(t *fakeTest) {
			eirinixtest.NewHarness(t, labeller("seen", "yes"), eirinix.Validation[*corev1.ConfigMap]{
				ID:     "keeper",
				Create: func(context.Context, *eirinix.Call, *corev1.ConfigMap) error { return eirinix.Deny("none\nof these") },
				Update: func(_ context.Context, c *eirinix.Call, oldObj, newObj *corev1.ConfigMap) error {
					c.Warn("%s: from %s to %s", c.UserInfo.Username, oldObj.Data["a"], newObj.Data["a"])
					c.Annotate("by", c.UserInfo.Username)
					return nil
				},
				Delete: func(_ context.Context, c *eirinix.Call, m *corev1.ConfigMap) error {
					if m.Name == "keep" && *c.DryRun {
						return eirinix.Deny("%s/%s stays", m.Namespace, m.Name)
					}
					return nil
				},
			}).Golden(folder)
		})
	}
	const documents = `# a pod
apiVersion: v1
kind: Pod
metadata: {name: a}
spec: {containers: [{name: c, image: i, unknown: kept}]}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: refused}
---
# eirinixtest: {old: true}
apiVersion: v1
kind: ConfigMap
metadata: {name: b}
data: {a: one}
---
# eirinixtest: {user: jane, groups: [developers]}
apiVersion: v1
kind: ConfigMap
metadata: {name: b}
data: {a: two}
---
# only a remark
---
# eirinixtest: {operation: DELETE, dryRun: true, namespace: apps}
apiVersion: v1
kind: ConfigMap
metadata: {name: keep}
---
# eirinixtest: {operation: DELETE}
apiVersion: v1
kind: ConfigMap
metadata: {name: keep}
`
	const results = `apiVersion: v1
kind: Pod
metadata:
  labels:
    seen: "yes"
  name: a
  namespace: default
spec:
  containers:
  - image: i
    name: c
    unknown: kept
---
# denied with 403 Forbidden: none
#   of these
---
# warning: jane: from one to two
# audit: configmaps-dceb7d31.eirini-x.eirinix.cloudfoundry.org/by=jane
apiVersion: v1
data:
  a: two
kind: ConfigMap
metadata:
  name: b
  namespace: default
---
# denied with 403 Forbidden: apps/keep stays
---
# allowed
`

	It("are written on demand, and compared afterwards", func() {
		write("in.yaml", documents)
		Expect(golden()).To(And(ContainSubstring("in.golden.yaml does not exist"), ContainSubstring("EIRINIX_UPDATE_GOLDEN=1"), ContainSubstring(`seen: "yes"`)))
		Expect(filepath.Join(folder, "in.golden.yaml")).NotTo(BeAnExistingFile())

		GinkgoT().Setenv(eirinixtest.UpdateGoldenVariable, "1")
		Expect(golden()).To(BeEmpty())
		Expect(read("in.golden.yaml")).To(Equal(results))

		GinkgoT().Setenv(eirinixtest.UpdateGoldenVariable, "")
		Expect(golden()).To(BeEmpty())
	})

	It("show the changes", func() {
		write("in.yaml", documents)
		write("in.golden.yaml", "apiVersion: v1\nkind: Pod\n")
		write("second.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\n")
		write("second.golden.yaml", "# denied with 403 Forbidden: none of these\r\n")
		failure := golden()
		Expect(failure).To(And(ContainSubstring("in.yaml gives another result"), ContainSubstring(`+    seen: "yes"`), ContainSubstring("git diff")))
		Expect(failure).To(And(ContainSubstring("second.yaml gives another result"), ContainSubstring("-# denied with 403 Forbidden: none of these"), ContainSubstring("+#   of these")))
		Expect(read("in.golden.yaml")).To(HavePrefix("apiVersion"), "not written unless asked for")
	})

	DescribeTable("refuse", func(name, text, message string) {
		write(name, text)
		Expect(golden()).To(ContainSubstring(message))
	},
		Entry("a folder without input", "notes.txt", "", "holds no *.yaml to send"),
		Entry("a result without input", "gone.golden.yaml", "", "has no gone.yaml beside it"),
		Entry("a file without document", "empty.yaml", "# nothing\n---\n", "it holds no document to send"),
		Entry("a directive that is none", "odd.yaml", "# eirinixtest: {operator: DELETE}\napiVersion: v1\n", `unknown field "operator"`),
		Entry("a document that is no object", "odd.yaml", "just: text\n", "document 1: the object has no apiVersion"),
	)
})
