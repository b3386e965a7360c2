package record

// This file copies the bodies of requests and responses into memory, within a budget.

import (
	"sync"
	"sync/atomic"
)

// budget bounds the memory of all calls that wait to be written. It is safe for concurrent use.
type budget struct {
	most  int64
	taken atomic.Int64
}

func (b *budget) take(n int64) bool {
	if b.taken.Add(n) <= b.most {
		return true
	}
	b.taken.Add(-n)
	return false
}

func (b *budget) give(n int64) { b.taken.Add(-n) }

// Most reviews fit into a pooled buffer. Larger ones get memory as they arrive, because a Content-Length is only the
// caller's claim.
const (
	firstBytes  = 32 << 10
	mostPooled  = 1 << 20
	firstAnswer = 1 << 10
)

var pool = sync.Pool{New: func() any { return new(make([]byte, 0, firstBytes)) }}

// buffer copies one body. It is not safe for concurrent use.
type buffer struct {
	budget *budget
	text   []byte
	pooled *[]byte // the memory of text, unless text has outgrown it
	size   int64   // as announced by the caller; not positive if unknown
	taken  int64
	seen   bool // at least one byte was added
	lost   bool // there was no room for the whole body
}

func newBuffer(b *budget, size int64) buffer { return buffer{budget: b, size: size} }

// add copies p. Once there is no room, it drops the copy and copies nothing more.
func (b *buffer) add(p []byte) {
	if len(p) == 0 || b.lost {
		return
	}
	b.seen = true
	if need := len(b.text) + len(p); need > cap(b.text) && !b.grow(need) {
		b.release()
		b.lost = true
		return
	}
	b.text = append(b.text, p...)
}

func (b *buffer) grow(need int) bool {
	if b.text == nil && max(int64(need), b.size) > firstAnswer {
		pooled := pool.Get().(*[]byte)
		if cap(*pooled) >= need {
			if !b.take(cap(*pooled)) {
				pool.Put(pooled)
				return false
			}
			b.pooled, b.text = pooled, (*pooled)[:0]
			return true
		}
		pool.Put(pooled)
	}
	room := max(2*cap(b.text), need, firstAnswer)
	if b.size > 0 && int64(room) > b.size {
		room = max(need, int(b.size))
	}
	if !b.take(room - cap(b.text)) {
		return false
	}
	grown := make([]byte, len(b.text), room)
	copy(grown, b.text)
	b.recycle()
	b.text = grown
	return true
}

func (b *buffer) take(n int) bool {
	if !b.budget.take(int64(n)) {
		return false
	}
	b.taken += int64(n)
	return true
}

// release returns memory and budget. The text must not be used after that.
func (b *buffer) release() {
	if b.pooled == nil && cap(b.text) >= firstBytes && cap(b.text) <= mostPooled {
		b.pooled = new(b.text)
	}
	b.recycle()
	b.text = nil
	b.budget.give(b.taken)
	b.taken = 0
}

func (b *buffer) recycle() {
	if b.pooled != nil {
		*b.pooled = (*b.pooled)[:0]
		pool.Put(b.pooled)
		b.pooled = nil
	}
}
