// Mutants changes one operator at a time in a room, and runs the room's specs on each change. A change that no spec notices
// survives: it shows a rule that nothing guards.
//
//	go run ./.ci/mutants -room internal/rollout -n 10 -seed 1
//	go run ./.ci/mutants -page docs/check-us.md
//
// The same seed draws the same changes as long as the room does not change. The second form plays the changes that a page
// names for its promises. No file of the repository is written.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"log"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// opposites are the operators that are changed.
var opposites = map[token.Token]token.Token{
	token.EQL: token.NEQ, token.NEQ: token.EQL,
	token.LSS: token.LEQ, token.LEQ: token.LSS, token.GTR: token.GEQ, token.GEQ: token.GTR,
	token.LAND: token.LOR, token.LOR: token.LAND,
}

// mutant is one operator of a file, and what takes its place.
type mutant struct {
	file     string
	line     int
	offset   int
	from, to token.Token
}

func (m mutant) String() string { return fmt.Sprintf("%s:%d %s -> %s", m.file, m.line, m.from, m.to) }

func main() {
	log.SetFlags(0)
	room := flag.String("room", "", "`folder` of the package, such as internal/rollout; required")
	n := flag.Int("n", 10, "number of changes to draw")
	seed := flag.Uint64("seed", uint64(time.Now().Unix()), "what draws them; the default is another one at each run")
	filter := flag.String("filter", "!api-server && !slow", "label `filter` of the specs to run")
	timeout := flag.Duration("timeout", 5*time.Minute, "time for the specs of one change; one that takes longer is noticed")
	page := flag.String("page", "", "play the rows of this `page` instead, such as docs/check-us.md")
	row := flag.String("row", "", "of the page, only rows whose promise contains this `text`")
	flag.Parse()
	if *page != "" {
		if err := playPage(*page, *row); err != nil {
			log.Fatalln("mutants:", err)
		}
		return
	}
	if *room == "" || flag.NArg() > 0 {
		log.Fatal("mutants: give -room, and nothing beside the flags; see -help")
	}
	all, err := find(*room)
	if err != nil {
		log.Fatalln("mutants:", err)
	}
	rand.New(rand.NewPCG(*seed, 0)).Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	drawn := all[:min(*n, len(all))]
	fmt.Printf("%d of the %d operators of %s, seed %d\n", len(drawn), len(all), *room, *seed)
	var survivors []mutant
	for _, m := range drawn {
		began := time.Now()
		said, survives, err := m.play(*room, *filter, *timeout)
		if err != nil {
			log.Fatalln("mutants:", err)
		}
		if survives {
			survivors = append(survivors, m)
		}
		fmt.Printf("%-60s %s (%s)\n", m, said, time.Since(began).Round(time.Second))
	}
	fmt.Printf("%d of %d survive\n", len(survivors), len(drawn))
	if len(survivors) > 0 {
		os.Exit(1)
	}
}

// find returns the operators of a package that can be changed, in the order of its files.
func find(room string) (all []mutant, _ error) {
	paths, err := filepath.Glob(filepath.Join(room, "*.go"))
	if err != nil {
		return nil, err
	}
	paths = slices.DeleteFunc(paths, func(path string) bool { return strings.HasSuffix(path, "_test.go") })
	if len(paths) == 0 {
		return nil, fmt.Errorf("%s holds no Go files", room)
	}
	for _, path := range paths {
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, path, nil, 0)
		if err != nil {
			return nil, err
		}
		ast.Inspect(file, func(node ast.Node) bool {
			if b, ok := node.(*ast.BinaryExpr); ok && opposites[b.Op] != 0 {
				at := set.Position(b.OpPos)
				all = append(all, mutant{file: path, line: at.Line, offset: at.Offset, from: b.Op, to: opposites[b.Op]})
			}
			return true
		})
	}
	return all, nil
}

// play runs the specs with the change, which an overlay shows to the compiler.
func (m mutant) play(room, filter string, timeout time.Duration) (said string, survives bool, _ error) {
	dir, err := os.MkdirTemp("", "mutant-")
	if err != nil {
		return "", false, err
	}
	defer os.RemoveAll(dir)
	text, err := os.ReadFile(m.file)
	if err != nil {
		return "", false, err
	}
	overlay, err := overlay(dir, m.file, slices.Concat(text[:m.offset], []byte(m.to.String()), text[m.offset+len(m.from.String()):]))
	if err != nil {
		return "", false, err
	}
	cmd := exec.Command("go", "test", "-overlay", overlay, "-vet=off", "-count=1", "-timeout", timeout.String(), "./"+room,
		"-ginkgo.no-color", "-ginkgo.label-filter="+filter)
	output, err := cmd.CombinedOutput()
	switch _, failed := errors.AsType[*exec.ExitError](err); {
	case err == nil:
		return "SURVIVES", true, nil
	case !failed:
		return "", false, err
	case bytes.Contains(output, []byte("[build failed]")):
		return "does not compile", false, nil
	case bytes.Contains(output, []byte("panic: test timed out")):
		return "noticed: it hangs", false, nil
	}
	if n := bytes.Count(output, []byte("\n  [FAIL]")); n > 0 {
		return fmt.Sprintf("noticed by %d specs", n), false, nil
	}
	return "noticed", false, nil
}

// overlay writes the changed text of a file, and the overlay that puts it in the place of the file.
func overlay(dir, file string, text []byte) (string, error) {
	original, err := filepath.Abs(file)
	if err != nil {
		return "", err
	}
	changed := filepath.Join(dir, filepath.Base(file))
	if err := os.WriteFile(changed, text, 0o600); err != nil {
		return "", err
	}
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {original: changed}})
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "overlay.json")
	return path, os.WriteFile(path, replace, 0o600)
}
