package webhookconf

// This file decides whose steps a configuration holds when processes with different ones are alive: two versions in a
// rollout, or in one that is undone. There is no leader; each process knows what is registered, when the process that
// registered it started, and what it remembers itself.
//
//	The later start wins.  A version that is rolled out starts later than the one that it replaces, and so does an
//	                       older version to which somebody goes back.
//	The others yield.      A process with other steps than those registered leaves everything as it is, but for the
//	                       caBundle, without which no call of either version gets through.
//	Yielding ends.         Who still runs ten minutes later has not been replaced: perhaps the later one died. It
//	                       registers its own steps again. When that is undone, the later one lives, and the next
//	                       try is twice as far away.

import (
	"fmt"
	"time"
)

const (
	// patience is how long a process with other steps yields for the first time.
	patience = 10 * time.Minute

	// mostPatience is where the doubling ends. Each try of ours is a moment in which the later version's steps are
	// not registered; but when that version is gone, ours are not for as long.
	mostPatience = 4 * time.Hour
)

// Action is what a process does about a configuration.
type Action string

// The actions. With each of them the caBundles are looked after.
const (
	Keep  Action = "keep"  // its own steps stand there
	Write Action = "write" // its own steps are due
	Yield Action = "yield" // others' steps stand there, and stay
)

// Situation is all that the decision depends on.
type Situation struct {
	Now    time.Time
	Us     Stamp // of this process
	Exists bool
	Stamp  Stamp // what the configuration carries
	Intact bool  // but for the caBundles, the configuration is what this process would make it

	// Insists says that somebody ordered the registration just now, so it yields to nobody.
	Insists bool

	Since    time.Time     // when this process began to yield to Stamp
	Patience time.Duration // how long it does
}

// Verdict is the decision: an action, why, and for Yield, when to decide again.
type Verdict struct {
	Action Action
	Reason string
	At     time.Time
}

// Judge decides. It is a pure function.
func Judge(s Situation) Verdict {
	until := s.Since.Add(s.Patience)
	switch {
	case !s.Exists:
		return Verdict{Action: Write, Reason: "it does not exist"}
	case s.Stamp.IsZero():
		return Verdict{Action: Write, Reason: "nothing tells whose steps it holds"}
	case s.Stamp.Digest == s.Us.Digest && s.Intact:
		return Verdict{Action: Keep, Reason: "it holds these steps"} // whoever wrote them
	case s.Stamp.Digest == s.Us.Digest:
		return Verdict{Action: Write, Reason: "it was edited"}
	case s.Us.Outranks(s.Stamp):
		return Verdict{Action: Write, Reason: "it holds the steps of a process that started before, " + stamped(s.Stamp)}
	case s.Insists:
		return Verdict{Action: Write, Reason: "it holds the steps of another process, and registering these was asked for"}
	case !s.Now.Before(until):
		return Verdict{Action: Write, Reason: fmt.Sprintf("it holds the steps of a process that started later, %s, but this one still runs after %s", stamped(s.Stamp), s.Patience)}
	}
	return Verdict{Action: Yield, Reason: "it holds the steps of a process that started later, " + stamped(s.Stamp), At: until}
}

func stamped(s Stamp) string { return "at " + s.Started.Format(time.RFC3339) }

// Stance is what one process remembers of its rivals for one configuration. It is for one goroutine at a time.
type Stance struct {
	Us      Stamp
	Insists bool

	to    Stamp     // to whom it yields; zero when it does not
	since time.Time // when it began to, or when that changed

	stands   time.Time // since when its steps stand there; zero when they do not, or nobody has looked
	returned bool      // they stand there after having been replaced
	undone   int       // how often they were replaced again after that
}

// Judge decides about what was found, and remembers it. Call Wrote when what it says was done.
func (s *Stance) Judge(now time.Time, exists bool, stamp Stamp, intact bool) Verdict {
	if s.Us.Started.After(now.Add(aheadOfTime)) {
		s.Us.Started = now // the clock has been corrected meanwhile; nobody would believe us
	}
	switch {
	case !exists || stamp.IsZero():
		s.to, s.stands = Stamp{}, time.Time{}
	case stamp.Digest == s.Us.Digest:
		s.standing(now)
	case s.Us.Outranks(stamp):
		s.to, s.stands = Stamp{}, time.Time{}
	default:
		s.yield(now, stamp)
	}
	return Judge(Situation{
		Now: now, Us: s.Us, Exists: exists, Stamp: stamp, Intact: intact, Insists: s.Insists,
		Since: s.since, Patience: min(patience<<min(s.undone, 8), mostPatience),
	})
}

// Wrote notes that the steps of this process have been registered.
func (s *Stance) Wrote(now time.Time) { s.standing(now) }

func (s *Stance) standing(now time.Time) {
	if s.stands.IsZero() {
		s.stands = now
		s.returned = s.returned || !s.to.IsZero()
	}
	s.to = Stamp{}
	if now.Sub(s.stands) >= patience { // nobody minds
		s.returned, s.undone = false, 0
	}
}

func (s *Stance) yield(now time.Time, stamp Stamp) {
	if s.returned {
		s.undone++
	}
	// Another start is a sign of life, too.
	if stamp != s.to || s.since.After(now) {
		s.to, s.since = stamp, now
	}
	s.stands, s.returned = time.Time{}, false
}

// StampOver is what is written in the place of another stamp, or of none.
func (s *Stance) StampOver(other Stamp) Stamp {
	us := s.Us
	switch {
	case other.IsZero():
	case other.Digest == us.Digest && other.Started.After(us.Started):
		return other // of a replica that started later
	case s.Insists && !us.Outranks(other):
		us.Started = other.Started.Add(1)
	}
	return us
}
