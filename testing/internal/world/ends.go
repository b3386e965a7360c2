package world

// This file is the end of a process: what a stop leaves as it is until the last call, what Run returns, and which faults end no
// process. It is also versions of which the last replica is killed.

import (
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"code.cloudfoundry.org/eirinix/diagnosis"
	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

// lasts sees that the context of a program that stops does not end before it.
func (w *World) lasts(p *process) {
	select {
	case <-p.manager.GetContext().Done():
		select {
		case <-p.ended:
		default:
			w.violate("%s is stopping, and the context that its handlers may use has ended before its last call", p)
		}
	default:
	}
}

// saysSo sees that a program which stops has recorded that in the Lease, a second later. Another replica of its version may have
// contradicted by then.
func (w *World) saysSo(p *process) {
	calm := w.plan.Lag < time.Second && !w.plan.Split
	for _, verb := range []string{"get", "watch", "update"} {
		calm = calm && w.rights.held(verb, "leases")
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !calm || p.readySince.IsZero() || time.Since(p.readySince) < settling || w.watch.leftAt[p.release.declares()].Add(2*time.Second).After(time.Now()) || !w.settledSince(time.Now().Add(-settling)) {
		return
	}
	w.breaks("%s is stopping, and has not said so in the Lease", p)
}

// endsWell looks at the result of Run for a process that was told to stop. The caller holds mu.
func (w *World) endsWell(p *process) {
	switch {
	case !p.told || w.plan.Unregister || w.troubledSince(p.began, rough, slow, spoiled, lapsed, apart, unissued, strange): // it may have failed by itself
	case p.err != nil:
		w.breaks("%s was told to stop, and Run returns an error: %v", p, p.err)
	case p.manager.GetContext().Err() == nil:
		w.breaks("%s has ended, and its context lasts", p)
	}
}

// outlived looks at a process that has ended by itself amid an outage, which it is to wait for. The caller holds mu.
func (w *World) outlived(p *process) {
	if p.err != nil && !strings.Contains(p.err.Error(), taken) && w.excused(slow, p.began) && w.plan.settled("right") && !w.troubledSince(p.began, spoiled, lapsed, strange, unissued) {
		w.breaks("%s has ended by itself, in an outage: %v", p, p.err)
	}
}

// killedWithin is how long it takes at most until another version is registered after the last replica of one was killed: about
// 20 s, if nothing else happens.
const killedWithin = 26 * time.Second

// diesOut rolls out a version, stops halfway, and kills all replicas of the one that is registered.
func (w *World) diesOut(f Fault, rng *rand.Rand) {
	w.mu.Lock()
	calm := !w.troubledSince(time.Now(), rough, slow, spoiled, lapsed, apart, strange, unissued, unread, evicted)
	w.mu.Unlock()
	if !calm || !w.mixes(f, rng) || !w.wait(30*time.Second) || !w.isMixed() {
		return
	}
	w.tellsVersions()
	w.mu.Lock()
	standing := w.standing()
	stays := slices.ContainsFunc(w.processes, func(p *process) bool { return p.release.declares() != standing && !p.leaving && !p.readySince.IsZero() })
	all := slices.DeleteFunc(slices.Clone(w.processes), func(p *process) bool { return p.release.declares() != standing || p.leaving })
	calm = !w.troubledSince(time.Now().Add(-settling), rough, slow, spoiled, lapsed, apart, strange, unissued, unread)
	stirred, again := w.watch.stirred, w.wanted.declares() == standing // it comes back
	w.mu.Unlock()
	if standing == "" || !stays || again || len(all) == 0 {
		return
	}
	w.excuse(rough, settling)
	began := time.Now()
	for _, p := range all {
		p.kill()
	}
	w.wake()
	if !w.wait(killedWithin + 2*w.plan.Lag) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	back := func(p *process) bool { return p.release.declares() == standing } // which the Deployment has started
	if now := w.standing(); calm && now == standing && !slices.ContainsFunc(w.processes, back) && w.watch.stirred.Equal(stirred) && !w.troubledSince(began, slow, spoiled, lapsed, apart, strange, unissued) && !w.watch.ordered.After(began.Add(-time.Hour)) {
		w.breaks("the last replica of the version with the steps %s was killed %s ago, and it is still registered", standing, time.Since(began).Round(time.Second))
	}
}

// standing returns the steps of the version that is registered. The caller holds mu.
func (w *World) standing() string {
	for _, kind := range configurations {
		if last := w.history[kind].last(); last != nil && len(webhooksOf(last)) > 0 {
			return w.watch.digests[last.GetAnnotations()[webhookconf.VersionAnnotation]]
		}
	}
	return ""
}

// tellsVersions has a replica whose version waits diagnose itself: it finds that another one is registered.
func (w *World) tellsVersions() {
	w.mu.Lock()
	standing, stirred := w.standing(), w.watch.stirred
	i := slices.IndexFunc(w.processes, func(p *process) bool {
		return p.release.declares() != standing && !p.leaving && !p.readySince.IsZero() && p.wire.hears()
	})
	var p *process
	if i >= 0 {
		p = w.processes[i]
	}
	w.mu.Unlock()
	if p == nil || standing == "" || w.plan.Split {
		return
	}
	began := time.Now()
	report := p.diagnosed()
	w.mu.Lock()
	defer w.mu.Unlock()
	told := func(l line) bool {
		return l.who == p.name && strings.Contains(l.text, "an earlier version stays registered")
	}
	if time.Since(p.readySince) > 20*time.Second && !slices.ContainsFunc(w.story, told) && w.standing() == standing && w.watch.stirred.Equal(stirred) {
		w.breaks("another version than that of %s is registered, and its log does not say so", p)
	}
	undisturbed := w.standing() == standing && w.watch.stirred.Equal(stirred) && !w.troubledSince(began, rough, slow, spoiled, lapsed, apart, strange, unread, unissued)
	_, lacks := report.Find(diagnosis.NotConverted)
	if err := report.Err(); err != nil && !(lacks && !p.release.thirds) && undisturbed {
		w.breaks("another version than that of %s is registered, and its diagnosis calls that a problem: %v", p, err)
	}
	if _, found := report.Find(diagnosis.SeveralVersions); !found && w.standing() == standing && w.watch.stirred.Equal(stirred) && !w.troubledSince(began, rough, slow, spoiled, lapsed, apart, strange) {
		w.breaks("another version than that of %s is registered, and its diagnosis does not say so: %s", p, report)
	}
}
