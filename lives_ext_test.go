package eirinix_test

// This file specifies that each option of a Manager works in each life: in every method for which a program makes a
// Manager and which asks the API server. That the registration without a cluster is the same is in offline_test.go, what
// options do in manifests is in that package, and what a diagnosis finds is in internal/diagnose.

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"code.cloudfoundry.org/eirinix"
)

// life is one of the things for which a program makes a Manager.
type life string

const (
	registerExtensions life = "RegisterExtensions"
	unregister         life = "Unregister"
	start              life = "Start"
	auditing           life = "Audit"
	rotateCA           life = "RotateCA"
)

// lives are in the order in which they are played. Unregister finds what RegisterExtensions has registered. Start begins
// without objects of an earlier life. A program runs in no other life.
var lives = []life{registerExtensions, unregister, start, auditing, rotateCA}

// row says what one option does in each life, but for those in which it does nothing. A cell is one of:
//
//   - an effect, which is asserted after the life has passed without an error,
//   - plays, which run the life themselves and assert more than that,
//   - a refusal.
type row struct {
	set     func(*scene, *eirinix.ManagerOptions)   // sets the option to an example
	add     func(*scene, *eirinix.ExtensionManager) // adds what the option is about
	prepare func(SpecContext, *scene)               // makes what the option needs
	beside  func(SpecContext, *scene)               // does what a start with the option waits for

	Start, RegisterExtensions, Unregister, RotateCA, Audit any
}

type (
	effect func(SpecContext, *scene)
	plays  func(SpecContext, *scene)

	// refusal is a part of the error with which the life ends.
	refusal string
)

// everywhere returns a row with one cell for all lives.
func everywhere(cell any) row {
	return row{Start: cell, RegisterExtensions: cell, Unregister: cell, RotateCA: cell, Audit: cell}
}

// with returns a copy of a row with other cells.
func (r row) with(change func(*row)) row {
	change(&r)
	return r
}

func (r row) cell(l life) any { return reflect.ValueOf(r).FieldByName(string(l)).Interface() }

// fieldsOf returns the names of the exported fields of a struct, and those of its fields that are structs of this
// module, as in "ClientCA.File".
func fieldsOf(t reflect.Type, prefix string) (all []string) {
	for f := range t.Fields() {
		switch {
		case !f.IsExported():
		case f.Type.Kind() == reflect.Struct && strings.HasPrefix(f.Type.PkgPath(), reflect.TypeFor[eirinix.ManagerOptions]().PkgPath()):
			all = append(all, fieldsOf(f.Type, prefix+f.Name+".")...)
		default:
			all = append(all, prefix+f.Name)
		}
	}
	return all
}

// elsewhere are the options without a row, and the files that hold their specs.
var elsewhere = map[string]string{
	"ClientCA.ConfigMap": "certs_sources_ext_test.go", "ClientCA.Names": "certs_sources_ext_test.go",
	"ClientCA.File": "options_test.go", "ClientCA.PEM": "options_test.go", // which reach the server as ConfigMap does
	"MetricsBindAddress": "metrics_ext_test.go", "TracerProvider": "testing/traces/traces_test.go",
}

var _ = Describe("Every option of a Manager", func() {
	rows, fields := map[string]row{}, fieldsOf(reflect.TypeFor[eirinix.ManagerOptions](), "")
	for _, table := range []map[string]row{addressRows, programRows, runningRows, certificateRows} {
		maps.Copy(rows, table)
	}

	It("has a row, with what it does in some life, or specs elsewhere", func() {
		Expect(slices.AppendSeq(slices.Collect(maps.Keys(rows)), maps.Keys(elsewhere))).To(ConsistOf(fields))
		for field, r := range rows {
			Expect(slices.ContainsFunc(lives, func(l life) bool { return r.cell(l) != nil })).To(BeTrue(), field)
		}
	})

	for _, field := range slices.Sorted(maps.Keys(rows)) {
		Describe("", Label("api-server"), Ordered, ContinueOnFailure, func() {
			s := &scene{row: rows[field]}
			BeforeAll(func(ctx SpecContext) { s.begin(ctx) }, NodeTimeout(patience))
			AfterAll(func(ctx SpecContext) { s.end(ctx) }, NodeTimeout(patience))
			for _, l := range lives {
				if s.cell(l) != nil {
					It(fmt.Sprintf("%s in %s", field, l), func(ctx SpecContext) { s.play(ctx, l) }, SpecTimeout(2*patience))
				}
			}
		})
	}
})

// play plays a life, and asserts what its cell says.
func (s *scene) play(ctx SpecContext, l life) {
	GinkgoHelper()
	s.life = l
	switch cell := s.cell(l).(type) {
	case plays:
		cell(ctx, s)
	case effect:
		Expect(s.run(ctx, l)).To(Succeed())
		cell(ctx, s)
	case refusal:
		Expect(s.run(ctx, l)).To(MatchError(ContainSubstring(string(cell))))
	default:
		Fail(fmt.Sprintf("a cell of type %T", cell))
	}
}
