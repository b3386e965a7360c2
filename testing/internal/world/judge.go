package world

// This file is the callers, and how each admission is judged.

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"code.cloudfoundry.org/eirinix"
)

// callAll admits objects all the time, and more of them after each fault.
func (w *World) callAll() {
	var at []time.Duration
	rng := w.stream("calls", 0)
	for t := 30 * time.Second; t < w.plan.Lasts; t += time.Duration(rng.ExpFloat64() * float64(w.plan.Calls)) {
		at = append(at, t)
	}
	for _, f := range w.plan.Faults {
		for range 3 { // while the first answers to it come about; more of them find no more defects
			at = append(at, f.At+time.Duration(rng.Int64N(int64(8*time.Second))))
		}
		for range 2 {
			at = append(at, f.At+time.Duration(rng.Int64N(int64(30*time.Second))), f.At+f.For+time.Duration(rng.Int64N(int64(3*time.Minute))))
		}
	}
	slices.Sort(at)
	for i, t := range at {
		if !w.wait(time.Until(w.began.Add(t))) {
			return
		}
		w.tasks.Go(func() { w.admit(w.stream("call", i), i) })
		if own := w.stream("edits", i); own.IntN(4) == 0 {
			w.edits(own, i)
		}
		if own := w.stream("hostile", i); own.IntN(4) == 0 {
			w.tasks.Go(func() { w.harasses(own) })
		}
		if own := w.stream("mirror", i); own.IntN(8) == 0 {
			w.tasks.Go(func() { w.mirrorPod(own, i) })
		}
		if w.plan.Boxes {
			w.tasks.Go(func() { w.packs(w.stream("box", i), i) })
		}
		if w.plan.Sets {
			w.tasks.Go(func() { w.replicate(w.stream("sets", i), i) })
			if own := w.stream("command", i); own.IntN(2) == 0 {
				w.tasks.Go(func() { w.commands(own, i) })
			} else {
				w.tasks.Go(func() { w.countsOne(own, i) })
			}
		}
		if w.plan.Records {
			w.tasks.Go(func() { w.keepsSecrets(w.stream("secret", i), i) })
		}
		if w.plan.Converts {
			w.tasks.Go(func() { w.list(w.stream("list", i)) })
		}
	}
}

// sticks is the number of the first large pod on which a step gets stuck. The others have higher ones.
const sticks = -100

// admit has an API server admit a pod, and judges how it does.
func (w *World) admit(rng *rand.Rand, n int) {
	s := w.servers[rng.IntN(len(w.servers))]
	if failing, frozen := s.state(); failing != 0 || frozen != nil {
		return // it admits nothing
	}
	began := w.begins()
	w.count(func(c *Counts) { c.Admissions++ })
	pod := podIn("shop", fmt.Sprintf("pod%d", n))
	deny := ""
	if rng.IntN(3) > 0 {
		deny = plain[rng.IntN(len(plain))]
	}
	named := map[string]string{denyLabel: deny, dropped: "yes"}
	if rng.IntN(8) == 0 {
		named[slowLabel] = time.Duration(rng.Int64N(int64(4 * time.Second))).String()
	}
	switch rng.IntN(12) {
	case 0:
		named[failLabel] = "yes"
	case 1:
		named[failLabel] = hangs
	case 2:
		named[longLabel] = "yes"
	}
	if w.fails(n) {
		named[failLabel] = "yes"
	}
	pod.SetLabels(named)
	if n < 0 { // large: a container takes more memory than its text
		deny, named = "", nil
		pod.SetLabels(nil)
		var all []any
		for i := range 20_000 {
			all = append(all, map[string]any{"name": fmt.Sprint("c", i), "image": "i"})
		}
		pod.Object["spec"].(map[string]any)["initContainers"] = all
		if n <= sticks {
			pod.SetLabels(map[string]string{failLabel: stuck})
		}
	}
	a := ask{operation: admissionv1.Create, resource: podResource, kind: podKind, object: pod}
	if rng.IntN(12) == 0 {
		a.operation, a.old, deny = admissionv1.Update, pod.DeepCopy(), lenient
		pod.SetLabels(map[string]string{"changed": "yes"})
	} else if own := w.stream("more", n); deny != "" && own.IntN(2) == 0 { // several steps object
		for _, step := range plain {
			if !among(deny, step) && own.IntN(2) == 0 {
				deny += "_" + step
			}
		}
		named[denyLabel] = deny
		pod.SetLabels(named)
	}
	ctx, cancel := w.ctx()
	defer cancel()
	v := s.admit(ctx, a)
	if ctx.Err() != nil {
		return
	}
	w.prompt(s, began, named[slowLabel] != "" || named[failLabel] == hangs || n <= sticks, v)
	w.mu.Lock()
	if v.late != "" && !w.troubledSince(began, rough, slow, spoiled, evicted, apart, unread) {
		w.breaks("%s gets no answer from %s in its time, so nothing tells which step is late", s.name, v.late)
	}
	w.mu.Unlock()
	w.judge(s, a, deny, began, v)
}

