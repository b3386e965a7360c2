package admit

// This file runs steps within their deadlines. A step can ignore its context, but the API server must still get an
// answer in time. The steps of a call therefore run on a goroutine of their own. When the deadline passes, that
// goroutine is left behind with everything that it holds. A step whose failure does not end the call gets another
// goroutine, so that it can be left behind alone.

import (
	"context"
	"errors"
	"fmt"
	goruntime "runtime"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
)

// between is the value of call.at while no step runs.
const between = -1

// mostLeft is the number of runs of a step left behind at which no further run begins. Each holds its goroutine and its
// object until it ends, and Go cannot end it.
const mostLeft = 100

// left counts the runs of a step that were left behind and have not ended.
type left struct {
	runs    atomic.Int64
	metrics *stepMetrics
}

func (l *left) add(n int64) {
	l.runs.Add(n)
	l.metrics.leftBehind(n)
}

var errNoAnswer = errors.New("it ended its goroutine without an answer") // runtime.Goexit, which t.FailNow calls too

// wait runs the steps on a new goroutine, and waits for their outcome or for the deadline.
func (k *call) wait() outcome {
	done := make(chan outcome, 1)
	go func() {
		defer k.release()
		defer k.returned()
		o := outcome{err: &stepError{step: k.name, err: errNoAnswer}}
		defer func() {
			if r := recover(); r != nil { // caught recovers a step's panics, but methods of its types can panic, too
				o = outcome{err: &stepError{step: k.name, err: panicked(r)}}
			} else if k.at != between && !k.isAbandoned() { // Goexit also runs the deferred calls
				k.decided(k.at, decisionFailed, 0)
				o.err = &stepError{step: k.Steps[k.at].Name, err: errNoAnswer}
			}
			if done <- o; k.isAbandoned() {
				k.logLatePanic(o.err)
			}
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
	select {
	case o := <-done: // both happened at once
		return o
	default: // no step runs or begins any more, but the answer is due now
		return outcome{err: &stepError{step: k.name, err: fmt.Errorf("%w; decoding the object, or writing the patch, took too long", errLate(k.ctx))}}
	}
}

// release releases the memory of the objects. A step that is left behind keeps it as long as it runs.
func (k *call) release() {
	k.object.memory.release()
	k.old.memory.release()
}

func errLate(ctx context.Context) error {
	return fmt.Errorf("no answer before the deadline (timeoutSeconds of the webhook): %w", context.Cause(ctx))
}

// abandon leaves the call's goroutine behind, and the step that runs on it, if any. It returns that step, or between.
func (k *call) abandon() (step int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.abandoned.Store(true)
	if k.leftAt = k.at; k.at != between {
		k.left[k.at].add(1)
	}
	return k.at
}

// returned records that the call's goroutine has ended.
func (k *call) returned() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.leftAt != between {
		k.left[k.leftAt].add(-1)
	}
	k.at, k.leftAt = between, between
}

func (k *call) isAbandoned() bool { return k.abandoned.Load() }

// moveTo records which step runs on the call's goroutine. After the deadline, it returns an error and no step begins.
func (k *call) moveTo(step int) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if step != between && k.ctx.Err() != nil {
		return errLate(k.ctx)
	}
	k.at = step
	return nil
}

// task is one run of a step, with its arguments.
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

// attempt runs a step's task within the step's deadline.
func (k *call) attempt(i int, t task) error {
	s, timeout := t.step, t.step.Timeout
	if n := k.left[i].runs.Load(); n >= mostLeft {
		return fmt.Errorf("%d of its runs still hang, so no other begins: let it obey its context, and restart the program to be rid of them", n)
	}
	shorter := false
	if end, ok := k.ctx.Deadline(); timeout > 0 {
		shorter = !ok || time.Until(end) > timeout
	} else if promised := k.promisedAfter(i); promised > 0 && ok {
		timeout, shorter = max(time.Until(end)-promised, time.Millisecond), true
	}
	if !s.Ignore && !shorter {
		if err := k.moveTo(i); err != nil {
			return err
		}
		err := k.caught(i, k.ctx, &t)
		_ = k.moveTo(between) // moveTo fails only when a step begins
		return err
	} else if shorter {
		return k.attemptApart(i, timeout, t)
	}
	return k.attemptApart(i, 0, t)
}

// promisedAfter returns the time that later steps are guaranteed by their timeouts. A step without a timeout of its own
// leaves that time to them.
func (k *call) promisedAfter(step int) (sum time.Duration) {
	for i := step + 1; i < len(k.Steps); i++ {
		if k.wants[i]&wantKind != 0 {
			sum += k.Steps[i].Timeout
		}
	}
	return sum
}

// attemptApart runs the task on another goroutine, and leaves that goroutine behind after the timeout. A timeout of 0
// means the call's deadline.
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
	var over atomic.Bool // set by the run or by its caller, whichever is first
	go func() {
		err := errNoAnswer
		defer func() {
			if done <- err; over.Swap(true) {
				k.left[i].add(-1)
				k.logLatePanic(&stepError{step: k.Steps[i].Name, err: err})
			}
		}()
		err = k.caught(i, ctx, &t)
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	k.left[i].add(1)
	if over.Swap(true) { // the run ended at this moment
		k.left[i].add(-1)
		k.logLatePanic(&stepError{step: k.Steps[i].Name, err: <-done})
	}
	return errLate(ctx)
}

// caught runs a task, and turns a panic of the step into an error.
func (k *call) caught(i int, ctx context.Context, t *task) (err error) {
	defer func() {
		if r := recover(); r != nil {
			k.stepMetrics[i].panicked()
			err = panicked(r)
		}
		if err != nil && ctx.Err() != nil && errors.Is(err, ctx.Err()) {
			err = fmt.Errorf("%w (the step says: %w)", errLate(ctx), err) // the user can change the timeout
		}
	}()
	return t.do(ctx)
}

// logLatePanic logs the panic of a step that was left behind. Its call has already been answered, and logged as late.
func (k *call) logLatePanic(err error) {
	if _, ok := errors.AsType[*panicError](err); ok {
		k.logFailure(k.log, err, "extension panicked after its deadline")
	}
}

// deepen grows the stack of a new goroutine to the size that a call needs, while nothing on it has to be moved.
//
//go:noinline
func deepen() {
	var room [12 << 10]byte
	goruntime.KeepAlive(&room)
}
