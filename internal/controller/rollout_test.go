package controller_test

// This file lets the model of rollouts run. The loop, its decisions, and the questions and answers are the shipped ones. It
// also checks which steps are in force, and does harm to the model's world. An entry goes only when no live version declares
// its step, or a person orders it. A step that waits is not added, and waits no longer once it is in force.

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"code.cloudfoundry.org/eirinix/internal/controller"
	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

var usually = course{
	pace: pace{slow: 0.02, longest: 600 * time.Millisecond}, replicas: 4, versions: 2,
	turnover: 15 * time.Second, calls: time.Second, lag: 2 * time.Second,
}

type turn func(*course)

func with(turns ...turn) course {
	c := usually
	for _, t := range turns {
		t(&c)
	}
	return c
}

func waiting(c *course) {
	c.replicas, c.versions, c.astray, c.waits, c.deletes = 5, 4, 0.4, 20*time.Second, 3*time.Minute
}

func harmed(c *course) {
	c.versions, c.restores, c.outages, c.edits = 3, 5*time.Minute, 3*time.Minute, 2*time.Minute
}

func polling(c *course) { c.polls, c.turnover = 0.5, 20*time.Second }

var rolloutWorlds = []struct {
	name string
	course
}{
	{"three replicas, two versions", with(func(c *course) { c.replicas = 3 })},
	{"six replicas, four versions", with(func(c *course) { c.replicas, c.versions = 6, 4 })},
	{"twenty replicas, three versions", with(func(c *course) { c.replicas, c.versions, c.turnover = 20, 3, 4*time.Second })},
	{"a person orders", with(func(c *course) { c.versions, c.orders = 3, time.Minute })},
	{"steps wait", with(waiting)},
	{"steps wait, and a person orders", with(waiting, func(c *course) { c.orders = time.Minute })},
	{"etcd is restored, and edited", with(harmed)},
	{"some replicas poll", with(polling)},
}

var _ = Describe("A rollout", Label("slow", "sequential"), func() {
	steps, seed := volume(rolloutSteps)
	for i, of := range rolloutWorlds {
		It("fails no call, skips no step, and comes to an end: "+of.name, func() {
			done, changes, calls, again := 0, 0, 0, 0
			for seed := seed + uint64(i)<<12; done < steps/len(rolloutWorlds); seed++ {
				w := bubble(func() *rollouts { return newRollouts(of.course, seed).run(min(6_000, steps/len(rolloutWorlds))) })
				holds(w.world)
				done, changes, calls, again = done+w.steps, changes+w.changes, calls+w.calledAt, again+w.again
			}
			Expect(changes).To(BeNumerically(">=", max(1, done/40_000)), "the world is not worth its name")
			AddReportEntry(fmt.Sprintf("%d steps, %d changes of the registration, %d calls, %d of them repeated", done, changes, calls, again), ReportEntryVisibilityFailureOrVerbose)
		})
	}

	DescribeTable("with a broken rule is noticed",
		func(as string, turns ...turn) {
			w := bubble(func() *rollouts {
				var w *rollouts
				for seed := range uint64(20) {
					if w = newRollouts(with(turns...), seed).run(5_000); w.violation != "" {
						break
					}
				}
				return w
			})
			is(w.world, as)
		},
		Entry("a version that hears of a question too late", "takes v", turn(func(c *course) { c.longest, c.slow = 25*time.Second, 0.3 })),
		Entry("paths of a later version, without its steps", "which came later, without step",
			turn(func(c *course) { c.versions, c.orders, c.broken.lenient = 4, 10*time.Second, true })),
		Entry("versions that do not know each other", "for 0 changes", turn(func(c *course) { c.broken.apart = true })),
		Entry("a configuration that is written by a late copy of the Lease", "writes the entries of",
			turn(func(c *course) { c.orders, c.slow, c.calls, c.broken.late = 10*time.Second, 0.2, time.Hour, true })),
		Entry("a step that is not declared while it waits", "out of force", turn(waiting), turn(func(c *course) { c.replicas, c.waits, c.calls, c.broken.dropping = 2, 2*time.Minute, time.Hour, true })),
		Entry("a replica that does not say that it polls", "takes ", turn(polling), turn(func(c *course) { c.broken.unsaid = true })),
	)
})

// widget is a kind that some replicas do not find served. All steps of it wait together.
var (
	widget  = schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Widget"}
	widgets = []admissionregistrationv1.RuleWithOperations{{
		Operations: []admissionregistrationv1.OperationType{"CREATE"},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{"example.org"}, APIVersions: []string{"v1"}, Resources: []string{"widgets"}},
	}}
)

