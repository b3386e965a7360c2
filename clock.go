package eirinix

import (
	"net/http"
	"sync/atomic"
	"time"
)

// tolerance is how far the API server's clock may seem to be away before ours is corrected. Its Date header has a
// resolution of a second, and answers take their time.
const tolerance = 2 * time.Second

// serverClock tells the time as the API server has it. By that clock the API server judges certificates, and all
// replicas agree on it: one whose own clock is wrong neither signs what is not valid yet, nor takes the CA for old.
// The zero value goes by the local clock until an answer has been seen. It is safe for concurrent use.
type serverClock struct {
	skew atomic.Int64 // nanoseconds to be added to the local time
}

// Now is the API server's time, give or take the tolerance.
func (c *serverClock) Now() time.Time { return time.Now().Add(c.Skew()) }

// Skew is how far the API server's clock is ahead of ours; 0 within the tolerance.
func (c *serverClock) Skew() time.Duration { return time.Duration(c.skew.Load()) }

// observe takes notice of an answer's Date header.
func (c *serverClock) observe(date string, at time.Time) {
	server, err := http.ParseTime(date)
	if err != nil {
		return
	}
	// It was cut to the second, so that half of one is what it is behind on average.
	skew := server.Add(time.Second / 2).Sub(at.Round(0)) // wall clocks: ours may have been set meanwhile
	if skew.Abs() <= tolerance {
		skew = 0
	}
	if last := c.Skew(); (skew-last).Abs() > tolerance || skew == 0 {
		c.skew.Store(int64(skew))
	}
}

// wrap watches what goes over a connection to the API server.
func (c *serverClock) wrap(next http.RoundTripper) http.RoundTripper {
	return clockedTransport{clock: c, next: next}
}

type clockedTransport struct {
	clock *serverClock
	next  http.RoundTripper
}

func (t clockedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := t.next.RoundTrip(r)
	if err == nil {
		t.clock.observe(resp.Header.Get("Date"), time.Now())
	}
	return resp, err
}

// WrappedRoundTripper lets client-go find the transport behind.
func (t clockedTransport) WrappedRoundTripper() http.RoundTripper { return t.next }
