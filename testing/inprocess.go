package eirinixtest

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"k8s.io/client-go/rest"
)

// inProcess is the network between a client and a handler of one process. As over a network, a client whose context
// ends goes away, and the handler goes on until it is done.
type inProcess struct {
	handler http.Handler
	api     *API // whose handler it is; nil for a webhook's
}

// apiOf is the API that a connection leads to, or nil.
func apiOf(c *rest.Config) *API {
	if c == nil {
		return nil
	}
	network, _ := c.Transport.(inProcess)
	return network.api
}

func (p inProcess) RoundTrip(req *http.Request) (*http.Response, error) {
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
		p.handler.ServeHTTP(recorder, arriving)
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
