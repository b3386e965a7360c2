package seam

// This file lets one Tap at a time see the calls of a program.

import (
	"context"
	"errors"
	"net/http"
	"path"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
)

// tapTimeout bounds End.
const tapTimeout = 5 * time.Second

// Taps holds the Tap of a program. It is safe for concurrent use.
type Taps struct {
	taken atomic.Bool         // a Tap was requested and has not been released
	tap   atomic.Pointer[Tap] // nil while there is none
}

// Start is Program.Tap.
func (t *Taps) Start(open func(release func()) (Tap, error)) error {
	if !t.taken.CompareAndSwap(false, true) {
		return errors.New("eirinix: another recording is in progress; stop it first")
	}
	tap, err := open(func() {
		t.tap.Store(nil)
		t.taken.Store(false)
	})
	if err != nil {
		t.taken.Store(false)
		return err
	}
	t.tap.Store(&tap)
	return nil
}

// End ends a Tap that has not been released.
func (t *Taps) End(log logr.Logger) {
	tap := t.tap.Load()
	if tap == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), tapTimeout)
	defer cancel()
	if err := tap.End(ctx); err != nil {
		log.Error(err, "the recording is not whole")
	}
}

// Wrap gives the calls of a handler to a Tap, except those of which the path ends with a name.
func (t *Taps) Wrap(handler http.Handler, except string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if tap := t.tap.Load(); tap != nil && path.Base(r.URL.Path) != except {
			tap.Wrap(handler).ServeHTTP(w, r)
			return
		}
		handler.ServeHTTP(w, r)
	})
}