// waits has some steps of a replica that starts wait.
func (m *member) waits() {
	w := m.w
	if w.course.waits > 0 && w.chance(0.5) {
		if w.chance(0.5) {
			m.waiting = append(m.waiting, widget.Kind)
		}
		for _, s := range m.Steps {
			if s.Kind != widget && w.chance(0.5) {
				m.waiting = append(m.waiting, s.Name)
			}
		}
		m.release = w.now.Add(w.after(w.course.waits))
	}
	m.registered = m.registration()
}

// ceases has one of them wait no longer.
func (m *member) ceases() {
	i := m.w.rng.IntN(len(m.waiting))
	m.w.note(m, "%s waits no longer", m.waiting[i])
	m.waiting = slices.Delete(m.waiting, i, i+1)
	m.release = m.w.now.Add(m.w.after(m.w.course.waits))
}

func (m *member) unserved() bool { return slices.Contains(m.waiting, widget.Kind) }

// lacks reports whether the replica knows the purpose of a path from others alone.
func (m *member) lacks(path string) bool {
	own := m.declared[path]
	return m.unserved() && len(own) > 0 && strings.HasSuffix(own[0], widget.Kind)
}

// registration is the declaration of the replica now.
func (m *member) registration() webhookconf.Registration {
	r := m.Registration
	r.Steps = nil
	for _, s := range m.Steps {
		waits, unserved := slices.Contains(m.waiting, s.Name), m.unserved() && s.Kind == widget
		switch {
		case m.w.broken.dropping && (waits || unserved):
			r.Version += "-" + s.Name
		case unserved:
			r.Unserved = append(r.Unserved, webhookconf.Step{Name: s.Name})
		default:
			s.Waits = waits
			r.Steps = append(r.Steps, s)
		}
	}
	return r
}

// reads is called with each object that the replica reads. It notes since when the replica knows that a step is in force.
func (m *member) reads(object client.Object) {
	if kindOf(object) != webhookconf.Mutating.Name {
		return
	}
	for key := range inForce(stored{object: object}) {
		if _, known := m.saw[key]; !known {
			m.saw[key] = m.w.now
		}
	}
}

// inForce are the keys of the steps that a configuration calls, each with a path.
func inForce(of stored) map[string]string {
	force := map[string]string{}
	if of.object == nil {
		return force
	}
	var says struct{ Steps map[string][]string }
	_ = json.Unmarshal([]byte(of.object.GetAnnotations()[webhookconf.StepsAnnotation]), &says)
	for _, c := range clientConfigs(of.object) {
		for _, key := range says.Steps[c.path()] {
			force[key] = c.path()
		}
	}
	return force
}

// writer returns the replica, or the stand-in for a person, that a process is.
func (w *rollouts) writer(p *process) (m *member, person bool) {
	for _, m := range w.running {
		if m.process == p {
			return m, false
		}
	}
	return &member{w: w, process: p, programVersion: w.persons[p]}, true
}

// declaring returns who lives and declares a step: a version, or a replica. A person's order is about all versions.
func (w *rollouts) declaring(key string, by *member, person bool) string {
	for _, of := range w.programs {
		since, lives := w.alive[of.Version]
		if lives = lives && w.now.Sub(since) > w.hears(); person {
			lives = of.Version == by.Version
		}
		if lives && slices.Contains(of.steps(), key) {
			return of.Version
		}
	}
	for _, m := range w.callable() {
		if !person && !m.leaves && w.now.Sub(m.readySince) > w.hears() && slices.Contains(m.steps(), key) {
			return m.String()
		}
	}
	return ""
}

// wroteEntries looks at a write of the configuration.
func (w *rollouts) wroteEntries(p *process, last stored) {
	m, person := w.writer(p)
	if w.versions()[m.version()].Ordered && w.now.Sub(w.ordered) < w.hears() {
		person = true // it is the first to carry out a person's order
	}
	before, after := inForce(last), inForce(w.configuration.latest())
	was, _ := registered(last)
	is, paths := registered(w.configuration.latest())
	for key, path := range before {
		// A version's entry takes the place of another version's on the same path.
		replaced := slices.Contains(paths, path) && was != is
		if _, stays := after[key]; stays || replaced {
			continue
		}
		if who := w.declaring(key, m, person); who != "" {
			w.fail("%s takes step %s out of force, which %s declares", p, key, who)
		}
	}
	for _, s := range m.Steps {
		_, added := after[s.Key()]
		_, there := before[s.Key()]
		_, seen := m.saw[s.Key()]
		waits := slices.Contains(m.waiting, s.Name) || m.unserved() && s.Kind == widget
		if added && !there && !seen && waits {
			w.fail("%s adds step %s, which waits", p, s.Key())
		}
		if since, seen := m.saw[s.Key()]; seen && !added && s.Kind != widget && w.now.Sub(since) > w.hears() {
			w.fail("%s leaves step %s out of force, which it has seen in force", p, s.Key())
		}
	}
	if w.forms == nil {
		w.forms = map[string]int{}
	}
	form := w.configuration.latest().object.GetAnnotations()[webhookconf.StepsAnnotation]
	if w.forms[form]++; w.forms[form] > 2 {
		w.fail("%s writes %s again and again: a fight", p, form)
	}
}

