// Package rollout decides which version is registered while several versions of a program are live. There is one rule:
//
//	The registration of the version that stands stays unchanged. Replicas of other versions answer its paths too, with
//	those of its steps that they have. When its last replica is gone, the registration of the next version replaces it
//	as a whole.
//
// The version that stands is the one whose registration the configurations hold. Versions find each other by their
// records in one Lease. Liveness is probed: a replica of another version writes a probe into a record, and any replica of
// that version answers it. A version that does not answer is removed. With a single version, nothing is written.
//
// The decisions are pure functions. Only Lease reads and writes the cluster.
package rollout

import (
	"cmp"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"
)

const (
	// recordPrefix is the prefix of the Lease's annotations that hold records. The version follows it.
	recordPrefix = "version.eirinix.cloudfoundry.org/"

	// PauseLong and PauseShort bound the time for which a replica delays a write that all replicas consider due.
	PauseLong, PauseShort = time.Second, 200 * time.Millisecond

	// probeEvery is the time for which an answer is valid.
	probeEvery = 10 * time.Second

	// answerWithin is the time that a version has to answer.
	answerWithin = 10 * time.Second

	// stoppingWithin is the same after one of its replicas has recorded that it stops.
	stoppingWithin = 1500 * time.Millisecond

	// plausible is an upper bound for the numbers in a record. Every version of a program, and every probe, counts
	// one up. A greater number was written by hand, and would soon overflow.
	plausible = 1 << 40

	// maxWithin bounds the time for which a record can make others wait.
	maxWithin = 5 * time.Minute

	// removedKept is the number of removed versions whose records are kept, because API servers that lag behind can still
	// call their paths.
	removedKept = 2
)

// Record is the information that a version of a program publishes about itself.
type Record struct {
	Ordinal  int64               `json:"came"`               // position in the order of arrival
	Target   string              `json:"target"`             // the address that the API server calls; distinguishes programs
	Steps    map[string][]string `json:"steps"`              // the steps behind each path that the version registers
	Probed   int64               `json:"asked,omitempty"`    // number of the last probe whether a replica is live
	Answered int64               `json:"answered,omitempty"` // number of the last answered probe
	Within   int64               `json:"within,omitempty"`   // seconds in which a replica answers; 0 means answerWithin
	Stopping bool                `json:"left,omitempty"`     // a replica has stopped since the last answer
	Ordered  bool                `json:"ordered,omitempty"`  // RegisterExtensions has registered it; it precedes all other versions
	Removed  bool                `json:"gone,omitempty"`     // no replica has answered
	Trusts   string              `json:"trusts,omitempty"`   // the CAs, in PEM, that the caBundles hold since RegisterExtensions; see Trust
}

// within returns the time that the version has to answer.
func (r Record) within() time.Duration {
	return min(max(answerWithin, time.Duration(r.Within)*time.Second), maxWithin)
}

// Versions holds the records of a Lease by version.
type Versions map[string]Record

// Read returns the records in the annotations of a Lease. Invalid ones are left out. No record is left out because of its
// numbers: a replica of an earlier build, which does so, would join again and again.
func Read(annotations map[string]string) Versions {
	found := Versions{}
	for key, text := range annotations {
		version, ok := strings.CutPrefix(key, recordPrefix)
		var r Record
		if ok && version != "" && json.Unmarshal([]byte(text), &r) == nil {
			found[version] = r
		}
	}
	return found
}

// sane returns the records with plausible numbers. Other clients can edit the annotations.
func (v Versions) sane() Versions {
	next, inOrder := maps.Clone(v), v.InOrder()
	renumber := slices.ContainsFunc(inOrder, func(version string) bool { return v[version].Ordinal <= 0 || v[version].Ordinal > plausible })
	for i, version := range inOrder {
		r := v[version]
		if renumber {
			r.Ordinal = int64(i + 1)
		}
		if r.Probed < 0 || r.Probed > plausible || r.Answered < 0 {
			r.Probed, r.Answered = 0, 0
		}
		r.Answered = min(r.Answered, r.Probed)
		next[version] = r
	}
	return next
}

