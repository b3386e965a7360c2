package controller_test

// This file is the world of the model of rollouts: replicas of several versions of a program that start, stop and crash,
// one Lease, one webhook configuration, and API servers that call a replica at random by a version of it.

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"code.cloudfoundry.org/eirinix/internal/ca"
	"code.cloudfoundry.org/eirinix/internal/controller"
	"code.cloudfoundry.org/eirinix/internal/rollout"
	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

// ways in which a rule of rollouts is broken, by lies of the world.
type ways struct {
	lenient bool // the paths of later versions are answered like those of earlier ones
	apart   bool // versions do not know each other
	late    bool // the Lease is never read anew

	dropping bool // a step that waits is not declared
	unsaid   bool // no replica says that it polls
}

// course is a rollout's. Versions hear of each other within pace.longest, which must be well below the second and a half
// that a version has to contradict a replica that leaves.
type course struct {
	pace
	replicas, versions int
	turnover           time.Duration // mean time between a replica's start or end
	orders             time.Duration // mean time between registrations that a person orders; 0: none
	calls              time.Duration // mean time between objects
	lag                time.Duration // for how long an API server may call by a configuration that was replaced
	waits              time.Duration // mean time for which a step of a replica waits; 0: none does
	polls              float64       // share of the replicas that poll the Lease
	astray             float64       // share of the replicas that start and are not of the version that is to be; 0 means 0.1

	restores, outages, deletes, edits time.Duration // mean time between these; 0: none

	broken ways
}

type rollouts struct {
	*world
	course
	lease, configuration *object
	programs             []programVersion
	running              []*member
	started              int
	target               programVersion // of which there are to be replicas
	first                string         // in the Lease
	firstSince           time.Time
	changes, entries     int                  // of first; of the version that is registered
	living               map[string]time.Time // until when a version has lived
	calledAt             int                  // calls that were made
	again                int                  // calls that were repeated after a 503
	calls                *event
	alive                map[string]time.Time // since when the record of a version has not been gone
	down, cut            time.Time            // until then no request succeeds, and not those of all processes
	calm                 time.Time            // from then on, what API servers call is as it should be
	forms                map[string]int       // how often the configuration has taken a form since it last had a reason to change
	writesOfLease        []time.Time
	persons              map[*process]programVersion
	ordered              time.Time // when a person has last changed the Lease
}

// batch is how many replicas start or end together.
func (c course) batch() int { return max(1, c.replicas/4) }

// programVersion is the registration of one version.
type programVersion struct {
	webhookconf.Registration
	declared map[string][]string // steps by path
}

func (p programVersion) steps() (all []string) {
	for _, path := range slices.Sorted(maps.Keys(p.declared)) {
		all = append(all, p.declared[path]...)
	}
	return all
}

// authority is the CA that all replicas have registered.
var authority = controller.Fixed(must(ca.New("spec", time.Hour, dawn)).CertificatePEM)

func newRollouts(c course, seed uint64) *rollouts {
	w := &rollouts{world: newWorld(c.pace, seed), course: c, living: map[string]time.Time{}, alive: map[string]time.Time{}, persons: map[*process]programVersion{}}
	w.lease = w.object(newLease(leaseName))
	for _, conf := range (configurationsOf{}).all() {
		o := w.object(conf.Object())
		if w.configuration == nil {
			w.configuration = o
		}
	}
	for i := range c.versions {
		w.programs = append(w.programs, w.program(i))
	}
	w.world.check, w.world.wrote = w.check, w.wrote
	w.target = w.programs[0]
	for range max(1, c.replicas/2) {
		w.begin(w.target)
	}
	w.every(c.turnover, w.turn)
	w.every(time.Duration(3*c.replicas/c.batch())*c.turnover, func() { w.target = w.programs[w.rng.IntN(len(w.programs))] })
	w.every(c.orders, w.order)
	w.every(c.restores, w.restore)
	w.every(c.outages, w.outage)
	w.every(c.deletes, w.remove)
	w.every(c.edits, w.edit)
	w.every(c.calls, w.admit)
	w.calls = w.events[len(w.events)-1]
	return w
}

