package world

// This file is what logs tell: each denial, each client that is refused, and that a program is reached; and no failure where nothing is
// wrong.

import (
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// mostDenials is the number of denials for one reason that a process logs in a minute.
const mostDenials = 10

// toldOf is in the log of a denial.
const toldOf = "denied"

// tellsDenial sees that a denial is in the log, if there are not too many.
func (w *World) tellsDenial(id types.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.watch.denials.add(time.Now())
	if n := len(w.watch.denials.recent); n > mostDenials/2 {
		return
	}
	if !w.watch.toldDenials[id] {
		w.breaks("a request is denied, and no log tells it (%d denials in a minute)", len(w.watch.denials.recent))
	}
}

// isReached is in the log of a program whose path is found to be well.
const isReached = "the API server calls this program"

// checksFor is how long a program that has become ready looks at most whether it is reached.
const checksFor = 11 * time.Minute

// reached sees that each replica has told that it is reached.
func (w *World) reached() {
	w.mu.Lock()
	defer w.mu.Unlock()
	told := map[string]bool{}
	for _, l := range w.story {
		if strings.HasPrefix(l.text, isReached) {
			told[l.who] = true
		}
	}
	for _, p := range w.processes {
		if !p.readySince.IsZero() && time.Since(p.readySince) > checksFor && !told[p.name] && w.settledSince(p.began) && w.plan.settled("right") && !w.plan.Split {
			w.breaks("%s is ready for %s, and its log does not tell that the API server calls it", p, time.Since(p.readySince).Round(time.Second))
		}
	}
}

// failures begin the lines about what a program tries again, or lacks.
var failures = []string{"could not ", lacksRights, polled, "an object cannot be read"}

// imagines looks at a line of a program that nothing keeps from its work: it tells of no failure. The caller holds mu.
func (w *World) imagines(who, text string) {
	if !slices.ContainsFunc(failures, func(begins string) bool { return strings.HasPrefix(text, begins) }) {
		return
	}
	i := slices.IndexFunc(w.processes, func(p *process) bool { return p.name == who })
	if i < 0 || w.processes[i].leaving && !w.processes[i].told || w.troubled() { // a process that is killed, or one of a world that is over
		return
	}
	if w.plan.Unregister && strings.Contains(text, "not found") { // the replica before it removes the configuration that this one writes
		return
	}
	if !w.plan.settled("clock") && strings.Contains(text, "is not valid yet") { // it hears of the right clock with its next requests
		return
	}
	if w.settledSince(time.Now().Add(-settling)) && time.Since(w.began) > settling && time.Since(w.watch.damaged) > settling && w.watch.held == nil && time.Since(w.watch.heldUntil) > settling && w.plan.settled("right", "unregistration") {
		w.breaks("%s tells of a failure, and nothing is wrong: %s", who, text)
	}
}

// toldRefusal is in the log of a program that has refused a client, once a minute.
const toldRefusal = "refused a client"

// tellsRefusals sees that the log of a program tells of clients that were refused since then.
func (w *World) tellsRefusals(began time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, l := range w.story {
		if l.at.After(began.Add(-time.Minute)) && strings.HasPrefix(l.text, toldRefusal) {
			return
		}
	}
	answers := func(p *process) bool { return !p.leaving && !p.readySince.IsZero() && p.readySince.Before(began) }
	if w.settledSince(began) && slices.ContainsFunc(w.processes, answers) {
		w.breaks("clients without a good certificate have called, and no log tells it")
	}
}

// retells sees that a replica tells a mode once. An audit by its Manager tells it, too, where it does not serve yet. The caller holds mu.
func (w *World) retells(who, step, mode string) {
	if w.watch.toldModes == nil {
		w.watch.toldModes = map[string]string{}
	}
	key := who + " " + step
	tells := func(p *process) bool { return p.name == who && (!w.plan.audits() || !p.readySince.IsZero()) }
	if w.watch.toldModes[key] == mode && slices.ContainsFunc(w.processes, tells) {
		w.breaks("%s tells twice in turn that step %s is in %q now", who, step, mode)
	}
	w.watch.toldModes[key] = mode
}
