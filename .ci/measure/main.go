// Measure counts the size of the house: the lines of the spine, of what a program links and of the packages beside the root,
// and the surface of the root.
//
//	go run ./.ci/measure
//
// A line is a line of a shipped Go file, with its comments: of no spec and no test data.
package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"code.cloudfoundry.org/eirinix"
)

// spine are the packages that every program with a webhook needs.
var spine = strings.Fields(`. internal/seam internal/chain internal/admit internal/hang internal/jsontext internal/jsontype internal/decode internal/patch
	internal/ca internal/certsecret internal/certsource internal/serving internal/webhookconf internal/controller internal/rollout
	internal/cluster internal/rights internal/resources internal/wait internal/lograte internal/stepname internal/slogcore`)

// wings are the packages beside the root that only some programs import.
var wings = []string{"audit", "conversion", "manifests", "offline", "recording"}

// ofEiriniX is the number of options that EiriniX has.
const ofEiriniX = 15

const module = "code.cloudfoundry.org/eirinix"

func main() {
	log.SetFlags(0)
	internal, err := filepath.Glob("internal/*")
	if err != nil {
		log.Fatal(err)
	}
	linked, err := exec.Command("go", "list", "-deps", "./examples/hello").Output()
	if err != nil {
		log.Fatal(err)
	}
	var rooms []string
	for line := range strings.Lines(string(linked)) {
		if room, ok := strings.CutPrefix(strings.TrimSpace(line), module); ok && !strings.HasPrefix(room, "/examples/") {
			rooms = append(rooms, strings.TrimPrefix("."+room, "./"))
		}
	}
	methods, names := surface()
	for _, f := range []struct {
		what  string
		count int
	}{
		{"lines of the spine", lines(spine...)},
		{"lines that examples/hello links", lines(rooms...)},
		{"lines of the root", lines(".")},
		{"lines of the root, internal and the packages beside it", lines(slices.Concat([]string{"."}, internal, wings)...)},
		{"methods of ExtensionManager", methods},
		{"exported names of the root: types, functions, constants and variables", names},
		{"fields of ManagerOptions beside those of EiriniX", exportedFields(reflect.TypeFor[eirinix.ManagerOptions]()) - ofEiriniX},
	} {
		fmt.Printf("%7d  %s\n", f.count, f.what)
	}
}

// shipped returns the Go files of a folder but its specs. A folder that is missing has none.
func shipped(folder string) []string {
	files, _ := filepath.Glob(filepath.Join(folder, "*.go")) // the pattern is well-formed
	return slices.DeleteFunc(files, func(f string) bool { return strings.HasSuffix(f, "_test.go") })
}

func lines(folders ...string) (n int) {
	for _, folder := range folders {
		for _, file := range shipped(folder) {
			text, err := os.ReadFile(file)
			if err != nil {
				log.Fatal(err)
			}
			n += bytes.Count(text, []byte("\n"))
		}
	}
	return n
}

// surface counts the methods of ExtensionManager and the exported names of the root.
func surface() (methods, names int) {
	for _, file := range shipped(".") {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			log.Fatal(err)
		}
		for _, d := range parsed.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				switch {
				case d.Recv == nil && d.Name.IsExported():
					names++
				case d.Recv != nil && receiver(d.Recv.List[0].Type) == "ExtensionManager":
					methods++
				}
			case *ast.GenDecl:
				for _, s := range d.Specs {
					names += exported(s)
				}
			}
		}
	}
	return methods, names
}

func receiver(t ast.Expr) string {
	if pointer, ok := t.(*ast.StarExpr); ok {
		t = pointer.X
	}
	name, _ := t.(*ast.Ident)
	if name == nil {
		return ""
	}
	return name.Name
}

func exported(s ast.Spec) (n int) {
	switch s := s.(type) {
	case *ast.TypeSpec:
		if s.Name.IsExported() {
			n++
		}
	case *ast.ValueSpec:
		for _, name := range s.Names {
			if name.IsExported() {
				n++
			}
		}
	}
	return n
}

func exportedFields(t reflect.Type) (n int) {
	for _, f := range reflect.VisibleFields(t) {
		if f.IsExported() {
			n++
		}
	}
	return n
}
