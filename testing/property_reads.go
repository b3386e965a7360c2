package eirinixtest

// This file implements CheckReads, which takes away the objects that a step looks at.

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/internal/reads"
	"code.cloudfoundry.org/eirinix/internal/snapshots"
)

const prepared = "prepared for the loss of objects"

var errNothingRead = errors.New("eirinixtest: no step that ran for this object has Settings.Reads, so that there is nothing to check: give an object for which a step with Reads runs, or leave CheckReads out")

// world is a state of the objects that the steps of a program read.
type world struct {
	of    *program
	gone  func(*unstructured.Unstructured) bool // reports whether an object is missing; nil for none
	fails func(reads.Declaration) error         // nil for no failure
}

// worldKey is the key of a request's context for its world.
type worldKey struct{}

// inWorld returns a handler whose steps read the objects of the request's world.
func (p *program) inWorld(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if in, ok := r.Context().Value(worldKey{}).(world); ok && in.of == p {
			objects := p.objects.Objects()
			if in.gone != nil {
				objects = slices.DeleteFunc(objects, in.gone)
			}
			r = r.WithContext(snapshots.WithWorld(r.Context(), objects, in.fails))
		}
		handler.ServeHTTP(w, r)
	})
}

// loss is a way in which a step can lose the objects of one of its declarations.
type loss struct {
	when string                        // with the declaration as %s
	err  func(reads.Declaration) error // of reads; nil if there are no objects instead
}

var (
	noObjects = loss{when: "while there was no object of %s"}
	unlisted  = loss{"while the objects of %s had never been listed", func(d reads.Declaration) error {
		return reads.Unlisted(d.String(), nil)
	}}
	stale = loss{"while the objects of %s were too old", func(d reads.Declaration) error {
		return reads.Stale(d.String(), d.MaxStale+time.Second, d.MaxStale, "CheckReads has broken the watch")
	}}
)

// readCase is a declaration of a step, with the requests for which the step runs.
type readCase struct {
	of          *program
	step        string
	read        *eirinix.Read
	declaration reads.Declaration
	requests    []Request
}

func (h *Harness) reads(object any, options []RequestOption) error {
	defer h.log.mute()()
	requests, err := h.requests(object, options)
	if err != nil {
		return err
	}
	cases, err := h.readCases(requests)
	if err != nil {
		return err
	}
	if len(cases) == 0 {
		return errNothingRead
	}
	for _, c := range cases {
		losses := []loss{noObjects, unlisted}
		if c.read.MaxStale != eirinix.AnyAge { // else objects of any age will do
			losses = append(losses, stale)
		}
		for _, l := range losses {
			if err := h.lose(l, c); err != nil {
				return err
			}
		}
	}
	return nil
}

// readCases returns the declarations of all steps that run for the requests. It fails if one of them panics even with
// all objects.
func (h *Harness) readCases(requests []Request) ([]readCase, error) {
	ran := map[string][]Request{} // by step
	for _, r := range requests {
		result, err := h.send(r)
		if err != nil {
			return nil, fmt.Errorf("eirinixtest: %w", err)
		}
		for step := range h.declared() {
			if err := panickedWithout(result, step, r, "with all objects in the cluster"); err != nil {
				return nil, err
			}
			if result.Ran(step) {
				ran[step] = append(ran[step], r)
			}
		}
	}
	var all []readCase
	for _, p := range h.programs {
		for _, step := range slices.Sorted(maps.Keys(p.reads)) {
			if len(ran[step]) == 0 {
				continue
			}
			for i := range p.reads[step] {
				read := &p.reads[step][i]
				kind, err := apiutil.GVKForObject(read.Object, p.scheme)
				if err != nil {
					return nil, fmt.Errorf("eirinixtest: %w", err)
				}
				selected, err := reads.SelectorOf(read.Labels)
				if err != nil {
					return nil, fmt.Errorf("eirinixtest: %w", err)
				}
				all = append(all, readCase{p, step, read, reads.Declaration{
					Object: read.Object, Kind: kind, Namespaces: read.Namespaces, Labels: selected, Fields: read.Fields,
				}, ran[step]})
			}
		}
	}
	return all, nil
}

// declared returns the names of the steps with Reads.
func (h *Harness) declared() map[string]bool {
	all := map[string]bool{}
	for _, p := range h.programs {
		for step := range p.reads {
			all[step] = true
		}
	}
	return all
}

// lose sends the requests of a case while the step has lost the objects of the declaration.
//
// A step need not look at Required objects for each request: not for an update that changes nothing, for example. So an
// UPDATE or DELETE that it admits is held against it only if it admits all requests.
func (h *Harness) lose(l loss, c readCase) error {
	when := fmt.Sprintf(l.when, c.declaration)
	var admitted error
	refused := false
	for _, r := range c.requests {
		var asked atomic.Bool // the step has read objects of the declaration
		in := world{of: c.of}
		if l.err == nil {
			in.gone = func(o *unstructured.Unstructured) bool { return snapshots.Selects(c.declaration, o) }
		} else {
			in.fails = func(d reads.Declaration) error {
				if d.Same != any(c.read) {
					return nil
				}
				asked.Store(true)
				return l.err(d)
			}
		}
		result, err := h.sendIn(context.WithValue(h.ctx, worldKey{}, in), r)
		if err != nil {
			return fmt.Errorf("eirinixtest: %w", err)
		}
		if err := panickedWithout(result, c.step, r, when); err != nil {
			return err
		}
		switch {
		case !result.Allowed || !result.Ran(c.step) || result.failed(c.step):
			refused = true
		case asked.Load() && !slices.ContainsFunc(result.Steps, func(s StepRun) bool { return result.failed(s.Step) }):
			return &violation{
				property: prepared, what: fmt.Sprintf("step %s admitted the object at %s %s, although it read them", c.step, r.Operation, when), proof: result.String(),
				remedy: "read with Call.Reader before the step returns, and not on a goroutine that continues after it: the step fails for the errors of reads until then.",
			}
		case c.read.Required && admitted == nil:
			admitted = &violation{
				property: prepared, what: fmt.Sprintf("step %s admitted the object at %s %s, which are Required", c.step, r.Operation, when), proof: result.String(),
				remedy: "look at them in every call, with Call.Reader: do not keep them from one call to another, and do not read them with another client. Leave out Read.Required if the step may admit objects without them.",
			}
			if r.Operation == admissionv1.Create {
				return admitted
			}
		}
	}
	if refused {
		return nil
	}
	return admitted
}

// panickedWithout returns the violation of a step that has panicked, or nil.
func panickedWithout(result *Result, step string, r Request, when string) error {
	for _, run := range result.Steps {
		if run.Step != step || run.Panic == nil {
			continue
		}
		v := &violation{
			property: prepared, what: fmt.Sprintf("step %s panicked at %s %s: %v", step, r.Operation, when, run.Panic),
			remedy: "return the errors of Call.Reader, and do not use the object after one: its pointers and maps are nil. A missing object is an error of apierrors.IsNotFound, and a list can be empty.",
		}
		if at := panicPlace(run.Stack); at != "" {
			v.proof = "at " + at
		}
		return v
	}
	return nil
}

// failed reports whether a run of a step has denied the object, failed, or not ended.
func (r *Result) failed(step string) bool {
	return slices.ContainsFunc(r.Steps, func(s StepRun) bool { return s.Step == step && (s.Err != nil || s.Panic != nil || s.Running) })
}
