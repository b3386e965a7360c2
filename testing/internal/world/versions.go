package world

// This file is what must hold of the versions of a program: which one stands, who is recorded as gone, and which entries stay.

import (
	"path"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"code.cloudfoundry.org/eirinix/internal/rollout"
	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

// stands looks at a change of the version that is registered: the one that stands is first while a replica of it lives. The
// caller holds mu.
func (w *World) stands(was, is *unstructured.Unstructured) {
	if was == nil || is == nil || w.plan.Unregister || w.plan.Modes || w.plan.Judges && len(webhooksOf(was)) == 0 {
		return // a configuration that was emptied is written no more, and names a version of before
	}
	from, to := was.GetAnnotations()[webhookconf.VersionAnnotation], is.GetAnnotations()[webhookconf.VersionAnnotation]
	if from == to || w.watch.digests[from] == "" {
		return
	}
	if w.watch.left == nil {
		w.watch.left = map[string]time.Time{}
	}
	w.watch.left[from] = time.Now()
	t := w.watch.left[to]
	came := func(p *process) bool { return p.release.declares() == w.watch.digests[to] && p.began.After(t) }
	lives := func(p *process) bool { return p.release.declares() == w.watch.digests[from] && !p.leaving }
	if !t.IsZero() && slices.ContainsFunc(w.processes, lives) && !slices.ContainsFunc(w.processes, came) && w.watch.ordered.Before(t) &&
		!w.troubledSince(t, rough, slow, spoiled, lapsed, apart) {
		w.breaks("the version with the steps %s, which had given way, is registered again", w.watch.digests[to])
	}
	for e := range excuses {
		if e != unread && e != strange && w.excused(e, time.Now()) {
			return
		}
	}
	if w.troubledSince(time.Now().Add(-time.Hour), spoiled, lapsed) || w.watch.ordered.After(time.Now().Add(-time.Hour)) {
		return // it may have been put first by a person, or lost its place
	}
	for _, p := range w.processes {
		if p.release.declares() == w.watch.digests[from] && !p.leaving && !p.readySince.IsZero() {
			w.breaks("%s is no longer registered although %s lives", p.release.name, p)
		}
	}
}

// alone marks a step that has a call of its own, and judged one that changes nothing.
const alone, judged = "!", "?"

// rolledOut is how long it takes until a version is registered after the last replica of others has stopped; two seconds, if
// nothing is lost.
const rolledOut = 6 * time.Second

// polledOut is the same for versions of which a replica had no right to watch the Lease: it says how late it may answer, until
// that version is written again.
const polledOut = 75 * time.Second

// follows sees that the steps of the replicas that are left are registered soon after one has stopped.
func (w *World) follows(p *process) {
	since := p.leavingAt
	bound := rolledOut + w.plan.Lag
	if !w.plan.settled("right") {
		bound = polledOut
	}
	if !w.wait(bound) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.troubledSince(since, rough, slow, spoiled, lapsed, apart, unread) || len(w.modes) > 0 || w.plan.Unregister || w.watch.ordered.After(since.Add(-time.Hour)) {
		return
	}
	left := slices.DeleteFunc(slices.Clone(w.processes), func(other *process) bool { return other.leaving && !other.leavingAt.After(since) }) // they may still drain
	if len(left) == 0 {
		return
	}
	steps := left[0].release.declares()
	for _, other := range left {
		if other.release.declares() != steps || other.leaving || other.readySince.IsZero() || other.readySince.After(since) {
			return
		}
	}
	for _, kind := range configurations {
		if last := w.history[kind].last(); last != nil && len(webhooksOf(last)) > 0 && w.watch.digests[last.GetAnnotations()[webhookconf.VersionAnnotation]] != steps {
			w.breaks("%s after the last other replica (%s) was told to stop, the %s does not hold the steps %s (but %s)", time.Since(since).Round(time.Second), p, kind, steps, w.watch.digests[last.GetAnnotations()[webhookconf.VersionAnnotation]])
		}
	}
}

// stepsOf returns the names of the steps in a record.
func stepsOf(r rollout.Record) string {
	var names []string
	changes := map[string]bool{}
	for at, keys := range r.Steps {
		for _, key := range keys {
			name, _, _ := strings.Cut(key, "@")
			if version, converts := strings.CutSuffix(name, "."+definitionName); converts {
				if version == third {
					names = append(names, third)
				}
				continue
			}
			if strings.HasPrefix(name, boxed) || name == comer {
				continue // all versions have it
			}
			step := strings.TrimSuffix(name, "-sets")
			changes[step] = changes[step] || step != name
			if path.Base(at) == name {
				step += alone
			}
			names = append(names, step)
		}
	}
	for i, name := range names {
		if step := strings.TrimSuffix(name, alone); step != reader && step != ghost && step != witness && step != third && !changes[step] {
			names[i] += judged
		}
	}
	slices.Sort(names)
	return strings.Join(slices.Compact(names), ",")
}

// declares returns the same of a release, if all of its steps are registered.
func (r release) declares() string {
	mark := ""
	if r.judges {
		mark = judged
	}
	names := []string{lenient + mark, keeper + judged}
	if r.wide {
		names = append(names, looker+alone+judged, ager+alone+judged)
	}
	if r.sets {
		names = append(names, marker+judged, stamper+judged, watcher+judged, guard+judged, census+alone+judged)
	}
	if r.records {
		names = append(names, vault+judged)
	}
	for _, step := range r.steps {
		switch {
		case step == reader:
			step += alone
		case r.isolated[step]:
			step += alone + mark
		default:
			step += mark
		}
		names = append(names, step)
	}
	if r.shadow {
		names = append(names, ghost+alone, witness+alone)
	}
	if r.thirds {
		names = append(names, third)
	}
	slices.Sort(names)
	return strings.Join(names, ",")
}

// aloneNow is in the log of a version that registers in place of an earlier one.
const aloneNow = "no replica of an earlier version is left"

// isAlone looks at a line by which a version registers in place of another one: that is recorded as gone. The caller holds mu.
func (w *World) isAlone(who, text string) {
	if !strings.HasPrefix(text, aloneNow) || w.plan.Modes || w.plan.Unregister || w.troubledSince(time.Now(), spoiled, lapsed, apart, unread) || time.Since(w.watch.ordered) < settling || !w.plan.settled("right") {
		return
	}
	for _, kind := range configurations {
		last := w.history[kind].last()
		if last == nil || len(webhooksOf(last)) == 0 {
			continue
		}
		digest := last.GetAnnotations()[webhookconf.VersionAnnotation]
		lives := func(p *process) bool {
			return p.release.declares() == w.watch.digests[digest] && !p.leaving && !p.readySince.IsZero()
		}
		another := func(p *process) bool { return p.name == who && p.release.declares() != w.watch.digests[digest] }
		if !w.watch.gone[digest] && slices.ContainsFunc(w.processes, lives) && slices.ContainsFunc(w.processes, another) {
			w.breaks("%s says that %s, and the version that stands lives", who, text)
		}
	}
}

// recorded looks at the records of versions: one is gone only when no replica lives. The caller holds mu.
func (w *World) recorded(versions rollout.Versions) {
	w.precede(versions)
	for digest, r := range versions {
		w.watch.digests[digest] = stepsOf(r)
		for at, keys := range r.Steps {
			for _, key := range keys {
				if name, _, _ := strings.Cut(key, "@"); strings.HasPrefix(name, boxed) && !slices.Contains(w.paths[at], name) {
					w.paths[at] = append(w.paths[at], name)
				}
			}
		}
	}
	w.grow(versions)
	if w.plan.Modes || w.plan.Unregister { // a change of a mode makes another version; with UnregisterOnStop, no other replica is expected
		return
	}
	deaf := slices.ContainsFunc(w.servers, (*apiServer).isDeaf)
	if w.plan.Split || w.watch.ordered.Add(time.Minute).After(time.Now()) && w.excused(slow, time.Now().Add(-time.Minute)) {
		return // replicas claim an order once they hear of it, which they may not have done before the next one; serving halves do not
	}
	for digest, r := range versions {
		name := stepsOf(r)
		if strings.Contains(r.Target, other) {
			continue // of another program
		}
		if !r.Removed || w.watch.gone[digest] {
			w.watch.gone[digest] = r.Removed
			continue
		}
		w.watch.gone[digest] = true
		for _, p := range w.processes {
			if r.Stopping && r.Within == 0 && !p.wire.hears() { // a second and a half are its time to contradict, and its watch begins again up to 30 s after an outage
				continue
			}
			if p.release.declares() == name && !p.leaving && !p.readySince.IsZero() && !deaf && !w.troubledSince(time.Now(), rough, spoiled, lapsed, apart) {
				w.breaks("the version with the steps %s is recorded as gone although %s lives", name, p)
			}
		}
	}
}

// precede sees that at most one version precedes all others because a person has registered it: the last one. The caller holds mu.
func (w *World) precede(versions rollout.Versions) {
	before := ""
	for digest, r := range versions {
		if r.Ordered && !r.Removed && before != "" {
			w.breaks("the versions with the steps %s and %s are both recorded as the one that a person has registered last", stepsOf(r), stepsOf(versions[before]))
		}
		if r.Ordered && !r.Removed {
			before = digest
		}
	}
}

// stay looks at the entries that go from a configuration: those of steps that a version declares stay while it lives, if not another
// entry of the next version calls the step. The caller holds mu.
func (w *World) stay(gone []string, standing, next string) {
	if w.troubledSince(time.Now(), rough, slow, spoiled, lapsed) || len(w.modes) > 0 || w.watch.ordered.After(time.Now().Add(-time.Hour)) {
		return
	}
	for _, name := range gone {
		label, _, _ := strings.Cut(name, ".")
		step := strings.TrimSuffix(label, "-sets")
		for _, p := range w.processes {
			declares := p.release.isolated[step] || p.release.has(step) && next != "" && !declaredIn(next, step)
			if declares && (!p.release.judges || step == label) && !p.leaving && !p.readySince.IsZero() && (!w.plan.Unregister || p.release.declares() == standing && !w.stops(standing)) {
				w.breaks("the entry %s has gone although %s lives, which declares its step", name, p)
			}
		}
	}
}

// declaredIn reports whether a step is one of those that a version has.
func declaredIn(steps, step string) bool {
	return slices.ContainsFunc(strings.Split(steps, ","), func(s string) bool { return strings.TrimRight(s, alone+judged) == step })
}

// stops reports whether a replica of these steps is stopping, which with UnregisterOnStop takes the entries with it. The caller
// holds mu.
func (w *World) stops(steps string) bool {
	return slices.ContainsFunc(w.processes, func(p *process) bool { return p.leaving && p.release.declares() == steps })
}

// moves reports whether versions have a step in different calls.
func (w *World) moves(step string) bool {
	return slices.ContainsFunc(w.releases, func(r release) bool { return r.has(step) && r.isolated[step] != w.releases[0].isolated[step] })
}
