package admit

import (
	"context"
	"errors"
	"fmt"
	goruntime "runtime"
	"runtime/debug"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
)

// A step may ignore its context, and the API server must still hear in time what happened. So the steps of a
// call run on a goroutine of their own, which is left behind when the deadline passes, with all that it has in
// its hands. A step whose failure does not end the call gets another one, so that it can be left behind alone.

// between is the place of a call that runs no step.
const between = -1

var errNoAnswer = errors.New("it ended its goroutine without an answer") // runtime.Goexit, which t.FailNow calls too

// wait has the steps run, and waits for what comes of it or for the deadline.
func (k *call) wait() outcome {
	done := make(chan outcome, 1)
	go func() {
		o := outcome{err: &stepError{step: k.name, err: errNoAnswer}}
		defer func() {
			if r := recover(); r != nil { // a step's panics are caught closer to it; its types may panic as well
				o = outcome{err: &stepError{step: k.name, err: k.panicked(r, k.name)}}
			} else if k.at != between && !k.isAbandoned() { // Goexit runs the deferred calls, too
				k.decided(k.at, decisionFailed, 0)
				o.err = &stepError{step: k.Steps[k.at].Name, err: errNoAnswer}
			}
			done <- o
		}()
		deepen()
		o = k.complete()
	}()
	select {
	case o := <-done:
		return o
	case <-k.ctx.Done():
	}
	if i := k.abandon(); i != between {
		k.decided(i, decisionFailed, 0)
		return outcome{err: &stepError{step: k.Steps[i].Name, err: errLate(k.ctx)}}
	}
	return <-done // which does not take long: no step begins any more
}

func errLate(ctx context.Context) error {
	return fmt.Errorf("no answer before the deadline (timeoutSeconds of the webhook): %w", context.Cause(ctx))
}

// abandon leaves behind the step that runs on the call's goroutine, if one does.
func (k *call) abandon() (step int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.abandoned.Store(k.at != between)
	return k.at
}

func (k *call) isAbandoned() bool { return k.abandoned.Load() }

// moveTo notes which step runs on the call's goroutine. After the deadline, none begins.
func (k *call) moveTo(step int) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if step != between && k.ctx.Err() != nil {
		return errLate(k.ctx)
	}
	k.at = step
	return nil
}

// task is what a step is to do.
type task struct {
	step           *Step
	exchange       *Exchange
	oldObj, newObj runtime.Object
	handle         func(context.Context) // of a step that makes its own patch
}

func (t *task) do(ctx context.Context) error {
	switch {
	case t.handle != nil:
		t.handle(ctx)
		return nil
	case t.step.Mutate != nil:
		return t.step.Mutate(ctx, t.exchange, t.newObj)
	}
	return t.step.Check(ctx, t.exchange, t.oldObj, t.newObj)
}

// attempt has a step do its task within the step's deadline.
func (k *call) attempt(i int, t task) error {
	s := t.step
	shorter := false
	if s.Timeout > 0 {
		end, ok := k.ctx.Deadline()
		shorter = !ok || time.Until(end) > s.Timeout
	}
	if !s.Ignore && !shorter {
		if err := k.moveTo(i); err != nil {
			return err
		}
		err := k.caught(i, k.ctx, &t)
		_ = k.moveTo(between) // only the beginning of a step can fail
		return err
	} else if shorter {
		return k.attemptApart(i, s.Timeout, t)
	}
	return k.attemptApart(i, 0, t)
}

// attemptApart does so on another goroutine, and leaves it behind when its time is over; 0 is the call's time.
func (k *call) attemptApart(i int, timeout time.Duration, t task) error {
	ctx := k.ctx
	if timeout > 0 {
		limited, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		ctx = limited
	}
	if ctx.Err() != nil {
		return errLate(ctx)
	}
	done := make(chan error, 1)
	go func() {
		err := errNoAnswer
		defer func() { done <- err }()
		err = k.caught(i, ctx, &t)
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return errLate(ctx)
	}
}

// caught makes an error of a step's panic.
func (k *call) caught(i int, ctx context.Context, t *task) (err error) {
	defer func() {
		if r := recover(); r != nil {
			k.stepMetrics[i].panicked()
			err = k.panicked(r, k.Steps[i].Name)
		}
		if err != nil && ctx.Err() != nil && errors.Is(err, ctx.Err()) {
			err = fmt.Errorf("%w (the step says: %w)", errLate(ctx), err) // the timeout is what the user can change
		}
	}()
	return t.do(ctx)
}

func (k *call) panicked(r any, step string) error {
	k.log.Info("extension panicked", "step", step, "panic", fmt.Sprint(r), "stack", string(debug.Stack()))
	return fmt.Errorf("panic: %v", r)
}

// deepen makes the stack of a new goroutine as large as a call needs it, while there is nothing on it that would have to
// be moved.
//
//go:noinline
func deepen() {
	var room [12 << 10]byte
	goruntime.KeepAlive(&room)
}
