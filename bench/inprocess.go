package main

// This file calls a handler without a network.

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"
)

// call sends one AdmissionReview through a handler without a network. One goroutine uses it repeatedly. It allocates
// almost nothing itself.
type call struct {
	handler  http.Handler
	review   *review
	template http.Request
	body     bytes.Reader
	answer   answerWriter
}

func newCall(h http.Handler, r *review) *call {
	return &call{
		handler: h,
		review:  r,
		template: *(&http.Request{
			Method: http.MethodPost, URL: &url.URL{Path: "/", RawQuery: "timeout=10s"}, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
			Header: http.Header{"Content-Type": {"application/json"}}, ContentLength: int64(len(r.body)), RemoteAddr: "127.0.0.1:1",
		}).WithContext(context.Background()),
		answer: answerWriter{header: http.Header{}},
	}
}

func (c *call) do() {
	c.body.Reset(c.review.body)
	c.answer.reset()
	request := c.template // muxes write into the request
	request.Body = io.NopCloser(&c.body)
	c.handler.ServeHTTP(&c.answer, &request)
}

// answerWriter is a reusable ResponseWriter.
type answerWriter struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (w *answerWriter) reset() {
	clear(w.header)
	w.status = http.StatusOK
	w.body.Reset()
}

func (w *answerWriter) Header() http.Header             { return w.header }
func (w *answerWriter) WriteHeader(status int)          { w.status = status }
func (w *answerWriter) Write(b []byte) (int, error)     { return w.body.Write(b) }
func (w *answerWriter) SetReadDeadline(time.Time) error { return nil }

// checkedCall returns a call of a peer whose answers have passed checkAnswer.
func checkedCall(p peer, s spec) (*call, error) {
	h, err := p.handler(s)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.name, err)
	}
	c := newCall(h, s.review)
	for range 2 { // the second call finds every pool and cache filled
		c.do()
		if err := checkAnswer(s, c.answer.status, c.answer.body.Bytes()); err != nil {
			return nil, fmt.Errorf("%s, %s: %w", p.name, s.review.name, err)
		}
	}
	return c, nil
}

// checkedWork returns the work that repeats a checkedCall.
func checkedWork(p peer, s spec) (*work, error) {
	c, err := checkedCall(p, s)
	if err != nil {
		return nil, err
	}
	return &work{name: p.name, do: c.do}, nil
}
