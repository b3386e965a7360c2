// Prose measures the language of the repository: the comments of shipped Go files, the comments and sentences of specs, and
// the pages of documentation. It prints each passage that breaks a rule, and fails if there is one.
//
//	go run ./.ci/prose [folder ...]
//
// The rules are those of CONTRIBUTING.md: plain sentences with a subject and a verb, and the field's words.
package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"log"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// maxWhat is the share of lines that may hold the word "what", in comments and in sentences of specs. As a question word
// it is rare; as a noun ("what is served") it makes the reader look for the thing that is meant.
const maxWhat = 0.03

// unwanted are words that say less than the field's own: returns, reports, a caller, another client.
var unwanted = regexp.MustCompile(`(?i)\b(tells? whether|whoever|somebody|nobody|strangers?|tells? when|tells? how)\b`)

var what = regexp.MustCompile(`(?i)\bwhat\b`)

// pages are the most words that a page may have, and the most that all of a pattern may have together.
var pages = []struct {
	patterns   []string
	words, all int
}{
	{[]string{"README.md"}, 1200, 1200},
	{[]string{"docs/*.md", "docs/reference/*.md"}, 1600, 19_100},
	{[]string{"docs/adr/*.md"}, 300, 2400},
	{[]string{"examples/README.md", "examples/*/README.md"}, 1000, 6000},
}

// maxPages bounds the pages of docs: a reader finds one of a few.
const maxPages = 24

// share counts the lines of prose, and those with the word "what".
type share struct{ lines, whats int }

func (s share) of() float64 { return float64(s.whats) / float64(max(s.lines, 1)) }

type measure struct {
	code, specs share
	faults      []string
}

func main() {
	log.SetFlags(0)
	folders := os.Args[1:]
	if len(folders) == 0 {
		folders = []string{"."}
	}
	var m measure
	for _, folder := range folders {
		err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case entry.IsDir() && path != folder && (strings.HasPrefix(entry.Name(), ".") || entry.Name() == "testdata" || entry.Name() == "vendor"):
				return filepath.SkipDir
			case strings.HasSuffix(path, ".go"):
				return m.file(path)
			}
			return nil
		})
		if err != nil {
			log.Fatalln("prose:", err)
		}
	}
	for _, page := range pages {
		m.pages(page.patterns, page.words, page.all)
	}
	fmt.Printf("%d lines of comments, %.1f %% with \"what\" (at most %.0f %%)\n", m.code.lines, 100*m.code.of(), 100*maxWhat)
	fmt.Printf("%d lines of comments and sentences in specs, %.1f %% with \"what\" (at most %.0f %%)\n", m.specs.lines, 100*m.specs.of(), 100*maxWhat)
	for _, fault := range m.faults {
		fmt.Println(fault)
	}
	if len(m.faults) > 0 || max(m.code.of(), m.specs.of()) > maxWhat {
		os.Exit(1)
	}
}

func (m *measure) fault(format string, args ...any) {
	m.faults = append(m.faults, fmt.Sprintf(format, args...))
}

// file measures the comments of one Go file, and the sentences if it holds specs.
func (m *measure) file(path string) error {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, path, nil, parser.ParseComments)
	if err != nil {
		return err
	}
	if ast.IsGenerated(file) {
		return nil
	}
	counted, isSpec := &m.code, strings.HasSuffix(path, "_test.go")
	if isSpec {
		counted = &m.specs
	} else if !opens(file) {
		m.fault("%s:1: does not open with what the file is for", path)
	}
	for _, group := range file.Comments {
		for _, comment := range group.List {
			m.passage(counted, set.Position(comment.Pos()), comment.Text)
		}
	}
	if isSpec {
		ast.Inspect(file, func(n ast.Node) bool {
			if sentence := sentenceOf(n); sentence != nil {
				m.passage(counted, set.Position(sentence.Pos()), sentence.Value)
			}
			return true
		})
	}
	return nil
}

// passage measures a comment or a sentence, line by line.
func (m *measure) passage(counted *share, at token.Position, text string) {
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		counted.lines++
		if what.MatchString(line) {
			counted.whats++
			if len(os.Args) > 1 {
				fmt.Printf("%s:%d: what: %s\n", at.Filename, at.Line+i, line)
			}
		}
		if word := unwanted.FindString(line); word != "" {
			m.fault("%s:%d: %q: %s", at.Filename, at.Line+i, word, line)
		}
	}
}

// sentenceOf returns the sentence of a container, a spec, an entry or a step; nil for any other node.
func sentenceOf(n ast.Node) *ast.BasicLit {
	call, ok := n.(*ast.CallExpr)
	if !ok || len(call.Args) == 0 {
		return nil
	}
	name, ok := call.Fun.(*ast.Ident)
	if !ok || !sentences.MatchString(name.Name) {
		return nil
	}
	literal, _ := call.Args[0].(*ast.BasicLit)
	return literal
}

// sentences are the functions of Ginkgo whose first argument is a sentence.
var sentences = regexp.MustCompile(`^([FPX]?(Describe|DescribeTable|DescribeTableSubtree|Context|When|It|Specify|Entry)|By)$`)

// opens reports whether a comment stands before the first declaration, which is not that declaration's own.
func opens(file *ast.File) bool {
	if file.Doc != nil {
		return true
	}
	end := file.End()
	var own *ast.CommentGroup
	if i := slices.IndexFunc(file.Decls, func(d ast.Decl) bool { g, ok := d.(*ast.GenDecl); return !ok || g.Tok != token.IMPORT }); i >= 0 {
		end = file.Decls[i].Pos()
		switch d := file.Decls[i].(type) {
		case *ast.GenDecl:
			own = d.Doc
		case *ast.FuncDecl:
			own = d.Doc
		}
	}
	return slices.ContainsFunc(file.Comments, func(g *ast.CommentGroup) bool {
		return g.End() < end && g != own && !strings.HasPrefix(g.List[0].Text, "//go:")
	})
}

// pages counts the pages of some patterns, and their words.
func (m *measure) pages(patterns []string, most, all int) {
	var paths []string
	for _, pattern := range patterns {
		found, err := filepath.Glob(pattern)
		if err != nil {
			log.Fatalln("prose:", err)
		}
		paths = append(paths, found...)
	}
	sum := 0
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			log.Fatalln("prose:", err)
		}
		words := len(strings.Fields(string(text)))
		if sum += words; words > most {
			m.fault("%s: %d words, at most %d", path, words, most)
		}
	}
	if sum > all || len(paths) > maxPages {
		m.fault("%s: %d pages with %d words, at most %d with %d", strings.Join(patterns, ", "), len(paths), sum, maxPages, all)
	}
}
