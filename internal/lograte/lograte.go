// Package lograte limits how often a repeated event is logged, and how much of a text that others have written.
package lograte

import (
	"cmp"
	"hash/maphash"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
)

// defaultEvery is the default interval between two lines of one kind.
const defaultEvery = time.Minute

// Limiter decides which events are logged. Kinds of events are independent of each other. There must be few of them, and
// no client may be able to add one. The zero value is ready to use. It is safe for concurrent use.
type Limiter struct {
	Every time.Duration    // between two lines of one kind; 0 means a minute
	Now   func() time.Time // nil means time.Now

	mu   sync.Mutex
	last map[string]line // by kind
}

// line is the last logged event of a kind.
type line struct {
	reason   string
	at       time.Time
	withheld int // events since then
}

// Allow reports whether an event is logged: the first of its kind, one for another reason than the last one that was
// logged, and one after Every. withheld is the number of events of this kind since the last one that was logged. If a
// client can choose the reason, leave it empty.
func (l *Limiter) Allow(kind, reason string) (withheld int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now
	if l.Now != nil {
		now = l.Now
	}
	at := now()
	last, known := l.last[kind]
	if known && last.reason == reason && at.Sub(last.at).Abs() < cmp.Or(l.Every, defaultEvery) {
		last.withheld++
		l.last[kind] = last
		return 0, false
	}
	if l.last == nil {
		l.last = map[string]line{}
	}
	l.last[kind] = line{reason: reason, at: at}
	return last.withheld, true
}

// Info logs a message with its reason, if Allow does with the message as the kind. It reports whether it did.
func (l *Limiter) Info(log logr.Logger, message, reason string) bool {
	_, ok := l.Allow(message, reason)
	if ok {
		log.Info(message, "reason", reason)
	}
	return ok
}

// Forget makes the next event of a kind count as the first one.
func (l *Limiter) Forget(kind string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.last, kind)
}

const (
	// firstLines is how many events of one kind and reason are logged in an interval, and firstOfKind of one kind.
	firstLines, firstOfKind = 10, 100

	// maxKinds and reasonsOfKind bound the memory. Further kinds count as one, and reasons with the same hash, too.
	maxKinds, reasonsOfKind = 256, 64
)

// Sampler decides which of many events are logged: in a minute, the first ten of each kind and reason, and a hundred of
// each kind. Clients can choose the reasons, and there can be any number of them. The zero value is ready to
// use. It is safe for concurrent use.
type Sampler struct {
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

// Of returns a logger for an event, which logs nothing if Allow does not. kind is few words.
func (s *Sampler) Of(log logr.Logger, kind, reason string) logr.Logger {
	withheld, ok := s.Allow(kind, reason)
	switch {
	case !ok:
		return logr.Discard()
	case withheld > 0:
		return log.WithValues("withheld", withheld)
	}
	return log
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
	at := time.Now()
	if k.reasons[maphash.String(s.seed, reason)%reasonsOfKind].count(at) > firstLines || k.count(at) > firstOfKind {
		k.withheld++
		return 0, false
	}
	withheld, k.withheld = k.withheld, 0
	return withheld, true
}

// count adds an event and returns the number of events in its interval.
func (c *counter) count(at time.Time) int {
	if at.Sub(c.began) >= defaultEvery {
		c.began, c.events = at, 0
	}
	c.events++
	return c.events
}

// Brief returns a text, or its beginning if it has more than most bytes. The beginning is valid UTF-8. It bounds what a
// client or a step has written, for a log line or an answer.
func Brief(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "..."
}
