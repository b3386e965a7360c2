package cluster

// This file counts the requests that a piece of work sends.

import (
	"context"
	"net/http"
	"sync/atomic"
)

// countKey is the key of the number of requests in a context.
type countKey struct{}

// WithCount returns a context whose requests are counted, if they pass through CountRequests.
func WithCount(ctx context.Context, sent *atomic.Int64) context.Context {
	return context.WithValue(ctx, countKey{}, sent)
}

// CountRequests returns a transport that counts the requests of contexts with a count.
func CountRequests(next http.RoundTripper) http.RoundTripper { return counting{next} }

type counting struct{ http.RoundTripper }

func (c counting) RoundTrip(r *http.Request) (*http.Response, error) {
	if sent, ok := r.Context().Value(countKey{}).(*atomic.Int64); ok {
		sent.Add(1)
	}
	return c.RoundTripper.RoundTrip(r)
}

// WrappedRoundTripper lets client-go find the transport below.
func (c counting) WrappedRoundTripper() http.RoundTripper { return c.RoundTripper }
