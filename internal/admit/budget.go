package admit

// This file bounds the memory and the calls at work: the bodies of requests, the slots, and the decoded objects.

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"code.cloudfoundry.org/eirinix/internal/decode"
)

// Request bodies are the memory that an unauthenticated caller controls. The first firstBytes of each are always read.
// More is reserved from a budget that all calls share, until the answer is ready to be sent. If the budget is used up,
// calls whose bodies arrive slower than an API server sends are ended. A client that only holds on to room thus loses
// it to the first call that needs it.
const (
	firstBytes    = 64 << 10               // holds most reviews whole
	bodiesAtOnce  = 8                      // of the largest size allowed, or more if they are smaller
	bodiesWaiting = 64                     // bodies that wait for room
	slowGrace     = 250 * time.Millisecond // before a body can count as slow
	slowRate      = 4 << 20                // bytes a second; a link of 100 Mbit/s carries three times that
)

// bodies is the budget for the request bodies of all calls. It is safe for concurrent use.
type bodies struct {
	maxBytes int64
	room     *semaphore.Weighted
	waiting  atomic.Int64

	mu       sync.Mutex
	arriving map[*body]struct{}
}

func newBodies(maxBytes int64) *bodies {
	// A Content-Length beyond maxBytes is refused, so the room that a body asks for always fits into the budget.
	return &bodies{maxBytes: maxBytes, room: semaphore.NewWeighted(bodiesAtOnce * maxBytes), arriving: map[*body]struct{}{}}
}

// body is the body of one request, while it is read and used.
type body struct {
	all        *bodies
	request    *http.Request
	due        deadline
	connection *http.ResponseController
	offline    bool // there is no connection
	limited    io.Reader
	scratch    *[]byte   // holds the text; nil if the text has memory of its own
	room       int64     // bytes that are taken from all.room
	began      time.Time // when the room was taken
	arrived    atomic.Int64
	evicted    atomic.Bool
}

// scratches are buffers for the texts of requests, up to mostScratch bytes each. They are reused because no step wants
// most requests.
var scratches = sync.Pool{New: func() any { return new(make([]byte, firstBytes)) }}

const mostScratch = 1 << 20

var errEvicted = errors.New("its body arrived too slowly while others waited for room")

// Read reads from the request and counts the bytes.
func (b *body) Read(p []byte) (int, error) {
	n, err := b.limited.Read(p)
	b.arrived.Add(int64(n))
	return n, err
}

// isSlow reports whether an API server would have sent more by now.
func (b *body) isSlow(now time.Time) bool {
	due := (now.Sub(b.began) - slowGrace).Seconds() * slowRate
	return float64(b.arrived.Load()) < due
}

// read reads a whole body before its deadline, or returns a refusal. The text is valid until release, which the caller
// must call. release accepts a nil body.
func (all *bodies) read(w http.ResponseWriter, r *http.Request, due deadline) (text []byte, b *body, err error) {
	size := r.ContentLength
	if size > all.maxBytes {
		return nil, nil, all.tooLarge()
	}
	b = &body{
		all: all, request: r, due: due, connection: http.NewResponseController(w), limited: r.Body,
		scratch: scratches.Get().(*[]byte),
	}
	if size < 0 { // net/http limits a body with a Content-Length
		b.limited = http.MaxBytesReader(w, r.Body, all.maxBytes)
	}
	// A ResponseWriter without a connection has no deadline to set, and its body needs no waiting.
	b.offline = b.connection.SetReadDeadline(due.time()) != nil
	if size >= 0 && size <= firstBytes {
		text = (*b.scratch)[:size]
		_, err = io.ReadFull(b, text)
	} else {
		text, err = b.readMore(size)
	}
	if err == nil {
		err = b.end()
	}
	if err != nil {
		if b.evicted.Load() {
			err = errEvicted
		}
		return nil, b, all.refuse(w, err)
	}
	if !b.offline {
		_ = b.connection.SetReadDeadline(time.Time{}) // the next request sets its own
	}
	if len(text) == 0 {
		return nil, b, refuse(http.StatusBadRequest, "the request has no body; send an AdmissionReview")
	}
	return text, b, nil
}

