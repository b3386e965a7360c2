package admit

// This file bounds what a request can take: the memory for its body, a slot for its call, and the time until the answer.

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
)

// Request bodies are the memory that an unauthenticated caller controls. The first firstBytes of each are always read.
// More is reserved from a budget that all calls share, until the answer is ready to be sent. If the budget is used up,
// calls whose bodies arrive slower than an API server sends are ended. A client that only holds on to memory thus
// loses it to the first call that needs it.
const (
	firstBytes    = 64 << 10
	smallBuffer   = 16 << 10               // holds most reviews whole
	bodiesAtOnce  = 8                      // of the largest size allowed, or more if they are smaller
	bodiesWaiting = 64                     // bodies that wait for memory
	slowGrace     = 250 * time.Millisecond // before a body can count as slow
	slowRate      = 4 << 20                // bytes a second; a link of 100 Mbit/s carries three times that
)

// readBudget is the budget for the request bodies of all calls. It is safe for concurrent use.
type readBudget struct {
	most    int64               // of one body
	free    *semaphore.Weighted // bytes
	waiting atomic.Int64

	mu       sync.Mutex
	arriving map[*requestBody]struct{}
}

func newReadBudget(maxBytes int64) *readBudget {
	return &readBudget{
		most: maxBytes,
		// A Content-Length beyond the limit is refused, so a body always fits.
		free:     semaphore.NewWeighted(bodiesAtOnce * maxBytes),
		arriving: map[*requestBody]struct{}{},
	}
}

// requestBody is the body of one request, while it is read and used.
type requestBody struct {
	budget     *readBudget
	times      int64 // its size is reserved
	request    *http.Request
	due        deadline
	connection *http.ResponseController
	limited    io.Reader
	buffer     *[]byte // holds the text; nil if the text has memory of its own
	reserved   int64   // bytes of the budget
	reservedAt time.Time
	received   atomic.Int64
	evicted    atomic.Bool
}

// buffers are buffers for the texts of requests, from smallBuffer to maxBuffer bytes each. They are reused because no
// step wants most requests. A garbage collection drops them, so new ones are small.
var buffers = sync.Pool{New: func() any { return new(make([]byte, smallBuffer)) }}

const maxBuffer = 1 << 20

var errEvicted = errors.New("its body arrived too slowly while other calls waited for memory")

// Read reads from the request and counts the bytes.
func (b *requestBody) Read(p []byte) (int, error) {
	n, err := b.limited.Read(p)
	b.received.Add(int64(n))
	return n, err
}

// read reads a whole body before its deadline, or returns a refusal. The text is valid until release, which the caller
// must call. release accepts a nil body. times is how often the body's size is reserved: 2 if the answer can be as large.
func (m *readBudget) read(w http.ResponseWriter, r *http.Request, due deadline, times int64) (text []byte, b *requestBody, err error) {
	size := r.ContentLength
	if size > m.most {
		return nil, nil, m.tooLarge()
	}
	b = &requestBody{
		budget: m, times: times, request: r, due: due, connection: http.NewResponseController(w), limited: r.Body,
		buffer: buffers.Get().(*[]byte),
	}
	if size < 0 { // net/http limits a body with a Content-Length
		b.limited = http.MaxBytesReader(w, r.Body, m.most)
	}
	bounded := b.connection.SetReadDeadline(due.time()) == nil // not without a connection
	if size >= 0 && size <= firstBytes {
		text = b.sized(int(size))
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
		return nil, b, m.refuse(w, err)
	}
	if bounded {
		_ = b.connection.SetReadDeadline(time.Time{}) // the next request sets its own
	}
	if len(text) == 0 {
		return nil, b, refuse(http.StatusBadRequest, "the request has no body; send a review")
	}
	return text, b, nil
}

// sized returns a buffer of size bytes, which begins with those of the firstBytes that have been read. Buffers grow with the
// largest bodies that arrive.
func (b *requestBody) sized(size int) []byte {
	if size <= cap(*b.buffer) {
		return (*b.buffer)[:size]
	}
	whole := make([]byte, size, max(size, firstBytes))
	copy(whole, (*b.buffer)[:min(cap(*b.buffer), firstBytes)])
	if size <= maxBuffer {
		*b.buffer = whole
	} else {
		b.releaseBuffer()
	}
	return whole
}

