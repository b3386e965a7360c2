package admit

import (
	"context"
	"errors"
	"sync/atomic"
)

// errTooBusy is for a call that finds every place taken, at work and in the queue. Another replica, or this
// one in a moment, can take it.
var errTooBusy = errors.New("too many admission requests at once")

// limiter bounds how many calls are at work and how many wait for that, so that a flood of large objects
// costs time, which the API server bounds, and not memory. It is safe for concurrent use; nil is no limit.
type limiter struct {
	working chan struct{} // holds one element for each call at work; those that wait are served in turn
	waiting atomic.Int64
	most    int64 // bound on waiting
}

// newLimiter lets working calls work, at least one, while up to waiting more wait.
func newLimiter(working, waiting int) *limiter {
	return &limiter{working: make(chan struct{}, max(working, 1)), most: int64(waiting)}
}

// acquire waits for leave to work, which release gives back. It fails at once with errTooBusy when too many
// wait already, and with the context's cause when that ends first.
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
	if ctx.Err() != nil { // both came at once: nobody waits for the answer any more
		l.release()
		return context.Cause(ctx)
	}
	return nil
}

// release ends what acquire has begun.
func (l *limiter) release() {
	if l != nil {
		<-l.working
	}
}
