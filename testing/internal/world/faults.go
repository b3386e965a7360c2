package world

// This file is what befalls a world from outside. What people do to it is in people.go, and damage to objects in damage.go.

import (
	"math/rand/v2"
	"net/http"
	"slices"
	"time"

	"code.cloudfoundry.org/eirinix/internal/ca"
)

// faults are those that there are, by their names.
var faults = map[string]func(w *World, f Fault, rng *rand.Rand){
	"rollout":            (*World).rollout,
	"restart":            (*World).restart,
	"crash loop":         (*World).crashLoop,
	"scale":              (*World).scale,
	"kill":               (*World).killOne,
	"freeze":             (*World).freezeOne,
	"cut":                (*World).cutOne,
	"API server refuses": func(w *World, f Fault, rng *rand.Rand) { w.outage(f, rng, -1) },
	"API server errs":    func(w *World, f Fault, rng *rand.Rand) { w.outage(f, rng, []int{429, 500, 503}[rng.IntN(3)]) },
	"API server freezes": (*World).freezeServer,
	"rotation":           (*World).rotate,
	"distrust":           (*World).distrust,
	"registration":       (*World).register,
	"deletion":           (*World).remove,
	"edit":               (*World).edit,
	"restore":            (*World).restore,
	"right":              (*World).takeRight,
	"policy":             (*World).changePolicy,
	"mode":               (*World).changeMode,
	"namespace":          (*World).renewNamespace,
	"lag":                (*World).lagBehind,
	"isolation":          (*World).isolate,
	"sickness":           (*World).sicken,
	"load":               (*World).load,
	"definition":         (*World).redefine,
	"lists":              (*World).lists,
	"key":                (*World).loseKey,
	"contest":            (*World).contest,
	"another program":    (*World).another,
	"unregistration":     (*World).unregister,
	"issuance":           (*World).issuance,
	"callers":            (*World).changeCallers,
	"clock":              (*World).setBack,
	"kind":               (*World).takeKind,
	audits:               (*World).audit,
}

const fate = named("fate")

// stirs notes that something happens that makes replicas ask.
func (w *World) stirs() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.watch.stirred = time.Now()
}

// strike plays the faults of the plan.
func (w *World) strike() {
	for _, f := range w.plan.Faults {
		if !w.wait(time.Until(w.began.Add(f.At))) {
			return
		}
		w.stirs()
		w.tasks.Go(func() { faults[f.Kind](w, f, rand.New(rand.NewPCG(f.Draw, 2))) }) //nolint:gosec // a seed decides
	}
}

// settling is how long a state lasts that the library mends by itself.
const settling = 2 * time.Minute

// any returns a replica, or nil.
func (w *World) any(rng *rand.Rand) *process {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []*process
	for _, p := range w.processes {
		if !p.leaving && !p.release.crashes {
			all = append(all, p)
		}
	}
	if len(all) == 0 {
		return nil
	}
	return all[rng.IntN(len(all))]
}

func (w *World) killOne(f Fault, rng *rand.Rand) {
	if own := w.stream("dies out", int(f.At)); own.IntN(2) == 0 && len(w.releases) > 1 && !w.plan.Split && !w.plan.Unregister && !w.plan.Judges && !w.plan.Modes && w.plan.settled("right") {
		if own.IntN(2) == 0 {
			w.revives(own)
		} else {
			w.diesOut(f, own)
		}
		return
	}
	if p := w.any(rng); p != nil {
		w.excuse(rough, settling)
		p.kill()
		w.wake()
	}
}

func (w *World) freezeOne(f Fault, rng *rand.Rand) {
	p := w.any(rng)
	if p == nil {
		return
	}
	w.excuse(rough, f.For+settling)
	w.tell(fate, "silences all wires of %s for %s", p, f.For.Round(time.Second))
	p.host.freeze()
	w.wait(f.For)
	p.host.thaw()
}

func (w *World) cutOne(_ Fault, rng *rand.Rand) {
	if p := w.any(rng); p != nil {
		w.excuse(rough, time.Minute)
		w.tell(fate, "cuts all connections of %s", p)
		p.wire.cut()
		if rng.IntN(2) == 0 {
			p.host.halve()
		} else {
			p.host.cut(false)
		}
	}
}

// setBack sets the clocks of the API servers back, to a time at which all CAs in use are valid already, and then right again.
func (w *World) setBack(f Fault, rng *rand.Rand) {
	most := time.Since(w.began) + time.Hour
	w.mu.Lock()
	for _, kind := range registered {
		for _, h := range webhooksOf(w.history[kind].last()) {
			for _, c := range ca.SplitBundle(h.ClientConfig.CABundle) {
				most = min(most, w.servers[0].now().Sub(c.NotBefore))
			}
		}
	}
	w.mu.Unlock()
	if w.plan.Issued || most <= 0 || w.turned.Load() != 0 { // the issuer has one clock
		return
	}
	by := time.Duration(max(rng.Int64N(int64(most)), rng.Int64N(int64(most))))
	w.tell(fate, "sets the clocks of the API servers back by %s", by.Round(time.Second))
	w.turned.Store(int64(by))
	for calm := false; !calm; {
		began := time.Now()
		w.excuse(spoiled, clockHeard)
		if !w.wait(clockHeard) {
			return
		}
		w.mu.Lock()
		calm = !w.troubledSince(began, rough, slow, lapsed, apart)
		w.mu.Unlock()
	}
	w.wait(10 * f.For)
	w.tell(fate, "sets the clocks of the API servers right")
	w.turned.Store(0)
}

// clockHeard is how long a program at rest takes to hear of another clock: two answers that agree tell it, and each of its watches
// begins again within ten minutes.
const clockHeard = 12 * time.Minute

