package controller_test

// This file is about harm that is done to the world of the model of rollouts.

import (
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"code.cloudfoundry.org/eirinix/internal/controller"
)

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
