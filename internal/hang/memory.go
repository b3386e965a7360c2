package hang

// This file bounds the memory that runs hold, and the runs that were left behind.

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/semaphore"
)

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
