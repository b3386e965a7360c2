package admit

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
)

// Bodies are what a stranger can fill our memory with. Up to firstBytes are read from everybody; room for more
// is given out of what all calls share, and kept until the answer. When there is no room for a call, those whose
// bodies arrive slower than an API server sends make some: a stranger who only holds on to room loses it to the
// first who has a use for it.
const (
	firstBytes    = 64 << 10               // holds most reviews whole
	bodiesAtOnce  = 8                      // of the largest size allowed; that many smaller ones more
	bodiesWaiting = 64                     // for room
	slowGrace     = 250 * time.Millisecond // in which a body need not arrive
	slowRate      = 4 << 20                // bytes a second; a link of 100 Mbit/s carries three times that
)

// bodies gives out room for what calls send. It is safe for concurrent use.
type bodies struct {
	maxBytes int64
	room     *semaphore.Weighted
	waiting  atomic.Int64

	mu       sync.Mutex
	arriving map[*body]struct{}
}

func newBodies(maxBytes int64) *bodies {
	// Content-Length is refused beyond maxBytes, so what a body asks for always fits.
	return &bodies{maxBytes: maxBytes, room: semaphore.NewWeighted(bodiesAtOnce * maxBytes), arriving: map[*body]struct{}{}}
}

// body is one request's, on its way in.
type body struct {
	all        *bodies
	connection *http.ResponseController
	offline    bool // there is no connection
	limited    io.Reader
	scratch    *[]byte   // holds the text; nil where that has memory of its own
	room       int64     // taken
	began      time.Time // when the room was taken
	arrived    atomic.Int64
	evicted    atomic.Bool
}

// scratches are for the texts of requests, most of which nobody wants. They hold up to mostScratch bytes.
var scratches = sync.Pool{New: func() any { return new(make([]byte, firstBytes)) }}

const mostScratch = 1 << 20

var errEvicted = errors.New("its body arrived too slowly while others waited for room")

// Read counts what arrives.
func (b *body) Read(p []byte) (int, error) {
	n, err := b.limited.Read(p)
	b.arrived.Add(int64(n))
	return n, err
}

// isSlow tells whether an API server would have sent more by now.
func (b *body) isSlow(now time.Time) bool {
	due := (now.Sub(b.began) - slowGrace).Seconds() * slowRate
	return float64(b.arrived.Load()) < due
}

// read reads a body whole, or says with a refusal why not. waiting makes the context of a wait for room, and
// deadline bounds the whole: a body that has not arrived by then is not waited for, because nobody waits for the
// answer any more. The text is good until release, which must be called, and which may be called on nil.
func (all *bodies) read(waiting func() (context.Context, context.CancelFunc), w http.ResponseWriter, r *http.Request, deadline time.Time) (text []byte, b *body, err error) {
	size := r.ContentLength
	if size > all.maxBytes {
		return nil, nil, all.tooLarge()
	}
	b = &body{
		all: all, connection: http.NewResponseController(w), limited: r.Body, scratch: scratches.Get().(*[]byte),
	}
	if size < 0 { // a body with a length is cut there by net/http
		b.limited = http.MaxBytesReader(w, r.Body, all.maxBytes)
	}
	// A ResponseWriter without a connection has no deadline to set, and nothing to wait for.
	b.offline = b.connection.SetReadDeadline(deadline) != nil
	if size >= 0 && size <= firstBytes {
		text = (*b.scratch)[:size]
		_, err = io.ReadFull(b, text)
	} else {
		text, err = b.readMore(waiting, size)
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
		_ = b.connection.SetReadDeadline(time.Time{}) // the next request has its own
	}
	if len(text) == 0 {
		return nil, b, refuse(http.StatusBadRequest, "the request has no body; send an AdmissionReview")
	}
	return text, b, nil
}

// readMore reads a body that is larger than firstBytes, or of unknown size, which is -1. Content-Length is only
// the caller's word: room is taken when it has sent something.
func (b *body) readMore(waiting func() (context.Context, context.CancelFunc), size int64) ([]byte, error) {
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
		room = b.all.maxBytes + b.all.maxBytes/2 // what readUnknown may hold
	}
	if err := b.take(waiting, room); err != nil {
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

// readUnknown goes on reading a body that does not say how large it is. No API server sends one, but what stands
// between may. Twice as much memory each time is at most half as much again as the largest body, while it moves.
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

// grow makes room for size bytes, of which the first firstBytes are there already.
func (b *body) grow(size int) []byte {
	if size <= cap(*b.scratch) {
		return (*b.scratch)[:size]
	}
	whole := make([]byte, size)
	copy(whole, (*b.scratch)[:firstBytes])
	if size <= mostScratch {
		*b.scratch = whole // which grows with the largest that come by
	} else {
		b.leaveScratch()
	}
	return whole
}

// end makes sure that nothing follows; of a body with a length, that all of it has been taken off the wire.
func (b *body) end() error {
	var one [1]byte
	if n, err := b.limited.Read(one[:]); n > 0 || err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

// take waits for room.
func (b *body) take(waiting func() (context.Context, context.CancelFunc), room int64) error {
	if !b.all.room.TryAcquire(room) {
		if err := b.wait(waiting, room); err != nil {
			return err
		}
	}
	b.room, b.began = room, time.Now()
	b.all.mu.Lock()
	defer b.all.mu.Unlock()
	b.all.arriving[b] = struct{}{}
	return nil
}

func (b *body) wait(waiting func() (context.Context, context.CancelFunc), room int64) error {
	defer b.all.waiting.Add(-1)
	if b.all.waiting.Add(1) > bodiesWaiting {
		return errTooBusy
	}
	ctx, cancel := waiting()
	defer cancel()
	for ctx.Err() == nil {
		b.all.evictSlow()
		turn, cancel := context.WithTimeout(ctx, slowGrace/2) // then others may have become slow
		err := b.all.room.Acquire(turn, room)
		cancel()
		if err == nil {
			return nil
		}
	}
	return context.Cause(ctx)
}

// evictSlow ends the calls whose bodies arrive slowly. They give their room back themselves.
func (all *bodies) evictSlow() {
	now := time.Now()
	all.mu.Lock()
	defer all.mu.Unlock()
	for b := range all.arriving {
		if b.isSlow(now) && !b.evicted.Swap(true) {
			_ = b.connection.SetReadDeadline(time.Unix(1, 0)) // its Read ends now
		}
	}
}

// settled takes a body off the list of those that arrive; its room remains taken.
func (b *body) settled() {
	b.all.mu.Lock()
	defer b.all.mu.Unlock()
	delete(b.all.arriving, b)
}

// release gives back what the body takes up. The text is used no more.
func (b *body) release() {
	if b == nil {
		return
	}
	b.giveBack(b.room)
	b.leaveScratch()
}

// giveBack gives back some of the room that was taken.
func (b *body) giveBack(room int64) {
	if room > 0 {
		b.all.room.Release(room)
		b.room -= room
	}
}

// keep makes an envelope good beyond the body's release: steps may hold on to what they are given.
func (b *body) keep(question *envelope) {
	if b.scratch == nil {
		return // it has memory of its own
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

// refuse says what was wrong with a body that could not be read.
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

// isTimedOut tells whether a call's own context has ended.
func isTimedOut(err error) bool {
	_, ok := errors.AsType[timedOut](err)
	return ok
}
