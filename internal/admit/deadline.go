package admit

// This file reads the deadline of a request from its URL.

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"code.cloudfoundry.org/eirinix/internal/chain"
)

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

// requestTimeout returns how long the API server waits for the answer: the timeout that it puts in the URL.
func requestTimeout(r *http.Request) time.Duration {
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
	return chain.DefaultTimeout
}

// margin returns the part of the timeout that is reserved for the way back. An answer that names the slow extension is
// worth more than the API server's "context deadline exceeded".
func margin(timeout time.Duration) time.Duration {
	return min(max(timeout/20, 20*time.Millisecond), 500*time.Millisecond, timeout/2)
}
