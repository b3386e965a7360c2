package record

import (
	"sync"
	"time"
)

// rareEvery is how often a line of one kind is worth its place in the log: whoever reaches the port can cause as many as
// they like.
const rareEvery = time.Minute

// rarely lets one line of a kind through in a minute and counts the rest. The zero value lets the next one through.
// It is safe for concurrent use. The kinds are few, and our own.
type rarely struct {
	mu    sync.Mutex
	kinds map[string]*spell
}

type spell struct {
	ends     time.Time
	withheld int
}

// pass tells whether this one may go through, and how many of its kind did not since the last that did.
func (r *rarely) pass(kind string) (withheld int, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.kinds == nil {
		r.kinds = map[string]*spell{}
	}
	s := r.kinds[kind]
	if s == nil {
		s = &spell{}
		r.kinds[kind] = s
	}
	now := time.Now()
	if now.Before(s.ends) {
		s.withheld++
		return 0, false
	}
	withheld = s.withheld
	s.ends, s.withheld = now.Add(rareEvery), 0
	return withheld, true
}
