// Package cluster is the connection to a cluster: requests that have deadlines and give way to an API server that is down,
// and copies of single objects that are kept up to date. It knows nothing of webhooks.
package cluster

// This file is the connection over which the library itself talks to the API server. Every request has a deadline. While
// the API server does not answer, one request at a time is a probe and the others wait, whatever the number of watches.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// requestTimeout bounds one request; of a watch, the wait for its beginning.
	requestTimeout = 10 * time.Second

	// watchMargin is how much longer than agreed a watch may last. A proxy may hold a connection that is long dead.
	watchMargin = 30 * time.Second

	// watchEarly is how much earlier than agreed a watch may end by itself.
	watchEarly = 5 * time.Second

	// suspicion bounds the time from a watch that was cut to the next one, a moment at random. Of an API server that ends,
	// all watches are cut at once, in all replicas.
	suspicion = 4 * time.Second

	// firstProbe and lastProbe bound the time from one probe to the next.
	firstProbe, lastProbe = time.Second, 30 * time.Second

	// skewAgrees is the difference of two clocks that are taken for one.
	skewAgrees = time.Minute

	// spreadMost bounds how long a request is held back after an outage, so that replicas do not come back all at once.
	spreadMost = 15 * time.Second

	// spreadLease is the same for the watch of a Lease: other processes wait for an answer in it, for ten seconds.
	spreadLease = 3 * time.Second
)

// API watches over the requests of one Manager. The zero value is ready. It is safe for concurrent use.
type API struct {
	skew atomic.Int64 // nanoseconds by which the API server's clock is ahead, as its answers said
	seen atomic.Bool  // there were two that agreed

	mu       sync.Mutex    // guards the rest
	suspect  bool          // it is down as far as a watch that was cut tells; no request has failed
	lastSkew time.Duration // as skew, of the last answer
	dated    bool          // there was one
	down     bool          // requests wait for a probe
	since    time.Time     // of the outage
	wasCut   time.Time     // when a watch was cut last
	next     time.Time     // of the next probe
	delay    time.Duration // until the one after that
	probing  bool
	probed   chan struct{} // closed at the end of the probe
	up       chan struct{} // closed at the end of the outage
	reopened time.Time     // the end of the last outage
	spread   time.Duration // over which requests come back
}

// ServerTime is the API server's clock, to a second or so, as the last two answers that agreed on it showed it; zero before
// these.
func (a *API) ServerTime() time.Time {
	if !a.seen.Load() {
		return time.Time{}
	}
	return time.Now().Add(time.Duration(a.skew.Load()))
}

// Earlier is the earlier of the local time and the API server's. By it a CA is never replaced or dropped too soon because
// this process's clock is ahead.
func (a *API) Earlier() time.Time {
	now := time.Now()
	if server := a.ServerTime(); !server.IsZero() && server.Before(now) {
		return server
	}
	return now
}

// SilentUntil is the time before which the silence of other replicas proves nothing, because an outage has cut them off
// as well; zero when there was none.
func (a *API) SilentUntil() time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.reopened.IsZero() {
		return time.Time{}
	}
	return a.reopened.Add(lastProbe + lastProbe/5 + a.spread)
}

// Wrap is for rest.Config.
func (a *API) Wrap(next http.RoundTripper) http.RoundTripper { return &transport{api: a, next: next} }

type transport struct {
	api  *API
	next http.RoundTripper
}

// WrappedRoundTripper lets client-go find the transport behind.
func (t *transport) WrappedRoundTripper() http.RoundTripper { return t.next }

func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	watches := r.URL.Query().Get("watch") == "true"
	if resumes(r) && t.api.interrupted() {
		return gone(r), nil
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	deadline := time.AfterFunc(requestTimeout, func() {
		cancel(fmt.Errorf("the API server has not answered within %s: %w", requestTimeout, context.DeadlineExceeded))
	})
	ends := time.Now().Add(requestTimeout)
	if watches { // a watch may wait for the end of an outage: it has nothing else to do
		deadline.Stop()
		ends = time.Time{}
	}
	spread := spreadMost
	if watches && strings.Contains(r.URL.Path, "/leases") {
		spread = spreadLease
	}
	probe, err := t.api.enter(ctx, ends, spread)
	if err != nil {
		deadline.Stop()
		cancel(nil)
		return nil, err
	}
	if watches {
		deadline.Reset(requestTimeout)
	}
	resp, err := t.next.RoundTrip(r.WithContext(ctx))
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		deadline.Stop()
		cancel(nil)
		if r.Context().Err() != nil {
			t.api.leave(probe, givenUp)
		} else {
			t.api.leave(probe, unanswered)
		}
		return nil, err
	}
	if resp.StatusCode == http.StatusTooManyRequests {
		t.api.leave(probe, unanswered)
	} else {
		t.api.leave(probe, answered)
	}
	t.api.observe(resp.Header.Get("Date"), time.Now())
	resp.Header.Del("Retry-After") // the caller backs off by rules of its own
	if watches {
		deadline.Stop()
		deadline = time.AfterFunc(watchTime(r)+watchMargin, func() {
			cancel(fmt.Errorf("the watch went on for longer than agreed: %w", context.DeadlineExceeded))
		})
	}
	body := &bounded{ReadCloser: resp.Body, ctx: ctx, done: func() { deadline.Stop(); cancel(nil) }}
	if watches && resp.StatusCode == http.StatusOK {
		agreed := time.Now().Add(watchTime(r) - watchEarly)
		body.ended = func() {
			if ctx.Err() == nil && time.Now().Before(agreed) {
				t.api.cut()
			}
		}
	}
	resp.Body = body
	return resp, nil
}

