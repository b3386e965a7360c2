package e2e

// This file compares the files of the project that a tool makes, and the page that quotes the project.

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gexec"

	"code.cloudfoundry.org/eirinix/examples/internal/programs"
)

func text(path ...string) string {
	GinkgoHelper()
	content, err := os.ReadFile(filepath.Join(path...))
	Expect(err).NotTo(HaveOccurred())
	return string(content)
}

// flush takes the indentation off, which a page shows less of than its source.
func flush(source string) string {
	return regexp.MustCompile(`(?m)^[ \t]+`).ReplaceAllString(source, "")
}

var _ = Describe("The project", func() {
	It("has the rights in config/rbac that the program prints", func() {
		session := programs.Start(programs.Build("kubebuilder/cmd"), "--print-rights")
		Eventually(session, programs.Patience).Should(gexec.Exit(0))
		Expect(string(session.Out.Contents())).To(Equal(text(project, "config", "rbac", "webhook_role.yaml")),
			"run go run ./cmd --print-rights > config/rbac/webhook_role.yaml")
	})

	It("has its generated files as the generator makes them", func(ctx SpecContext) {
		command := regexp.MustCompile(`(?m)^//go:generate (.*)$`).FindStringSubmatch(text(project, "cmd", "main.go"))
		Expect(command).NotTo(BeNil())
		// The generator writes beside the sources, so it is given a copy of them, inside the module.
		copied, err := os.MkdirTemp(project, "generated-")
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(os.RemoveAll, copied)
		Expect(os.CopyFS(filepath.Join(copied, "api"), os.DirFS(filepath.Join(project, "api")))).To(Succeed())
		generated, err := filepath.Glob(filepath.Join(copied, "api", "*", "*", "zz_generated.deepcopy.go"))
		Expect(err).NotTo(HaveOccurred())
		Expect(generated).NotTo(BeEmpty())
		for _, file := range generated {
			Expect(os.Remove(file)).To(Succeed())
		}
		Expect(os.Mkdir(filepath.Join(copied, "cmd"), 0o755)).To(Succeed())
		words := strings.Fields(command[1])
		cmd := exec.CommandContext(ctx, words[0], words[1:]...)
		cmd.Dir = filepath.Join(copied, "cmd")
		session, err := gexec.Start(cmd, GinkgoWriter, GinkgoWriter)
		Expect(err).NotTo(HaveOccurred())
		Eventually(session, 5*programs.Patience).Should(gexec.Exit(0))

		definitions, err := filepath.Glob(filepath.Join(copied, "config", "crd", "bases", "*.yaml"))
		Expect(err).NotTo(HaveOccurred())
		Expect(definitions).To(HaveLen(4))
		for _, made := range append(generated, definitions...) {
			name, err := filepath.Rel(copied, made)
			Expect(err).NotTo(HaveOccurred())
			Expect(text(project, name)).To(Equal(text(made)), "run go generate ./examples/kubebuilder/...: %s", name)
		}
	})

	It("stands in docs/migrating-from-controller-runtime.md as it is", func() {
		root := filepath.Join(project, "..", "..")
		page := text(root, "docs", "migrating-from-controller-runtime.md")
		quotes := regexp.MustCompile("(?s)```go\n(// ([a-z0-9_./-]+\\.go)\n)?(.*?)```").FindAllStringSubmatch(page, -1)
		Expect(len(quotes)).To(BeNumerically(">=", 5))
		for _, quote := range quotes {
			Expect(quote[2]).NotTo(BeEmpty(), "each quotation begins with the name of its file: %s", quote[3])
			Expect(flush(text(root, quote[2]))).To(ContainSubstring(flush(quote[3])), quote[2])
		}
	})
})
