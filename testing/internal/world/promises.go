package world

// This file is what must hold, and the callers that see whether it does.

import (
	"fmt"
	"math/rand/v2"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/internal/ca"
	"code.cloudfoundry.org/eirinix/internal/rollout"
	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

// An excuse is why a promise need not hold for a while.
type excuse int

const (
	rough   excuse = iota // a replica lost connections: its calls may fail
	slow                  // the API server does not answer: nothing can be registered
	spoiled               // another client has damaged what the program registered, or its CA while nothing knows it
	lapsed                // the Lease cannot be read or written, or it or the Secret was lost: who lives is not known for a while
	evicted               // a CA was distrusted: a replica that is cut off cannot follow
	unread                // what steps read cannot be read, so they fail
	apart                 // a replica, and not all, is kept from the API servers
	strange               // another program is there under the same fingerprint, which logs may call an error
	excuses
)

// promises is what the world knows of them. World.mu guards it.
type promises struct {
	until   [excuses]time.Time
	force   map[string]time.Time // since when a step has been seen in force, no order being under way, and must stay so
	covered map[string]time.Time // since when every live version declares a step
	writes  map[string]*rate     // of the program's objects, by name
	digests map[string]string    // the names of steps, by the version that has them
	gone    map[string]bool      // versions that are recorded so
	evicted [][]byte             // CAs that a rotation with Distrust has taken out of force
	written map[string]hook      // entries as they were registered first, without a caBundle, by their version and name
	adopted bool                 // the CA of another client, while no configuration pinned one
	late    time.Duration        // by which an API server has been behind at most
	ordered time.Time            // when a person has last registered a version
	damaged time.Time            // when an object of the program was last harmed
	contest time.Time            // when a tool has last reverted a configuration
	stirred time.Time            // when something has happened that makes replicas ask
	left    map[string]time.Time // when a version was last replaced in the configurations
	lonely  time.Time            // the last moment at which no replica was ready
}

// excuse lets a promise rest from now on, for d.
func (w *World) excuse(e excuse, d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if e == spoiled && w.watch.contest.Add(2*quiet).After(time.Now()) { // further repairs come late too
		d = max(d, repairedWithin)
	}
	if w.plan.Split && (e == spoiled || e == lapsed) { // only the CronJob mends
		d += registersEvery
	}
	if until := time.Now().Add(d); until.After(w.watch.until[e]) {
		w.watch.until[e] = until
	}
	if e == spoiled || e == lapsed {
		w.watch.damaged = time.Now()
		clear(w.watch.force)
	}
}

// excused reports whether a promise rested at a moment since then. The caller holds mu.
func (w *World) excused(e excuse, since time.Time) bool { return w.watch.until[e].After(since) }

// troubled reports whether something is wrong that a log may call an error. The caller holds mu.
func (w *World) troubled() bool {
	for e := range excuses {
		if w.excused(e, time.Now()) {
			return true
		}
	}
	select {
	case <-w.over:
		return true
	default:
		return false
	}
}

// troubledSince reports whether one of these rested at a moment since then. The caller holds mu.
func (w *World) troubledSince(since time.Time, which ...excuse) bool {
	return slices.ContainsFunc(which, func(e excuse) bool { return w.excused(e, since) })
}

// inForce is how long a program may take until all of its steps are in force.
const inForce = 3 * time.Minute

// configured is told of each change of a configuration. The caller holds mu.
func (p *promises) configured(w *World, kind string, was, is *unstructured.Unstructured) {
	w.counts.Writes++
	before, after := webhooksOf(was), webhooksOf(is)
	for _, h := range after {
		for _, c := range ca.SplitBundle(h.ClientConfig.CABundle) {
			switch {
			case c.Subject.CommonName != intruder:
			case was == nil:
				p.adopted = true
			case !p.adopted:
				w.breaks("the caBundle of %s holds a CA that another client has put into the Secret", h.Name)
			}
		}
		for _, old := range p.evicted {
			if ca.Contains(h.ClientConfig.CABundle, old) {
				w.breaks("the caBundle of %s holds a CA again that RotateCA has taken out of force", h.Name)
			}
		}
		key := h.version + " " + kind + " " + h.Name
		if h.ClientConfig.CABundle = nil; p.written[key].Name == "" && !w.excused(spoiled, time.Now()) {
			p.written[key] = h
		}
	}
	if w.plan.Late && w.watch.ordered.IsZero() && len(w.policies) == 1 && slices.ContainsFunc(after, func(h hook) bool { return strings.HasPrefix(h.Name, reader+".") }) {
		w.breaks("the step %s is registered before there is what it requires", reader)
	}
	var gone []string
	for _, h := range before {
		if !slices.ContainsFunc(after, func(a hook) bool { return a.Name == h.Name }) {
			gone = append(gone, h.Name)
		}
	}
	w.stands(was, is)
	if was != nil {
		w.stay(gone, w.watch.digests[was.GetAnnotations()[webhookconf.VersionAnnotation]])
	}
	text := fmt.Sprintf("holds %d entries", len(after))
	if len(gone) > 0 {
		text += ", and no more " + strings.Join(gone, ", ")
	}
	w.story = append(w.story, line{at: time.Now(), who: strings.TrimSuffix(kind, "WebhookConfiguration"), text: text, minor: true})
}

// evict notes that a CA has been taken out of force for good: no caBundle holds it.
func (w *World) evict(old []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.watch.evicted = append(w.watch.evicted, old)
	for _, kind := range registered {
		for _, h := range webhooksOf(w.history[kind].last()) {
			if ca.Contains(h.ClientConfig.CABundle, old) {
				w.breaks("RotateCA with Distrust has returned, and the caBundle of %s still holds the old CA", h.Name)
			}
		}
	}
}

// stands looks at a change of the version that is registered: the one that stands is first while a replica of it lives. The
// caller holds mu.
func (w *World) stands(was, is *unstructured.Unstructured) {
	if was == nil || is == nil || w.plan.Unregister || w.plan.Modes {
		return
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

// alone marks a step that has a call of its own.
const alone = "!"

// rolledOut is how long it takes until a version is registered after the last replica of others has stopped; two seconds, if
// nothing is lost.
const rolledOut = 15 * time.Second

// follows sees that the steps of the replicas that are left are registered soon after one has stopped.
func (w *World) follows(p *process) {
	since := p.leavingAt
	if !w.wait(rolledOut + w.plan.Lag) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.troubledSince(since, rough, slow, spoiled, lapsed, apart, unread) || len(w.modes) > 0 || w.plan.Unregister || w.watch.ordered.After(since.Add(-time.Hour)) || len(w.processes) == 0 {
		return
	}
	steps := w.processes[0].release.declares()
	for _, other := range w.processes {
		if other.release.declares() != steps || other.leaving || other.readySince.IsZero() || other.readySince.After(since) {
			return
		}
	}
	for _, kind := range configurations {
		if last := w.history[kind].last(); last != nil && w.watch.digests[last.GetAnnotations()[webhookconf.VersionAnnotation]] != steps {
			w.breaks("%s after the last other replica (%s) was told to stop, the %s does not hold the steps %s (but %s)", time.Since(since).Round(time.Second), p, kind, steps, w.watch.digests[last.GetAnnotations()[webhookconf.VersionAnnotation]])
		}
	}
}

// stepsOf returns the names of the steps in a record.
func stepsOf(r rollout.Record) string {
	var names []string
	for at, keys := range r.Steps {
		for _, key := range keys {
			name, _, _ := strings.Cut(key, "@")
			if strings.HasSuffix(name, definitionName) {
				continue
			}
			step := strings.TrimSuffix(name, "-sets")
			if path.Base(at) == name {
				step += alone
			}
			names = append(names, step)
		}
	}
	slices.Sort(names)
	return strings.Join(slices.Compact(names), ",")
}

// declares returns the same of a release, if all of its steps are registered.
func (r release) declares() string {
	names := []string{lenient}
	for _, step := range r.steps {
		if r.isolated[step] || step == reader {
			step += alone
		}
		names = append(names, step)
	}
	if r.shadow {
		names = append(names, ghost)
	}
	slices.Sort(names)
	return strings.Join(names, ",")
}

// recorded looks at the records of versions: one is gone only when no replica lives. The caller holds mu.
func (w *World) recorded(versions rollout.Versions) {
	for digest, r := range versions {
		w.watch.digests[digest] = stepsOf(r)
	}
	if w.plan.Modes || w.plan.Unregister { // a change of a mode makes another version; with UnregisterOnStop, no other replica is expected
		return
	}
	deaf := slices.ContainsFunc(w.servers, func(s *apiServer) bool { // a replica may hear of nothing through it
		failing, frozen := s.state()
		return failing != 0 || frozen != nil
	})
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
			if r.Stopping && !p.wire.hears() { // a second and a half are its time to contradict, and its watch begins again up to 30 s after an outage
				continue
			}
			if p.release.declares() == name && !p.leaving && !p.readySince.IsZero() && !deaf && !w.troubledSince(time.Now(), rough, spoiled, lapsed, apart) {
				w.breaks("the version with the steps %s is recorded as gone although %s lives", name, p)
			}
		}
	}
}

// first looks at the state in which a replica is ready for the first time. The caller holds mu.
func (w *World) first(p *process) {
	for _, kind := range configurations {
		object := w.history[kind].last()
		if object == nil && !w.excused(spoiled, time.Now()) && !w.plan.Unregister {
			w.breaks("%s is ready, and there is no %s", p, kind)
		}
	}
}

// trusted sees that each API server can call a replica that has just become ready, also after the CA was lost.
func (w *World) trusted(p *process) {
	w.mu.Lock()
	for _, kind := range registered { // one that starts after a write cannot know that API servers may not have it yet
		if h := w.history[kind]; len(h) > 0 && h[len(h)-1].at.Before(p.host.since) && h[len(h)-1].at.Add(w.plan.Lag).After(p.began) {
			w.mu.Unlock()
			return
		}
	}
	spoiled := w.excused(spoiled, time.Now()) && !w.troubledSince(p.began, rough, slow, apart, evicted) && w.watch.damaged.Before(p.began) && !w.plan.Unregister
	w.mu.Unlock()
	if spoiled {
		w.reach(p, "ready")
	}
}

// look brings what must hold up to date. It is called before each admission. The caller holds mu.
func (w *World) look() {
	now, p := time.Now(), &w.watch
	if p.force == nil {
		p.force, p.covered, p.lonely = map[string]time.Time{}, map[string]time.Time{}, now
	}
	ready := slices.ContainsFunc(w.processes, func(r *process) bool { return !r.leaving && !r.readySince.IsZero() })
	if !ready {
		p.lonely = now
	}
	for _, step := range append(slices.Clip(plain), reader) {
		all := len(w.processes) > 0
		for _, r := range w.processes {
			all = all && r.release.has(step)
		}
		switch {
		case !all:
			delete(p.covered, step)
			delete(p.force, step)
		case p.covered[step].IsZero():
			p.covered[step] = now
		}
	}
}

// callAll admits objects all the time, and more of them after each fault.
func (w *World) callAll() {
	var at []time.Duration
	rng := w.stream("calls", 0)
	for t := 30 * time.Second; t < w.plan.Lasts; t += time.Duration(rng.ExpFloat64() * float64(w.plan.Calls)) {
		at = append(at, t)
	}
	for _, f := range w.plan.Faults {
		for range 8 { // while the first answers to it come about
			at = append(at, f.At+time.Duration(rng.Int64N(int64(8*time.Second))))
		}
		for range 6 {
			at = append(at, f.At+time.Duration(rng.Int64N(int64(30*time.Second))), f.At+f.For+time.Duration(rng.Int64N(int64(3*time.Minute))))
		}
	}
	slices.Sort(at)
	for i, t := range at {
		if !w.wait(time.Until(w.began.Add(t))) {
			return
		}
		w.tasks.Go(func() { w.admit(w.stream("call", i), i) })
		if w.plan.Converts {
			w.tasks.Go(func() { w.list(w.stream("list", i)) })
		}
	}
}

// admit has an API server admit a pod, and judges how it does.
func (w *World) admit(rng *rand.Rand, n int) {
	s := w.servers[rng.IntN(len(w.servers))]
	if failing, frozen := s.state(); failing != 0 || frozen != nil {
		return // it admits nothing
	}
	w.mu.Lock()
	w.look()
	w.counts.Admissions++
	began := time.Now()
	w.mu.Unlock()
	pod := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": fmt.Sprintf("pod%d", n), "namespace": "shop"},
		"spec": map[string]any{"containers": []any{map[string]any{"name": "main", "image": "example.com/main"}}},
	}}
	deny := ""
	if rng.IntN(3) > 0 {
		deny = plain[rng.IntN(len(plain))]
	}
	named := map[string]string{denyLabel: deny}
	if rng.IntN(8) == 0 {
		named[slowLabel] = time.Duration(rng.Int64N(int64(4 * time.Second))).String()
	}
	if rng.IntN(6) == 0 {
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
	}
	a := ask{operation: admissionv1.Create, resource: podResource, kind: podKind, object: pod}
	if rng.IntN(12) == 0 {
		a.operation, a.old, deny = admissionv1.Update, pod.DeepCopy(), lenient
		pod.SetLabels(map[string]string{"changed": "yes"})
	}
	ctx, cancel := w.ctx()
	defer cancel()
	v := s.admit(ctx, a)
	if ctx.Err() != nil {
		return
	}
	w.prompt(s, began, named[slowLabel] != "", v)
	w.judge(s, deny, began, v)
}