// program makes a version of some of five steps of two kinds on some paths. All versions have step a, not all on one path:
// the path follows from the kind, and the selector that steps share.
func (w *rollouts) program(i int) programVersion {
	r := desired(fmt.Sprint("v", i+1))
	for s, name := range []string{"a", "b", "c", "d", "e"} {
		if s > 0 && w.chance(0.4) {
			continue
		}
		on := s % 3
		if w.chance(0.3) {
			on = w.rng.IntN(3)
		}
		step := newStep(name)
		if s >= 3 {
			step.Kind, step.Rules = widget, widgets
		}
		step.Objects = &metav1.LabelSelector{MatchLabels: map[string]string{"on": fmt.Sprint(on)}}
		r.Steps = append(r.Steps, step)
	}
	return programVersion{r, r.Desired(nil, nil).Registered()}
}

// member is a replica.
type member struct {
	w       *rollouts
	process *process
	programVersion
	waiting    []string  // its steps that wait, and widget, which stands for all steps of its kind
	release    time.Time // when the last of them does not wait any more
	registered webhookconf.Registration
	saw        map[string]time.Time // since when it has known steps to be in force
	loop       *controller.Controller
	routes     map[string]rollout.Route
	readySince time.Time // zero: it is not called
	leaves     bool      // it is to stop
	called     time.Time // until when it is called then: API servers hear of it before its version is given up
	left       time.Time // when it ends
}

func (m *member) String() string { return m.process.name }

func (m *member) version() string { return m.registered.Version }

func (w *rollouts) begin(of programVersion) {
	w.started++
	p := w.newProcess(fmt.Sprintf("%s/%d", of.Version, w.started), time.Duration(w.rng.Int64N(int64(2*time.Second))))
	m := &member{w: w, process: p, programVersion: of, saw: map[string]time.Time{}}
	p.polls = w.chance(w.polls)
	m.waits()
	w.running = append(w.running, m)
	p.ended = func() { w.end(m) }
	w.note(p, "starts")
	p.start(m.run)
}

func (w *rollouts) end(m *member) {
	w.running = slices.DeleteFunc(w.running, func(other *member) bool { return other == m })
}

func (m *member) run() {
	w, p := m.w, m.process
	cache := copies{process: p, change: m.reads, unsaid: w.broken.unsaid}
	serve := func(routes map[string]rollout.Route) error {
		m.routes = routes
		return nil
	}
	config := controller.Config{
		Cache: cache, Configurations: configurationsOf{p: p, change: m.reads}.all(), Lease: leaseOf(p),
		Certificates: authority, Registration: m.registered, Registers: true, Serving: true,
		Serve: serve, API: outages{m},
		Ready: func(err error) {
			switch {
			case err != nil:
				m.readySince = time.Time{}
			case m.readySince.IsZero():
				m.readySince = w.now
				w.note(p, "is ready")
			}
		},
		Now: p.now, Random: w.rng.Float64,
	}
	if w.broken.apart {
		config.Lease = nil
	}
	if w.broken.late {
		config.Lease.Client = trees{requests: requests[*unstructured.Unstructured]{p: p, of: newLease, change: func(lease *unstructured.Unstructured) {
			if last, _ := p.copied(w.lease); last.object != nil {
				last.object.(*unstructured.Unstructured).DeepCopyInto(lease)
			}
		}}}
	}
	m.routes = rollout.RoutesIn(context.Background(), cache, namespace, leaseName)
	m.loop = controller.New(config)
	for failures := 0; ; {
		if m.leaves && m.left.IsZero() {
			w.note(p, "stops")
			m.called = w.now.Add(time.Duration(w.rng.Int64N(int64(1200 * time.Millisecond))))
			m.left = m.called.Add(w.after(2 * time.Second))
			if err := m.loop.Leave(context.Background(), false); err != nil {
				w.note(p, "cannot say so: %v", err)
			}
		}
		if len(m.waiting) > 0 && !w.now.Before(m.release) {
			m.ceases()
			if err := m.loop.Replace(context.Background(), m.registration(), false, serve); err != nil {
				w.note(p, "cannot serve a step: %v", err)
			}
			m.registered = m.registration()
		}
		next, _ := p.reconcile(m.loop, &failures)
		if len(m.waiting) > 0 {
			next = min(next, max(m.release.Sub(w.now), 0))
		}
		if !m.left.IsZero() {
			next = min(next, m.left.Sub(w.now))
			if next <= 0 {
				return
			}
		}
		if p.sleep(next) != nil {
			return
		}
		if !m.left.IsZero() && !w.now.Before(m.left) {
			return
		}
	}
}

