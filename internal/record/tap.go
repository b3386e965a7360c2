package record

// This file copies requests and responses while a handler serves them.

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"time"
)

// These are the prefixes of the paths on which AdmissionReviews are answered.
const (
	mutatePrefix   = "/mutate/"
	validatePrefix = "/validate/"
)

// Wrap returns a handler that serves requests with next, and records the calls below /mutate/ and /validate/. Other
// requests, such as those for health endpoints, are not touched. A nil Recorder returns next itself.
//
// next gets a request and a ResponseWriter of ours. http.ResponseController finds the server's own ResponseWriter
// behind it.
func (r *Recorder) Wrap(next http.Handler) http.Handler {
	if r == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if !isReview(req) || !r.takes(req.URL.Path) {
			next.ServeHTTP(w, req)
			return
		}
		r.serve(next, w, req)
	})
}

func isReview(r *http.Request) bool {
	return r.Method == http.MethodPost && r.Body != nil && r.Body != http.NoBody &&
		(strings.HasPrefix(r.URL.Path, mutatePrefix) || strings.HasPrefix(r.URL.Path, validatePrefix))
}

func (r *Recorder) serve(next http.Handler, w http.ResponseWriter, req *http.Request) {
	t := &tap{
		ResponseWriter: w,
		request:        *req,
		body:           tappedBody{ReadCloser: req.Body},
		call:           &call{path: req.URL.Path, received: time.Now(), question: newBuffer(&r.budget, req.ContentLength), answer: newBuffer(&r.budget, 0)},
	}
	t.body.call = t.call
	t.request.Body = &t.body
	answered := false
	defer func() { // no recover: the server handles the panic
		t.call.took = time.Since(t.call.received)
		r.land(t.call, answered && t.call.question.seen) // a request that was refused unread is not recorded
	}()
	next.ServeHTTP(t, &t.request)
	answered = true
}

// call is a call that was answered. Its buffers count against the Recorder's budget until release.
type call struct {
	path     string
	received time.Time
	took     time.Duration
	status   int  // 0 means 200
	broken   bool // the request ended too early
	question buffer
	answer   buffer
}

// lost reports whether a part of the call found no room.
func (c *call) lost() bool { return c.question.lost || c.answer.lost }

func (c *call) release() {
	c.question.release()
	c.answer.release()
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