// atOnce is how long an admission may take in which no step waits and no wire is broken: computing takes no time here.
const atOnce = 2 * time.Second

// prompt looks at the time that an admission has taken.
func (w *World) prompt(s *apiServer, began time.Time, waits bool, v verdict) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if took := time.Since(began); took > atOnce && !waits && !w.troubledSince(began, rough, slow, spoiled, evicted, apart) && !w.excused(unread, began) {
		w.breaks("%s admitted a pod in %s, although no step waits (%s)", s.name, took.Round(time.Millisecond), v)
	}
}

// judge looks at how a pod was admitted. deny is the step that would have denied it, if there is one.
func (w *World) judge(s *apiServer, deny string, began time.Time, v verdict) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.look()
	p := &w.watch
	now := time.Now()
	switch {
	case deny == lenient:
		if v.failed != nil || v.denied != "" {
			w.breaks("%s: a change of a pod, which no step with Fail selects, is %s", s.name, v)
		}
	case v.failed != nil && w.plan.Reads && (w.excused(unread, began) || w.excused(slow, began)):
	case v.failed != nil:
		if w.reachable(began) {
			w.breaks("%s refused a pod although a replica could be reached: %v", s.name, v.failed)
		}
	case v.denied != "":
		w.counts.Denials++
		if deny == "" || !strings.HasSuffix(v.denied, deny+" denies") {
			w.breaks("%s: a pod that no step denies (label %q) is denied: %s", s.name, deny, v.denied)
		}
		if m := w.modes[deny]; m.mode != "" && m.mode != eirinix.ModeDeny && m.since.Add(inMode).Before(began) {
			w.breaks("%s: step %s is in %s since %s and denies a pod", s.name, deny, m.mode, now.Sub(m.since))
		}
		if p.force[deny].IsZero() && !p.covered[deny].IsZero() && p.ordered.Add(inForce).Before(now) {
			p.force[deny] = now
		}
	default:
		w.readsWell(s, began, v)
		if v.object.GetLabels()[failLabel] != "" && v.object.GetAnnotations()[halfway] != "" {
			w.breaks("%s: what a step with failurePolicy Ignore did before it failed is in the object", s.name)
		}
		for _, step := range append(slices.Clip(plain), reader) {
			if ran := v.object.GetAnnotations()["ran-"+step]; step == reader && ran != "" && p.force[step].IsZero() && !p.covered[step].IsZero() && p.ordered.Add(inForce).Before(now) {
				p.force[step] = now
			}
			if !w.mustRun(step, began) {
				continue
			}
			if step == deny && w.denies(step, began) {
				w.breaks("%s admitted a pod that step %s of every live version denies (called: %s)", s.name, step, v.entries())
			} else if step != deny && v.object.GetAnnotations()["ran-"+step] == "" {
				w.breaks("%s admitted a pod that step %s of every live version has not changed (called: %s)", s.name, step, v.entries())
			}
		}
	}
}