// callable are the replicas that API servers may reach.
func (w *rollouts) callable() (all []*member) {
	for _, m := range w.running {
		if m.process.alive && !m.readySince.IsZero() && (m.called.IsZero() || w.now.Before(m.called)) {
			all = append(all, m)
		}
	}
	return all
}

// turn starts or ends replicas, so that one day all are of the version that is to be.
func (w *rollouts) turn() {
	if w.now.Before(w.cut) {
		return // a replica that starts knows of no outage
	}
	starts := len(w.running) < w.replicas || len(w.running) < w.replicas+w.batch() && w.chance(0.5)
	for range w.batch() {
		if !starts {
			w.turnOff()
			continue
		}
		of := w.target
		if w.chance(cmp.Or(w.astray, 0.1)) {
			of = w.programs[w.rng.IntN(len(w.programs))]
		}
		w.begin(of)
	}
}

// turnOff ends a replica. One stays that is called.
func (w *rollouts) turnOff() {
	m := w.running[w.rng.IntN(len(w.running))]
	for range 10 {
		if m.version() == w.target.Version || m.leaves {
			m = w.running[w.rng.IntN(len(w.running))]
		}
	}
	stay := slices.DeleteFunc(w.callable(), func(other *member) bool { return other == m || other.leaves })
	switch {
	case len(stay) == 0 || m.leaves:
	case w.chance(0.5):
		m.leaves = true
		m.process.poke()
	default:
		w.note(m, "crashes")
		m.process.crash()
		w.end(m)
	}
}

// order is RegisterExtensions of a version, one of whose replicas is called.
func (w *rollouts) order() {
	all := w.callable()
	if len(all) == 0 || w.now.Before(w.down) {
		return
	}
	of := all[w.rng.IntN(len(all))].programVersion
	p := w.newProcess("person", 0)
	w.note(p, "orders %s", of.Version)
	w.persons[p] = of
	part := &member{w: w, process: p, programVersion: of}
	part.waits()
	p.start(func() {
		c := controller.New(controller.Config{
			Cache: copies{process: p, direct: true}, Configurations: configurationsOf{p: p}.all(), Lease: leaseOf(p),
			Certificates: authority, Registration: part.registered,
			Registers: true, Once: true, Now: p.now, Random: w.rng.Float64,
		})
		if err := c.Register(context.Background()); err != nil {
			w.note(p, "cannot: %v", err)
		}
	})
}

// registered is the version whose entries an API server may call, and their paths.
func registered(of stored) (version string, paths []string) {
	if of.object == nil {
		return "", nil
	}
	for _, c := range clientConfigs(of.object) {
		paths = append(paths, c.path())
	}
	return of.object.GetAnnotations()[webhookconf.VersionAnnotation], paths
}

// admit has an API server call for one object, by any configuration that it may hold.
func (w *rollouts) admit() {
	held := w.configuration.heldAt(w.now, w.lag)
	if len(held) == 0 || w.now.Before(w.calm) {
		return
	}
	by := held[w.rng.IntN(len(held))]
	if by.object == nil {
		return
	}
	version, paths := registered(by)
	ran := map[string]bool{}
	for _, path := range paths {
		for try := 1; ; try++ {
			all := w.callable()
			if len(all) == 0 {
				return // no promise is made for this
			}
			m := all[w.rng.IntN(len(all))]
			w.calledAt++
			steps, ok := m.answer(path)
			if ok {
				w.whole(m, version, path, steps)
				for _, step := range steps {
					ran[step] = true
				}
				break
			}
			w.again++
			if w.orders == 0 && w.edits == 0 && !m.lacks(path) { // the version that stands came first
				w.fail("%s answers 503 on %s, which %s registers; it knows %s", m, path, version, tell(m.known()))
				return
			}
			if try == 1 && !slices.ContainsFunc(all, func(m *member) bool { return m.version() == version }) {
				return // a version that a person has put before others, and has stopped since
			}
			if try == 10*len(all) && w.edits > 0 {
				return // a step that only a later version declares stays in force; its last replica may have crashed
			}
			if try == 10*len(all) { // an API server tries ten times; a balancer that is fair finds one
				w.fail("no replica answers on %s, which %s registers", path, version)
				return
			}
		}
	}
	force := inForce(by)
	for _, step := range w.common() {
		if _, calls := force[step]; !ran[step] && (calls || w.waits == 0) {
			w.fail("an object skips step %s, which every living version has, by the registration of %s", step, version)
		}
	}
}

