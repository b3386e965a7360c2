package eirinix_test

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"code.cloudfoundry.org/eirinix"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
	"code.cloudfoundry.org/eirinix/manifests"
)

// life is one of the things for which a program makes a Manager.
type life string

const (
	deploys            life = "Manifests"
	clusterless        life = "Offline"
	registerExtensions life = "RegisterExtensions"
	unregister         life = "Unregister"
	start              life = "Start"
	diagnoses          life = "Diagnose"
	auditing           life = "Audit"
	rotateCA           life = "RotateCA"
)

// lives are in the order in which they are played. Unregister finds what RegisterExtensions has registered, and no program
// runs then. Start begins without objects of an earlier life. Those after it are lives of another Manager with the same
// options, which is not started, beside the running one. RotateCA has a scene of its own, in which no program runs.
var lives = []life{deploys, clusterless, registerExtensions, unregister, start, diagnoses, auditing, rotateCA}

// row says what one field does in each life. A cell is one of:
//
//   - an effect, which is asserted after the life has passed without an error,
//   - plays, which run the life themselves and assert more than that,
//   - a refusal,
//   - a reason why the field does nothing. The life must pass without an error nevertheless.
type row struct {
	set      func(*scene, *eirinix.ManagerOptions)   // sets a field of ManagerOptions to an example
	settings func(*scene, string, *eirinix.Settings) // sets a field of the Settings of the step with this name
	add      func(*scene, *eirinix.ExtensionManager) // adds what the field is about
	prepare  func(SpecContext, *scene)               // makes what the field needs
	beside   func(SpecContext, *scene)               // does what a start with the field waits for
	deploy   func(*manifests.Options)                // sets a field of what manifests.Of is given

	Start, RegisterExtensions, Unregister, RotateCA, Diagnose, Audit, Manifests, Offline any
}

type (
	effect func(SpecContext, *scene)
	plays  func(SpecContext, *scene)

	// refusal is a part of the error with which the life ends.
	refusal string

	// reason says why a field does nothing in a life.
	reason string
)

// everywhere returns a row with one cell for all lives. The rows below change some of them.
func everywhere(cell any) row {
	return row{Start: cell, RegisterExtensions: cell, Unregister: cell, RotateCA: cell, Diagnose: cell, Audit: cell, Manifests: cell, Offline: cell}
}

func (r row) cell(l life) any { return reflect.ValueOf(r).FieldByName(string(l)).Interface() }

// problems returns what is wrong with the cells.
func (r row) problems() (all []string) {
	for _, l := range lives {
		switch cell := r.cell(l).(type) {
		case effect, plays:
		case refusal, reason:
			if strings.TrimSpace(fmt.Sprint(cell)) == "" {
				all = append(all, string(l)+" has an empty text")
			}
		default:
			all = append(all, fmt.Sprintf("%s has neither an effect nor a reason, but %T", l, cell))
		}
	}
	return all
}

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

// union returns a table with the rows of all tables.
func union(tables ...map[string]row) map[string]row {
	all := map[string]row{}
	for _, t := range tables {
		maps.Copy(all, t)
	}
	return all
}

// describeFields makes the specs of the fields of a type: one for each cell.
func describeFields(t reflect.Type, tables ...map[string]row) {
	rows, fields := union(tables...), fieldsOf(t, "")

	It("has a row for each field, with a cell for each life", func() {
		Expect(slices.Collect(maps.Keys(rows))).To(ConsistOf(fields))
		count := 0
		for _, table := range tables {
			count += len(table)
		}
		Expect(count).To(Equal(len(rows)), "a field has two rows")
		for field, r := range rows {
			Expect(r.problems()).To(BeEmpty(), field)
		}
	})

	rotated := &rotations{rows: rows}
	for _, field := range fields {
		r, ok := rows[field]
		if !ok || len(r.problems()) > 0 {
			continue // reported above
		}
		Describe("", Label("api-server"), Ordered, ContinueOnFailure, func() {
			s := &scene{row: r}
			BeforeAll(func(ctx SpecContext) { s.begin(ctx) }, NodeTimeout(patience))
			AfterAll(func(ctx SpecContext) { s.end(ctx) }, NodeTimeout(patience))
			for _, l := range lives {
				It(fmt.Sprintf("%s in %s", field, l), func(ctx SpecContext) {
					if l == rotateCA {
						rotated.play(ctx, field)
					} else {
						s.play(ctx, l)
					}
				}, SpecTimeout(2*patience))
			}
		})
	}
}

