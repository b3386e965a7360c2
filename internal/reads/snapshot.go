package reads

// This file holds the state of the objects that one call sees, and notes what its steps read.

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// maxWait limits the time for which a call waits for objects that are too old, or have not been listed.
const maxWait = time.Second

// Snapshot is the state of all views that one call sees. It is safe for concurrent use.
type Snapshot struct {
	set   *Set
	fixed Fixed      // zero if it follows a cluster
	noted func(Note) // receives what is read; nil for none

	mu   sync.Mutex
	seen []seen // by view
}

// seen is what a call sees of a view.
type seen struct {
	state  *contents     // nil if it has not been listed
	broken time.Duration // for how long its watch was broken when the state was taken
	waited time.Duration // for how long the steps of the call have waited for it
}

// Snapshot returns the state of now, for the call of the context.
func (s *Set) Snapshot(ctx context.Context) *Snapshot {
	taken := &Snapshot{set: s, seen: make([]seen, len(s.views)), noted: notes(ctx)}
	for i, v := range s.views {
		taken.seen[i].take(v)
	}
	return taken
}

func (s *seen) take(v *view) {
	s.broken = 0
	for _, src := range v.sources {
		broken, _ := src.broken()
		s.broken = max(s.broken, broken)
	}
	s.state = v.published.Load()
}

// Fixed is what a Snapshot without a cluster holds.
type Fixed struct {
	// Objects returns new objects of a declaration, in its type. steps are the names of those that have the declaration.
	Objects func(d Declaration, steps []string) ([]client.Object, error)

	Fails   func(step string, d Declaration) error // returns the error of a read, or nil; can be nil itself
	Partial bool                                   // objects that no step has read are missing
}

// Fixed returns a Snapshot that follows no cluster, for the call of the context.
func (s *Set) Fixed(ctx context.Context, f Fixed) *Snapshot {
	made := &Snapshot{set: s, fixed: f, noted: notes(ctx)}
	for _, v := range s.views {
		var steps []string
		for step, uses := range s.steps {
			if slices.ContainsFunc(uses, func(u use) bool { return u.view == v }) {
				steps = append(steps, step)
			}
		}
		objects, err := f.Objects(v.declaration, steps)
		made.seen = append(made.seen, seen{state: v.holding(objects, err)})
	}
	return made
}

// state returns what a step sees of a view. If the objects are too old, it waits a little for new ones. All steps of a
// call together wait no longer than one, so that the last ones still have time.
func (t *Snapshot) state(ctx context.Context, step string, u use) (*contents, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.fixed.Fails != nil {
		if err := t.fixed.Fails(step, u.declared); err != nil {
			return nil, err
		}
	}
	sees, maxStale := &t.seen[u.at], u.declared.MaxStale
	if sees.state == nil || maxStale > 0 && sees.broken > maxStale {
		began, most := time.Now(), maxWait-sees.waited
		if deadline, ok := ctx.Deadline(); ok { // leave time for the reason
			most = min(most, time.Until(deadline)/2)
		}
		waiting, cancel := context.WithTimeout(ctx, most)
		defer cancel()
		for _, src := range u.sources {
			src.awaitAlive(waiting)
		}
		sees.waited += time.Since(began)
		sees.take(u.view)
	}
	switch {
	case sees.state == nil:
		for _, src := range u.sources {
			if err := src.unlisted(); err != nil {
				return nil, err
			}
		}
		return nil, Unlisted(u.declaration.String(), nil)
	case maxStale > 0 && sees.broken > maxStale:
		err := Stale(u.String(), sees.broken, maxStale, "the watch was interrupted")
		for _, src := range u.sources {
			if broken, why := src.broken(); broken > maxStale {
				err = Stale(src.String(), broken, maxStale, why)
				src.sayStale(step, err)
			}
		}
		return nil, err
	case sees.state.broken != nil:
		return nil, &brokenError{sees.state.broken}
	case u.declared.Required && !t.fixed.Partial && sees.state.objects.Len() == 0:
		return nil, u.absence()
	}
	return sees.state, nil
}

// Unlisted returns the error of steps whose objects have never been listed. It does not wrap the API server's refusal,
// which would look like a denial of the step. why is nil if nothing has failed yet.
func Unlisted(objects string, why error) error {
	if why == nil {
		return fmt.Errorf("%s have not been listed yet", objects)
	}
	return fmt.Errorf("%s cannot be listed: %s", objects, why.Error())
}

// Stale returns the error of a step whose objects are older than it allows.
func Stale(objects string, age, allowed time.Duration, why string) error {
	return fmt.Errorf("%s are known as they were %s ago, and the step allows %s (Read.MaxStale): %s", objects, age.Round(time.Second), allowed, why)
}

// brokenError is the error of a step after a function of its declaration has failed. It can quote an object.
type brokenError struct{ error }

// Note says something about the reads of a call. It is one of three: a step can read; a step has read a declaration,
// with a failure or without; a step was served an object. Notes are comparable, and equal if they say the same. A Note
// shares the memory of its object with the Set.
type Note struct {
	Step    string // empty in a Note about an object
	Failure string // why the step could not read the declaration
	view    *view  // nil if the step has not read yet
	entry   *entry // of a Note about an object
}

// Declaration returns what was read, or nil if the step has not read yet. Steps that share memory have the same.
func (n Note) Declaration() *Declaration {
	if n.view == nil {
		return nil
	}
	return &n.view.declaration
}

// IsObject reports whether the Note is about an object.
func (n Note) IsObject() bool { return n.entry != nil }

// Object returns a copy of the object that the Note is about, in the declared type.
func (n Note) Object() (any, error) {
	object := reflect.New(n.view.object.Elem()).Interface()
	return object, n.view.decodeInto(n.entry.text, object)
}

// Bytes is the memory that the object of the Note takes.
func (n Note) Bytes() int {
	if n.entry == nil {
		return 0
	}
	return len(n.entry.text) + len(n.entry.namespace) + len(n.entry.name)
}

// noting is the key of a context's value.
type noting struct{}

// WithNotes returns a context for the requests of a call. noted receives the Notes of the call, on the goroutines of
// the steps, also after the call if a step was left behind. An object that is served twice is noted twice.
func WithNotes(ctx context.Context, noted func(Note)) context.Context {
	return context.WithValue(ctx, noting{}, noted)
}

func notes(ctx context.Context) func(Note) {
	noted, _ := ctx.Value(noting{}).(func(Note))
	return noted
}
