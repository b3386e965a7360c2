package chain

// This file runs steps within their deadlines. A step can ignore its context, but the API server must still get an
// answer in time. The steps of a call therefore run on a goroutine of their own. When the deadline passes, that
// goroutine is left behind with everything that it holds.

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"code.cloudfoundry.org/eirinix/internal/hang"
)

// DefaultTimeout is the API's default for timeoutSeconds.
const DefaultTimeout = 10 * time.Second

const between = -1 // the value of progress.at while no step runs

// progress is which step of a call runs. The goroutine that runs the steps shares it with the one that waits for them.
type progress struct {
	mu        sync.Mutex
	postponed []int       // the steps that run after the answer
	at        int         // the step that runs, or between
	began     time.Time   // of the last step, with its decoding; written before mu is locked to set at
	detached  bool        // whether that step runs on a goroutine of its own
	late      int         // the step that ended after the deadline, or between
	abandoned atomic.Bool // the call was left behind, and at and late change no more
	leftEnded func()      // counts the end of the step that was left behind with it; nil if none was
}

// wait runs the steps on a new goroutine, as hang.Work, and waits for their outcome or for the deadline.
func (r *run) wait() Outcome {
	err := hang.Await(r.ctx, r)
	left := r.abandoned.Load()
	if !left {
		r.release()
	}
	name := r.Name
	switch i := r.at; {
	case i != between: // left behind, or it ended the goroutine
		name = r.steps[i].Name
		r.decided(i, result{decision: decisionFailed, took: time.Since(r.began), err: err})
	case !left && (err == nil || r.out.Err != nil):
		return r.out
	case !left: // a panic outside of a step, so in the methods of its type
	case r.late != between: // no step runs or begins any more, but the answer is due now
		name = r.steps[r.late].Name
	case r.object.memory.waits() || r.old.memory.waits():
		err = fmt.Errorf("%w; %w", err, hang.ErrNoMemory)
	default:
		err = fmt.Errorf("%w; decoding the object, or writing the patch, took too long", err)
	}
	return Outcome{Err: failureOf(err, name)}
}

func (r *run) Do() error {
	r.out = r.outcome()
	return r.out.Err
}

// Leave leaves the step behind that runs on the call's goroutine, if any. The memory of that step no longer counts as that
// of a call.
func (r *run) Leave() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.abandoned.Store(true); r.at != between && !r.detached {
		r.leftEnded = r.leave(r.at)
		r.release() // the goroutine uses it only between steps
	}
}

func (r *run) Left(err error) {
	if r.leftEnded != nil {
		r.leftEnded()
	}
	r.release()
	r.logLatePanic(err)
}

// leave counts a run of a step as left behind, with the objects that the call holds, until ended is called.
func (r *run) leave(i int) (ended func()) {
	return r.steps[i].left.Add(&r.budget.LeftBehind, r.object.size()+r.old.size())
}

// release releases the memory of the objects.
func (r *run) release() {
	r.object.memory.held.Release()
	r.old.memory.held.Release()
}

// begin records which step runs, and whether it has a goroutine of its own. After the deadline, it returns an error and
// no step begins.
func (r *run) begin(step int, detached bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ctx.Err() != nil {
		return hang.ErrLate(r.ctx)
	}
	r.at, r.detached = step, detached
	return nil
}

// end records that the step that ran, if any, has ended. It returns false if the step was left behind: then the
// goroutine that waits has counted and reported it.
func (r *run) end() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.abandoned.Load() {
		return false
	}
	if r.at != between && r.tracer != nil {
		r.spans[r.at].returned = time.Now()
	}
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

	// again is set for a second run of the step in one request, which the answer can do without. It gets the rest of the
	// step's time, and at most half of the call's, so that it can be left behind. So does a step with Ignore that is reinvoked.
	again bool
}

// attempt runs a step's task within the step's deadline. A step whose failure does not end the call, or which has less
// time, gets another goroutine, so that it can be left behind alone.
func (r *run) attempt(i int, t task) error {
	s := r.steps[i]
	timeout, shorter := s.Timeout, false
	if end, ok := r.ctx.Deadline(); timeout > 0 {
		shorter = !ok || time.Until(end) > timeout
	} else if promised, half := r.promisedAfter(i), s.Ignore && !r.allIgnore; ok && (half || promised > 0) {
		timeout, shorter = time.Until(end)-promised, true
		if half { // its failure must leave time for the steps with Fail, and for the answer
			timeout /= 2
		}
		timeout = max(timeout, time.Millisecond)
	}
	reinvoked := r.ran != nil && r.ran[i]
	if end, ok := r.ctx.Deadline(); ok && (t.again || reinvoked && s.Ignore) {
		switch {
		case s.Timeout > 0:
			timeout -= time.Since(r.began)
		case timeout == 0:
			timeout = time.Until(end)
		}
		timeout, shorter = max(min(timeout, time.Until(end)/2), time.Millisecond), true
	}
	detached := s.Ignore || shorter
	ctx := r.beginSpan(i)
	if err := r.begin(i, detached); err != nil {
		r.endSpan(i, result{decision: decisionFailed, err: err})
		return err
	} else if !detached {
		return r.do(i, ctx, &t)
	}
	if shorter {
		limited, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		ctx = limited
	}
	if r.turn != nil {
		r.turn.Unlock()
		defer r.turn.Lock()
	}
	return hang.Await(ctx, &detachedRun{run: r, step: i, ctx: ctx, task: t})
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

// detachedRun is a run of a step on a goroutine of its own.
type detachedRun struct {
	*run
	step  int
	ctx   context.Context
	task  task
	ended func()
}

func (d *detachedRun) Do() error { return d.do(d.step, d.ctx, &d.task) }
func (d *detachedRun) Leave()    { d.ended = d.leave(d.step) }
func (d *detachedRun) Left(err error) {
	d.ended()
	d.logLatePanic(failureOf(err, d.steps[d.step].Name))
}

// do runs a task, and turns a panic of the step into an error. An error that the step returns after its deadline names
// the deadline, because the user can change that.
func (r *run) do(i int, ctx context.Context, t *task) error {
	err := hang.Recovered(func() error { return t.run(ctx, t.call, t.oldObj, t.newObj) })
	if _, panicked := errors.AsType[*hang.PanicError](err); panicked {
		r.steps[i].metrics.panics.Inc()
		return err
	} else if err == nil || ctx.Err() == nil {
		return err
	} else if err.Error() == ctx.Err().Error() {
		return hang.ErrLate(ctx)
	}
	return fmt.Errorf("%w (the step returned: %w)", hang.ErrLate(ctx), err)
}

// logLatePanic logs the panic of a step that was left behind. Its call has already been answered, and logged as late.
func (r *run) logLatePanic(err error) {
	if _, ok := errors.AsType[*hang.PanicError](err); ok {
		r.logFailure(r.log, err, "step panicked after its deadline")
	}
}
