// Package hang runs code that can hang, as the steps and the conversions of a program can. It waits no longer than a context
// lasts. Then it leaves the code behind: its goroutine, and the memory that it holds, until it ends by itself.
package hang

// This file waits for code that can hang. It also defines the errors of code that gives no answer.

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync/atomic"
)

// ErrNoAnswer is the error of code that calls runtime.Goexit, as t.FailNow does.
var ErrNoAnswer = errors.New("it ended its goroutine without an answer")

// ErrLate returns the error of a call that has no answer when its context has ended. It wraps the cause of that.
func ErrLate(ctx context.Context) error {
	return fmt.Errorf("no answer before the deadline (timeoutSeconds of the webhook): %w", context.Cause(ctx))
}

// A PanicError is the error of code that panics.
type PanicError struct {
	Value any
	Stack []byte
}

func (p *PanicError) Error() string { return fmt.Sprintf("panic: %v", p.Value) }

// Recovered turns a panic into a PanicError.
func Recovered(do func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &PanicError{v, debug.Stack()}
		}
	}()
	return do()
}

// Work is code that can hang.
type Work interface {
	Do() error      // is called on a goroutine of its own
	Leave()         // is called when the context has ended before Do: what Do holds no longer counts as that of a call
	Left(err error) // is called after Leave when Do has ended, too, with its error
}

// Await returns the error of w.Do. If ctx ends before, Await leaves w behind and returns ErrLate.
func Await(ctx context.Context, w Work) error {
	r := &awaited{done: make(chan struct{})}
	go r.do(w)
	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
	}
	select {
	case <-r.done: // both happened at once
		return r.err
	default:
	}
	if w.Leave(); r.over.Swap(true) { // Do ended meanwhile
		w.Left(r.err)
	}
	return ErrLate(ctx)
}

// awaited is Work on its goroutine.
type awaited struct {
	err  error
	done chan struct{}
	over atomic.Bool // is set by the goroutine or by the one that waits, and the second of them calls Left
}

func (r *awaited) do(w Work) {
	r.err = ErrNoAnswer
	defer func() {
		if close(r.done); r.over.Swap(true) {
			w.Left(r.err)
		}
	}()
	growStack()
	r.err = Recovered(w.Do)
}

// growStack grows the stack of a new goroutine to the size that a call needs, while nothing on it has to be moved. It
// saves a tenth of the CPU time of a call with a pod of 4 KB.
//
//go:noinline
func growStack() {
	var room [12 << 10]byte
	runtime.KeepAlive(&room)
}
