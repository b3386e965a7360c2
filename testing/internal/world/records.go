package world

// This file is how records of versions change: what a replica has written of its version only grows.

import (
	"reflect"
	"slices"
	"time"

	"code.cloudfoundry.org/eirinix/internal/rollout"
)

// grow compares the records with those of before. The caller holds mu.
func (w *World) grow(versions rollout.Versions) {
	before := w.watch.versions
	w.watch.versions = versions
	for version, r := range versions {
		if w.watch.leftAt == nil {
			w.watch.leftAt = map[string]time.Time{}
		}
		if r.Stopping || r.Removed {
			w.watch.leftAt[stepsOf(r)] = time.Now()
		}
		if w.watch.recordedAt == nil {
			w.watch.recordedAt = map[string]time.Time{}
		}
		if was, there := before[version]; !there || was.Ordinal != r.Ordinal || !reflect.DeepEqual(was.Steps, r.Steps) {
			w.watch.recordedAt[version] = time.Now()
		}
	}
	if w.troubledSince(time.Now(), spoiled, lapsed, strange) {
		return // another client has written them
	}
	for version, was := range before {
		is, there := versions[version]
		if !there || is.Ordinal != was.Ordinal || was.Removed || is.Removed {
			continue
		}
		name := stepsOf(was)
		w.asksSeldom(version, name, was, is)
		if is.Within < was.Within {
			w.breaks("the record of the version with the steps %s says that it answers within %d s, and before, %d", name, is.Within, was.Within)
		}
		if is.Ordered && is.Probed == 0 {
			continue // a person has registered it, which makes a new record
		}
		if is.Probed < was.Probed || is.Answered < was.Answered {
			w.breaks("the record of the version with the steps %s goes back: it was asked %d times (before: %d), of which it has answered %d (%d)", name, is.Probed, was.Probed, is.Answered, was.Answered)
		}
		for path, keys := range was.Steps {
			for _, key := range keys {
				if !slices.Contains(is.Steps[path], key) {
					w.breaks("the record of the version with the steps %s no longer has %s on the path %s", name, key, path)
				}
			}
		}
	}
}

// mostAskedIn is the number of questions in a minute to a version. They come every ten seconds, and once more for each replica that
// comes or leaves, and for each that has not seen an answer.
const mostAskedIn = 9

// asksSeldom counts the questions to a version. The caller holds mu.
func (w *World) asksSeldom(version, name string, was, is rollout.Record) {
	if is.Probed <= was.Probed {
		return
	}
	of := rateOf(&w.watch.questionsTo, version)
	of.add(time.Now())
	comings := 0
	for _, at := range w.watch.comings.recent {
		if time.Since(at) < time.Minute {
			comings++
		}
	}
	if len(of.recent) > mostAskedIn+3*comings {
		w.breaks("in a minute, the version with the steps %s was asked %d times whether it lives, and %d replicas have come or gone", name, len(of.recent), comings)
	}
}

// isInLease looks at a replica that is ready for the first time: its version is in the Lease. The caller holds mu.
func (w *World) isInLease(p *process) {
	if w.plan.Split || w.plan.Kinds || w.plan.Late || w.watch.versions == nil || w.troubledSince(p.began.Add(-settling), rough, slow, spoiled, lapsed, apart, strange, unread, unissued) {
		return
	}
	for _, r := range w.watch.versions {
		if !r.Removed && stepsOf(r) == p.release.declares() {
			return
		}
	}
	w.breaks("%s is ready, and the Lease holds no record of its steps %s", p, p.release.declares())
}