// Write returns the annotations with exactly these records, and with all other annotations unchanged.
func (v Versions) Write(annotations map[string]string) map[string]string {
	written := map[string]string{}
	maps.Copy(written, annotations)
	maps.DeleteFunc(written, func(key, _ string) bool { return strings.HasPrefix(key, recordPrefix) })
	for version, r := range v {
		text, _ := json.Marshal(r) // cannot fail for strings and numbers
		written[recordPrefix+version] = string(text)
	}
	return written
}

// InOrder returns the versions in the order in which they came.
func (v Versions) InOrder() []string {
	return slices.SortedFunc(maps.Keys(v), func(a, b string) int {
		return cmp.Or(cmp.Compare(v[a].Ordinal, v[b].Ordinal), strings.Compare(a, b))
	})
}

// First returns the version whose registration takes precedence, or "" if no version is live: one that was ordered, else
// the one that stands, else the one that came first. standing is "" if no version stands, or none can be seen.
func (v Versions) First(standing string) (first string) {
	for _, version := range v.InOrder() {
		switch r := v[version]; {
		case r.Removed:
		case first == "", r.Ordered, version == standing && !v[first].Ordered:
			first = version
		}
	}
	return first
}

// Declares returns a function that reports whether a live version of the same program, other than this one, has a step.
func (v Versions) Declares(this string) func(key string) bool {
	keys := map[string]bool{}
	for version, r := range v {
		if version != this && !r.Removed && r.Target == v[this].Target {
			for _, steps := range r.Steps {
				for _, key := range steps {
					keys[key] = true
				}
			}
		}
	}
	return func(key string) bool { return keys[key] }
}

// Serving returns the number of versions that have replicas, as far as is known.
func (v Versions) Serving() (n int) {
	for _, r := range v {
		if !r.Removed {
			n++
		}
	}
	return n
}

// add returns the records with one more, which comes last. The oldest records of removed versions are left out.
func (v Versions) add(version string, r Record) Versions {
	next, last, removed := maps.Clone(v), int64(0), 0
	delete(next, version)
	for _, other := range slices.Backward(next.InOrder()) {
		last = max(last, next[other].Ordinal)
		if next[other].Removed {
			if removed++; removed > removedKept {
				delete(next, other)
			}
		}
	}
	r.Ordinal = last + 1
	next[version] = r
	return next
}

// Order returns the records with one that precedes all others, because an operator has requested its registration.
func (v Versions) Order(version string, r Record) Versions {
	if v[version].Ordered && v.First("") == version {
		return v
	}
	r.Trusts = string(v.Trusted())
	if was := v[version]; !was.Removed {
		r.Within = max(r.Within, was.Within) // its replicas may poll, which the process that orders does not know
	}
	next := v.sane().add(version, r)
	for other, o := range next {
		o.Removed = o.Removed || o.Ordered && o.Answered == 0 // an earlier order that no replica serves is not a version of its own
		o.Ordered = other == version
		next[other] = o
	}
	return next
}

// Trust returns the records with the CAs that the caBundles hold, which is for replicas that may read no configuration.
func (v Versions) Trust(version string, bundle []byte) Versions {
	r, ok := v[version]
	if !ok {
		return v
	}
	next := maps.Clone(v)
	r.Trusts = string(bundle)
	next[version] = r
	return next
}

// Trusted returns the CAs of the version that was ordered, or nil if none are recorded.
func (v Versions) Trusted() []byte {
	for _, r := range v {
		if r.Ordered && r.Trusts != "" {
			return []byte(r.Trusts)
		}
	}
	return nil
}

// Observation is the last observed state of another version's record, and the time since when it has been in that state.
type Observation struct {
	Probed, Answered int64
	Stopping         bool
	Since            time.Time
	Serving          bool      // it has answered a probe while this replica was watching
	Ordinal          int64     // changes when a removed version is back
	Back             time.Time // when this replica has seen that it is back; zero if it has not been removed
}