// reachable reports whether a call of a request that began then must have been answered. The caller holds mu.
func (w *World) reachable(began time.Time) bool {
	cut := w.excused(evicted, began) && w.excused(slow, began)
	return w.watch.lonely.Add(w.plan.Lag+2*time.Second).Before(began) && !cut && !w.excused(rough, began) && !w.excused(spoiled, began.Add(-w.watch.late))
}

// modeOf is the mode that a person has given to a step.
type modeOf struct {
	mode  eirinix.Mode
	since time.Time
}

// inMode is how long a mode takes until it is in force everywhere. A step that leaves Shadow is registered first.
const inMode = time.Minute

// denies reports whether a step must have denied. The caller holds mu.
func (w *World) denies(step string, began time.Time) bool {
	m := w.modes[step]
	if m.mode == "" {
		return true
	}
	for e := range excuses { // the change may have been kept from a replica
		if w.excused(e, m.since) {
			return false
		}
	}
	return m.mode == eirinix.ModeDeny && m.since.Add(inMode).Before(began)
}

// policyVersion is the policy from a moment on. Generation 0 is none.
type policyVersion struct {
	generation int
	from       time.Time
}

// staleBy is how old the objects that a step sees may be: MaxStale, and the time of the call.
const staleBy = time.Minute + requestTime

