package lograte

// This file samples events whose reasons clients can choose.

import (
	"hash/maphash"
	"sync"
	"time"
)

const (
	// firstLines is how many events of one kind and reason are logged in an interval, and firstOfKind of one kind.
	firstLines, firstOfKind = 10, 100

	// maxKinds and reasonsOfKind bound the memory. Further kinds count as one, and reasons with the same hash, too.
	maxKinds, reasonsOfKind = 256, 64
)

// Sampler decides which of many events are logged: in a minute, the first ten of each kind and reason, and the first
// hundred of each kind. Clients can choose the reasons, and there can be any number of them. The zero value is ready to
// use. It is safe for concurrent use.
type Sampler struct {
	Now func() time.Time // nil means time.Now

	mu   sync.Mutex
	seed maphash.Seed
	all  map[string]*kind
}

// kind counts the events of one kind.
type kind struct {
	counter
	reasons  [reasonsOfKind]counter // by hash
	withheld int                    // since the last event that was logged
}

// counter counts the events of an interval.
type counter struct {
	began  time.Time
	events int
}

// Allow reports whether an event is logged. withheld is the number of events of this kind that were not logged since
// the last one that was.
func (s *Sampler) Allow(name, reason string) (withheld int, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all, s.seed = map[string]*kind{}, maphash.MakeSeed()
	}
	if len(s.all) >= maxKinds && s.all[name] == nil {
		name = ""
	}
	k := s.all[name]
	if k == nil {
		k = &kind{}
		s.all[name] = k
	}
	now := time.Now
	if s.Now != nil {
		now = s.Now
	}
	at := now()
	ofKind, ofReason := k.count(at), k.reasons[maphash.String(s.seed, reason)%reasonsOfKind].count(at)
	if ofKind > firstOfKind || ofReason > firstLines {
		k.withheld++
		return 0, false
	}
	withheld, k.withheld = k.withheld, 0
	return withheld, true
}

// count adds an event and returns the number of events in its interval.
func (c *counter) count(at time.Time) int {
	if at.Sub(c.began).Abs() >= defaultEvery {
		c.began, c.events = at, 0
	}
	c.events++
	return c.events
}