// Observe returns the observations updated with the found records. now is the time, or the later one from which silence proves
// something: an outage that this replica has seen may have cut off the others too, so it restarts the clock.
func Observe(seen map[string]Observation, found Versions, now, provesFrom time.Time) map[string]Observation {
	next := map[string]Observation{}
	for version, r := range found {
		s, known := seen[version]
		if !known || s.Probed != r.Probed || s.Answered != r.Answered || s.Stopping != r.Stopping {
			s.Serving = known && (s.Serving || r.Answered > s.Answered)
			s.Probed, s.Answered, s.Stopping, s.Since = r.Probed, r.Answered, r.Stopping, now
		}
		if known && s.Ordinal < r.Ordinal {
			s.Back = now
		}
		s.Ordinal = r.Ordinal
		if s.Since.Before(provesFrom) {
			s.Since = provesFrom
		}
		next[version] = s
	}
	return next
}

// Input holds everything that a decision depends on.
type Input struct {
	Version  string
	Record   Record // the initial record of this version
	Found    Versions
	Standing string // the version that stands; see Versions.First
	Seen     map[string]Observation
	Now      time.Time
}

// Decision is the action of a replica on the records.
type Decision struct {
	Next      Versions      // the new contents of the Lease; nil if it needs no change
	Pause     time.Duration // the longest random delay of the write, so that one replica writes for all
	RequeueAt time.Time     // the time of the next decision if nothing changes before; zero for never
	Why       string        // describes the changes of Next
	Other     string        // the target of another live program with the same fingerprint; or empty
	Stands    bool          // the registration of that program stands, and not this one's
}

// Decide returns the decision for an input. It is a pure function.
func Decide(in Input) Decision {
	found := in.Found.sane()
	next := maps.Clone(found)
	d := Decision{Pause: PauseLong}
	changed := func(version string, r Record, pause time.Duration, why string) {
		next[version] = r
		d.Next, d.Pause, d.Why = next, min(d.Pause, pause), strings.TrimPrefix(d.Why+", "+why, ", ")
	}
	own, known := found[in.Version]
	grown, grows := own.with(in.Record)
	probed := own.Probed > own.Answered
	claims := own.Ordered && own.Probed == 0 // so that a later order knows that replicas serve this one
	switch {
	case !known || own.Removed:
		next = found.add(in.Version, in.Record)
		d.Next, d.Pause, d.Why = next, 0, "joined"
	case probed || own.Stopping || grows || claims:
		pause := PauseLong
		if own.Stopping || grows {
			pause = PauseShort
		}
		if claims {
			grown.Probed = 1
		}
		grown.Answered, grown.Stopping = grown.Probed, false
		changed(in.Version, grown, pause, "answered")
	case !reflect.DeepEqual(found, in.Found):
		changed(in.Version, own, PauseLong, "corrected numbers")
	}
	first := found.First(in.Standing)
	for _, version := range found.InOrder() {
		r, kept := next[version]
		if !kept || version == in.Version || r.Removed {
			continue
		}
		seen := in.Seen[version]
		if r.Target != in.Record.Target && seen.Serving && known && !own.Removed && !d.Stands {
			d.Other, d.Stands = r.Target, found[first].Target == r.Target
		}
		probed, pause, due := r.Probed > r.Answered, PauseLong, seen.Since.Add(probeEvery)
		switch {
		case probed && r.Stopping && r.Within <= int64(answerWithin/time.Second):
			due = seen.Since.Add(stoppingWithin)
		case probed:
			due = seen.Since.Add(r.within())
		case r.Stopping || !seen.Serving && seen.Answered == r.Answered:
			due, pause = in.Now, PauseShort // it may have died before any replica looked
		}
		switch {
		case in.Now.Before(due):
			d.RequeueAt = Soonest(d.RequeueAt, due)
		case probed:
			r.Removed = true
			changed(version, r, PauseShort, "found no replica of "+version)
		default:
			r.Probed++
			changed(version, r, pause, "asked "+version)
		}
	}
	return d
}

