package world

// This file is the lines of a replica that starts about the rights that its account lacks.

import (
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// lacksRights is in the log of such a start.
const lacksRights = "rights are missing"

// restartsWithout restarts all replicas while a right is away, for d. Each that starts names the right in its log.
func (w *World) restartsWithout(r right, d time.Duration, rng *rand.Rand) {
	if !w.plan.settled("API server refuses", "API server errs", "API server freezes", "isolation", "freeze", "lag") || w.plan.Split || w.plan.Judges || r.verb == everything || w.plan.hosted() ||
		r.resource == "secrets" && w.plan.Issued || d < 40*time.Second || !slices.Contains([]string{"leases", "secrets", "mutatingwebhookconfigurations", "validatingwebhookconfigurations"}, r.resource) {
		return
	}
	began := time.Now()
	if !w.wait(5 * time.Second) {
		return
	}
	w.restart(Fault{}, rng)
	if !w.wait(d-15*time.Second) || !w.rights.deny(r.verb, r.resource) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.processes {
		told := func(l line) bool {
			return l.who == p.name && strings.Contains(l.text, lacksRights) && strings.Contains(l.text, r.verb) && strings.Contains(l.text, r.resource)
		}
		if p.began.After(began.Add(time.Second)) && time.Since(p.began) > 10*time.Second && !p.leaving && !slices.ContainsFunc(w.story, told) {
			w.breaks("%s lacks the right to %s %s since its start, and its log does not say so", p, r.verb, r.resource)
		}
	}
}