func (m *member) known() rollout.Versions {
	last, _ := m.process.copied(m.w.lease)
	if last.object == nil {
		return nil
	}
	return rollout.Read(last.object.GetAnnotations())
}

// answer is the root package's chains: the steps that run on a path, unless it is none of this replica's.
func (m *member) answer(path string) (steps []string, ok bool) {
	own, ours := m.declared[path]
	if m.lacks(path) {
		own, ours = nil, false
	}
	route, theirs := m.routes[path]
	if m.w.broken.lenient {
		route.All = false
	}
	if !ours && !theirs {
		return nil, false
	}
	steps = slices.Clone(own)
	all := m.steps()
	for _, step := range route.Steps {
		switch has := slices.Contains(all, step); {
		case !has && !ours && route.All:
			return nil, false
		case has && !slices.Contains(steps, step):
			steps = append(steps, step)
		}
	}
	return steps, true
}

// whole looks at an answer on a path that is none of the replica's own and belongs to a version that came later: all its
// steps have run.
func (w *rollouts) whole(m *member, version, path string, ran []string) {
	versions := w.versions()
	of, known := versions[version]
	if _, own := m.declared[path]; own || !known || of.Ordinal <= versions[m.version()].Ordinal {
		return
	}
	for other, r := range versions {
		if _, too := r.Steps[path]; too && other != version {
			return // it stands in the name of another one as well
		}
	}
	for _, step := range of.Steps[path] {
		if !slices.Contains(ran, step) {
			w.fail("%s answers on %s of %s, which came later, without step %s", m, path, version, step)
		}
	}
}

// versions are those in the Lease.
func (w *rollouts) versions() rollout.Versions {
	return recordsIn(w.lease.latest())
}

func recordsIn(lease stored) rollout.Versions {
	if lease.object == nil {
		return rollout.Versions{}
	}
	return rollout.Read(lease.object.GetAnnotations())
}

// hears bounds the time until API servers call by the configuration of the version that replaces another.
func (w *rollouts) hears() time.Duration { return w.lag + 8*w.longestPause() + 5*time.Second }

func (w *rollouts) longestPause() time.Duration { return w.course.longest }

// common are the steps that all versions have which live, or did so a moment ago.
func (w *rollouts) common() []string {
	var common []string
	for _, of := range w.programs {
		if until, known := w.living[of.Version]; !known || w.now.Sub(until) > w.hears() {
			continue
		}
		if common == nil {
			common = slices.Clone(of.steps())
		}
		common = slices.DeleteFunc(common, func(s string) bool { return !slices.Contains(of.steps(), s) })
	}
	return common
}

// check notes which versions live.
func (w *rollouts) check() {
	for version, r := range w.versions() {
		if r.Removed {
			delete(w.alive, version)
			continue
		}
		w.living[version] = w.now
		if _, known := w.alive[version]; !known {
			w.alive[version] = w.now
		}
	}
	for _, m := range w.running {
		w.living[m.version()] = w.now
	}
}

// wrote looks at each write.
func (w *rollouts) wrote(p *process, o *object, last stored) {
	switch o {
	case w.lease:
		w.wroteLease(p, last)
	case w.configuration:
		before, _ := registered(last)
		after, _ := registered(o.latest())
		w.note(p, "the registration is now that of %s: %s", after, o.latest().object.GetAnnotations()[webhookconf.StepsAnnotation])
		if before == after && last.object != nil && !w.otherwise(last) {
			w.fail("%s writes the configuration although nothing has changed", p)
		}
		if before != after {
			w.entries++
		}
		if w.entries > w.changes {
			w.fail("%s writes the entries of %s: the %d. time, for %d changes of the version that is first", p, after, w.entries, w.changes)
		}
		if w.first != after && w.now.Sub(w.firstSince) > controller.PassTimeout {
			w.fail("%s registers %s, while %s is first", p, after, w.first)
		}
		w.wroteEntries(p, last)
	}
}

// precedes notes which version takes precedence.
func (w *rollouts) precedes() {
	standing, _ := registered(w.configuration.latest())
	if first := w.versions().First(standing); first != w.first {
		w.changes++
		w.first, w.firstSince, w.forms = first, w.now, nil
	}
}

