package admit

// This file bounds the memory that the decoded objects of all calls take together.

import (
	"context"
	"fmt"

	"golang.org/x/sync/semaphore"

	"code.cloudfoundry.org/eirinix/internal/decode"
)

// An object is counted twice, because steps change a copy. The budget has room for one object of the largest size, or
// for many smaller ones. An object that takes no more than decode.Free needs no room at all.
const copies = 2

// room is the memory budget for the decoded objects of all calls together. Old objects have a budget of their own. A
// call that holds one object and waits for the other therefore never waits for a call that does the reverse.
type room struct{ objects, oldObjects *semaphore.Weighted }

func newRoom() *room {
	return &room{semaphore.NewWeighted(copies * decode.Most), semaphore.NewWeighted(copies * decode.Most)}
}

// memory is the share of one object of a call in the budget. It belongs to the goroutine that runs the steps. A nil
// memory takes nothing from the budget.
type memory struct {
	room  *semaphore.Weighted
	ctx   context.Context // of the call: it bounds the wait for room
	taken int64
}

// decode reads an object into a Go type. It first releases the memory of the object that was read before.
func (m *memory) decode(raw []byte, into any) error {
	if m == nil {
		return decode.Into(raw, into)
	}
	m.release()
	made, err := decode.Within(raw, into, func(most int64) error {
		if err := m.room.Acquire(m.ctx, copies*most); err != nil {
			return fmt.Errorf("no memory became free for the object: %w", context.Cause(m.ctx))
		}
		m.taken = copies * most
		return nil
	})
	if err != nil {
		m.release()
		return err
	}
	if rest := m.taken - copies*made; rest > 0 {
		m.room.Release(rest)
		m.taken -= rest
	}
	return nil
}

func (m *memory) release() {
	if m != nil && m.taken > 0 {
		m.room.Release(m.taken)
		m.taken = 0
	}
}