// readsWell looks at the policy that a pod was admitted with. The caller holds mu.
func (w *World) readsWell(s *apiServer, began time.Time, v verdict) {
	seen, ran := v.object.GetAnnotations()["ran-"+reader]
	if !ran {
		return
	}
	if seen == none {
		w.breaks("%s admitted a pod by a step that requires a policy, and there was none", s.name)
	}
	for i := len(w.policies) - 1; i >= 0; i-- { // a restore brings an earlier one back
		if strconv.Itoa(w.policies[i].generation) != seen {
			continue
		}
		if i+1 < len(w.policies) && w.policies[i+1].from.Add(staleBy).Before(began) {
			w.breaks("%s admitted a pod by policy %s, which was replaced %s before", s.name, seen, began.Sub(w.policies[i+1].from))
		}
		return
	}
}

// stay looks at the entries that go from a configuration: those of steps that a version declares stay while it lives. The
// caller holds mu.
func (w *World) stay(gone []string, standing string) {
	if w.troubledSince(time.Now(), rough, slow, spoiled, lapsed) || len(w.modes) > 0 || w.watch.ordered.After(time.Now().Add(-time.Hour)) {
		return
	}
	for _, name := range gone {
		label, _, _ := strings.Cut(name, ".")
		step := strings.TrimSuffix(label, "-sets")
		for _, p := range w.processes {
			if p.release.isolated[step] && !p.leaving && !p.readySince.IsZero() && (!w.plan.Unregister || p.release.declares() == standing && !w.stops(standing)) {
				w.breaks("the entry %s has gone although %s lives, which declares its step", name, p)
			}
		}
	}
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