func podIn(namespace, name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": name, "namespace": namespace},
		"spec": map[string]any{"unknown": "of a later API", "containers": []any{map[string]any{
			"name": "main", "image": "example.com/main", "unknown": map[string]any{"of": []any{"a later API"}},
			"env": []any{variable("first"), variable(dropped), variable("middle"), variable(dropped + "2"), variable("last")},
		}}},
	}}
}

// variable is one of a container, with a member that the steps' types do not know.
func variable(name string) map[string]any {
	return map[string]any{"name": name, "value": name, "unknown": int64(1)}
}

// atOnce is how long an admission may take in which no step waits and no wire is broken: computing takes no time here.
const atOnce = 2 * time.Second

// prompt looks at the time that an admission has taken.
func (w *World) prompt(s *apiServer, began time.Time, waits bool, v verdict) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if took := time.Since(began); took > atOnce && !waits && w.watch.crowded.Before(began) && !w.troubledSince(began, rough, slow, spoiled, evicted, apart) && !w.excused(unread, began) {
		w.breaks("%s admitted a pod in %s, although no step waits (%s)", s.name, took.Round(time.Millisecond), v)
	}
}

// judge looks at how a pod was admitted. deny holds the steps that would have denied it.
func (w *World) judge(s *apiServer, a ask, deny string, began time.Time, v verdict) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.look()
	w.hears(s, v)
	p := &w.watch
	now := time.Now()
	whole := !w.troubledSince(now, spoiled, lapsed) && !slices.ContainsFunc(configurations, func(kind string) bool { return w.history[kind].last() == nil })
	switch {
	case deny == lenient:
		if v.failed != nil || v.denied != "" {
			w.breaks("%s: a change of a pod, which no step with Fail selects, is %s", s.name, v)
		}
		w.sees(s, began, v)
	case v.failed != nil && (w.plan.Reads || w.plan.Modes) && (w.excused(unread, began) || (w.plan.Reads || w.byLabels()) && w.excused(slow, began)):
	case v.failed != nil:
		if w.reachable(began) {
			w.breaks("%s refused a pod although a replica could be reached: %v", s.name, v.failed)
		}
	case v.denied != "":
		w.counts.Denials++
		w.deniesWell(s, deny, began, v)
	default:
		w.readsWell(s, began, v)
		w.changesWell(s, a.object, v)
		w.speaks(s, deny, began, v)
		if v.object.GetLabels()[failLabel] != "" && v.object.GetAnnotations()[halfway] != "" {
			w.breaks("%s: what a step with failurePolicy Ignore did before it failed is in the object", s.name)
		}
		for _, step := range append(slices.Clip(plain), reader) {
			if ran := v.object.GetAnnotations()["ran-"+step]; step == reader && ran != "" && whole && p.force[step].IsZero() && !p.covered[step].IsZero() && p.ordered.Add(inForce).Before(now) {
				p.force[step] = now
			}
			if m := w.modes[changer(step)]; m.mode != "" && m.mode != eirinix.ModeDeny && m.since.Add(inMode).Before(began) && v.object.GetAnnotations()["ran-"+step] != "" && w.settledSince(m.since) {
				w.breaks("%s: step %s is in %s since %s and changes a pod", s.name, changer(step), m.mode, now.Sub(m.since))
			}
			if !w.mustRun(step, began) {
				continue
			}
			if among(deny, step) && w.denies(step, began) {
				w.breaks("%s admitted a pod that step %s of every live version denies (called: %s)", s.name, step, v.entries())
			} else if !among(deny, step) && !w.plan.Judges && w.denies(changer(step), began) && v.object.GetAnnotations()["ran-"+step] == "" {
				w.breaks("%s admitted a pod that step %s of every live version has not changed (called: %s)", s.name, step, v.entries())
			}
		}
	}
}

