package world

// This file is a Watcher of pods beside the steps, and what it must be told: each change of a pod since the watch began, once,
// also those that came while it was interrupted.

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"code.cloudfoundry.org/eirinix"
)

// watches reports whether the program has a Watcher. A restore takes pods back, a program ends without the right to watch them, and
// an audit asks about all of them.
func (p Plan) watches() bool { return p.Seed%8 == 6 && !p.audits() && p.settled("restore", "right") }

const (
	watchedPods = 5 // names
	// movesWithin is the longest time between two changes of them.
	movesWithin = 90 * time.Second

	// around is how long before or after the first list a change may be in it or not.
	around = 15 * time.Second
)

// life is that of a pod.
type life struct {
	made, changed, gone time.Time
	version             string
}

// sighting is the last event of a pod that a Watcher was told.
type sighting struct {
	version string
	gone    bool
}

// observer is the Watcher of a replica.
type observer struct {
	w    *World
	p    *process
	from time.Time              // since when it is to be told of each change, by WatcherStartRV; zero for from its start on
	seen map[types.UID]sighting // guarded by World.mu
}

// resumes gives a program the place in the history of pods from which its Watcher is told of changes, in half of the worlds.
func (o *observer) resumes(to *eirinix.ManagerOptions) {
	o.w.mu.Lock()
	defer o.w.mu.Unlock()
	if last := o.w.watch.moved; o.w.plan.Seed%16 == 6 && last.version != "" {
		to.WatcherStartRV, o.from = last.version, last.changed.Add(time.Millisecond)
	}
}

// began returns when it began to be told of changes, but for those that may be in a list or not; zero if that is not known.
func (o *observer) began() time.Time {
	if listed := o.p.wire.began(); o.from.IsZero() || !listed.IsZero() { // a state that is no longer in the history is listed
		return listed
	}
	return o.from.Add(-around)
}

// Handle takes an event. It returns at once.
func (o *observer) Handle(_ eirinix.Manager, e watch.Event) {
	pod, ok := e.Object.(*corev1.Pod)
	if !ok {
		o.w.violate("the Watcher of %s is told of a %T", o.p, e.Object)
		return
	}
	w := o.w
	w.mu.Lock()
	defer w.mu.Unlock()
	lived := w.watch.pods[pod.UID]
	was, known := o.seen[pod.UID]
	switch {
	case lived == nil:
		w.breaks("the Watcher of %s is told of the pod %s, which there never was", o.p, pod.UID)
		return
	case was.gone:
		w.breaks("the Watcher of %s is told %s of the pod %s, which it was told is gone", o.p, e.Type, pod.UID)
	case known && e.Type == watch.Added:
		w.breaks("the Watcher of %s is told twice that the pod %s is new", o.p, pod.UID)
	case known && e.Type == watch.Modified && was.version == pod.ResourceVersion:
		w.breaks("the Watcher of %s is told twice of one state of the pod %s", o.p, pod.UID)
	case e.Type == watch.Added && lived.made.Add(around).Before(o.p.began) && o.from.IsZero():
		w.breaks("the Watcher of %s is told that the pod %s is new, which was there before it", o.p, pod.UID)
	case !known && e.Type == watch.Modified && !o.began().IsZero() && lived.made.After(o.began().Add(around)):
		w.breaks("the Watcher of %s is told of a change of the pod %s, and never that it is new", o.p, pod.UID)
	}
	o.seen[pod.UID] = sighting{pod.ResourceVersion, e.Type == watch.Deleted}
}

// lists notes when pods were listed for the first time.
func (c *wire) lists(r *http.Request, status int) {
	if status != http.StatusOK || r.Method != http.MethodGet || !strings.HasSuffix(r.URL.Path, "/pods") || strings.Contains(r.URL.RawQuery, "watch=") {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.listed.IsZero() {
		c.listed = time.Now()
	}
}

// began returns that time.
func (c *wire) began() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.listed
}

// movesPods makes pods, changes them and deletes them. No step sees that.
func (w *World) movesPods() {
	rng, made := w.stream("watched pods", 0), 0
	var uids [watchedPods]types.UID
	for w.wait(time.Duration(rng.Int64N(int64(movesWithin)))) {
		i := rng.IntN(watchedPods)
		name := fmt.Sprint("watched", i)
		w.mu.Lock()
		if w.watch.pods == nil {
			w.watch.pods = map[types.UID]*life{}
		}
		w.knows(uids[i])
		now := time.Now()
		if uids[i] != "" && rng.IntN(3) == 0 {
			w.watch.pods[uids[i]].gone = now
			w.api.Remove(corev1.Resource("pods"), "shop", name)
			uids[i] = ""
			w.mu.Unlock()
			continue
		}
		if uids[i] == "" {
			made++
			uids[i] = types.UID(fmt.Sprint(name, "-", made))
			w.watch.pods[uids[i]] = &life{made: now}
		}
		err := w.api.Put(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: uids[i], Labels: map[string]string{"moved": fmt.Sprint(now.Unix())}}})
		if found := w.api.Find("Pod", "shop", name); found != nil {
			w.watch.pods[uids[i]].changed, w.watch.pods[uids[i]].version = now, found.GetResourceVersion()
			w.watch.moved = *w.watch.pods[uids[i]]
		}
		w.mu.Unlock()
		if err != nil {
			w.violate("a pod cannot be changed: %v", err)
		}
	}
}

// toldAll sees that the Watcher of a replica at rest knows all pods as they are.
func (w *World) toldAll(o *observer) {
	began := o.began()
	w.mu.Lock()
	defer w.mu.Unlock()
	if began.IsZero() {
		w.breaks("at rest, %s has never listed pods, which it watches", o.p)
		return
	}
	for uid, lived := range w.watch.pods {
		was, known := o.seen[uid]
		last := later(lived.changed, lived.gone)
		switch {
		case last.Before(began.Add(around)) || time.Since(last) < 2*movesWithin: // it was there, or is not told yet
		case !lived.gone.IsZero() && !was.gone && (known || lived.made.Add(around).Before(began)):
			w.breaks("at rest, the Watcher of %s was never told that the pod %s is gone", o.p, uid)
		case lived.gone.IsZero() && was.version != lived.version:
			w.breaks("at rest, the Watcher of %s knows the version %q of the pod %s, which is %s", o.p, was.version, uid, lived.version)
		}
	}
}

// knows sees that all Watchers know a pod that is to change, if nothing has kept them from it for a while. The caller holds mu.
func (w *World) knows(uid types.UID) {
	lived := w.watch.pods[uid]
	if lived == nil || time.Since(lived.changed) < settling || w.troubledSince(time.Now(), rough, slow, apart) {
		return
	}
	for _, p := range w.processes {
		if p.watcher == nil || p.leaving || p.watcher.began().IsZero() || lived.changed.Before(p.watcher.began().Add(around)) {
			continue
		}
		if was := p.watcher.seen[uid]; was.version != lived.version {
			w.breaks("the Watcher of %s knows the version %q of the pod %s, which is %s since %s", p, was.version, uid, lived.version, time.Since(lived.changed).Round(time.Second))
		}
	}
}