// watchTime is how long a watch lasts, as the API server is asked.
func watchTime(r *http.Request) time.Duration {
	seconds, err := strconv.Atoi(r.URL.Query().Get("timeoutSeconds"))
	if err != nil || seconds <= 0 {
		seconds = 600
	}
	return time.Duration(seconds) * time.Second
}

// resumes reports whether a request continues a watch that was interrupted.
func resumes(r *http.Request) bool {
	q := r.URL.Query()
	return q.Get("watch") == "true" && q.Get("resourceVersion") != "" && q.Get("sendInitialEvents") != "true"
}

// gone answers a watch that was interrupted as an API server does that has started anew: its history begins with its start.
// So the client does not resume it, which would cost a request more, and begins another one.
func gone(r *http.Request) *http.Response {
	const status = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410,"message":"an outage has interrupted the watch"}`
	return &http.Response{
		StatusCode: http.StatusGone, Status: "410 Gone", Proto: r.Proto, ProtoMajor: r.ProtoMajor, ProtoMinor: r.ProtoMinor,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(status)),
		ContentLength: int64(len(status)), Request: r,
	}
}

// bounded is the body of an answer, which ends with its request's deadline.
type bounded struct {
	io.ReadCloser
	ctx   context.Context
	ended func() // is called when a watch ends by itself; nil for no watch
	done  func()

	closed atomic.Bool
}

// Read names the deadline where the transport only says that the request was cancelled.
func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && b.ended != nil && !b.closed.Load() {
		b.ended()
	}
	if cause := context.Cause(b.ctx); cause != nil && err != nil && !errors.Is(err, io.EOF) {
		err = cause
	}
	return n, err
}

func (b *bounded) Close() error {
	defer b.done()
	b.closed.Store(true)
	return b.ReadCloser.Close()
}

// interrupted reports whether watches that ended now are best begun anew.
func (a *API) interrupted() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.down || time.Since(a.wasCut) < spreadMost
}

// enter returns when a request may be sent: at once while the API server answers, else when it is a probe's turn, or
// after the outage, at a moment at random within most that leaves it time before it ends. A watch that was cut delays
// other watches only, also those that back off by rules of their own and come a little later.
func (a *API) enter(ctx context.Context, ends time.Time, most time.Duration) (probe bool, err error) {
	for waited, spread := false, false; ; {
		a.mu.Lock()
		left, up := time.Until(a.next), a.up
		var probed <-chan struct{} // nil without a probe
		held := waited || ends.IsZero() && time.Since(a.wasCut) < spreadMost
		switch {
		case !a.down && (spread || !held), a.suspect && !ends.IsZero():
			a.mu.Unlock()
			return false, nil
		case !a.down:
			over := min(a.spread, most)
			a.mu.Unlock()
			if !ends.IsZero() {
				over = min(over, max(0, time.Until(ends)*3/4))
			}
			if err := Sleep(ctx, rand.N(over+1)); err != nil {
				return false, err
			}
			spread = true
			continue
		case a.probing:
			probed, left = a.probed, lastProbe
		case left <= 0:
			a.probing, a.probed = true, make(chan struct{})
			a.mu.Unlock()
			return true, nil
		}
		a.mu.Unlock()
		waited, spread = true, false
		timer := time.NewTimer(left)
		select {
		case <-ctx.Done():
			timer.Stop()
			return false, context.Cause(ctx)
		case <-timer.C:
		case <-probed:
		case <-up:
		}
		timer.Stop()
	}
}

// ending is how a request ended.
type ending int

const (
	answered ending = iota
	unanswered
	givenUp // by its caller, which says nothing of the API server
)

// leave notes how a request ended.
func (a *API) leave(probe bool, how ending) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	switch {
	case how == answered && a.down:
		a.spread = spreadMost
		if !a.suspect {
			a.reopened, a.spread = now, min(3*now.Sub(a.since), spreadMost)
		}
		a.down, a.suspect = false, false
		close(a.up)
	case how == unanswered && (!a.down || a.suspect):
		if !a.down {
			a.since, a.up = now, make(chan struct{})
		}
		a.down, a.suspect, a.delay = true, false, firstProbe
		a.next = now.Add(Jittered(a.delay))
	case probe && (how == unanswered || how == givenUp):
		a.delay = min(2*a.delay, lastProbe)
		a.next = now.Add(Jittered(a.delay))
	}
	if probe {
		a.probing = false
		close(a.probed)
	}
}

// cut notes that a watch has ended before its time: the API server may have ended, which the next request shows.
func (a *API) cut() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.down {
		return
	}
	now := time.Now()
	a.down, a.suspect, a.since, a.wasCut, a.delay, a.up = true, true, now, now, firstProbe, make(chan struct{})
	a.next = now.Add(rand.N(suspicion))
}

// Jittered returns a duration that is up to a fifth longer.
func Jittered(d time.Duration) time.Duration { return d + rand.N(d/5+1) }

// observe notes the Date of an answer. One that contradicts the one before changes nothing, until the next confirms it.
func (a *API) observe(date string, at time.Time) {
	server, err := http.ParseTime(date)
	if err != nil {
		return
	}
	skew := server.Sub(at.Round(0)) // wall clocks: ours may have been set meanwhile
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.dated && (skew-a.lastSkew).Abs() <= skewAgrees {
		a.skew.Store(int64(skew))
		a.seen.Store(true)
	}
	a.lastSkew, a.dated = skew, true
}
