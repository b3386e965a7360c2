// Package rollout decides what is registered while several versions of a program live. There is one rule:
//
//	The registration of the version that came first stands as it is. Replicas of later versions answer its paths too,
//	with those of its steps that they have. When its last replica is gone, the registration of the next one takes its
//	place, whole.
//
// Versions know each other by their records in one Lease. Liveness is asked for: a replica of another version writes a
// question into a record, and any one replica of that version answers. Without an answer the version is gone. While
// there is one version, nothing is written. The package is pure: it reads and writes nothing.
package rollout

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"
)

const (
	// recordPrefix begins the annotations of the Lease. The version follows.
	recordPrefix = "version.eirinix.cloudfoundry.org/"

	// PauseLong and PauseShort bound how long a replica puts off a write that all replicas see to be due.
	PauseLong, PauseShort = time.Second, 200 * time.Millisecond

	// askEvery is how long an answer is good for.
	askEvery = 10 * time.Second

	// answerWithin is how long a version has for its answer.
	answerWithin = 10 * time.Second

	// leftWithin is the same after one of its replicas has said that it stops.
	leftWithin = 1500 * time.Millisecond

	// most is more than any number of a record: it is exact in any JSON reader, and far from an overflow.
	most = 1 << 53

	// goneKept is how many versions that are gone keep their record. API servers that lag may still call their paths.
	goneKept = 2
)

// Record is what one version of a program says of itself.
type Record struct {
	Came     int64               `json:"came"`               // place in the order of arrival
	Target   string              `json:"target"`             // where the API server calls: it tells programs apart
	Program  int64               `json:"program,omitempty"`  // place of the program: that of its earliest version
	Steps    map[string][]string `json:"steps"`              // the steps behind each path that the version registers
	Asked    int64               `json:"asked,omitempty"`    // number of the last question whether a replica lives
	Answered int64               `json:"answered,omitempty"` // number of the last question that was answered
	Left     bool                `json:"left,omitempty"`     // a replica has stopped since the last answer
	Ordered  bool                `json:"ordered,omitempty"`  // RegisterExtensions has registered it: it goes before all others
	Gone     bool                `json:"gone,omitempty"`     // no replica has answered
}

// Versions are the records of a Lease, by version.
type Versions map[string]Record

// Read returns the records in the annotations of a Lease. A record that cannot be read is left out.
func Read(annotations map[string]string) Versions {
	found := Versions{}
	for key, text := range annotations {
		version, ok := strings.CutPrefix(key, recordPrefix)
		var r Record
		if ok && version != "" && json.Unmarshal([]byte(text), &r) == nil && r.sane() {
			r.Answered = min(r.Answered, r.Asked)
			found[version] = r
		}
	}
	return found
}

// sane reports whether the numbers of a record can be counted on. The annotations are anyone's to edit.
func (r Record) sane() bool {
	return r.Came > 0 && r.Came < most && r.Program >= 0 && r.Program <= r.Came && r.Asked >= 0 && r.Asked < most && r.Answered >= 0
}

// Write returns the annotations with these records, and no others, among them.
func (v Versions) Write(annotations map[string]string) map[string]string {
	written := map[string]string{}
	for key, text := range annotations {
		if !strings.HasPrefix(key, recordPrefix) {
			written[key] = text
		}
	}
	for version, r := range v {
		text, _ := json.Marshal(r) // strings and numbers
		written[recordPrefix+version] = string(text)
	}
	return written
}

// InOrder returns the versions in the order in which they came.
func (v Versions) InOrder() []string {
	return slices.SortedFunc(maps.Keys(v), func(a, b string) int {
		return cmp.Or(cmp.Compare(v[a].Came, v[b].Came), strings.Compare(a, b))
	})
}

// First returns the version whose registration stands; empty when no version lives. The program that came first keeps its
// place through all of its versions.
func (v Versions) First() (first string) {
	for _, version := range v.InOrder() {
		r := v[version]
		if !r.Gone && (first == "" || r.Ordered || !v[first].Ordered && v.came(r.Target) < v.came(v[first].Target)) {
			first = version
		}
	}
	return first
}

// came is the place of a program: that of its earliest version, which later ones inherit.
func (v Versions) came(target string) int64 {
	earliest := int64(most)
	for _, r := range v {
		if r.Target == target {
			earliest = min(earliest, cmp.Or(r.Program, r.Came))
		}
	}
	return earliest
}

// Living returns how many versions have replicas, as far as is known.
func (v Versions) Living() (n int) {
	for _, r := range v {
		if !r.Gone {
			n++
		}
	}
	return n
}

// add returns the records with one more, which comes last. Old records of versions that are gone are left out.
func (v Versions) add(version string, r Record) Versions {
	next, last, gone := maps.Clone(v), int64(0), 0
	delete(next, version)
	for _, other := range slices.Backward(next.InOrder()) {
		last = max(last, next[other].Came)
		if next[other].Gone {
			if gone++; gone > goneKept {
				delete(next, other)
			}
		}
	}
	r.Came = last + 1
	r.Program = min(v.came(r.Target), r.Came)
	next[version] = r
	return next
}