// deniesWell looks at a denial: steps deny that are to, and are registered so. The caller holds mu.
func (w *World) deniesWell(s *apiServer, deny string, began time.Time, v verdict) {
	p, now := &w.watch, time.Now()
	by := 0
	for _, step := range plain {
		if !strings.Contains(v.denied, step+" denies") {
			continue
		}
		if by++; !among(deny, step) {
			w.breaks("%s: step %s denies a pod that it is not to deny (label %q): %s", s.name, step, deny, v.denied)
		}
		w.mayDeny(s, step, began, v)
		if m := w.modes[step]; m.mode != "" && !w.misspelt(m) && m.mode != eirinix.ModeDeny && m.since.Add(inMode).Before(began) && !w.troubledSince(m.since, unread, slow, apart) { // which keep it from replicas
			w.breaks("%s: step %s is in %s since %s and denies a pod", s.name, step, m.mode, now.Sub(m.since))
		}
		if last := v.called[len(v.called)-1]; last.ignores() && !w.moves(step) && !w.declaresModes(step) && slices.Contains(w.common(), step) && !w.troubledSince(began, spoiled, apart) && now.Sub(began) < time.Second { // an edit weakens entries, a replica that is kept from API servers hears of no mode, replicas of several versions share paths, and a list of entries ages while a step waits
			w.breaks("%s: step %s denies a pod, and its failures are still ignored (%s)", s.name, step, last.Name)
		}
		whole := !w.troubledSince(now, spoiled, lapsed) && !slices.ContainsFunc(configurations, func(kind string) bool { return w.history[kind].last() == nil })
		if whole && p.force[step].IsZero() && !p.covered[step].IsZero() && p.ordered.Add(inForce).Before(now) {
			p.force[step] = now
		}
	}
	w.deniesWhole(s, deny, v)
	if by == 0 {
		w.breaks("%s: a pod that no step denies (label %q) is denied: %s", s.name, deny, v.denied)
	}
}

// reachable reports whether a call of a request that began then must have been answered. The caller holds mu.
func (w *World) reachable(began time.Time) bool {
	late := (w.excused(evicted, began) || w.plan.Issued) && w.excused(slow, began) // an API server learns of another CA too late
	blind := w.plan.Split && w.excused(lapsed, began)                              // a serving half sees other versions in the Lease alone
	gaps := w.plan.Unregister && w.plan.Issued                                     // a replica that stops takes its CA away while it still serves
	return w.watch.lonely.Add(w.plan.Lag+2*time.Second).Before(began) && w.watch.crowded.Before(began) && !late && !gaps && !blind && !w.excused(rough, began) && !w.excused(spoiled, began.Add(-w.watch.late))
}

// modeOf is the mode that a person has given to a step, by a text in the ConfigMap.
type modeOf struct {
	mode  eirinix.Mode
	since time.Time
	text  string
	bad   time.Time // since when the ConfigMap holds a word that is no mode, which changes nothing; zero for none
}

// byLabels reports whether a mode is for some namespaces, so that its step needs their labels. The caller holds mu.
func (w *World) byLabels() bool {
	for _, m := range w.modes {
		if strings.Contains(m.text, " where ") {
			return true
		}
	}
	return false
}

// misspelt reports whether it is not known which mode a replica applies: it has started with a word that is none, or objects draw. The
// caller holds mu.
func (w *World) misspelt(m modeOf) bool {
	return m.isHalved() || !m.bad.IsZero() && slices.ContainsFunc(w.processes, func(p *process) bool { return p.began.Add(settling).After(m.bad) })
}

// inMode is how long a mode takes until it is in force everywhere. A step that leaves Shadow is registered first.
const inMode = time.Minute

// denies reports whether a step must have denied. The caller holds mu.
func (w *World) denies(step string, began time.Time) bool {
	if w.declaresModes(step) {
		return w.strictly(step, began)
	}
	m := w.modes[step]
	if m.mode == "" || w.misspelt(m) {
		return m.mode == ""
	}
	at := m.since
	for e := range excuses { // the change may have been kept from a replica meanwhile
		if until := w.watch.until[e]; until.After(m.since) {
			at = later(at, until.Add(repairedWithin))
		}
	}
	return m.mode == eirinix.ModeDeny && at.Add(inMode).Before(began)
}

func later(a, b time.Time) time.Time { return slices.MaxFunc([]time.Time{a, b}, time.Time.Compare) }

// settledSince reports whether no promise rested at a moment since then. The caller holds mu.
func (w *World) settledSince(then time.Time) bool {
	for e := range excuses {
		if w.excused(e, then) {
			return false
		}
	}
	return true
}

// mustRun reports whether a step must have run on an object of a request that began then. The caller holds mu.
func (w *World) mustRun(step string, began time.Time) bool {
	p := &w.watch
	covered := p.covered[step]
	switch {
	case covered.IsZero() || w.excused(spoiled, began) || w.plan.Unregister: // which leaves gaps, as documented
		return false
	case w.excused(apart, began) && w.moves(step): // a replica that hears of no version answers by its own calls
		return false
	case !p.force[step].IsZero():
		return p.force[step].Add(w.plan.Lag + p.late).Before(began)
	}
	since := covered
	if p.ordered.After(since) {
		since = p.ordered
	}
	for e := range excuses {
		if until := p.until[e]; until.After(since) {
			since = until
		}
	}
	if p.lonely.After(since) {
		since = p.lonely
	}
	return since.Add(inForce).Before(began)
}
