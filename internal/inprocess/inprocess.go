// Package inprocess connects an HTTP client to a handler in the same process.
package inprocess

import (
	"fmt"
	"net/http"
	"net/http/httptest"
)

// Transport sends requests to a handler. As over a network, a client whose context ends stops waiting, and the handler
// runs until it returns.
type Transport struct{ Handler http.Handler }

// RoundTrip passes the request to the handler.
func (t Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx := req.Context()
	arriving := req.Clone(ctx)
	arriving.RequestURI, arriving.RemoteAddr = req.URL.RequestURI(), "127.0.0.1:0"
	if arriving.Host == "" {
		arriving.Host = req.URL.Host
	}
	if arriving.Body == nil {
		arriving.Body = http.NoBody
	}
	type outcome struct {
		resp *http.Response
		err  error
	}
	done := make(chan outcome, 1)
	go func() {
		var o outcome
		defer func() { // net/http also closes the connection when a handler panics
			if r := recover(); r != nil {
				o = outcome{err: fmt.Errorf("EOF (the handler panicked: %v)", r)}
			}
			done <- o
		}()
		recorder := httptest.NewRecorder()
		t.Handler.ServeHTTP(recorder, arriving)
		o.resp = recorder.Result()
		o.resp.Request = req
	}()
	select {
	case o := <-done:
		return o.resp, o.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
