package controller_test

// This file is about the steps that are in force in the model of rollouts, and about harm that is done to its world. An entry
// goes only when no live version declares its step, or a person orders it. A step that waits is not added, and waits no longer
// once it is in force.

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"code.cloudfoundry.org/eirinix/internal/controller"
	"code.cloudfoundry.org/eirinix/internal/rollout"
	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

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

// lacks reports whether the replica knows only from others what a path is for.
func (m *member) lacks(path string) bool {
	own := m.declared[path]
	return m.unserved() && len(own) > 0 && strings.HasSuffix(own[0], widget.Kind)
}

// registration is what the replica declares now.
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

// reads is called with each object that the replica reads. The world may lie to it.
func (m *member) reads(object client.Object) {
	w := m.w
	switch kind := kindOf(object); {
	case kind == "Lease":
		found := rollout.Read(object.GetAnnotations())
		own, known := found[m.version()]
		if w.broken.mute {
			own.Answered = own.Probed
		}
		if w.broken.uncleared && own.Probed <= own.Answered {
			own.Stopping = false
		}
		if known {
			found[m.version()] = own
		}
		for version, r := range found {
			if w.broken.ignoring && r.Ordinal > edited {
				delete(found, version)
			}
		}
		object.SetAnnotations(found.Write(object.GetAnnotations()))
	case kind == webhookconf.Mutating.Name:
		if w.broken.arrival {
			annotations := object.GetAnnotations()
			before, first := annotations[webhookconf.VersionAnnotation], w.versions().First("")
			annotations[webhookconf.VersionAnnotation] = first
			annotations[webhookconf.StepsAnnotation] = strings.Replace(annotations[webhookconf.StepsAnnotation], before, first, 1)
			object.SetAnnotations(annotations)
		}
		for key := range inForce(stored{object: object}) {
			if _, known := m.saw[key]; !known {
				m.saw[key] = w.now
			}
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

// writer returns the replica, or what stands for a person, that a process is.
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
		person = true // it is the first to do what a person has ordered
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

// harmed begins anew with what is expected of the registration.
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

// restore has all objects be again what they were some minutes ago. Their versions count up from there.
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
	switch {
	case o.w.broken.blind:
		return time.Time{}
	case p.w.now.Before(p.back):
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
	if number := []int64{1<<53 - 1, -1, 0, edited}[w.rng.IntN(4)]; number > 0 && w.chance(0.2) && !w.broken.ignoring {
		r.Probed = number
	} else {
		r.Ordinal = number
	}
	if w.broken.ignoring {
		r.Ordinal = edited
	}
	versions[version] = r
	lease := w.lease.latest().object.DeepCopyObject().(*unstructured.Unstructured)
	lease.SetAnnotations(versions.Write(lease.GetAnnotations()))
	w.note(fate, "edits the record of %s: %+v", version, r)
	w.put(w.lease, lease, true)
	w.disturbs(w.now) // another order of arrival shows in the routes
	w.precedes()
}
