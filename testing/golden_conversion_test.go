package eirinixtest_test

import (
	"errors"
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	eirinixtest "code.cloudfoundry.org/eirinix/testing"
)

var _ = Describe("Golden files of conversions", func() {
	var folder string
	BeforeEach(func() { folder = GinkgoT().TempDir() })
	write := func(name, text string) {
		GinkgoHelper()
		Expect(os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600)).To(Succeed())
	}
	golden := func(d disks) string {
		GinkgoHelper()
		return failureOf(func(t *fakeTest) { eirinixtest.NewHarness(t, d.conversion()).GoldenConversions(folder) })
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
		write("disks.yaml", documents)
		Expect(golden(disks{})).To(And(ContainSubstring("GoldenConversions: "), ContainSubstring("disks.golden.yaml does not exist"), ContainSubstring("EIRINIX_UPDATE_GOLDEN=1")))

		GinkgoT().Setenv(eirinixtest.UpdateGoldenVariable, "1")
		Expect(golden(disks{})).To(BeEmpty())
		text, err := os.ReadFile(filepath.Join(folder, "disks.golden.yaml"))
		Expect(err).NotTo(HaveOccurred())
		Expect(string(text)).To(Equal(results))

		GinkgoT().Setenv(eirinixtest.UpdateGoldenVariable, "")
		Expect(golden(disks{})).To(BeEmpty())
	})

	It("show the changes", func() {
		write("disks.yaml", documents)
		write("disks.golden.yaml", results)
		Expect(golden(broken)).To(And(ContainSubstring("disks.yaml gives another result"), ContainSubstring("-class: fast"),
			ContainSubstring("+# failed in example.org/v1: object 0 (Disk new) from v2 to v1: the conversion from v2 to v1 failed: too new"), ContainSubstring("git diff")))
	})

	DescribeTable("refuse", func(text, message string) {
		write("disks.yaml", text)
		Expect(golden(disks{})).To(ContainSubstring(message))
	},
		Entry("an object of no version", "{apiVersion: example.org/v3, kind: Disk}", "document 1: no Conversion has example.org/v3, Kind=Disk; the program converts disks.example.org"),
		Entry("an object of another kind", "{apiVersion: example.org/v2, kind: Other}", "document 1: no Conversion has example.org/v2, Kind=Other"),
		Entry("a file without document", "# nothing\n", "it holds no document to send"),
	)

	It("refuse a Harness without conversions", func() {
		write("disks.yaml", documents)
		Expect(failureOf(func(t *fakeTest) { eirinixtest.NewHarness(t, labeller("seen", "yes")).GoldenConversions(folder) })).
			To(ContainSubstring("there is no Conversion; give one to NewHarness"))
	})
})
