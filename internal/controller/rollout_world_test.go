package controller_test

// This file is the world of the model of rollouts: replicas of several versions of a program that start, stop and crash,
// one Lease, one webhook configuration, and API servers that call a replica at random by a version of it.

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"code.cloudfoundry.org/eirinix/internal/ca"
	"code.cloudfoundry.org/eirinix/internal/controller"
	"code.cloudfoundry.org/eirinix/internal/rollout"
	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

// ways in which a rule of rollouts is broken, by lies of the world.
type ways struct {
	mute      bool // no version sees that it is asked
	lenient   bool // the paths of later versions are answered like those of earlier ones
	apart     bool // versions do not know each other
	late      bool // the Lease is never read anew
	eager     bool // a replica is called before it is ready
	forgetful bool // the paths of other versions are not answered
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
	settled              bool
}

// batch is how many replicas start or end together.
func (c course) batch() int { return max(1, c.replicas/4) }

// programVersion is the registration of one version.
type programVersion struct {
	desired webhookconf.Desired
	record  rollout.Record
}

func (p programVersion) steps() (all []string) {
	for _, path := range slices.Sorted(maps.Keys(p.record.Steps)) {
		all = append(all, p.record.Steps[path]...)
	}
	return all
}

// authority is the CA that all replicas have registered.
var authority = controller.Fixed(must(ca.New("spec", time.Hour, dawn)).CertificatePEM)

func newRollouts(c course, seed uint64) *rollouts {
	w := &rollouts{world: newWorld(c.pace, seed), course: c, living: map[string]time.Time{}}
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
	w.every(c.calls, w.admit)
	return w
}

// program makes a version of some of five steps on some of three paths. All versions have step a, not all on one path.
func (w *rollouts) program(i int) programVersion {
	version := fmt.Sprint("v", i+1)
	steps := map[string][]string{}
	for s, step := range []string{"a", "b", "c", "d", "e"} {
		if s > 0 && w.chance(0.4) {
			continue
		}
		path := fmt.Sprint("p", s%3)
		if w.chance(0.3) {
			path = fmt.Sprint("p", w.rng.IntN(3))
		}
		steps[path] = append(steps[path], step)
	}
	d := desired(version, slices.Sorted(maps.Keys(steps))...)
	d.Entries = slices.DeleteFunc(d.Entries, func(e webhookconf.Entry) bool { return e.Validating })
	r := rollout.Record{Target: "Service eirinix/logger", Steps: map[string][]string{}}
	for path, of := range steps {
		r.Steps["/mutate/"+path] = of
	}
	return programVersion{d, r}
}

// member is a replica.
type member struct {
	w       *rollouts
	process *process
	programVersion
	loop       *controller.Controller
	routes     map[string]rollout.Route
	readySince time.Time // zero: it is not called
	leaves     bool      // it is to stop
	called     time.Time // until when it is called then: API servers hear of it before its version is given up
	left       time.Time // when it ends
}

func (m *member) String() string { return m.process.name }

func (m *member) version() string { return m.desired.Version }

func (w *rollouts) begin(of programVersion) {
	w.started++
	p := w.newProcess(fmt.Sprintf("%s/%d", of.desired.Version, w.started), time.Duration(w.rng.Int64N(int64(2*time.Second))))
	m := &member{w: w, process: p, programVersion: of}
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
	cache := copies{process: p}
	if w.broken.mute {
		cache.change = func(object client.Object) {
			if lease, ok := object.(*coordinationv1.Lease); ok {
				found := rollout.Read(lease.Annotations)
				if r, known := found[m.version()]; known {
					r.Answered = r.Asked
					found[m.version()] = r
					lease.Annotations = found.Write(lease.Annotations)
				}
			}
		}
	}
	config := controller.Config{
		Cache: cache, Configurations: configurationsOf{p: p}.all(), Leases: leasesOf(p), Namespace: namespace, LeaseName: leaseName,
		Certificates: authority, Desired: m.desired, Record: m.record, Registers: true, Lives: true,
		Serve: func(routes map[string]rollout.Route) { m.routes = routes },
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
		config.Leases = nil
	}
	if w.broken.late {
		config.Leases = requests[*coordinationv1.Lease]{p: p, of: newLease, change: func(lease *coordinationv1.Lease) {
			if last, _ := p.copied(w.lease); last.object != nil {
				last.object.(*coordinationv1.Lease).DeepCopyInto(lease)
			}
		}}
	}
	if w.broken.eager {
		m.readySince = w.now
	}
	if !w.broken.eager {
		m.routes = rollout.RoutesIn(context.Background(), cache, namespace, leaseName)
	}
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
		next, _ := p.reconcile(m.loop, &failures)
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
	starts := len(w.running) < w.replicas || len(w.running) < w.replicas+w.batch() && w.chance(0.5)
	for range w.batch() {
		if !starts {
			w.turnOff()
			continue
		}
		of := w.target
		if w.chance(0.1) {
			of = w.programs[w.rng.IntN(len(w.programs))]
		}
		w.begin(of)
	}
}