// otherwise reports whether the registration of a version has other steps than before: those that it kept for a version
// that lives no more, or those that wait no longer.
func (w *rollouts) otherwise(last stored) bool {
	_, before := registered(last)
	_, now := registered(w.configuration.latest())
	return !slices.Equal(before, now) || !maps.Equal(inForce(last), inForce(w.configuration.latest()))
}

func (w *rollouts) wroteLease(p *process, last stored) {
	before := recordsIn(last)
	now := w.versions()
	w.note(p, "the Lease is now %s", tell(now))
	if reflect.DeepEqual(before, now) {
		w.fail("%s writes the Lease although nothing has changed", p)
	}
	w.precedes()
	if p.name == "person" {
		w.ordered = w.now
	}
	w.writesOfLease = append(slices.DeleteFunc(w.writesOfLease, func(t time.Time) bool { return w.now.Sub(t) > 20*time.Second }), w.now)
	if n := len(w.writesOfLease); n > 40+4*w.replicas {
		w.fail("%d writes of the Lease in 20 s: a fight", n)
	}
	for version, r := range now {
		if r.Removed != before[version].Removed || !reflect.DeepEqual(r.Steps, before[version].Steps) {
			w.forms = nil
		}
		if !r.Removed || before[version].Removed || r.Ordered != before[version].Ordered || p.name == "person" {
			continue
		}
		for _, m := range w.callable() {
			if m.version() == version && !m.leaves && w.now.Sub(m.readySince) > w.noticed(m) {
				w.fail("%s takes %s for gone, of which %s runs", p, version, m)
			}
		}
	}
}

func tell(v rollout.Versions) string {
	var all []string
	for _, version := range v.InOrder() {
		r := v[version]
		text := fmt.Sprintf("%s asked %d answered %d", version, r.Probed, r.Answered)
		for _, mark := range []struct {
			text string
			is   bool
		}{{" left", r.Stopping}, {" gone", r.Removed}, {" ordered", r.Ordered}} {
			if mark.is {
				text += mark.text
			}
		}
		all = append(all, text)
	}
	return strings.Join(all, ", ")
}

// run lets a world be, and then come to rest.
func (w *rollouts) run(steps int) *rollouts {
	defer w.stop()
	for w.steps < steps {
		if !w.step() {
			return w
		}
	}
	w.settle()
	return w
}

// settle has nothing start or end any more.
func (w *rollouts) settle() {
	if w.restores > 0 {
		w.restore()
	}
	w.events, w.world.pace = []*event{w.calls}, pace{longest: 100 * time.Millisecond}
	for _, m := range w.running {
		m.release = w.now
		m.process.poke()
	}
	w.waits = min(w.waits, time.Second)
	w.note(fate, "leaves the world alone")
	leaseWrites := 0
	for until := w.now.Add(3 * time.Minute); w.now.Before(until); {
		if !w.step() {
			return
		}
		leaseWrites = len(w.lease.past)
	}
	alive := map[string]bool{}
	for _, m := range w.running {
		alive[m.version()] = true
		if m.readySince.IsZero() {
			w.fail("%s is not ready", m)
		}
	}
	versions := w.versions()
	for version, r := range versions {
		if r.Removed == alive[version] {
			w.fail("%s is gone: %v; replicas of it run: %v", version, r.Removed, alive[version])
		}
		if r.Stopping && !r.Removed {
			w.fail("%s still counts as one of which a replica has just left", version)
		}
	}
	if now, _ := registered(w.configuration.latest()); now != versions.First(now) {
		w.fail("%s is registered, and %s is first", now, versions.First(now))
	}
	w.complete()
	writes := w.writes
	for until := w.now.Add(3 * time.Minute); w.now.Before(until); {
		if !w.step() {
			return
		}
	}
	asked := len(w.lease.past) - leaseWrites
	switch {
	case len(alive) == 1 && w.writes != writes:
		w.fail("%d writes although one version lives", w.writes-writes)
	case w.writes-writes != asked:
		w.fail("%d writes beside those of the Lease", w.writes-writes-asked)
	case asked > 2*19*len(alive)*(len(alive)-1):
		w.fail("%d writes of the Lease in three minutes, by %d versions", asked, len(alive))
	}
}
