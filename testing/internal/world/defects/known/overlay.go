// Package known holds defects that this library had, or could have, and puts them back into its code by an overlay of the
// build. A search for defects that does not find these proves nothing.
//
// One overlay holds all of them, and each is off. Package internal/defect, which exists in the overlay alone, puts the one
// back that the variable EIRINIX_DEFECT names.
package known

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Defect is a defect that can be put back.
type Defect struct {
	Name  string // of one in a list of findings, or a few words with hyphens
	Harm  string // what goes wrong for a user
	Shows string // the property that a world sees violated, and the fault that it takes
	Edits []Edit
}

// Edit replaces a text that occurs once in a file. The path is relative to the root of the module. In New, @ is the
// condition that the defect is put back.
type Edit struct{ File, Old, New string }

const (
	module = "code.cloudfoundry.org/eirinix"

	source = `// Package defect says which known defect is put back.
package defect

import (
	"maps"
	"os"
	"slices"
	"sync"
)

var (
	back = os.Getenv("EIRINIX_DEFECT")
	mu   sync.Mutex
	asked = map[string]bool{}
)

// On reports whether a defect is put back.
func On(name string) bool {
	if back != "" {
		return back == name
	}
	mu.Lock()
	defer mu.Unlock()
	asked[name] = true
	return false
}

// Reached returns the defects that On was asked for since the last call, where none is put back.
func Reached() []string {
	mu.Lock()
	defer mu.Unlock()
	names := slices.Sorted(maps.Keys(asked))
	clear(asked)
	return names
}

// Later reports whether a resourceVersion is later than another one.
func Later(a, b string) bool { return len(a) > len(b) || len(a) == len(b) && a > b }
`
	// surveys has the specs of worlds know which places were reached.
	surveys = `package world

import "code.cloudfoundry.org/eirinix/internal/defect"

func init() { placesReached = defect.Reached }
`
)

// Changed returns the changed files by their paths, without the import that they need. It fails if an edit does not fit.
func Changed(root string, defects []Defect) (map[string]string, error) {
	type place struct {
		at  int
		old string
		new string
	}
	texts, places := map[string]string{}, map[string][]place{}
	for _, d := range defects {
		for _, e := range d.Edits {
			if _, read := texts[e.File]; !read {
				text, err := os.ReadFile(filepath.Join(root, e.File))
				if err != nil {
					return nil, err
				}
				texts[e.File] = string(text)
			}
			if n := strings.Count(texts[e.File], e.Old); n != 1 {
				return nil, fmt.Errorf("%s: %q stands %d times in %s, not once", d.Name, e.Old, n, e.File)
			}
			condition := fmt.Sprintf("defect.On(%q)", d.Name)
			places[e.File] = append(places[e.File], place{strings.Index(texts[e.File], e.Old), e.Old, strings.ReplaceAll(e.New, "@", condition)})
		}
	}
	for file, all := range places {
		slices.SortFunc(all, func(a, b place) int { return cmp.Compare(a.at, b.at) })
		var changed strings.Builder
		end := 0
		for _, p := range all {
			if p.at < end {
				return nil, fmt.Errorf("%q overlaps with another edit of %s", p.old, file)
			}
			changed.WriteString(texts[file][end:p.at] + p.new)
			end = p.at + len(p.old)
		}
		texts[file] = changed.String() + texts[file][end:]
	}
	return texts, nil
}

// imported returns a file that imports package defect. No line moves.
func imported(file, text string) (string, error) {
	parsed, err := parser.ParseFile(token.NewFileSet(), file, text, parser.PackageClauseOnly)
	if err != nil {
		return "", err
	}
	at := int(parsed.Name.End()) - 1
	return text[:at] + "; import \"" + module + "/internal/defect\"" + text[at:], nil
}

// Files returns the files of the overlay by their paths: those that are changed, package defect, and a file of the specs of worlds.
func Files(root string) (map[string]string, error) {
	files, err := Changed(root, All)
	if err != nil {
		return nil, err
	}
	for file, text := range files {
		if files[file], err = imported(file, text); err != nil {
			return nil, err
		}
	}
	files["internal/defect/defect.go"], files["testing/internal/world/reached_test.go"] = source, surveys
	return files, nil
}

// Write writes overlay.json, for go test -overlay, and the files of the overlay into a directory.
func Write(root, dir string) error {
	files, err := Files(root)
	if err != nil {
		return err
	}
	replace := map[string]string{}
	for _, file := range slices.Sorted(maps.Keys(files)) {
		from, errFrom := filepath.Abs(filepath.Join(root, file))
		to, errTo := filepath.Abs(filepath.Join(dir, file))
		replace[from] = to
		if err := cmp.Or(errFrom, errTo, os.MkdirAll(filepath.Dir(to), 0o700)); err != nil {
			return err
		}
		if err := os.WriteFile(to, []byte(files[file]), 0o600); err != nil {
			return err
		}
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "overlay.json"), text, 0o600)
}

// Build compiles the specs of a package with the defects, in a directory, and returns the binary.
func Build(ctx context.Context, root, dir, of string) (binary string, err error) {
	if err := Write(root, dir); err != nil {
		return "", err
	}
	binary = filepath.Join(dir, "known.test")
	compile := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-ldflags=-s", "-overlay", filepath.Join(dir, "overlay.json"), "-o", binary, of) //nolint:gosec // the caller's package
	compile.Dir = root
	if said, err := compile.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, said)
	}
	return binary, nil
}