// with returns the record with what a replica adds to it, and whether that is anything. A version that has found out more
// about the cluster has more paths; none goes, because another replica of the version may have registered it. All wait for
// the replica that answers last.
func (r Record) with(initial Record) (grown Record, grows bool) {
	grown, grows = r, initial.Within > r.Within
	grown.Steps, grown.Within = maps.Clone(r.Steps), max(r.Within, initial.Within)
	for path, keys := range initial.Steps {
		for _, key := range keys {
			if !slices.Contains(grown.Steps[path], key) {
				if grown.Steps == nil {
					grown.Steps = map[string][]string{}
				}
				grown.Steps[path], grows = append(slices.Clone(grown.Steps[path]), key), true
			}
		}
	}
	return grown, grows
}

// Leave returns the records after a replica of the version has announced its stop, or nil if they need no change. last
// means that the version has no other replica.
func (v Versions) Leave(version string, last bool) Versions {
	own, known := v[version]
	if !known || own.Removed || own.Stopping && !last {
		return nil
	}
	next := maps.Clone(v)
	own.Stopping, own.Removed = true, last
	next[version] = own
	return next
}

// Route holds the steps that answer on a path that another version registers.
type Route struct {
	Steps   []string
	Removed []string // those of Steps that no live version has
	// All means that only a replica that has all of the steps answers on the path. The other version came later, so the
	// API server may already use a registration that this replica does not know.
	All bool
}

// Routes returns the paths of all versions. A version without a record of its own comes after all of them. A step on the
// path of an earlier version that is missing here was removed on purpose. A path of the version itself is served too,
// because another replica may have registered it first.
//
// A version that is back counts as an earlier one for as long as a live version has to answer: API servers that lag behind
// still call the webhooks of before, and it can register again only once this version has not answered. again is when
// that ends, if it does.
func (v Versions) Routes(version string, seen map[string]Observation, now time.Time) (routes map[string]Route, again time.Time) {
	own, known := v[version]
	known = known && !own.Removed // a removed version comes back after all live ones
	routes = map[string]Route{}
	for _, other := range v.InOrder() {
		r := v[other]
		later := known && r.Ordinal > own.Ordinal && !r.Removed // of one that is gone, no other replica has the steps
		if until := seen[other].Back.Add(answerWithin); later && !r.Ordered && !own.Stopping && now.Before(until) {
			later, again = false, Soonest(again, until)
		}
		for path, steps := range r.Steps {
			at, there := routes[path]
			at.All = later && (at.All || !there) // an earlier version may register it too
			for _, step := range steps {
				if !slices.Contains(at.Steps, step) {
					at.Steps = append(at.Steps, step)
					if r.Removed {
						at.Removed = append(at.Removed, step)
					}
				} else if i := slices.Index(at.Removed, step); i >= 0 && !r.Removed {
					at.Removed = slices.Delete(at.Removed, i, i+1)
				}
			}
			routes[path] = at
		}
	}
	return routes, again
}

// With returns the routes with steps that the API server calls, which no record may hold any more. kept are the paths that
// this version's own registration keeps for others: every replica answers there, with the steps that it has.
func With(routes map[string]Route, inForce, kept map[string][]string) map[string]Route {
	all := map[string]Route{}
	maps.Copy(all, routes)
	for path, steps := range inForce {
		at := all[path]
		for _, step := range steps {
			if !slices.Contains(at.Steps, step) {
				at.Steps = append(slices.Clone(at.Steps), step)
			}
		}
		if _, keeps := kept[path]; keeps {
			at.All = false
		}
		all[path] = at
	}
	return all
}

// Soonest returns the earlier of two times, where a zero time means never.
func Soonest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
