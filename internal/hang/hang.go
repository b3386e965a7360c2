// Package hang runs code that can hang, as the steps and the conversions of a program can. It waits no longer than a context
// lasts. Then it leaves the code behind: its goroutine, and the memory that it holds, until it ends by itself.
package hang

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/semaphore"
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

// ErrNoMemory is the error of a run whose context ends while it waits for memory.
var ErrNoMemory = errors.New("it waited for memory, which the objects of other calls held")

// An Account is memory that runs share. A run that takes more than an account has counts as all of it, and so has it
// alone.
type Account struct {
	*semaphore.Weighted
	Max int64
}

// NewAccount returns an Account of so many bytes.
func NewAccount(most int64) Account { return Account{semaphore.NewWeighted(most), most} }

// Memory is what one run holds of an Account. It is safe for concurrent use.
type Memory struct {
	Of      Account
	Context context.Context // of the run; it bounds the wait

	held  atomic.Int64
	waits atomic.Bool
	left  atomic.Bool
}

// Take takes more memory, and waits for it until the context ends.
func (m *Memory) Take(bytes int64) error {
	bytes = min(bytes, m.Of.Max)
	if !m.Of.TryAcquire(bytes) {
		m.waits.Store(true)
		if m.Of.Acquire(m.Context, bytes) != nil {
			return fmt.Errorf("%w; %w", ErrLate(m.Context), ErrNoMemory)
		}
		m.waits.Store(false)
	}
	if m.held.Add(bytes); m.left.Load() { // both happened at once
		m.Release()
		return ErrLate(m.Context)
	}
	return nil
}

// Held returns how much is held.
func (m *Memory) Held() int64 { return m.held.Load() }

// Release gives back what is held, and returns how much that was.
func (m *Memory) Release() (held int64) {
	if held = m.held.Swap(0); held > 0 {
		m.Of.Release(held)
	}
	return held
}

// Leave releases the memory of a run that is left behind. The run can take no more.
func (m *Memory) Leave() (held int64) {
	m.left.Store(true)
	return m.Release()
}

// Waits reports whether the run waits for memory, or has waited in vain.
func (m *Memory) Waits() bool { return m.waits.Load() }

// maxRuns is the number of runs left behind at which no further run begins. Each holds its goroutine and its object until
// it ends, and Go cannot end it.
const maxRuns = 100

// LeftBehind is the memory of all runs that were left behind. It is safe for concurrent use.
type LeftBehind struct {
	Max   int64 // no further run begins of a step that was left behind while they hold as much
	bytes atomic.Int64
}

// Bytes returns what they hold.
func (l *LeftBehind) Bytes() int64 { return l.bytes.Load() }

// Runs counts the runs of a step, or of a conversion, that were left behind and have not ended. Set Gauge before use. It is
// safe for concurrent use.
type Runs struct {
	Gauge prometheus.Gauge // of the runs
	count atomic.Int64
}

// Count returns their number.
func (r *Runs) Count() int64 { return r.count.Load() }

// Full returns an error if no further run may begin.
func (r *Runs) Full(all *LeftBehind) error {
	runs, bytes := r.Count(), all.Bytes()
	if runs < maxRuns && (runs == 0 || bytes < all.Max) {
		return nil
	}
	return fmt.Errorf("%d of its runs still hang, and all that hang hold %d MiB, so no further run begins; "+
		"let it return when its context ends, and restart the program to end them", runs, bytes>>20)
}

// Add counts a run as left behind, with the bytes that it holds, until ended is called.
func (r *Runs) Add(all *LeftBehind, bytes int64) (ended func()) {
	add := func(sign int64) {
		r.count.Add(sign)
		all.bytes.Add(sign * bytes)
		r.Gauge.Add(float64(sign))
	}
	add(1)
	return func() { add(-1) }
}
