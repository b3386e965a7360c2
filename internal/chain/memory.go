package chain

// This file bounds the memory of decoded objects, and the runs that were left behind.

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/semaphore"

	"code.cloudfoundry.org/eirinix/internal/decode"
)

// An object is counted twice, because steps change a copy. While it is decoded, the most that it can take is reserved
// once. An object that takes no more than decode.Free is not counted. One that takes more than an account has counts as
// all of it, and so has it alone.
const (
	copies         = 2
	decodedCalls   = decode.MaxMemory
	decodedShadows = decode.MaxMemory / 2
)

// A Budget bounds the memory of the decoded objects of all calls together, or of all shadows. Old objects have an account
// of their own, so that a call that holds one object and waits for the other never waits for a call that does the reverse.
// What steps hold that were left behind no longer delays others, so it is in no account. It is safe for concurrent use.
type Budget struct {
	objects, oldObjects *account
	left                atomic.Int64 // held by runs that were left behind
	maxLeft             int64        // at which no further run begins of a step that was left behind
}

// NewBudget returns the budget of the calls.
func NewBudget() *Budget { return newBudget(decodedCalls) }

func newBudget(most int64) *Budget {
	return &Budget{objects: newAccount(most), oldObjects: newAccount(most / 2), maxLeft: most}
}

// LeftBehind returns the bytes that runs hold that were left behind.
func (b *Budget) LeftBehind() int64 { return b.left.Load() }

// account is memory for decoded objects. A step that takes its time with an object thus delays no decoding of another,
// as long as there is room for what both take.
type account struct {
	decoding, held *semaphore.Weighted
	most           int64 // of held
}

func newAccount(most int64) *account {
	return &account{semaphore.NewWeighted(decode.MaxMemory), semaphore.NewWeighted(most), most}
}

// memory is the share of one object of a call in an account. It belongs to the goroutine that runs the steps, and while
// a step runs there, to the one that leaves it behind.
type memory struct {
	account *account
	ctx     context.Context // of the call: it bounds the wait
	held    int64
	waits   atomic.Bool // it waits, or has waited in vain
}

// ErrNoMemory is the error of a call whose context ends while it waits for memory.
var ErrNoMemory = errors.New("it waited for memory, which the objects of other calls held")

// decode reads an object into a Go type. It first releases the memory of the object that was read before.
func (m *memory) decode(raw []byte, into any) error {
	m.release()
	reserved := int64(0)
	made, err := decode.Within(raw, into, func(most int64) error {
		err := m.take(m.account.decoding, most)
		if err == nil {
			reserved = most
		}
		return err
	})
	if reserved == 0 {
		return err
	}
	defer m.account.decoding.Release(reserved)
	if need := min(copies*made, m.account.most); err == nil {
		if err = m.take(m.account.held, need); err == nil {
			m.held = need
		}
	}
	return err
}

func (m *memory) take(from *semaphore.Weighted, bytes int64) error {
	if from.TryAcquire(bytes) {
		return nil
	}
	m.waits.Store(true)
	if from.Acquire(m.ctx, bytes) != nil {
		return fmt.Errorf("%w: %w", ErrNoMemory, context.Cause(m.ctx))
	}
	m.waits.Store(false)
	return nil
}

func (m *memory) release() {
	if m.held > 0 {
		m.account.held.Release(m.held)
		m.held = 0
	}
}

// maxLeft is the number of runs of a step left behind at which no further run begins. Each holds its goroutine and its
// object until it ends, and Go cannot end it.
const maxLeft = 100

// LeftBehind counts the runs of a step, or of a conversion, that were left behind and have not ended. Set Gauge before
// use. It is safe for concurrent use.
type LeftBehind struct {
	Gauge prometheus.Gauge // of the runs; nil for none
	runs  atomic.Int64
}

// lasting is what outlives the chain of a step: the runs that were left behind, and the shadows.
type lasting struct {
	LeftBehind
	shadows shadowQueue
}

// Full returns an error if no further run may begin.
func (l *LeftBehind) Full(b *Budget) error {
	runs, bytes := l.runs.Load(), b.left.Load()
	if runs < maxLeft && (runs == 0 || bytes < b.maxLeft) {
		return nil
	}
	return fmt.Errorf("%d of its runs still hang, and all that hang hold %d MiB, so no further run begins; "+
		"let it return when its context ends, and restart the program to end them", runs, bytes>>20)
}

// Count counts a run as left behind, with the bytes that it holds, until ended is called.
func (l *LeftBehind) Count(b *Budget, bytes int64) (ended func()) {
	add := func(sign int64) {
		l.runs.Add(sign)
		b.left.Add(sign * bytes)
		if l.Gauge != nil {
			l.Gauge.Add(float64(sign))
		}
	}
	add(1)
	return func() { add(-1) }
}