// turnOff ends a replica. One stays that is called.
func (w *rollouts) turnOff() {
	m := w.running[w.rng.IntN(len(w.running))]
	for range 10 {
		if m.version() == w.target.desired.Version || m.leaves {
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
	if len(all) == 0 {
		return
	}
	of := all[w.rng.IntN(len(all))].programVersion
	p := w.newProcess("person", 0)
	w.note(p, "orders %s", of.desired.Version)
	p.start(func() {
		c := controller.New(controller.Config{
			Cache: copies{process: p}, Configurations: configurationsOf{p: p}.all(), Leases: leasesOf(p), Namespace: namespace,
			LeaseName: leaseName, Certificates: authority, Desired: of.desired, Record: of.record,
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
		paths = append(paths, *c.Service.Path)
	}
	return of.object.GetAnnotations()[webhookconf.VersionAnnotation], paths
}

// admit has an API server call for one object, by any configuration that it may hold.
func (w *rollouts) admit() {
	held := w.configuration.heldAt(w.now, w.lag)
	if len(held) == 0 {
		return
	}
	by := held[w.rng.IntN(len(held))]
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
			if w.orders == 0 {
				w.fail("%s answers 503 on %s, which %s registers; it knows %s", m, path, version, tell(m.known()))
				return
			}
			if try == 1 && !slices.ContainsFunc(all, func(m *member) bool { return m.version() == version }) {
				return // a version that a person has put before others, and has stopped since
			}
			if try == 10*len(all) { // an API server tries ten times; a balancer that is fair finds one
				w.fail("no replica answers on %s, which %s registers", path, version)
				return
			}
		}
	}
	for _, step := range w.common() {
		if !ran[step] {
			w.fail("an object skips step %s, which every living version has, by the registration of %s", step, version)
		}
	}
}

func (m *member) known() rollout.Versions {
	last, _ := m.process.copied(m.w.lease)
	if last.object == nil {
		return nil
	}
	return rollout.Read(last.object.(*coordinationv1.Lease).Annotations)
}

// answer is the root package's chains: the steps that run on a path, unless it is none of this replica's.
func (m *member) answer(path string) (steps []string, ok bool) {
	own, ours := m.record.Steps[path]
	route, theirs := m.routes[path]
	if m.w.broken.forgetful {
		theirs = false
	}
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
	if _, own := m.record.Steps[path]; own || !known || of.Came <= versions[m.version()].Came {
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
	lease, ok := w.lease.latest().object.(*coordinationv1.Lease)
	if !ok {
		return nil
	}
	return rollout.Read(lease.Annotations)
}

// hears bounds the time until API servers call by the configuration of the version that replaces another.
func (w *rollouts) hears() time.Duration { return w.lag + 8*w.longestPause() + 5*time.Second }

func (w *rollouts) longestPause() time.Duration { return w.course.longest }

// common are the steps that all versions have which live, or did so a moment ago.
func (w *rollouts) common() []string {
	var common []string
	for _, of := range w.programs {
		if until, known := w.living[of.desired.Version]; !known || w.now.Sub(until) > w.hears() {
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
		if !r.Gone {
			w.living[version] = w.now
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
		w.note(p, "the registration is now that of %s", after)
		if before == after && last.object != nil {
			w.fail("%s writes the configuration although nothing has changed", p)
		}
		w.entries++
		if w.entries > w.changes {
			w.fail("%s writes the entries of %s: the %d. time, for %d changes of the version that is first", p, after, w.entries, w.changes)
		}
		if w.first != after && w.now.Sub(w.firstSince) > controller.PassTimeout {
			w.fail("%s registers %s, while %s is first", p, after, w.first)
		}
	}
}

func (w *rollouts) wroteLease(p *process, last stored) {
	before := rollout.Versions{}
	if lease, ok := last.object.(*coordinationv1.Lease); ok {
		before = rollout.Read(lease.Annotations)
	}
	now := w.versions()
	w.note(p, "the Lease is now %s", tell(now))
	if reflect.DeepEqual(before, now) {
		w.fail("%s writes the Lease although nothing has changed", p)
	}
	if first := now.First(); first != w.first {
		w.changes++
		w.first, w.firstSince = first, w.now
	}
	for version, r := range now {
		if !r.Gone || before[version].Gone || r.Ordered != before[version].Ordered || p.name == "person" {
			continue
		}
		for _, m := range w.callable() {
			if m.version() == version && !m.leaves && w.now.Sub(m.readySince) > 15*time.Second {
				w.fail("%s takes %s for gone, of which %s runs", p, version, m)
			}
		}
	}
}

func tell(v rollout.Versions) string {
	var all []string
	for _, version := range v.InOrder() {
		r := v[version]
		text := fmt.Sprintf("%s asked %d answered %d", version, r.Asked, r.Answered)
		for _, mark := range []struct {
			text string
			is   bool
		}{{" left", r.Left}, {" gone", r.Gone}, {" ordered", r.Ordered}} {
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
	calls := w.events[len(w.events)-1]
	w.events, w.world.pace = []*event{calls}, pace{longest: 100 * time.Millisecond}
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
		if r.Gone == alive[version] {
			w.fail("%s is gone: %v; replicas of it run: %v", version, r.Gone, alive[version])
		}
	}
	if now, _ := registered(w.configuration.latest()); now != versions.First() {
		w.fail("%s is registered, and %s is first", now, versions.First())
	}
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
	w.settled = true
}
