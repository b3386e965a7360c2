// Package cluster is the connection to a cluster. It sends requests that have deadlines and back off while an API
// server is down, and keeps copies of single objects up to date. It is independent of webhooks.
package cluster

// This file watches over the library's own requests. While the API server does not answer, one request at a time is a
// probe and the others wait, regardless of the number of watches.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"

	"code.cloudfoundry.org/eirinix/internal/wait"
)

const (
	// requestTimeout limits one request; for a watch, the wait for its start.
	requestTimeout = 10 * time.Second

	// firstProbe and lastProbe are the minimum and maximum time from one probe to the next, before jitter. An outage that
	// has lasted less than briefOutage may be a restart, so probes are at most briefProbe apart.
	firstProbe, lastProbe   = time.Second, 30 * time.Second
	briefProbe, briefOutage = 3 * time.Second, 20 * time.Second

	// skewAgrees is the difference up to which two observations of the clock skew agree.
	skewAgrees = time.Minute

	// maxSpread limits how long a request is delayed after an outage, so that replicas do not come back all at once.
	maxSpread = 15 * time.Second

	// spreadLease is the same limit for the watch of a Lease: other processes wait for an answer in it, for ten
	// seconds.
	spreadLease = 3 * time.Second
)

// API monitors the requests of one Manager. The zero value is ready to use. It is safe for concurrent use.
type API struct {
	mu       sync.Mutex
	skew     *time.Duration       // by which the API server's clock is ahead; nil until two responses agree
	lastSkew *time.Duration       // according to the last response
	down     bool                 // requests wait for a probe
	since    time.Time            // when the outage began
	next     time.Time            // when the next probe is due
	delays   func() time.Duration // until the ones after that
	probing  bool
	changed  chan struct{} // closed at the end of a probe, and of the outage; nil before the first one
	reopened time.Time     // the end of the last outage
	spread   time.Duration // over which requests come back
	proves   time.Time     // from when on silence proves something again
	failed   bool          // the last read of a Lease has failed
}

// ServerTime returns the API server's time, to within a second or so, according to the last response that agreed with
// the one before it. It is zero until two responses agree.
func (a *API) ServerTime() time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.skew == nil {
		return time.Time{}
	}
	return time.Now().Add(*a.skew)
}

// Earlier returns the earlier of the local time and the API server's. With it, a CA is never replaced or dropped too
// soon because this process's clock is ahead.
func (a *API) Earlier() time.Time {
	now := time.Now()
	if server := a.ServerTime(); !server.IsZero() && server.Before(now) {
		return server
	}
	return now
}

// SilentUntil returns the time until which the silence of other replicas proves nothing, because an outage has cut them
// off as well, or their reads of the Lease may have failed as one here has. It is zero if there was neither. During an
// outage it is later than now: a request that is decided on now may be sent at its end.
func (a *API) SilentUntil() time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.down {
		return time.Now().Add(lastProbe)
	}
	return a.proves
}

// Wrap returns a transport that monitors the requests of next. It is for rest.Config.
func (a *API) Wrap(next http.RoundTripper) http.RoundTripper { return &transport{api: a, next: next} }

type transport struct {
	api  *API
	next http.RoundTripper
}

// WrappedRoundTripper returns the wrapped transport. client-go looks for it.
func (t *transport) WrappedRoundTripper() http.RoundTripper { return t.next }

func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	watches := r.URL.Query().Get("watch") == "true"
	ctx, cancel := context.WithCancelCause(r.Context())
	deadline := time.AfterFunc(requestTimeout, func() {
		cancel(fmt.Errorf("the API server has not answered within %s: %w", requestTimeout, context.DeadlineExceeded))
	})
	ends := time.Now().Add(requestTimeout)
	if watches { // a watch can wait for the end of an outage: it has nothing else to do
		deadline.Stop()
		ends = time.Time{}
	}
	spread, leases := maxSpread, strings.Contains(r.URL.Path, "/leases")
	switch {
	case watches && leases:
		spread = spreadLease
	case r.Context().Done() == nil: // of a RESTMapper, which holds a lock meanwhile
		spread = 0
	}
	end := func() { deadline.Stop(); cancel(nil) }
	probe, err := t.api.enter(ctx, ends, spread)
	if err != nil {
		end()
		return nil, err
	}
	if watches {
		deadline.Reset(requestTimeout)
	}
	resp, err := t.next.RoundTrip(r.WithContext(ctx))
	t.api.leave(probe, err == nil && resp.StatusCode != http.StatusTooManyRequests, err != nil && r.Context().Err() != nil)
	if err != nil {
		err = cmp.Or(context.Cause(ctx), err)
		end()
		return nil, err
	}
	t.api.observe(resp.Header.Get("Date"), time.Now())
	if r.Method == http.MethodGet && (leases || r.URL.Path == "/version") {
		t.api.read(resp.StatusCode >= http.StatusInternalServerError)
	}
	resp.Header.Del("Retry-After") // the caller has its own backoff
	if watches {                   // its follower knows when it ends
		deadline.Stop()
	}
	resp.Body = &bounded{ReadCloser: resp.Body, ctx: ctx, done: end}
	return resp, nil
}

