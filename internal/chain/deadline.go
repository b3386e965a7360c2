package chain

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

// DefaultTimeout is the API's default for timeoutSeconds.
const DefaultTimeout = 10 * time.Second

// between is the value of run.at while no step runs.
const between = -1

// leave counts a run of a step as left behind, with the objects that the call holds, until ended is called.
func (r *run) leave(i int) (ended func()) {
	return r.steps[i].left.Count(r.budget, r.object.size()+r.old.size())
}

// ErrNoAnswer is the error of a step, or a conversion, that calls runtime.Goexit, as t.FailNow does.
var ErrNoAnswer = errors.New("it ended its goroutine without an answer")

// wait runs the steps on a new goroutine, and waits for their outcome or for the deadline.
func (r *run) wait() Outcome {
	done := make(chan Outcome, 1)
	go func() {
		defer r.release()
		defer r.returned()
		o := Outcome{Err: &stepError{step: r.Name, err: ErrNoAnswer}}
		defer func() {
			if v := recover(); v != nil { // outside of a step, so in the methods of its type
				o = Outcome{Err: &stepError{step: r.Name, err: Panicked(v)}}
			} else if i := r.at; i != between && r.end() { // Goexit also runs the deferred calls
				r.decided(i, result{decision: decisionFailed, took: time.Since(r.began), err: ErrNoAnswer})
				o.Err = &stepError{step: r.steps[i].Name, err: ErrNoAnswer}
			}
			if done <- o; r.isAbandoned() {
				r.logLatePanic(o.Err)
			}
		}()
		GrowStack()
		o = r.outcome()
	}()
	select {
	case o := <-done:
		return o
	case <-r.ctx.Done():
	}
	i, runs := r.abandon()
	if runs {
		r.decided(i, result{decision: decisionFailed, took: time.Since(r.began), err: ErrLate(r.ctx)})
		return Outcome{Err: &stepError{step: r.steps[i].Name, err: ErrLate(r.ctx)}}
	}
	select {
	case o := <-done: // both happened at once
		return o
	default: // no step runs or begins any more, but the answer is due now
	}
	if i != between {
		return Outcome{Err: &stepError{step: r.steps[i].Name, err: ErrLate(r.ctx)}}
	}
	why := "decoding the object, or writing the patch, took too long"
	if r.object.memory.waits.Load() || r.old.memory.waits.Load() {
		why = ErrNoMemory.Error()
	}
	err := fmt.Errorf("%w; %s", ErrLate(r.ctx), why)
	return Outcome{Err: &stepError{step: r.Name, err: err}}
}

// release releases the memory of the objects.
func (r *run) release() {
	r.object.memory.release()
	r.old.memory.release()
}

// ErrLate returns the error of a call that has no answer when its context has ended. It wraps the cause of that.
func ErrLate(ctx context.Context) error {
	return fmt.Errorf("no answer before the deadline (timeoutSeconds of the webhook): %w", context.Cause(ctx))
}

// abandon leaves the call's goroutine behind, and the step that runs on it, if any. The memory of that step no longer
// counts as that of a call. If no step runs, abandon returns the step that ended after the deadline, or between.
func (r *run) abandon() (step int, runs bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.abandoned.Store(true)
	if r.at == between {
		return r.late, false
	}
	if !r.detached {
		r.leftEnded = r.leave(r.at)
		r.release() // the goroutine uses it only between steps
	}
	return r.at, true
}

// returned records that the call's goroutine has ended.
func (r *run) returned() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.leftEnded != nil {
		r.leftEnded()
	}
	r.at, r.leftEnded = between, nil
}

func (r *run) isAbandoned() bool { return r.abandoned.Load() }

// begin records which step runs, and whether it has a goroutine of its own. After the deadline, it returns an error and
// no step begins.
func (r *run) begin(step int, detached bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ctx.Err() != nil {
		return ErrLate(r.ctx)
	}
	r.at, r.detached = step, detached
	return nil
}