// complete expects that in the end all steps of the version that is first are in force.
func (w *rollouts) complete() {
	force := inForce(w.configuration.latest())
	for _, of := range w.programs {
		for _, key := range of.steps() {
			if _, is := force[key]; of.Version == w.first && !is {
				w.fail("step %s of %s, which is first, is not in force", key, w.first)
			}
		}
	}
}

// noticed bounds the time from which a version is not taken for gone while a replica runs.
func (w *rollouts) noticed(m *member) time.Duration {
	if m.process.polls {
		return time.Minute
	}
	return 15 * time.Second
}

// edited is a number that a person writes into a record.
const edited = 1 << 20

// harmed begins anew with the expectations of the registration.
func (w *rollouts) harmed() {
	w.changes++
	w.firstSince, w.forms = w.now, nil
	clear(w.alive)
	w.precedes()
	w.disturbs(w.now)
}

// disturbs has API servers call nothing until all processes have heard of something.
func (w *rollouts) disturbs(at time.Time) {
	if calm := at.Add(w.hears()); calm.After(w.calm) {
		w.calm = calm
	}
}

// restore gives all objects the state again that they had some minutes ago. Their versions count up from there.
func (w *rollouts) restore() {
	then := w.now.Add(-w.after(2 * time.Minute))
	w.note(fate, "restores a backup of %s ago", w.now.Sub(then))
	w.world.versions = 0
	for _, o := range w.objects {
		was := stored{at: w.now, fault: true}
		for _, past := range o.past {
			if !past.at.After(then) {
				was.object, was.version = past.object, past.version
			}
		}
		w.world.versions = max(w.world.versions, was.version)
		w.becomes(o, was)
	}
	w.harmed()
}

// outage cuts off all processes for a while. Each notices by a probe that it is over.
func (w *rollouts) outage() {
	if w.now.Before(w.down) {
		return
	}
	d := 2*time.Second + min(w.after(20*time.Second), time.Minute)
	w.note(fate, "is an outage of %s", d)
	w.down = w.now.Add(d)
	for _, p := range w.processes {
		p.back = w.down.Add(time.Duration(w.rng.Int64N(int64(min(d, maxPoll)))))
		p.silent = p.back.Add(p.skew + maxPoll + min(3*d, 15*time.Second))
		p.newsAt = time.Time{}
		for _, o := range w.objects {
			late := p.back.Add(time.Duration(w.rng.Int64N(int64(3 * time.Second))))
			for i := range p.views[o].news {
				p.views[o].news[i] = late
			}
			if len(p.views[o].news) > 0 && (p.newsAt.IsZero() || late.Before(p.newsAt)) {
				p.newsAt = late
			}
		}
		if p.back.After(w.cut) {
			w.cut = p.back
		}
	}
	w.disturbs(w.cut)
}

// outages is what a replica's cluster.API says of them.
type outages struct{ *member }

func (o outages) SilentUntil() time.Time {
	p := o.process
	if p.w.now.Before(p.back) {
		return p.now().Add(controller.LastRetry) // what it decides to do may be done when the outage is over
	}
	return p.silent
}

// remove deletes the configuration.
func (w *rollouts) remove() {
	if w.configuration.latest().object == nil {
		return
	}
	w.note(fate, "deletes the configuration")
	w.put(w.configuration, nil, true)
	w.harmed()
}

// edit changes a number of a record.
func (w *rollouts) edit() {
	versions := w.versions()
	if len(versions) == 0 {
		return
	}
	all := slices.Sorted(maps.Keys(versions))
	version := all[w.rng.IntN(len(all))]
	r := versions[version]
	if number := []int64{1<<53 - 1, -1, 0, edited}[w.rng.IntN(4)]; number > 0 && w.chance(0.2) {
		r.Probed = number
	} else {
		r.Ordinal = number
	}
	versions[version] = r
	lease := w.lease.latest().object.DeepCopyObject().(*unstructured.Unstructured)
	lease.SetAnnotations(versions.Write(lease.GetAnnotations()))
	w.note(fate, "edits the record of %s: %+v", version, r)
	w.put(w.lease, lease, true)
	w.disturbs(w.now) // another order of arrival shows in the routes
	w.precedes()
}
