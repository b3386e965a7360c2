package admit

// This file bounds how many calls run and wait at once.

import (
	"context"
	"errors"
	"sync/atomic"
)

// errTooBusy is the error for a call that finds every slot taken, for running and for waiting. Another replica can take
// the call, or this one a moment later.
var errTooBusy = errors.New("too many admission requests at once")

// limiter bounds how many calls run and how many wait for a slot. A flood of large objects then costs time, which the
// API server bounds, and not memory. It is safe for concurrent use. A nil limiter sets no limit.
type limiter struct {
	working chan struct{} // holds one element for each running call; waiting calls are served in turn
	waiting atomic.Int64
	most    int64 // bound on waiting
}

// newLimiter lets up to working calls run, at least one, while up to waiting more wait.
func newLimiter(working, waiting int) *limiter {
	return &limiter{working: make(chan struct{}, max(working, 1)), most: int64(waiting)}
}

// acquire waits for a slot, which release frees. It fails at once with errTooBusy if too many calls wait already. It
// fails with the context's cause if the context ends first.
func (l *limiter) acquire(ctx context.Context) error {
	if l == nil {
		return nil
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	select {
	case l.working <- struct{}{}:
		return nil
	default:
	}
	if l.waiting.Add(1) > l.most {
		l.waiting.Add(-1)
		return errTooBusy
	}
	defer l.waiting.Add(-1)
	select {
	case l.working <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if ctx.Err() != nil { // both happened at once, and no client waits for the answer any more
		l.release()
		return context.Cause(ctx)
	}
	return nil
}

// release frees the slot that acquire took.
func (l *limiter) release() {
	if l != nil {
		<-l.working
	}
}