// end records that the step that ran, if any, has ended. It returns false if the step was left behind: then the
// goroutine that waits has counted and reported it.
func (r *run) end() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.isAbandoned() {
		return false
	}
	r.trace.returned(r.at)
	if r.at != between && r.ctx.Err() != nil {
		r.late = r.at
	}
	r.at = between
	return true
}

// task is the function of a step, with its arguments.
type task struct {
	run            RunFunc
	call           *Call
	oldObj, newObj runtime.Object
}

// attempt runs a step's task within the step's deadline.
func (r *run) attempt(i int, t task) error {
	s := r.steps[i]
	timeout, shorter := s.Timeout, false
	if end, ok := r.ctx.Deadline(); timeout > 0 {
		shorter = !ok || time.Until(end) > timeout
	} else if promised := r.promisedAfter(i); promised > 0 && ok {
		timeout, shorter = max(time.Until(end)-promised, time.Millisecond), true
	}
	detached := s.Ignore || shorter
	ctx := r.trace.begin(r.ctx, i, s.Name)
	if err := r.begin(i, detached); err != nil {
		r.trace.end(i, result{decision: decisionFailed, err: err})
		return err
	} else if !detached {
		return r.do(i, ctx, &t)
	} else if !shorter {
		timeout = 0
	}
	return r.attemptDetached(i, ctx, timeout, t)
}

// promisedAfter returns the time that later steps are guaranteed by their timeouts. A step without a timeout of its own
// leaves that time to them.
func (r *run) promisedAfter(step int) (sum time.Duration) {
	for i := step + 1; i < len(r.steps); i++ {
		if r.wants[i]&wantKind != 0 {
			sum += r.steps[i].Timeout
		}
	}
	return sum
}

// attemptDetached runs the task on another goroutine, and leaves that goroutine behind after the timeout. A timeout of
// 0 means the call's deadline.
func (r *run) attemptDetached(i int, ctx context.Context, timeout time.Duration, t task) error {
	if timeout > 0 {
		limited, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		ctx = limited
	}
	if r.turn != nil {
		r.turn.Unlock()
		defer r.turn.Lock()
	}
	done := make(chan error, 1)
	var over atomic.Bool // set by the run or by its caller, whichever is first
	var ended func()
	go func() {
		err := ErrNoAnswer
		defer func() {
			if done <- err; over.Swap(true) {
				ended()
				r.logLatePanic(&stepError{step: r.steps[i].Name, err: err})
			}
		}()
		err = r.do(i, ctx, &t)
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	ended = r.leave(i)
	if over.Swap(true) { // the run ended at this moment
		ended()
		r.logLatePanic(&stepError{step: r.steps[i].Name, err: <-done})
	}
	return ErrLate(ctx)
}

// do runs a task, and turns a panic of the step into an error. An error that the step returns after its deadline names
// the deadline, because the user can change that.
func (r *run) do(i int, ctx context.Context, t *task) (err error) {
	defer func() {
		if v := recover(); v != nil {
			r.steps[i].metrics.panics.Inc()
			err = Panicked(v)
		}
	}()
	err = t.run(ctx, t.call, t.oldObj, t.newObj)
	if err == nil || ctx.Err() == nil {
		return err
	} else if err.Error() == ctx.Err().Error() {
		return ErrLate(ctx)
	}
	return fmt.Errorf("%w (the step returned: %w)", ErrLate(ctx), err)
}

// logLatePanic logs the panic of a step that was left behind. Its call has already been answered, and logged as late.
func (r *run) logLatePanic(err error) {
	if _, ok := errors.AsType[*panicError](err); ok {
		r.logFailure(r.log, err, "step panicked after its deadline")
	}
}

// GrowStack grows the stack of a new goroutine to the size that a call needs, while nothing on it has to be moved. It
// saves a tenth of the CPU time of a call with a pod of 4 KB.
//
//go:noinline
func GrowStack() {
	var room [12 << 10]byte
	goruntime.KeepAlive(&room)
}
