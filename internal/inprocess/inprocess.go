// Package inprocess connects an HTTP client to a handler in the same process.
package inprocess

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"

	"code.cloudfoundry.org/eirinix/internal/wait"
)

// Transport sends requests to a handler. As over a network, a client whose context ends stops waiting, and the handler
// runs until it returns.
//
// The response begins when the handler flushes it, or returns. Its body delivers each part that is flushed, and the rest
// when the handler returns. A writer never waits for the reader. The handler's context ends with the request's, and when
// the body is closed. A panic of the handler is an error of RoundTrip, or of the body if the response has begun.
//
// It also works in bubbles of testing/synctest: all waits are durable.
type Transport struct{ Handler http.Handler }

// RoundTrip passes the request to the handler.
func (t Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(req.Context())
	arriving := req.Clone(ctx)
	arriving.RequestURI, arriving.RemoteAddr = req.URL.RequestURI(), "127.0.0.1:0"
	if arriving.Host == "" {
		arriving.Host = req.URL.Host
	}
	if arriving.Body == nil {
		arriving.Body = http.NoBody
	}
	x := &exchange{ctx: ctx, cancel: cancel, recorder: httptest.NewRecorder(), begun: make(chan struct{}), more: make(chan struct{}, 1)}
	go x.serve(t.Handler, arriving)
	select {
	case <-x.begun:
	case <-req.Context().Done():
		return nil, req.Context().Err()
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.failure != nil && !x.recorder.Flushed {
		return nil, x.failure
	}
	x.response.Request, x.response.Body = req, x
	return x.response, nil
}

// exchange is a request and its response. It is the handler's ResponseWriter and the client's body.
type exchange struct {
	ctx    context.Context // of the handler
	cancel context.CancelFunc
	begun  chan struct{} // closed when the response begins
	more   chan struct{} // asks the reader to look again

	mu       sync.Mutex // guards the following
	recorder *httptest.ResponseRecorder
	response *http.Response // once it has begun
	over     bool           // the handler has returned
	failure  error          // why it did so, if it panicked
}

func (x *exchange) serve(handler http.Handler, req *http.Request) {
	defer x.cancel()
	defer func() { // net/http also closes the connection when a handler panics
		r := recover()
		x.mu.Lock()
		defer x.mu.Unlock()
		if x.over = true; r != nil {
			x.failure = fmt.Errorf("EOF (the handler panicked: %v)", r)
		}
		x.begin()
	}()
	handler.ServeHTTP(x, req)
}

// begin lets RoundTrip return, and a reader look again. The handler's goroutine calls it, because the header is the
// handler's. The caller holds mu.
func (x *exchange) begin() {
	if x.response == nil {
		x.response = x.recorder.Result()
		close(x.begun)
	}
	wait.Signal(x.more)
}

func (x *exchange) Header() http.Header { return x.recorder.Header() }

func (x *exchange) WriteHeader(code int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.recorder.WriteHeader(code)
}

func (x *exchange) Write(text []byte) (int, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.recorder.Write(text)
}

// Flush implements http.Flusher.
func (x *exchange) Flush() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.recorder.Flush()
	x.begin()
}

// Read implements io.Reader for the client.
func (x *exchange) Read(into []byte) (int, error) {
	for {
		if n, err := x.read(into); n > 0 || err != nil || len(into) == 0 {
			return n, err
		}
		select {
		case <-x.more:
		case <-x.ctx.Done():
		}
	}
}

// read returns nothing if there is nothing yet.
func (x *exchange) read(into []byte) (int, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	switch {
	case x.recorder.Body.Len() > 0:
		return x.recorder.Body.Read(into)
	case x.failure != nil:
		return 0, x.failure
	case x.over:
		return 0, io.EOF
	}
	return 0, x.ctx.Err()
}

// Close implements io.Closer for the client.
func (x *exchange) Close() error {
	x.cancel()
	return nil
}
