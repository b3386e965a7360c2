package examples_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gexec"

	"code.cloudfoundry.org/eirinix/examples/internal/programs"
)

// The output of preview must equal the effect on objects that a real API server sends, which the specs beside this one
// check. Here there is neither a cluster nor a kubeconfig.
var _ = Describe("An example without a cluster", func() {
	preview := func(example string, args ...string) *gexec.Session {
		GinkgoHelper()
		cmd := exec.Command(programs.Build(example), append([]string{"preview"}, args...)...)
		cmd.Env = []string{"HOME=" + GinkgoT().TempDir()}
		session, err := gexec.Start(cmd, GinkgoWriter, GinkgoWriter)
		Expect(err).NotTo(HaveOccurred())
		Eventually(session, programs.Patience).Should(gexec.Exit())
		return session
	}

	DescribeTable("shows its effect on manifests, by the command of the README", func(example string, shown ...string) {
		readme, err := os.ReadFile("README.md")
		Expect(err).NotTo(HaveOccurred())
		text := string(readme)
		beginning := fmt.Sprintf("    go run ./examples/%s preview ", example)
		Expect(strings.Count(text, beginning)).To(Equal(1))
		_, rest, _ := strings.Cut(text, beginning)
		line, _, _ := strings.Cut(rest, "\n")
		var args []string
		for _, path := range strings.Fields(line) {
			args = append(args, strings.TrimPrefix(path, "examples/"))
		}
		session := preview(example, args...)
		Expect(session).To(gexec.Exit(0))
		for _, text := range shown {
			Expect(string(session.Out.Contents())).To(ContainSubstring(text))
		}
		Expect(session.Err.Contents()).To(BeEmpty())
	},
		Entry("sidecar", "sidecar", "+    - mountPath: /var/log/app", `its matchCondition "not-opted-out" is false`, "2 objects: 1 changed"),
		Entry("idle-image", "idle-image", "+      - image: empty-container:latest", "would write: create events", "+  publishNotReadyAddresses: true", "3 objects: 2 changed"),
		Entry("playbook", "playbook", "+spec:", "1 object: 1 changed"),
		Entry("policies", "policies", "+  automountServiceAccountToken: false", "2 objects: 1 changed"),
		Entry("agnhost", "agnhost", "create Widget in-stages", `+  mutation-stage-2: "yes"`, "5 objects: 3 changed"),
	)

	It("ends with code 1 where an object would be denied, and prints the reason for machines", func() {
		session := preview("agnhost", "-o", "json", filepath.Join("agnhost", "widgets.yaml"), filepath.Join("agnhost", "refused.yaml"))
		Expect(session).To(gexec.Exit(1))
		Expect(string(session.Out.Contents())).To(And(ContainSubstring(`"message": "this webhook denies all requests"`), ContainSubstring(`"denied": 5`)))
		Expect(string(session.Err.Contents())).To(Equal("of 7 objects, 5 would be denied and 1 would fail\n"), "the program's log is for -v")
		Expect(string(preview("agnhost", "-v", filepath.Join("agnhost", "widgets.yaml"), filepath.Join("agnhost", "refused.yaml")).Err.Contents())).To(ContainSubstring(`"msg":"denied"`))
	})

	It("shows what a step says in view of objects that exist", func() {
		args := readmeOf("unique-host").command("go run ./examples/unique-host preview")
		for i := range args {
			args[i] = strings.TrimPrefix(args[i], "examples/")
		}
		session := preview("unique-host", args...)
		Expect(session).To(gexec.Exit(1))
		Expect(string(session.Out.Contents())).To(ContainSubstring("host shop.example.com belongs to Ingress default/shop"))
	})
})
