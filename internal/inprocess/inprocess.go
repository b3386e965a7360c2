// Package inprocess is the network between an HTTP client and a handler of one process.
package inprocess

import (
	"fmt"
	"net/http"
	"net/http/httptest"
)

// Transport leads to a handler. As over a network, a client whose context ends goes away, and the handler goes on until
// it is done.
type Transport struct{ Handler http.Handler }

// RoundTrip hands the request to the handler.
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
		defer func() { // net/http, too, closes the connection where a handler panics
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
