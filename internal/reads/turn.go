package reads

// This file serves one run of a step.

import (
	"context"
	"errors"
	"sync"
)

// Turn is one run of a step, which may read. All runs of a call share the Snapshot.
type Turn struct {
	open   func() *Reader // nil if the step declares nothing
	once   sync.Once
	reader *Reader // nil until the step asks for it
}

var errNoReads = errors.New("eirinix: the step has no Settings.Reads, or its Call was not made by a Manager; declare the kind in Settings.Reads, and test the step with a Harness")

// From makes the step read from a Snapshot. shared returns the value that all runs of the call share.
func (t *Turn) From(ctx context.Context, step string, shared func(first func() any) any, snapshot func(context.Context) *Snapshot) {
	Begin(ctx, step)
	t.open = func() *Reader {
		taken, _ := shared(func() any { return snapshot(ctx) }).(*Snapshot)
		return taken.Reader(step)
	}
}

// Reader returns the Reader of the run.
func (t *Turn) Reader() *Reader {
	t.once.Do(func() {
		if t.reader = Failing(errNoReads); t.open != nil {
			t.reader = t.open()
		}
	})
	return t.reader
}

// Err returns the error with which the step has failed, although the step may have dropped it.
func (t *Turn) Err() error {
	if t.reader == nil {
		return nil
	}
	return t.reader.Err()
}