// readMore reads a body that is larger than firstBytes, or of unknown size, which is -1. The Content-Length is only the
// caller's claim, so memory is reserved after the first firstBytes have arrived.
func (b *requestBody) readMore(size int64) ([]byte, error) {
	first := b.sized(firstBytes)
	n, err := io.ReadFull(b, first)
	if size < 0 && (errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)) {
		return first[:n], nil
	}
	if err != nil {
		return nil, err
	}
	most := size * b.times
	if size < 0 {
		most = max(b.budget.most+b.budget.most/2, b.budget.most*b.times) // see readUnknown
	}
	if err := b.reserve(most); err != nil {
		return nil, err
	}
	defer b.arrived()
	if size < 0 {
		return b.readUnknown(first)
	}
	whole := b.sized(int(size))
	_, err = io.ReadFull(b, whole[n:])
	return whole, err
}

// readUnknown reads the rest of a body without a Content-Length. No API server sends one, but a proxy in between can.
// The buffer doubles each time. While it moves, its two copies count as one and a half times the size of the largest
// body.
func (b *requestBody) readUnknown(first []byte) ([]byte, error) {
	whole := bytes.Clone(first)
	b.releaseBuffer()
	for {
		if len(whole) == cap(whole) {
			larger := make([]byte, len(whole), max(min(2*len(whole), int(b.budget.most)), len(whole)+1))
			copy(larger, whole)
			whole = larger
		}
		n, err := b.Read(whole[len(whole):cap(whole)])
		whole = whole[:len(whole)+n]
		if errors.Is(err, io.EOF) {
			b.unreserve(b.reserved - int64(cap(whole))*b.times)
			return whole, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// end checks that nothing follows the body. If the body has a Content-Length, all of it has then been read from the
// connection.
func (b *requestBody) end() error {
	var one [1]byte
	if _, err := b.limited.Read(one[:]); !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

// reserve reserves memory, and waits until it is free. The body then counts as arriving.
func (b *requestBody) reserve(size int64) error {
	if !b.budget.free.TryAcquire(size) {
		if err := b.wait(size); err != nil {
			return err
		}
	}
	b.reserved, b.reservedAt = size, time.Now()
	b.budget.mu.Lock()
	defer b.budget.mu.Unlock()
	b.budget.arriving[b] = struct{}{}
	return nil
}

func (b *requestBody) wait(size int64) error {
	defer b.budget.waiting.Add(-1)
	if b.budget.waiting.Add(1) > bodiesWaiting {
		return errTooBusy
	}
	ctx, cancel := b.due.context(b.request)
	defer cancel()
	for ctx.Err() == nil {
		b.budget.evictSlow()
		turn, cancel := context.WithTimeout(ctx, slowGrace/2) // by then, others can have become slow
		err := b.budget.free.Acquire(turn, size)
		cancel()
		if err == nil {
			return nil
		}
	}
	return context.Cause(ctx)
}

// evictSlow ends the calls whose bodies arrive slowly. Those calls release their memory themselves.
func (m *readBudget) evictSlow() {
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	for b := range m.arriving {
		least := (now.Sub(b.reservedAt) - slowGrace).Seconds() * slowRate // that an API server would have sent by now
		if float64(b.received.Load()) < least && !b.evicted.Swap(true) {
			_ = b.connection.SetReadDeadline(time.Unix(1, 0)) // its Read fails now
		}
	}
}

// arrived removes a body from those that are arriving. Its memory stays reserved.
func (b *requestBody) arrived() {
	b.budget.mu.Lock()
	defer b.budget.mu.Unlock()
	delete(b.budget.arriving, b)
}

// release releases the body's memory and buffer. The text must not be used afterwards.
func (b *requestBody) release() {
	if b == nil {
		return
	}
	b.unreserve(b.reserved)
	b.releaseBuffer()
}

// unreserve releases some of the memory that was reserved.
func (b *requestBody) unreserve(size int64) {
	if size > 0 {
		b.budget.free.Release(size)
		b.reserved -= size
	}
}

// copyObjects makes a review valid beyond the body's release, because steps can keep the objects that they get.
func (b *requestBody) copyObjects(rev *review) {
	if b.buffer == nil {
		return // the text has memory of its own
	}
	for _, raw := range []*[]byte{&rev.request.Object.Raw, &rev.request.OldObject.Raw, &rev.request.Options.Raw} {
		*raw = bytes.Clone(*raw)
	}
	if rev.parser != nil {
		rev.parser.Text = nil // shadows keep the request
	}
	b.releaseBuffer()
}

func (b *requestBody) releaseBuffer() {
	if b.buffer != nil {
		buffers.Put(b.buffer)
		b.buffer = nil
	}
}

func (m *readBudget) tooLarge() error {
	return refuse(http.StatusRequestEntityTooLarge, "the request is larger than %d bytes (ManagerOptions.MaxRequestBytes)", m.most)
}

// refuse returns the refusal for a body that could not be read.
func (m *readBudget) refuse(w http.ResponseWriter, err error) error {
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return m.tooLarge()
	}
	switch {
	case errors.Is(err, errEvicted):
		w.Header().Set("Connection", "close")
		return busy(err)
	case errors.Is(err, errTooBusy), errors.Is(err, context.DeadlineExceeded): // of the call's own context
		return busy(err)
	case errors.Is(err, os.ErrDeadlineExceeded):
		w.Header().Set("Connection", "close")
		return refuse(http.StatusRequestTimeout, "the request did not arrive in full before its timeout")
	case errors.Is(err, io.ErrUnexpectedEOF):
		return refuse(http.StatusBadRequest, "the request ended before its Content-Length")
	}
	return refuse(http.StatusBadRequest, "the request could not be read: %v", err)
}

// errTooBusy is the error for a call that finds every slot taken, for running and for waiting. Another replica can take
// the call, or this one a moment later.
var errTooBusy = errors.New("too many admission requests at once")

// limiter bounds how many calls run and how many wait for a slot. A flood of large objects then costs time, which the
// API server bounds, and not memory. It is safe for concurrent use.
type limiter struct {
	working *semaphore.Weighted // serves those that wait in turn
	calls   atomic.Int64        // that run or wait
	most    int64               // bound on calls
}

// newLimiter lets up to working calls run while up to waiting more wait.
func newLimiter(working, waiting int) *limiter {
	return &limiter{working: semaphore.NewWeighted(int64(working)), most: int64(working + waiting)}
}

// acquire waits for a slot, which release frees. It fails at once with errTooBusy if too many calls wait already. It
// fails with the context's cause if the context ends first.
func (l *limiter) acquire(ctx context.Context) error {
	if l.calls.Add(1) > l.most {
		l.calls.Add(-1)
		return errTooBusy
	}
	if l.working.Acquire(ctx, 1) != nil {
		l.calls.Add(-1)
		return context.Cause(ctx)
	}
	return nil
}

// release frees the slot that acquire took.
func (l *limiter) release() {
	l.calls.Add(-1)
	l.working.Release(1)
}

// maxHeaderTimeout is the API's bound on timeoutSeconds.
const maxHeaderTimeout = 30 * time.Second

// deadline is the time at which the API server stops waiting for the answer to a request.
type deadline struct {
	arrived time.Time
	timeout time.Duration
}

func (d deadline) time() time.Time { return d.arrived.Add(d.timeout) }

// context returns the context of a call. The server's own context ends when the server stops, but a call that has begun
// must finish. Only the deadline ends it.
//
// Most requests are wanted by no step and need no context. It is therefore made only where a call waits or runs.
func (d deadline) context(r *http.Request) (context.Context, context.CancelFunc) {
	parent := context.WithoutCancel(r.Context())
	return context.WithDeadlineCause(parent, d.time().Add(-margin(d.timeout)), timedOut(d.timeout))
}

// timedOut is the cause with which a call's context ends: the timeout that the API server put in the URL.
type timedOut time.Duration

func (t timedOut) Error() string {
	return fmt.Sprintf("?timeout=%s: %v", time.Duration(t), context.DeadlineExceeded)
}
func (t timedOut) Unwrap() error { return context.DeadlineExceeded }

// requestTimeout returns how long the API server waits for the answer: the timeout that it puts in the URL, or else what it
// waits by default.
func requestTimeout(r *http.Request, without time.Duration) time.Duration {
	given, plain := strings.CutPrefix(r.URL.RawQuery, "timeout=") // as the API server writes it
	if !plain || strings.ContainsAny(given, "&%+;") {
		given = r.URL.Query().Get("timeout")
	}
	if d, err := time.ParseDuration(given); err == nil && d > 0 {
		return min(d, maxHeaderTimeout)
	}
	if s, err := strconv.Atoi(given); err == nil && s > 0 {
		return min(time.Duration(s)*time.Second, maxHeaderTimeout)
	}
	return without
}

// margin returns the part of the timeout that is reserved for the way back. An answer that names the slow extension is
// worth more than the API server's "context deadline exceeded".
func margin(timeout time.Duration) time.Duration {
	return min(max(timeout/20, 20*time.Millisecond), 500*time.Millisecond, timeout/2)
}