// bounded is the body of a response, which ends with its request's deadline.
type bounded struct {
	io.ReadCloser
	ctx  context.Context
	done func()
}

// Read returns the deadline as the error where the transport only reports that the request was cancelled.
func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if cause := context.Cause(b.ctx); cause != nil && err != nil && !errors.Is(err, io.EOF) {
		err = cause
	}
	return n, err
}

func (b *bounded) Close() error {
	defer b.done()
	return b.ReadCloser.Close()
}

// errDown is the error for a request that cannot wait.
var errDown = errors.New("the API server does not answer; it is asked again within 30 s")

// enter returns when a request may be sent. That is at once while the API server answers, and during an outage when it
// is this request's turn to probe. After an outage it is a random moment within most that leaves the request time
// before it ends. If most is zero, the request does not wait.
func (a *API) enter(ctx context.Context, ends time.Time, most time.Duration) (probe bool, err error) {
	for waited := false; ; {
		a.mu.Lock()
		down, left, over, changed := a.down, time.Until(a.next), min(a.spread, most), a.changed
		if a.probing {
			left = lastProbe
		}
		probe = down && left <= 0
		a.probing = a.probing || probe
		a.mu.Unlock()
		switch {
		case probe, !down && !waited:
			return probe, nil
		case down && most == 0:
			return false, errDown
		case down:
			err = wait.SleepUnless(ctx, left, changed)
		default:
			if !ends.IsZero() {
				over = min(over, max(0, time.Until(ends)*3/4))
			}
			err = wait.Sleep(ctx, rand.N(over+1))
		}
		if err != nil {
			return false, err
		}
		waited = down
	}
}

// leave records how a request ended. One that its caller has given up proves nothing about the API server.
func (a *API) leave(probe, answered, givenUp bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now, waited := time.Now(), a.down
	switch {
	case answered && a.down:
		a.down, a.reopened, a.spread = false, now, min(now.Sub(a.since)/2, maxSpread)
		a.proves = now.Add(lastProbe + lastProbe/5 + a.spread) // others may have noticed the outage earlier
	case !answered && !givenUp && !a.down:
		a.down, a.since, a.changed, a.delays = true, now, make(chan struct{}), wait.Backoff(firstProbe, lastProbe)
	}
	if a.down && (probe || !waited) {
		delay := a.delays()
		if now.Sub(a.since) < briefOutage {
			delay = min(delay, wait.Jittered(briefProbe))
		}
		a.next = now.Add(delay)
	}
	if probe {
		a.probing = false
	}
	if waited && (probe || answered) {
		close(a.changed)
		a.changed = make(chan struct{})
	}
}

// read records whether a Lease, or the first thing that a process asks, could be read. After a failure, other replicas may have
// failed to read the Lease until now, and their watches of it begin again after a pause. What fails for another kind alone proves
// nothing of them.
func (a *API) read(failed bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if proves := time.Now().Add(Rewatched); (failed || a.failed) && proves.After(a.proves) {
		a.proves = proves
	}
	a.failed = failed
}

// observe records the Date of a response. A Date that contradicts the previous one changes nothing until the next one
// confirms it.
func (a *API) observe(date string, at time.Time) {
	server, err := http.ParseTime(date)
	if err != nil {
		return
	}
	skew := server.Sub(at.Round(0)) // wall clocks: ours may have been set in the meantime
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.lastSkew != nil && (skew-*a.lastSkew).Abs() <= skewAgrees {
		a.skew = &skew
	}
	a.lastSkew = &skew
}
