package world

// This file is starts of a program: one that may create half of its registration, and one after all replicas of another version were
// killed, and one that is stopped at once. It is also an issuer whose Secret comes back as it was.

import (
	"math/rand/v2"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// halfFor is how long a program is started again and again that may create one of its configurations alone.
const halfFor = 40 * time.Second

// startsHalf has the program start, for the first time, where it may create one of its configurations alone. Each replica ends with an
// error, and leaves no configuration behind. It reports whether it could.
func (w *World) startsHalf() bool {
	w.mu.Lock()
	calm := w.settledSince(time.Now().Add(-settling))
	w.mu.Unlock()
	if !calm || w.plan.Split || w.plan.Unregister || w.plan.Converts || time.Since(w.began) > w.plan.Lasts-quiet-10*time.Minute || !w.moving.TryLock() { // not two of them
		return false
	}
	defer w.moving.Unlock()
	for e := range excuses {
		w.excuse(e, halfFor+w.plan.drain()+2*gracePeriod+2*settling)
	}
	if !w.emptied(false) {
		w.scaleTo(w.plan.Replicas)
		return true
	}
	for _, b := range belongings[:2] {
		w.harms(b)
		w.api.Remove(resources[b.kind], b.namespace, b.name)
	}
	w.observe()
	to := resources[configurations[1]].Resource
	w.tell(fate, "takes the right to create %s, and the registration away", to)
	w.rights.set("create", to, true)
	w.mu.Lock()
	stirred, starts, changes := w.watch.stirred, w.started, len(w.history[configurations[0]])
	w.mu.Unlock()
	w.scaleTo(w.plan.Replicas)
	for began := time.Now(); time.Since(began) < halfFor && w.wait(time.Second); {
		left := w.find(configurations[0], "", belongings[0].name)
		w.mu.Lock()
		if none := len(w.processes) == 0 && w.started > starts && w.watch.stirred.Equal(stirred); none && left != nil {
			w.breaks("every replica has ended, because one configuration must not be created, and has left the %s", configurations[0])
		}
		if n, most := len(w.history[configurations[0]])-changes, 2*(w.started-starts)+2; n > most {
			w.breaks("one configuration must not be created, and %d starts have made and removed the %s: it has changed %d times", w.started-starts, configurations[0], n)
		}
		w.mu.Unlock()
	}
	w.rights.set("create", to, false)
	w.wake()
	return true
}

// revivedWithin is how long it takes at most until a version is registered that starts after all replicas of another one were killed:
// about ten seconds, if nothing else happens.
const revivedWithin = 17 * time.Second

// revives kills all replicas, and then starts another version.
func (w *World) revives(rng *rand.Rand) {
	w.mu.Lock()
	standing, wanted := w.standing(), w.wanted
	others := slices.DeleteFunc(slices.Clone(w.releases), func(r release) bool { return r.declares() == standing })
	w.mu.Unlock()
	if standing == "" || len(others) == 0 || wanted.crashes || !w.moving.TryLock() {
		return
	}
	defer w.moving.Unlock()
	w.excuse(rough, settling+w.plan.drain()+2*gracePeriod)
	if !w.emptied(true) {
		w.scaleTo(w.plan.Replicas)
		return
	}
	to := others[rng.IntN(len(others))]
	w.mu.Lock()
	w.wanted = to
	w.generation++
	stirred := w.watch.stirred
	calm := !w.troubledSince(time.Now().Add(-settling), slow, spoiled, lapsed, apart, strange, unissued, unread)
	w.mu.Unlock()
	w.tell(fate, "rolls out %s, of which none runs yet", to.name)
	began := time.Now()
	w.scaleTo(w.plan.Replicas)
	if !w.wait(revivedWithin + 4*w.plan.Lag) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if now := w.standing(); calm && now == standing && w.watch.stirred.Equal(stirred) && !w.troubledSince(began, slow, spoiled, lapsed, apart, strange, unissued, unread) && w.watch.ordered.Before(began.Add(-time.Hour)) {
		w.breaks("all replicas of the version with the steps %s were killed before %s, in which another one has started, and it is still registered", standing, time.Since(began).Round(time.Second))
	}
}

// putsBack has the Secret of the issuer be as it was, with the certificate that replicas serve: nothing is amiss any more. It returns
// false if that certificate is nearly over.
func (w *World) putsBack(was *unstructured.Unstructured) bool {
	w.mu.Lock()
	fresh := time.Since(w.authorities.madeAt) < issuedFor/2
	w.mu.Unlock()
	if was == nil || !fresh || w.plan.Split || w.plan.filed() {
		return false
	}
	was = was.DeepCopy()
	was.SetResourceVersion("")
	w.tell(named("the issuer"), "puts its Secret back as it was")
	if err := w.api.Put(was); err != nil {
		w.violate("a Secret cannot be put back: %v", err)
	}
	w.mu.Lock()
	w.authorities.unusable = false
	w.mu.Unlock()
	began := time.Now()
	if !w.calm(settling) {
		return true
	}
	now, err := gather()
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := now.of("certificate_failing", "secret="+namespace+"/"+theSecret); err == nil && n != 0 && !w.authorities.unusable && w.watch.stirred.Before(began) && !w.troubledSince(began.Add(settling), strange, evicted) {
		w.breaks("the Secret of the issuer is as it was since %s, and eirinix_certificate_failing is %d", time.Since(began).Round(time.Second), n)
	}
	return true
}

// stopsYoung stops a replica that has opened its port and is not ready, because its steps wait for objects that they read.
func (w *World) stopsYoung() {
	for began := time.Now(); time.Since(began) < 2*time.Minute && w.wait(100*time.Millisecond); {
		w.mu.Lock()
		i := slices.IndexFunc(w.processes, func(p *process) bool {
			return !p.leaving && p.readySince.IsZero() && p.began.After(began.Add(-time.Millisecond)) && p.host.serves() != nil
		})
		var p *process
		if i >= 0 {
			p = w.processes[i]
		}
		w.mu.Unlock()
		if p != nil {
			w.wait(time.Second)
			p.leaves()
			p.terminate()
			w.wake()
			return
		}
	}
}
