package record

// This file limits the rate of log lines.

import (
	"sync"
	"time"
)

// rareEvery is the interval between log lines of one kind. Without a limit, any client that reaches the port could
// cause as many as it likes.
const rareEvery = time.Minute

// rarely passes one line of each kind per minute, and counts the others. The zero value passes the next line. It is
// safe for concurrent use. There are few kinds, and no client can add one.
type rarely struct {
	mu    sync.Mutex
	kinds map[string]*spell
}

type spell struct {
	ends     time.Time
	withheld int
}

// pass reports whether a line may be logged, and how many of its kind were withheld since the last one.
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
