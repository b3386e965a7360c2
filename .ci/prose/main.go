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

// mostWhat is the share of comment lines that may hold the word "what". As a question word it is rare; as a noun ("what is
// served") it makes the reader look for the thing that is meant.
const mostWhat = 0.03

// unwanted are words that say less than the field's own: returns, reports, a caller, another client.
var unwanted = regexp.MustCompile(`(?i)\b(tells? whether|whoever|somebody|nobody|strangers?|tells? when|tells? how)\b`)

var what = regexp.MustCompile(`(?i)\bwhat\b`)

// pages are the most words that a page may have.
var pages = []struct {
	pattern string
	words   int
}{{"README.md", 1200}, {"docs/*.md", 1000}, {"docs/*/*.md", 1000}, {"examples/*/README.md", 1000}}

type measure struct {
	comments, whats int
	faults          []string
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
			case strings.HasSuffix(path, "_test.go"):
				return m.specs(path)
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
		m.pages(page.pattern, page.words)
	}
	share := float64(m.whats) / float64(max(m.comments, 1))
	fmt.Printf("%d comment lines, %.1f %% with \"what\" (at most %.0f %%)\n", m.comments, 100*share, 100*mostWhat)
	for _, fault := range m.faults {
		fmt.Println(fault)
	}
	if len(m.faults) > 0 || share > mostWhat {
		os.Exit(1)
	}
}

func (m *measure) fault(format string, args ...any) {
	m.faults = append(m.faults, fmt.Sprintf(format, args...))
}

// file measures the comments of one Go file.
func (m *measure) file(path string) error {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, path, nil, parser.ParseComments)
	if err != nil {
		return err
	}
	if ast.IsGenerated(file) {
		return nil
	}
	if !opens(file) {
		m.fault("%s:1: does not open with what the file is for", path)
	}
	for _, group := range file.Comments {
		for _, comment := range group.List {
			first := set.Position(comment.Pos()).Line
			for i, line := range strings.Split(comment.Text, "\n") {
				m.comments++
				if what.MatchString(line) {
					m.whats++
					if len(os.Args) > 1 {
						fmt.Printf("%s:%d: what: %s\n", path, first+i, strings.TrimSpace(line))
					}
				}
				if word := unwanted.FindString(line); word != "" {
					m.fault("%s:%d: %q: %s", path, first+i, word, strings.TrimSpace(line))
				}
			}
		}
	}
	return nil
}

// sentence matches a line of a spec that a reader meets: a comment, or the sentence of a container, a spec or an entry.
var sentence = regexp.MustCompile(`//.*|\b(Describe|DescribeTable|Context|It|Entry|By)\("[^"]*"`)

// specs checks one file of specs for unwanted words.
func (m *measure) specs(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	for i, line := range strings.Split(string(text), "\n") {
		for _, found := range sentence.FindAllString(line, -1) {
			if word := unwanted.FindString(found); word != "" {
				m.fault("%s:%d: %q: %s", path, i+1, word, strings.TrimSpace(found))
			}
		}
	}
	return nil
}

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

// pages counts the words of pages.
func (m *measure) pages(pattern string, most int) {
	paths, err := filepath.Glob(pattern)
	if err != nil {
		log.Fatalln("prose:", err)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			log.Fatalln("prose:", err)
		}
		if words := len(strings.Fields(string(text))); words > most {
			m.fault("%s: %d words, at most %d", path, words, most)
		}
	}
}
