// Package rollout decides which version is registered while several versions of a program are live. There is one rule:
//
//	The registration of the version that came first stays unchanged. Replicas of later versions answer its paths too,
//	with those of its steps that they have. When its last replica is gone, the registration of the next version
//	replaces it as a whole.
//
// Versions find each other by their records in one Lease. Liveness is queried: a replica of another version writes a
// question into a record, and any replica of that version answers it. A version that does not answer is gone. With a
// single version, nothing is written.
//
// The decisions are pure functions. Only Lease reads and writes the cluster.
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
	// recordPrefix is the prefix of the Lease's annotations that hold records. The version follows it.
	recordPrefix = "version.eirinix.cloudfoundry.org/"

	// PauseLong and PauseShort bound the time for which a replica delays a write that all replicas consider due.
	PauseLong, PauseShort = time.Second, 200 * time.Millisecond

	// askEvery is the time for which an answer is valid.
	askEvery = 10 * time.Second

	// answerWithin is the time that a version has to answer.
	answerWithin = 10 * time.Second

	// leftWithin is the same after one of its replicas has recorded that it stops.
	leftWithin = 1500 * time.Millisecond

	// most is an upper bound for the numbers in a record. Every JSON reader represents it exactly, and it is far from
	// an overflow.
	most = 1 << 53

	// goneKept is the number of gone versions whose records are kept, because API servers that lag behind can still
	// call their paths.
	goneKept = 2
)

// Record is the information that a version of a program publishes about itself.
type Record struct {
	Came     int64               `json:"came"`               // position in the order of arrival
	Target   string              `json:"target"`             // the address that the API server calls; distinguishes programs
	Program  int64               `json:"program,omitempty"`  // the Came of the program's earliest version
	Steps    map[string][]string `json:"steps"`              // the steps behind each path that the version registers
	Asked    int64               `json:"asked,omitempty"`    // number of the last question whether a replica is live
	Answered int64               `json:"answered,omitempty"` // number of the last answered question
	Left     bool                `json:"left,omitempty"`     // a replica has stopped since the last answer
	Ordered  bool                `json:"ordered,omitempty"`  // RegisterExtensions has registered it; it precedes all other versions
	Gone     bool                `json:"gone,omitempty"`     // no replica has answered
}

// Versions holds the records of a Lease by version.
type Versions map[string]Record

// Read returns the records in the annotations of a Lease. Invalid records are left out.
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

// sane reports whether the numbers of a record are usable. Other clients can edit the annotations.
func (r Record) sane() bool {
	return r.Came > 0 && r.Came < most && r.Program >= 0 && r.Program <= r.Came && r.Asked >= 0 && r.Asked < most && r.Answered >= 0
}

// Write returns the annotations with exactly these records, and with all other annotations unchanged.
func (v Versions) Write(annotations map[string]string) map[string]string {
	written := map[string]string{}
	for key, text := range annotations {
		if !strings.HasPrefix(key, recordPrefix) {
			written[key] = text
		}
	}
	for version, r := range v {
		text, _ := json.Marshal(r) // cannot fail for strings and numbers
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

// First returns the version whose registration takes precedence, or "" if no version is live. The program that came
// first keeps its precedence through all of its versions.
func (v Versions) First() (first string) {
	for _, version := range v.InOrder() {
		r := v[version]
		if !r.Gone && (first == "" || r.Ordered || !v[first].Ordered && v.came(r.Target) < v.came(v[first].Target)) {
			first = version
		}
	}
	return first
}

// came returns the position of a program: that of its earliest version, which later versions inherit.
func (v Versions) came(target string) int64 {
	earliest := int64(most)
	for _, r := range v {
		if r.Target == target {
			earliest = min(earliest, cmp.Or(r.Program, r.Came))
		}
	}
	return earliest
}

// Living returns the number of versions that have replicas, as far as is known.
func (v Versions) Living() (n int) {
	for _, r := range v {
		if !r.Gone {
			n++
		}
	}
	return n
}

// add returns the records with one more, which comes last. The oldest records of gone versions are left out.
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

// Order returns the records with one that precedes all others, because an operator has requested its registration.
func (v Versions) Order(version string, r Record) Versions {
	if v[version].Ordered && v.First() == version {
		return v
	}
	next := v.add(version, r)
	for other, o := range next {
		o.Gone = o.Gone || o.Ordered // an earlier order is not a version of its own
		o.Ordered = other == version
		next[other] = o
	}
	return next
}

// Sighting is the last observed state of another version's record, and the time since when it has been in that state.
type Sighting struct {
	Asked, Answered int64
	Left            bool
	Since           time.Time
	Lives           bool // it has answered a question while this replica was watching
}

// Sight returns the sightings updated with the found records. The time without an answer is counted from the given
// time. A replica that was cut off itself thus does not conclude anything from an answer that it could not receive.
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

// Input holds everything that a decision depends on.
type Input struct {
	Version string
	Record  Record // the initial record of this version
	Found   Versions
	Seen    map[string]Sighting
	Now     time.Time
}

// Decision is the action of a replica on the records.
type Decision struct {
	Next  Versions      // the new contents of the Lease; nil if it needs no change
	Pause time.Duration // the longest random delay of the write, so that one replica writes for all
	Again time.Time     // the time of the next decision if nothing changes before; zero for never
	Why   string        // describes the changes of Next
	Other string        // the target of another live program with the same fingerprint that came first; or empty
}

// Decide returns the decision for an input. It is a pure function.
func Decide(in Input) Decision {
	next := maps.Clone(in.Found)
	d := Decision{Pause: PauseLong}
	changed := func(version string, r Record, pause time.Duration, why string) {
		next[version] = r
		d.Next, d.Pause, d.Why = next, min(d.Pause, pause), strings.TrimPrefix(d.Why+", "+why, ", ")
	}
	own, known := in.Found[in.Version]
	switch {
	case !known || own.Gone:
		next = in.Found.add(in.Version, in.Record)
		d.Next, d.Pause, d.Why = next, 0, "joined"
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
			due, pause = in.Now, PauseShort // it may have died before any replica looked
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

// Leave returns the records after a replica of the version has announced its stop, or nil if they need no change. last
// means that the version has no other replica.
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

// Route holds the steps that answer on a path that another version registers.
type Route struct {
	Steps []string
	Gone  []string // those of Steps that no live version has
	// All means that only a replica that has all of the steps answers on the path. The other version came later, so the
	// API server may already use a registration that this replica does not know.
	All bool
}

// Routes returns the paths of all other versions. A version without a record of its own comes after all of them. A step
// on the path of an earlier version that is missing here was removed on purpose.
func (v Versions) Routes(version string) map[string]Route {
	own, known := v[version]
	known = known && !own.Gone // a gone version comes back after all live ones
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
					if r.Gone {
						at.Gone = append(at.Gone, step)
					}
				} else if i := slices.Index(at.Gone, step); i >= 0 && !r.Gone {
					at.Gone = slices.Delete(at.Gone, i, i+1)
				}
			}
			routes[path] = at
		}
	}
	return routes
}

// Soonest returns the earlier of two times, where a zero time means never.
func Soonest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