// readMore reads a body that is larger than firstBytes, or of unknown size, which is -1. The Content-Length is only the
// caller's claim, so room is taken after the first firstBytes have arrived.
func (b *body) readMore(size int64) ([]byte, error) {
	first := (*b.scratch)[:firstBytes]
	n, err := io.ReadFull(b, first)
	if size < 0 && (errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)) {
		return first[:n], nil
	}
	if err != nil {
		return nil, err
	}
	room := size
	if size < 0 {
		room = b.all.maxBytes + b.all.maxBytes/2 // the room that readUnknown needs
	}
	if err := b.reserve(room); err != nil {
		return nil, err
	}
	defer b.settled()
	if size < 0 {
		return b.readUnknown(first)
	}
	whole := b.grow(int(size))
	_, err = io.ReadFull(b, whole[n:])
	return whole, err
}

// readUnknown reads the rest of a body without a Content-Length. No API server sends one, but a proxy in between can.
// The buffer doubles each time. While it moves, its two copies count as one and a half times the size of the largest
// body.
func (b *body) readUnknown(first []byte) ([]byte, error) {
	whole := bytes.Clone(first)
	b.leaveScratch()
	for {
		if len(whole) == cap(whole) {
			larger := make([]byte, len(whole), max(min(2*len(whole), int(b.all.maxBytes)), len(whole)+1))
			copy(larger, whole)
			whole = larger
		}
		n, err := b.Read(whole[len(whole):cap(whole)])
		whole = whole[:len(whole)+n]
		if errors.Is(err, io.EOF) {
			b.giveBack(b.room - int64(cap(whole)))
			return whole, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// grow returns a buffer of size bytes, which begins with the firstBytes that were read already.
func (b *body) grow(size int) []byte {
	if size <= cap(*b.scratch) {
		return (*b.scratch)[:size]
	}
	whole := make([]byte, size)
	copy(whole, (*b.scratch)[:firstBytes])
	if size <= mostScratch {
		*b.scratch = whole // scratches grow with the largest bodies that arrive
	} else {
		b.leaveScratch()
	}
	return whole
}

// end checks that nothing follows the body. If the body has a Content-Length, all of it has then been read from the
// connection.
func (b *body) end() error {
	var one [1]byte
	if n, err := b.limited.Read(one[:]); n > 0 || err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

// reserve takes room from the budget, and waits until it is free. The body then counts as arriving.
func (b *body) reserve(room int64) error {
	if !b.all.room.TryAcquire(room) {
		if err := b.wait(room); err != nil {
			return err
		}
	}
	b.room, b.began = room, time.Now()
	b.all.mu.Lock()
	defer b.all.mu.Unlock()
	b.all.arriving[b] = struct{}{}
	return nil
}

func (b *body) wait(room int64) error {
	defer b.all.waiting.Add(-1)
	if b.all.waiting.Add(1) > bodiesWaiting {
		return errTooBusy
	}
	ctx, cancel := b.due.context(b.request)
	defer cancel()
	for ctx.Err() == nil {
		b.all.evictSlow()
		turn, cancel := context.WithTimeout(ctx, slowGrace/2) // by then, others can have become slow
		err := b.all.room.Acquire(turn, room)
		cancel()
		if err == nil {
			return nil
		}
	}
	return context.Cause(ctx)
}

// evictSlow ends the calls whose bodies arrive slowly. Those calls release their room themselves.
func (all *bodies) evictSlow() {
	now := time.Now()
	all.mu.Lock()
	defer all.mu.Unlock()
	for b := range all.arriving {
		if b.isSlow(now) && !b.evicted.Swap(true) {
			_ = b.connection.SetReadDeadline(time.Unix(1, 0)) // its Read fails now
		}
	}
}

// settled removes a body from those that are arriving. Its room remains taken.
func (b *body) settled() {
	b.all.mu.Lock()
	defer b.all.mu.Unlock()
	delete(b.all.arriving, b)
}

// release releases the body's room and buffer. The text must not be used afterwards.
func (b *body) release() {
	if b == nil {
		return
	}
	b.giveBack(b.room)
	b.leaveScratch()
}

// giveBack releases some of the room that was taken.
func (b *body) giveBack(room int64) {
	if room > 0 {
		b.all.room.Release(room)
		b.room -= room
	}
}

// keep makes an envelope valid beyond the body's release, because steps can keep the objects that they get.
func (b *body) keep(question *envelope) {
	if b.scratch == nil {
		return // the text has memory of its own
	}
	for _, raw := range []*[]byte{&question.request.Object.Raw, &question.request.OldObject.Raw, &question.request.Options.Raw} {
		*raw = bytes.Clone(*raw)
	}
	b.leaveScratch()
}

func (b *body) leaveScratch() {
	if b.scratch != nil {
		scratches.Put(b.scratch)
		b.scratch = nil
	}
}

func (all *bodies) tooLarge() error {
	return refuse(http.StatusRequestEntityTooLarge, "the request is larger than %d bytes (ManagerOptions.MaxRequestBytes)", all.maxBytes)
}

// refuse returns the refusal for a body that could not be read.
func (all *bodies) refuse(w http.ResponseWriter, err error) error {
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return all.tooLarge()
	}
	switch {
	case errors.Is(err, errEvicted):
		w.Header().Set("Connection", "close")
		return busy(err)
	case errors.Is(err, errTooBusy), isTimedOut(err):
		return busy(err)
	case errors.Is(err, os.ErrDeadlineExceeded):
		w.Header().Set("Connection", "close")
		return refuse(http.StatusRequestTimeout, "the request did not arrive in full before its timeout")
	case errors.Is(err, io.ErrUnexpectedEOF):
		return refuse(http.StatusBadRequest, "the request ended before its Content-Length")
	}
	return refuse(http.StatusBadRequest, "the request could not be read: %v", err)
}

// isTimedOut reports whether an error means that a call's own context has ended.
func isTimedOut(err error) bool {
	_, ok := errors.AsType[timedOut](err)
	return ok
}

// errTooBusy is the error for a call that finds every slot taken, for running and for waiting. Another replica can take
// the call, or this one a moment later.
var errTooBusy = errors.New("too many admission requests at once")

// limiter bounds how many calls run and how many wait for a slot. A flood of large objects then costs time, which the
// API server bounds, and not memory. It is safe for concurrent use. A nil limiter sets no limit.
type limiter struct {
	working chan struct{} // holds one element for each running call; waiting calls are served in turn
	waiting atomic.Int64
	most    int64 // bound on waiting
}

// newLimiter lets up to working calls run, at least one, while up to waiting more wait.
func newLimiter(working, waiting int) *limiter {
	return &limiter{working: make(chan struct{}, max(working, 1)), most: int64(waiting)}
}

// acquire waits for a slot, which release frees. It fails at once with errTooBusy if too many calls wait already. It
// fails with the context's cause if the context ends first.
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
	if ctx.Err() != nil { // both happened at once, and no client waits for the answer any more
		l.release()
		return context.Cause(ctx)
	}
	return nil
}

// release frees the slot that acquire took.
func (l *limiter) release() {
	if l != nil {
		<-l.working
	}
}

// An object is counted twice, because steps change a copy. The budget has room for one object of the largest size, or
// for many smaller ones. An object that takes no more than decode.Free needs no room at all.
const copies = 2

// objectBudget bounds the memory of the decoded objects of all calls together. Old objects have a budget of their own. A
// call that holds one object and waits for the other therefore never waits for a call that does the reverse.
type objectBudget struct{ objects, oldObjects *semaphore.Weighted }

func newObjectBudget() *objectBudget {
	return &objectBudget{semaphore.NewWeighted(copies * decode.Most), semaphore.NewWeighted(copies * decode.Most)}
}

// memory is the share of one object of a call in the budget. It belongs to the goroutine that runs the steps. A nil
// memory takes nothing from the budget.
type memory struct {
	budget *semaphore.Weighted
	ctx    context.Context // of the call: it bounds the wait for memory
	taken  int64
}

// decode reads an object into a Go type. It first releases the memory of the object that was read before.
func (m *memory) decode(raw []byte, into any) error {
	if m == nil {
		return decode.Into(raw, into)
	}
	m.release()
	made, err := decode.Within(raw, into, func(most int64) error {
		if err := m.budget.Acquire(m.ctx, copies*most); err != nil {
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
		m.budget.Release(rest)
		m.taken -= rest
	}
	return nil
}

func (m *memory) release() {
	if m != nil && m.taken > 0 {
		m.budget.Release(m.taken)
		m.taken = 0
	}
}