// Order returns the records with one that goes before all others, because a person has asked for its registration.
func (v Versions) Order(version string, r Record) Versions {
	if v[version].Ordered && v.First() == version {
		return v
	}
	next := v.add(version, r)
	for other, o := range next {
		o.Gone = o.Gone || o.Ordered // an earlier order is no version of its own
		o.Ordered = other == version
		next[other] = o
	}
	return next
}

// Sighting is the state in which a replica has seen another version's record last, and since when.
type Sighting struct {
	Asked, Answered int64
	Left            bool
	Since           time.Time
	Lives           bool // it has answered a question while this replica watched
}

// Sight brings sightings up to date. Silence counts from then on: a replica that was cut off itself proves nothing by
// not having heard of an answer.
func Sight(seen map[string]Sighting, found Versions, from time.Time) map[string]Sighting {
	next := map[string]Sighting{}
	for version, r := range found {
		s, known := seen[version]
		if !known || s.Asked != r.Asked || s.Answered != r.Answered || s.Left != r.Left {
			lives := known && (s.Lives || r.Answered > s.Answered)
			s = Sighting{Asked: r.Asked, Answered: r.Answered, Left: r.Left, Since: from, Lives: lives}
		}
		next[version] = s
	}
	return next
}

// Input is all that the decision depends on.
type Input struct {
	Version string
	Record  Record // of this version, as it begins
	Found   Versions
	Seen    map[string]Sighting
	Now     time.Time
}

// Decision is what a replica does about the records.
type Decision struct {
	Next  Versions      // what the Lease is to hold; nil when it is right as it is
	Pause time.Duration // how long the write may be put off at random, so that one replica does it for all
	Again time.Time     // when to decide again if nothing changes; zero for never
	Why   string        // the changes of Next, in words
	Other string        // the target of another program that lives under the same fingerprint and came first; or empty
}

// Decide is a pure function.
func Decide(in Input) Decision {
	next := maps.Clone(in.Found)
	d := Decision{Pause: PauseLong}
	changed := func(version string, r Record, pause time.Duration, why string) {
		next[version] = r
		d.Next, d.Pause, d.Why = next, min(d.Pause, pause), d.Why+why+" "
	}
	own, known := in.Found[in.Version]
	switch {
	case !known || own.Gone:
		next = in.Found.add(in.Version, in.Record)
		d.Next, d.Pause, d.Why = next, 0, "joined "
	case own.Asked > own.Answered:
		pause := PauseLong
		if own.Left {
			pause = PauseShort
		}
		own.Answered, own.Left = own.Asked, false
		changed(in.Version, own, pause, "answered")
	}
	for _, version := range in.Found.InOrder() {
		r, left := next[version]
		if !left || version == in.Version || r.Gone {
			continue
		}
		seen := in.Seen[version]
		if r.Target != in.Record.Target && seen.Lives && known && !own.Gone && in.Found.came(r.Target) < in.Found.came(own.Target) {
			d.Other = r.Target
		}
		asked, pause, due := r.Asked > r.Answered, PauseLong, seen.Since.Add(askEvery)
		switch {
		case asked && r.Left:
			due = seen.Since.Add(leftWithin)
		case asked:
			due = seen.Since.Add(answerWithin)
		case r.Left || !seen.Lives && seen.Answered == r.Answered:
			due, pause = in.Now, PauseShort // it may have died before anyone looked
		}
		switch {
		case in.Now.Before(due):
			d.Again = Soonest(d.Again, due)
		case asked:
			r.Gone = true
			changed(version, r, PauseShort, "found no replica of "+version)
		default:
			r.Asked++
			changed(version, r, pause, "asked "+version)
		}
	}
	return d
}

// Leave returns the records after a replica of the version has said that it stops; nil when they say so already. last
// says that there is no other replica.
func (v Versions) Leave(version string, last bool) Versions {
	own, known := v[version]
	if !known || own.Gone || own.Left && !last {
		return nil
	}
	next := maps.Clone(v)
	own.Left, own.Gone = true, last
	next[version] = own
	return next
}

// Route says which steps answer on a path that another version registers.
type Route struct {
	Steps []string
	// All says that the path is answered only by a replica that has all of them: the version came later, so the API
	// server, and not this replica, knows what is registered.
	All bool
}

// Routes returns the paths of all other versions. A version without a record of its own came after all of them. On the
// path of an earlier version, a step that is missing here was removed on purpose.
func (v Versions) Routes(version string) map[string]Route {
	own, known := v[version]
	known = known && !own.Gone // it comes anew, after all that live
	routes := map[string]Route{}
	for _, other := range v.InOrder() {
		r := v[other]
		if other == version {
			continue
		}
		later := known && r.Came > own.Came
		for path, steps := range r.Steps {
			at, there := routes[path]
			at.All = later && (at.All || !there) // an earlier version may register it too
			for _, step := range steps {
				if !slices.Contains(at.Steps, step) {
					at.Steps = append(at.Steps, step)
				}
			}
			routes[path] = at
		}
	}
	return routes
}

// Soonest is the earlier of two times, either of which may be zero for never.
func Soonest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
