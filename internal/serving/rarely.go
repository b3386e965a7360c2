package serving

import (
	"sync"
	"time"
)

// rareEvery is how often a line about connections is worth its place in the log: whoever reaches the port can
// cause as many as they like.
const rareEvery = 10 * time.Second

// rarely lets one thing through in ten seconds and counts the rest. The zero value lets the next one through.
// It is safe for concurrent use.
type rarely struct {
	mu       sync.Mutex
	next     time.Time
	withheld int
}

// pass tells whether this one may go through, and how many did not since the last that did.
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