func (w *World) outage(f Fault, rng *rand.Rand, status int) {
	s := w.servers[rng.IntN(len(w.servers))]
	if len(w.servers) == 1 && rng.IntN(2) == 0 {
		f.For *= 3
		most := mostInOutage
		if status > 0 && status != http.StatusTooManyRequests { // each object is asked for by itself
			most = mostRefused
		}
		w.tasks.Go(func() { w.restrains(f.For, most) })
	}
	if len(w.servers) == 1 && len(w.releases) > 1 {
		if own := w.stream("asked", int(f.At)); own.IntN(3) == 0 && w.mixes(f, own) && w.asks() { // the answer cannot be written in time
			f.For = 8*time.Second + time.Duration(own.Int64N(int64(1900*time.Millisecond)))
		}
	}
	w.excuse(slow, f.For+settling)
	w.tell(named(s.name), "answers %d for %s (-1: it refuses connections)", status, f.For.Round(time.Second))
	s.fail(status)
	w.wait(f.For)
	s.fail(0)
}

// mostInOutage and mostRefused are the numbers of requests of a replica in a minute in which no API server answers (DESIGN says
// two, for one outage), and in which a right is missing, or each answer is an error.
const mostInOutage, mostRefused = 16, 45

// begun returns how many replicas have been started.
func (w *World) begun() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.started
}

// restrains sees how many requests replicas make in the last minute of a state that lasts for d.
func (w *World) restrains(d time.Duration, most int) {
	if d < 3*time.Minute || !w.wait(d-time.Minute-time.Second) {
		return
	}
	if w.plan.watches() && most == mostRefused { // a watch of pods is tried again within five seconds
		most += 12
	}
	made := func() map[*process]int {
		w.mu.Lock()
		defer w.mu.Unlock()
		all := map[*process]int{}
		for _, p := range w.processes {
			if time.Since(p.began) > 2*time.Minute && !p.leaving {
				all[p] = p.wire.count()
			}
		}
		return all
	}
	before, began, started := made(), time.Now(), w.begun()
	if !w.wait(time.Minute) {
		return
	}
	w.mu.Lock()
	// A repair that fails is tried with each question of another version, too.
	asks := slices.ContainsFunc(w.processes, func(p *process) bool { return p.release.name != w.processes[0].release.name })
	stirred := asks || w.auditing.Load() || w.troubledSince(began, unread) || w.watch.stirred.Add(time.Minute).After(began) || w.started != started // one that cannot start is started again and again
	w.mu.Unlock()
	if stirred {
		return
	}
	for p, n := range made() {
		if was, known := before[p]; known && n-was > most {
			w.violate("%s made %d requests in the last of %s without an answer, or a right", p, n-was, d.Round(time.Second))
		}
	}
}

func (w *World) freezeServer(f Fault, rng *rand.Rand) {
	s := w.servers[rng.IntN(len(w.servers))]
	w.excuse(slow, f.For+settling)
	w.tell(named(s.name), "freezes for %s", f.For.Round(time.Second))
	s.freeze()
	w.wait(f.For)
	s.thaw()
}

// lagBehind makes an API server learn of changed configurations late, or of all changes, so that its watches are late.
func (w *World) lagBehind(f Fault, rng *rand.Rand) {
	s := w.servers[rng.IntN(len(w.servers))]
	w.excuse(slow, f.For+settling)
	if rng.IntN(2) == 0 {
		by := time.Duration(rng.Int64N(int64(8 * time.Second)))
		w.tell(named(s.name), "learns of all changes %s late, for %s", by.Round(time.Second), f.For.Round(time.Second))
		s.falls(by)
		w.wait(f.For)
		s.falls(0)
		return
	}
	w.excuse(slow, 2*f.For+settling)
	w.tell(named(s.name), "learns of configurations %s late", f.For.Round(time.Second))
	s.lags(f.For)
	w.mu.Lock()
	w.watch.late = max(w.watch.late, f.For)
	w.mu.Unlock()
	w.wait(2 * f.For)
	s.lags(0)
}

// isolate silences the way of a replica to the API servers, and no other.
func (w *World) isolate(f Fault, rng *rand.Rand) {
	p := w.any(rng)
	if p == nil {
		return
	}
	w.excuse(slow, 3*f.For+settling)
	w.excuse(apart, 3*f.For+settling)
	w.tell(fate, "keeps %s from the API servers for %s", p, (3 * f.For).Round(time.Second))
	p.wire.hush(true)
	if w.plan.Converts {
		w.tasks.Go(func() { w.convertsApart(p, w.stream("apart", int(f.At))) })
	}
	w.wait(3 * f.For)
	p.wire.hush(false)
}

// load has API servers admit large objects, on which a step in Shadow hangs.
func (w *World) load(_ Fault, rng *rand.Rand) {
	w.mu.Lock()
	w.loads++
	again := w.loads > 1 // they take half a second to compute
	w.mu.Unlock()
	if again {
		return
	}
	w.tell(fate, "sends large pods, on which the step in Shadow hangs")
	for i := range 3 {
		w.tasks.Go(func() { w.admit(rand.New(rand.NewPCG(rng.Uint64(), 3)), -1-i) }) //nolint:gosec // a seed decides
		if !w.wait(time.Second) {
			return
		}
	}
	w.witnesses()
	if !w.wait(time.Minute) {
		return
	}
	w.burden()
	w.wears()
	w.tell(fate, "sends large pods, on which a step gets stuck, and others")
	for i := range 6 {
		n := i
		if i < 2 {
			n = sticks - i
		}
		w.admit(w.stream("stuck", n), n)
	}
}
