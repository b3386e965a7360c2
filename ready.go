package eirinix

// This file knows whether a Manager is ready, and why not.

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/go-logr/logr"

	"code.cloudfoundry.org/eirinix/internal/controller"
	"code.cloudfoundry.org/eirinix/internal/lograte"
	"code.cloudfoundry.org/eirinix/internal/wait"
	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

// readiness is whether the Manager is ready. It is safe for concurrent use.
type readiness struct {
	first chan struct{} // is closed once the Manager is ready for the first time

	mu  sync.Mutex
	why error // the reason why the Manager is not ready; nil once it is
}

// begin makes the Manager ready for the first time. It must be called only once.
func (r *readiness) begin() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.why = nil
	close(r.first)
}

// lack records the reason why the Manager is not ready. Before it is first ready, this is the condition that it waits for.
func (r *readiness) lack(why error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.why = why
}

// trusted records whether API servers trust the serving certificate: doubt is nil if they do, else the reason. It has
// no effect before the Manager was first ready, nor once it stops.
func (r *readiness) trusted(doubt error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-r.first:
		if !errors.Is(r.why, errStopped) {
			r.why = doubt
		}
	default:
	}
}

// check returns nil if the Manager is ready, else the reason why it is not.
func (r *readiness) check() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.why
}

// report returns a function with which the controller reports whether API servers can call this process: nil if they can,
// else the reason why not. reached is closed the first time that they can. A final error before that is sent to failed.
func (r *readiness) report(log logr.Logger, reached chan<- struct{}, failed chan<- error) func(error) {
	var was, ended atomic.Bool
	waits := lograte.Limiter{}
	return func(err error) {
		_, replaced := errors.AsType[*controller.AnotherProgramError](err)
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
			r.lack(err)
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
