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

	. "code.cloudfoundry.org/eirinix/internal/spectest"
)

// A Go snippet in the documentation that names a file in its first line stands in that file, and so is compiled.
var _ = Describe("The documentation", func() {
	snippet := regexp.MustCompile("(?s)```go\n// ([a-z_./-]+\\.go)\n(.*?)```")
	link := regexp.MustCompile(`\]\(([^)#:]*)(?:#([^)]*))?\)`)
	fenced := regexp.MustCompile("(?s)```.*?```")
	heading := regexp.MustCompile(`(?m)^#+ (.*)$`)
	// anchors are the anchors that GitHub derives from the headings of a page.
	anchors := func(page string) (found []string) {
		text := textOf(page)
		for _, h := range heading.FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
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
			text := textOf(page)
			for _, found := range snippet.FindAllStringSubmatch(text, -1) {
				source := textOf(found[1])
				Expect(dedent(source)).To(ContainSubstring(dedent(found[2])), "%s quotes %s", page, found[1])
			}
			for _, found := range link.FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
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
		page := textOf("docs/reference/metrics.md")
		var sources string
		for _, room := range []string{"admit/metrics", "chain/metrics", "controller/report", "audit/metrics", "reads/metrics"} {
			sources += textOf("internal/" + room + ".go")
		}
		documented := regexp.MustCompile("\\| `eirinix_([a-z_]+)` \\|").FindAllStringSubmatch(page, -1)
		made := regexp.MustCompile(`"((?:admission|audit|build|canary|certificate|clock|conversion|read|registration)_[a-z_]+)"`).FindAllStringSubmatch(sources, -1)
		Expect(made).NotTo(BeEmpty())
		Expect(namesOf(documented)).To(ConsistOf(namesOf(made)))
	})

	It("names specs that prove the answers to threats", func() {
		page := textOf("docs/threat-model.md")
		proof := regexp.MustCompile("`([a-z0-9_/]+_test\\.go)`: \"([^\"]+)\"")
		rows := regexp.MustCompile(`(?m)^\| (\d+) \| [^|]+ \| ([^|]+) \|([^|]*)\|$`).FindAllStringSubmatch(page, -1)
		Expect(rows).To(HaveLen(18), "SIG Security's model has 18 threats")
		for i, row := range rows {
			Expect(row[1]).To(Equal(strconv.Itoa(i + 1)))
			Expect(proof.MatchString(row[3]) || strings.Contains(row[2], "not ours")).To(BeTrue(), "threat %s has neither a spec nor a reason", row[1])
		}
		for _, named := range proof.FindAllStringSubmatch(page, -1) {
			source := textOf(named[1])
			running := `\b((It|Entry|Describe|DescribeTable)\("[^"]*|func )` // and no pending one
			Expect(source).To(MatchRegexp(running+regexp.QuoteMeta(named[2])), named[1])
		}
	})

	It("lists every finding of a diagnosis, and no other", func() {
		page := textOf("docs/reference/findings.md")
		source := Must(parser.ParseFile(token.NewFileSet(), "diagnosis/diagnosis.go", nil, 0))
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
		documented := row.FindAllStringSubmatch(page, -1)
		Expect(namesOf(documented)).To(ConsistOf(declared))
	})

	It("alerts on metrics that there are", func() {
		page := textOf("docs/reference/metrics.md")
		rules := textOf("docs/alerts.yaml")
		Expect(yaml.UnmarshalStrict([]byte(rules), new(map[string]any))).To(Succeed())
		used := regexp.MustCompile(`eirinix_[a-z_]+`).FindAllString(rules, -1)
		Expect(used).NotTo(BeEmpty())
		for _, name := range used {
			Expect(page).To(ContainSubstring("`" + strings.TrimSuffix(name, "_bucket") + "`"))
		}
	})

	It("has a go.mod that keeps programs with an old google.golang.org/genproto building", func() {
		text := textOf("go.mod")
		required := regexp.MustCompile(`(?m)^\tgoogle\.golang\.org/genproto v0\.0\.0-(\d{8})`).FindStringSubmatch(text)
		Expect(required).NotTo(BeNil())
		Expect(strconv.Atoi(required[1])).To(BeNumerically(">", 20230525), "its packages became modules of their own on that day")
	})

	It("has programs on controller-runtime raise their modules to the versions of go.mod", func() {
		mod := textOf("go.mod")
		page := textOf("docs/migrating-from-controller-runtime.md")
		versions := regexp.MustCompile(`(?m)^\t(k8s\.io/api|sigs\.k8s\.io/controller-runtime) (v\S+)$`).FindAllStringSubmatch(mod, -1)
		Expect(versions).To(HaveLen(2))
		Expect(page).To(ContainSubstring("#\\1@" + versions[0][2] + "#p"))
		Expect(page).To(ContainSubstring("sigs.k8s.io/controller-runtime@" + versions[1][2]))
	})

	It("quotes the README's programs at all", func() {
		text := textOf("README.md")
		Expect(len(snippet.FindAllString(text, -1))).To(BeNumerically(">=", 3))
	})
})

// dedent takes the indentation off, which a page shows less of than its source.
func dedent(text string) string {
	return regexp.MustCompile(`(?m)^[ \t]+`).ReplaceAllString(text, "")
}

// namesOf returns the first group of each match.
func namesOf(matches [][]string) (all []string) {
	for _, m := range matches {
		all = append(all, m[1])
	}
	return all
}

func textOf(file string) string {
	GinkgoHelper()
	text := Must(os.ReadFile(file))
	return string(text)
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
