package eirinix_test

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"go.uber.org/zap"
	"sigs.k8s.io/yaml"

	"code.cloudfoundry.org/eirinix"
	eirinixtest "code.cloudfoundry.org/eirinix/testing"
)

// A Go snippet in the documentation that names a file in its first line stands in that file, and so is compiled.
var _ = Describe("The documentation", func() {
	snippet := regexp.MustCompile("(?s)```go\n// ([a-z_./-]+\\.go)\n(.*?)```")
	link := regexp.MustCompile(`\]\(([^)#:]*)(?:#([^)]*))?\)`)
	fenced := regexp.MustCompile("(?s)```.*?```")
	heading := regexp.MustCompile(`(?m)^#+ (.*)$`)
	// anchors are the anchors that GitHub derives from the headings of a page.
	anchors := func(page string) (found []string) {
		text, err := os.ReadFile(page)
		Expect(err).NotTo(HaveOccurred())
		for _, h := range heading.FindAllStringSubmatch(fenced.ReplaceAllString(string(text), ""), -1) {
			plain := regexp.MustCompile(`[^a-z0-9 _-]`).ReplaceAllString(strings.ToLower(h[1]), "")
			found = append(found, strings.ReplaceAll(plain, " ", "-"))
		}
		return found
	}

	pages := []string{"README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"}
	for _, folder := range []string{"docs", "docs/reference", "docs/adr"} {
		if more, err := filepath.Glob(folder + "/*.md"); err == nil {
			pages = append(pages, more...)
		}
	}
	for _, page := range pages {
		It("shows code that is compiled, and links to files that exist: "+page, func() {
			text, err := os.ReadFile(page)
			Expect(err).NotTo(HaveOccurred())
			for _, found := range snippet.FindAllStringSubmatch(string(text), -1) {
				source, err := os.ReadFile(found[1])
				Expect(err).NotTo(HaveOccurred())
				Expect(dedent(string(source))).To(ContainSubstring(dedent(found[2])), "%s quotes %s", page, found[1])
			}
			for _, found := range link.FindAllStringSubmatch(fenced.ReplaceAllString(string(text), ""), -1) {
				target := page
				if found[1] != "" {
					target = filepath.Join(filepath.Dir(page), found[1])
				}
				Expect(target).To(Or(BeAnExistingFile(), BeADirectory()))
				if found[2] != "" {
					Expect(anchors(target)).To(ContainElement(found[2]), "%s links to %s", page, found[0])
				}
			}
		})
	}

	It("lists every metric, and no other", func() {
		page, err := os.ReadFile("docs/reference/metrics.md")
		Expect(err).NotTo(HaveOccurred())
		admission, err := os.ReadFile("internal/admit/metrics.go")
		Expect(err).NotTo(HaveOccurred())
		steps, err := os.ReadFile("internal/chain/metrics.go")
		Expect(err).NotTo(HaveOccurred())
		report, err := os.ReadFile("internal/controller/report.go")
		Expect(err).NotTo(HaveOccurred())
		audit, err := os.ReadFile("internal/audit/metrics.go")
		Expect(err).NotTo(HaveOccurred())
		reads, err := os.ReadFile("internal/reads/metrics.go")
		Expect(err).NotTo(HaveOccurred())
		documented := regexp.MustCompile("\\| `eirinix_([a-z_]+)` \\|").FindAllStringSubmatch(string(page), -1)
		made := regexp.MustCompile(`"((?:admission|audit|build|canary|certificate|clock|conversion|read|registration)_[a-z_]+)"`).FindAllStringSubmatch(string(admission)+string(steps)+string(report)+string(audit)+string(reads), -1)
		Expect(made).NotTo(BeEmpty())
		name := func(m []string) string { return m[1] }
		Expect(namesOf(documented, name)).To(ConsistOf(namesOf(made, name)))
	})

	It("names specs that prove the answers to threats", func() {
		page, err := os.ReadFile("docs/threat-model.md")
		Expect(err).NotTo(HaveOccurred())
		proof := regexp.MustCompile("`([a-z0-9_/]+_test\\.go)`: \"([^\"]+)\"")
		rows := regexp.MustCompile(`(?m)^\| (\d+) \| [^|]+ \| ([^|]+) \|([^|]*)\|$`).FindAllStringSubmatch(string(page), -1)
		Expect(rows).To(HaveLen(18), "SIG Security's model has 18 threats")
		for i, row := range rows {
			Expect(row[1]).To(Equal(strconv.Itoa(i + 1)))
			Expect(proof.MatchString(row[3]) || strings.Contains(row[2], "not ours")).To(BeTrue(), "threat %s has neither a spec nor a reason", row[1])
		}
		for _, named := range proof.FindAllStringSubmatch(string(page), -1) {
			source, err := os.ReadFile(named[1])
			Expect(err).NotTo(HaveOccurred())
			running := `\b((It|Entry|Describe|DescribeTable)\("[^"]*|func )` // and no pending one
			Expect(string(source)).To(MatchRegexp(running+regexp.QuoteMeta(named[2])), named[1])
		}
	})

	It("lists every finding of a diagnosis, and no other", func() {
		page, err := os.ReadFile("docs/reference/findings.md")
		Expect(err).NotTo(HaveOccurred())
		source, err := parser.ParseFile(token.NewFileSet(), "diagnosis/diagnosis.go", nil, 0)
		Expect(err).NotTo(HaveOccurred())
		var declared []string
		ast.Inspect(source, func(n ast.Node) bool {
			if c, ok := n.(*ast.ValueSpec); ok && len(c.Values) == 1 {
				if kind, ok := c.Type.(*ast.Ident); ok && kind.Name == "Code" {
					Expect(c.Values[0].(*ast.BasicLit).Value).To(Equal(strconv.Quote(c.Names[0].Name)))
					declared = append(declared, c.Names[0].Name)
				}
			}
			return true
		})
		Expect(declared).NotTo(BeEmpty())
		row := regexp.MustCompile("(?m)^\\| `(\\w+)` \\| [^|]+ \\| ((?:problem|warning|note)[^|]*) \\| [^|]+ \\|$")
		documented := row.FindAllStringSubmatch(string(page), -1)
		Expect(namesOf(documented, func(m []string) string { return m[1] })).To(ConsistOf(declared))
	})

	It("alerts on metrics that there are", func() {
		page, err := os.ReadFile("docs/reference/metrics.md")
		Expect(err).NotTo(HaveOccurred())
		rules, err := os.ReadFile("docs/alerts.yaml")
		Expect(err).NotTo(HaveOccurred())
		Expect(yaml.UnmarshalStrict(rules, new(map[string]any))).To(Succeed())
		used := regexp.MustCompile(`eirinix_[a-z_]+`).FindAllString(string(rules), -1)
		Expect(used).NotTo(BeEmpty())
		for _, name := range used {
			Expect(string(page)).To(ContainSubstring("`" + strings.TrimSuffix(name, "_bucket") + "`"))
		}
	})

	It("has a go.mod that keeps programs with an old google.golang.org/genproto building", func() {
		text, err := os.ReadFile("go.mod")
		Expect(err).NotTo(HaveOccurred())
		required := regexp.MustCompile(`(?m)^\tgoogle\.golang\.org/genproto v0\.0\.0-(\d{8})`).FindSubmatch(text)
		Expect(required).NotTo(BeNil())
		Expect(strconv.Atoi(string(required[1]))).To(BeNumerically(">", 20230525), "its packages became modules of their own on that day")
	})

	It("has programs on controller-runtime raise their modules to the versions of go.mod", func() {
		mod, err := os.ReadFile("go.mod")
		Expect(err).NotTo(HaveOccurred())
		page, err := os.ReadFile("docs/migrating-from-controller-runtime.md")
		Expect(err).NotTo(HaveOccurred())
		versions := regexp.MustCompile(`(?m)^\t(k8s\.io/api|sigs\.k8s\.io/controller-runtime) (v\S+)$`).FindAllSubmatch(mod, -1)
		Expect(versions).To(HaveLen(2))
		Expect(string(page)).To(ContainSubstring("#\\1@" + string(versions[0][2]) + "#p"))
		Expect(string(page)).To(ContainSubstring("sigs.k8s.io/controller-runtime@" + string(versions[1][2])))
	})

	It("quotes the README's programs at all", func() {
		text, err := os.ReadFile("README.md")
		Expect(err).NotTo(HaveOccurred())
		Expect(len(snippet.FindAll(text, -1))).To(BeNumerically(">=", 3))
	})
})