// describeInputs makes the specs of the fields of what manifests.Of is given, which no other life knows.
func describeInputs(rows map[string]row) {
	fields := fieldsOf(reflect.TypeFor[manifests.Options](), "")

	It("has a row for each field", func() {
		Expect(slices.Collect(maps.Keys(rows))).To(ConsistOf(fields))
	})

	for _, field := range fields {
		It(fmt.Sprintf("%s in %s", field, deploys), Label("api-server"), func(ctx SpecContext) {
			s := &scene{row: rows[field], namespace: "webhooks", workloads: "apps", port: 8443, second: 9443}
			s.logger, s.logs = Observed()
			s.play(ctx, deploys)
		}, SpecTimeout(2*patience))
	}
}

// play plays a life, and asserts what its cell says.
func (s *scene) play(ctx SpecContext, l life) {
	GinkgoHelper()
	s.life = l
	if cell, ok := s.cell(l).(plays); ok {
		cell(ctx, s)
		return
	}
	s.check(ctx, s.run(ctx, l))
}

// check asserts what the cell of the life says, after it has ended with this error.
func (s *scene) check(ctx SpecContext, err error) {
	GinkgoHelper()
	switch cell := s.cell(s.life).(type) {
	case effect:
		Expect(err).NotTo(HaveOccurred())
		cell(ctx, s)
	case reason:
		Expect(err).NotTo(HaveOccurred())
	case refusal:
		Expect(err).To(MatchError(ContainSubstring(string(cell))))
	}
}

// rotations plays RotateCA for all fields at once. Each one waits two seconds for the clock of the API server.
type rotations struct {
	rows   map[string]row
	once   sync.Once
	scenes map[string]*scene
	ended  map[string]error
}

func (r *rotations) play(ctx SpecContext, field string) {
	GinkgoHelper()
	if _, ok := r.rows[field].RotateCA.(plays); ok {
		s := &scene{row: r.rows[field]}
		s.begin(ctx)
		DeferCleanup(s.end)
		s.play(ctx, rotateCA)
		return
	}
	r.once.Do(func() { r.playAll(ctx) })
	s := r.scenes[field]
	DeferCleanup(s.end)
	s.check(ctx, r.ended[field])
}

func (r *rotations) playAll(ctx SpecContext) {
	r.scenes, r.ended = map[string]*scene{}, map[string]error{}
	var mu sync.Mutex
	var all sync.WaitGroup
	slots := make(chan struct{}, 12)
	for field, row := range r.rows {
		if _, ok := row.RotateCA.(plays); ok {
			continue
		}
		s := &scene{row: row, life: rotateCA}
		r.scenes[field], r.ended[field] = s, errors.New("it has failed before")
		all.Go(func() {
			defer GinkgoRecover()
			slots <- struct{}{}
			defer func() { <-slots }()
			s.begin(ctx)
			err := s.run(ctx, rotateCA)
			mu.Lock()
			defer mu.Unlock()
			r.ended[field] = err
		})
	}
	all.Wait()
}

var _ = Describe("Every option of a Manager", func() {
	describeFields(reflect.TypeFor[eirinix.ManagerOptions](), namingRows, addressRows, programRows, runningRows, certificateRows)
})

var _ = Describe("Every option of manifests.Of", func() { describeInputs(deploymentRows) })

var _ = Describe("Every setting of a step", func() {
	describeFields(reflect.TypeFor[eirinix.Settings](), settingsRows)
})

// with returns a copy of a row with other cells. It keeps the tables short.
func (r row) with(change func(*row)) row {
	change(&r)
	return r
}
