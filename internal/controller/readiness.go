package controller

// This file knows whether a program is ready, and why not.

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/go-logr/logr"

	"code.cloudfoundry.org/eirinix/internal/lograte"
	"code.cloudfoundry.org/eirinix/internal/wait"
	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

// ErrStopped is the reason why a program that stops is not ready.
var ErrStopped = errors.New("the Manager was stopped")

// Readiness is whether the program is ready. It is safe for concurrent use.
type Readiness struct {
	first chan struct{} // is closed once the program is ready for the first time

	mu  sync.Mutex
	why error // the reason why the program is not ready; nil once it is
}

// NewReadiness returns the Readiness of a program that is not ready, for this reason.
func NewReadiness(why error) *Readiness {
	return &Readiness{first: make(chan struct{}), why: why}
}

// First returns a channel that is closed once the program is ready for the first time.
func (r *Readiness) First() <-chan struct{} { return r.first }

// Begin makes the program ready for the first time. It must be called only once.
func (r *Readiness) Begin() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.why = nil
	close(r.first)
}

// Lack records the reason why the program is not ready. Before it is first ready, this is the condition that it waits for.
func (r *Readiness) Lack(why error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.why = why
}

// trusted records whether API servers trust the serving certificate: doubt is nil if they do, else the reason. It has
// no effect before the program was first ready, nor once it stops.
func (r *Readiness) trusted(doubt error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-r.first:
		if !errors.Is(r.why, ErrStopped) {
			r.why = doubt
		}
	default:
	}
}

// Check returns nil if the program is ready, else the reason why it is not.
func (r *Readiness) Check() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.why
}

// Report returns a function with which the controller reports whether API servers can call this process: nil if they can,
// else the reason why not. reached is closed the first time that they can. A final error before that is sent to failed.
func (r *Readiness) Report(log logr.Logger, reached chan<- struct{}, failed chan<- error) func(error) {
	var was, ended atomic.Bool
	waits := lograte.Limiter{}
	return func(err error) {
		_, replaced := errors.AsType[*AnotherProgramError](err)
		switch {
		case replaced && ended.CompareAndSwap(false, true), !was.Load() && isFinal(err): // the former also ends a program that is ready
			was.Store(true)
			failed <- fmt.Errorf("eirinix: %w", err)
		case was.Load():
			r.trusted(err)
		case err == nil:
			was.Store(true)
			close(reached)
		default:
			r.Lack(err)
			waits.Info(log, "not ready: serving, but not registered", err.Error())
		}
	}
}

// isFinal reports whether an error ends the program: another program uses its fingerprint, or it lacks a right that it
// must have.
func isFinal(err error) bool {
	_, owned := errors.AsType[*webhookconf.OwnedElsewhereError](err)
	_, refused := errors.AsType[*wait.RefusedError](err)
	return owned || refused
}
