package record

// This file copies requests and responses into memory, within a budget, while a handler serves them.

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"code.cloudfoundry.org/eirinix/internal/reads"
)

// Wrap returns a handler that serves requests with next, and records the calls below /mutate/ and /validate/. Other
// requests, such as those for health endpoints, are not touched.
//
// next gets a request and a ResponseWriter of ours. http.ResponseController finds the server's own ResponseWriter
// behind it.
func (r *Recorder) Wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		isReview := req.Method == http.MethodPost && req.Body != nil && req.Body != http.NoBody &&
			(strings.HasPrefix(req.URL.Path, "/mutate/") || strings.HasPrefix(req.URL.Path, "/validate/"))
		if !isReview || !r.begin() {
			next.ServeHTTP(w, req)
			return
		}
		r.serve(next, w, req)
	})
}

func (r *Recorder) serve(next http.Handler, w http.ResponseWriter, req *http.Request) {
	c := &call{
		path: req.URL.Path, received: time.Now(),
		question: buffer{share: share{budget: &r.budget}, size: req.ContentLength},
		answer:   buffer{share: share{budget: &r.budget}}, reads: readings{share: share{budget: &r.budget}},
	}
	t := &tap{
		ResponseWriter: w,
		request:        *req.WithContext(reads.WithNotes(req.Context(), c.reads.note)),
		body:           tappedBody{ReadCloser: req.Body, call: c},
		call:           c,
	}
	t.request.Body = &t.body
	answered := false
	defer func() { // no recover: the server handles the panic
		t.call.took = time.Since(t.call.received)
		t.call.reads.end()
		r.end(t.call, answered && !t.call.question.empty()) // a request that was refused unread is not recorded
	}()
	next.ServeHTTP(t, &t.request)
	answered = true
}

// call is a call that was answered. Its buffers and reads count against the Recorder's budget until release.
type call struct {
	path     string
	received time.Time
	took     time.Duration
	status   int  // 0 means 200
	broken   bool // the request ended too early
	trace    string
	question buffer
	answer   buffer
	reads    readings
}

func (c *call) release() {
	c.question.release()
	c.answer.release()
	c.reads.release()
}

// tap is the ResponseWriter of the handler, together with the request that the handler reads, in one allocation.
type tap struct {
	http.ResponseWriter
	request http.Request
	body    tappedBody
	call    *call
}

// Unwrap is for http.ResponseController.
func (t *tap) Unwrap() http.ResponseWriter { return t.ResponseWriter }

// Trace keeps the ID of the trace that the call belongs to.
func (t *tap) Trace(id string) { t.call.trace = id }

func (t *tap) WriteHeader(status int) {
	if t.call.status == 0 && status >= http.StatusOK {
		t.call.status = status
		if status == http.StatusRequestEntityTooLarge && t.request.ContentLength < 0 && t.request.ProtoMajor == 1 {
			// http.MaxBytesReader would ask the server's own ResponseWriter for that, but does not find it behind ours.
			t.Header().Set("Connection", "close")
		}
	}
	t.ResponseWriter.WriteHeader(status)
}

func (t *tap) Write(p []byte) (int, error) {
	if t.call.status == 0 {
		t.call.status = http.StatusOK
	}
	t.call.answer.add(p)
	return t.ResponseWriter.Write(p)
}

// tappedBody copies the bytes that the handler reads.
type tappedBody struct {
	io.ReadCloser
	call *call
}

func (b *tappedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.call.question.add(p[:n])
	if err != nil && !errors.Is(err, io.EOF) {
		b.call.broken = true
	}
	return n, err
}

// A buffer begins with these sizes. One for an announced body never takes more than was announced, and gets memory as
// bytes arrive, because a Content-Length is only the caller's claim. Most reviews fit into the first memory.
const (
	firstAnnounced = 32 << 10
	firstOther     = 1 << 10
)

// share is the part of a budget that one user has taken.
type share struct {
	budget *atomic.Int64 // the bytes that are left
	taken  int64
}

func (s *share) take(n int64) bool {
	if s.budget.Add(-n) < 0 {
		s.budget.Add(n)
		return false
	}
	s.taken += n
	return true
}

func (s *share) giveBack() {
	s.budget.Add(s.taken)
	s.taken = 0
}

// buffer copies one body. It is not safe for concurrent use.
type buffer struct {
	share
	text []byte
	size int64 // as announced by the caller; not positive if unknown
	lost bool  // there was no room for the whole body
}

// add copies p. Once there is no room, it drops the copy and copies nothing more.
func (b *buffer) add(p []byte) {
	if len(p) == 0 || b.lost {
		return
	}
	if need := len(b.text) + len(p); need > cap(b.text) && !b.grow(need) {
		b.release()
		b.lost = true
		return
	}
	b.text = append(b.text, p...)
}

func (b *buffer) empty() bool { return len(b.text) == 0 && !b.lost }

// grow makes room for so many bytes in all.
func (b *buffer) grow(need int) bool {
	room := max(2*cap(b.text), need, firstOther)
	if b.size > 0 {
		room = max(need, int(min(b.size, int64(max(room, firstAnnounced)))))
	}
	if !b.take(int64(room - cap(b.text))) {
		return false
	}
	b.text = append(make([]byte, 0, room), b.text...)
	return true
}

// release returns memory and budget. The text must not be used after that.
func (b *buffer) release() {
	b.text = nil
	b.giveBack()
}