// dedent takes the indentation off, which a page shows less of than its source.
func dedent(text string) string {
	return regexp.MustCompile(`(?m)^[ \t]+`).ReplaceAllString(text, "")
}

func namesOf[T any](all []T, name func(T) string) []string {
	var found []string
	for _, v := range all {
		found = append(found, name(v))
	}
	return found
}

// played sends objects to the steps of a documented example, as API servers do: it creates them, and updates them as they were
// before the steps were registered. It checks the promises of a step.
func played(x *eirinix.ExtensionManager, objects ...any) error {
	t := &playing{}
	o := x.GetManagerOptions()
	o.Logger = zap.NewNop().Sugar()
	x.SetManagerOptions(o)
	done := make(chan struct{})
	go func() {
		defer close(done) // also after Fatalf
		h := eirinixtest.NewHarness(t, x)
		for _, object := range objects {
			h.CheckProperties(object)
		}
	}()
	<-done
	return t.failure
}

// playing is the test of an example, which is not given one.
type playing struct{ failure error }

func (*playing) Helper()             {}
func (*playing) Cleanup(func())      {}
func (*playing) Logf(string, ...any) {}
func (t *playing) Failed() bool      { return t.failure != nil }

func (t *playing) Errorf(format string, args ...any) {
	t.failure = errors.Join(t.failure, fmt.Errorf(format, args...))
}

func (t *playing) Fatalf(format string, args ...any) {
	t.failure = fmt.Errorf(format, args...)
	runtime.Goexit()
}
