package serving

// This file limits the rate of log lines about connections.

import (
	"sync"
	"time"
)

// rareEvery is the minimum interval between log lines about connections. Any client that reaches the port can cause as
// many of them as it likes.
const rareEvery = 10 * time.Second

// rarely passes one event in ten seconds and counts the rest. The zero value passes the next one. It is safe for
// concurrent use.
type rarely struct {
	mu       sync.Mutex
	next     time.Time
	withheld int
}

// pass reports whether this event passes, and how many were withheld since the last one that did.
func (r *rarely) pass() (withheld int, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if now.Before(r.next) {
		r.withheld++
		return 0, false
	}
	withheld = r.withheld
	r.next, r.withheld = now.Add(rareEvery), 0
	return withheld, true
}
