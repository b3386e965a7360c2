package eirinixtest_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"code.cloudfoundry.org/eirinix"
	eirinixtest "code.cloudfoundry.org/eirinix/testing"

	. "code.cloudfoundry.org/eirinix/internal/spectest"
)

// goldenFolder is a folder with golden files.
type goldenFolder string

func (f goldenFolder) write(name, text string) {
	GinkgoHelper()
	Expect(os.WriteFile(filepath.Join(string(f), name), []byte(text), 0o600)).To(Succeed())
}

func (f goldenFolder) read(name string) string {
	GinkgoHelper()
	text := Must(os.ReadFile(filepath.Join(string(f), name)))
	return string(text)
}

// expectUpdates sees that results are written on demand alone, and compared afterwards.
func (f goldenFolder) expectUpdates(compare func() string, name, results string) {
	GinkgoHelper()
	Expect(compare()).To(And(ContainSubstring(name+" does not exist"), ContainSubstring("EIRINIX_UPDATE_GOLDEN=1")))
	Expect(filepath.Join(string(f), name)).NotTo(BeAnExistingFile())
	GinkgoT().Setenv(eirinixtest.UpdateGoldenVariable, "1")
	Expect(compare()).To(BeEmpty())
	Expect(f.read(name)).To(Equal(results))
	GinkgoT().Setenv(eirinixtest.UpdateGoldenVariable, "")
	Expect(compare()).To(BeEmpty())
}

var _ = Describe("Golden files", func() {
	var folder goldenFolder
	BeforeEach(func() { folder = goldenFolder(GinkgoT().TempDir()) })
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
			}).Golden(string(folder))
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
		folder.write("in.yaml", documents)
		folder.expectUpdates(golden, "in.golden.yaml", results)
	})

	It("show the changes", func() {
		folder.write("in.yaml", documents)
		folder.write("in.golden.yaml", "apiVersion: v1\nkind: Pod\n")
		folder.write("second.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\n")
		folder.write("second.golden.yaml", "# denied with 403 Forbidden: none of these\r\n")
		failure := golden()
		Expect(failure).To(And(ContainSubstring("in.yaml gives another result"), ContainSubstring(`+    seen: "yes"`), ContainSubstring("git diff")))
		Expect(failure).To(And(ContainSubstring("second.yaml gives another result"), ContainSubstring("-# denied with 403 Forbidden: none of these"), ContainSubstring("+#   of these")))
		Expect(folder.read("in.golden.yaml")).To(HavePrefix("apiVersion"), "not written unless asked for")
	})

	DescribeTable("refuse", func(name, text, message string) {
		folder.write(name, text)
		Expect(golden()).To(ContainSubstring(message))
	},
		Entry("a folder without input", "notes.txt", "", "holds no *.yaml to send"),
		Entry("a result without input", "gone.golden.yaml", "", "has no gone.yaml beside it"),
		Entry("a file without document", "empty.yaml", "# nothing\n---\n", "it holds no document to send"),
		Entry("a directive that is none", "odd.yaml", "# eirinixtest: {operator: DELETE}\napiVersion: v1\n", `unknown field "operator"`),
		Entry("a document that is no object", "odd.yaml", "just: text\n", "document 1: the object has no apiVersion"),
	)
})

var _ = Describe("Golden files of conversions", func() {
	var folder goldenFolder
	BeforeEach(func() { folder = goldenFolder(GinkgoT().TempDir()) })
	golden := func(part any) string {
		GinkgoHelper()
		return failureOf(func(t *fakeTest) { eirinixtest.NewHarness(t, part).GoldenConversions(string(folder)) })
	}
	const documents = `apiVersion: example.org/v1
kind: Disk
metadata: {name: old}
gibibytes: 3
history: [made]
---
# only a remark
---
apiVersion: example.org/v2
kind: Disk
metadata: {name: new}
spec: {gibibytes: 3, class: fast, unknown: kept}
`
	const results = `apiVersion: example.org/v2
kind: Disk
metadata:
  annotations:
    conversion.eirinix.cloudfoundry.org/012531806968d7df30bc5075372c4ac7: b59dd45e.hE7a2Y_LZFOm1ohfVq1sDA.{"version":"v1","path":[".history","[#8fDU7e-sp0KHYBnB"],"value":"made","above":1}
  name: old
spec:
  gibibytes: 3
---
apiVersion: example.org/v1
class: fast
gibibytes: 3
kind: Disk
metadata:
  annotations:
    conversion.eirinix.cloudfoundry.org/ea26830aab592ae0c0ed75875026e1ad: b59dd45e.Q6akm-OG7ej1RretWwJ7Qw.{"version":"v2","path":[".spec",".unknown"],"value":"kept"}
  name: new
`
	broken := disks{down: func(from *Disk, to *OldDisk) error {
		if to.Class = nil; from.Name == "new" {
			return errors.New("too new")
		}
		return nil
	}}

	It("are written on demand, and compared afterwards", func() {
		folder.write("disks.yaml", documents)
		folder.expectUpdates(func() string { return golden(disks{}.conversion()) }, "disks.golden.yaml", results)
	})

	It("show the changes", func() {
		folder.write("disks.yaml", documents)
		folder.write("disks.golden.yaml", results)
		Expect(golden(broken.conversion())).To(And(ContainSubstring("disks.yaml gives another result"), ContainSubstring("-class: fast"),
			ContainSubstring("+# failed in example.org/v1: object 0 (Disk new) from v2 to v1: the conversion from v2 to v1 failed: too new"), ContainSubstring("git diff")))
	})

	DescribeTable("refuse", func(text, message string) {
		folder.write("disks.yaml", text)
		Expect(golden(disks{}.conversion())).To(ContainSubstring(message))
	},
		Entry("an object of no version", "{apiVersion: example.org/v3, kind: Disk}", "document 1: no Conversion has example.org/v3, Kind=Disk; the program converts disks.example.org"),
		Entry("an object of another kind", "{apiVersion: example.org/v2, kind: Other}", "document 1: no Conversion has example.org/v2, Kind=Other"),
	)

	It("refuse a Harness without conversions", func() {
		folder.write("disks.yaml", documents)
		Expect(golden(labeller("seen", "yes"))).To(ContainSubstring("there is no Conversion; give one to NewHarness"))
	})
})
