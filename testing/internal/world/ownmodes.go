package world

// This file is versions that declare modes for one of their steps, in programs without a ConfigMap of modes.

import (
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

// declare draws the modes that versions declare for a step that all of them have. Records do not hold modes, so versions with
// the same steps declare the same.
func (w *World) declare(rng *rand.Rand) {
	if w.plan.Modes || w.plan.Unregister || w.plan.Judges || len(w.releases) < 2 || rng.IntN(2) == 0 {
		return
	}
	steps := w.common()
	step, drawn := steps[rng.IntN(len(steps))], map[string]eirinix.Mode{}
	for i := range w.releases {
		r := &w.releases[i]
		if drawn[r.declares()] == "" {
			drawn[r.declares()] = []eirinix.Mode{eirinix.ModeDeny, eirinix.ModeDeny, eirinix.ModeShadow, eirinix.ModeShadow, eirinix.ModeWarn, eirinix.ModeAudit}[rng.IntN(6)]
		}
		r.modes = map[string]eirinix.Mode{step: drawn[r.declares()]}
	}
	w.wanted = w.releases[0]
}

// declaresModes reports whether versions declare modes for a step.
func (w *World) declaresModes(step string) bool { return w.releases[0].modes[step] != "" }

// compare notes since when all live versions declare the same effect of a step. The caller holds mu.
func (p *promises) compare(w *World, now time.Time) {
	if p.strict == nil {
		p.strict, p.mild = map[string]time.Time{}, map[string]time.Time{}
	}
	for step := range w.releases[0].modes {
		denying := 0
		for _, r := range w.processes {
			if r.release.modes[step] == eirinix.ModeDeny {
				denying++
			}
		}
		since(p.strict, step, denying == len(w.processes), now)
		since(p.mild, step, denying == 0, now)
	}
}

// since notes in times the moment from which on something holds.
func since(times map[string]time.Time, of string, holds bool, now time.Time) {
	if !holds {
		delete(times, of)
	} else if times[of].IsZero() {
		times[of] = now
	}
}

// strictly reports whether every live version has had a step in Deny for so long that it is registered so. The caller holds mu.
func (w *World) strictly(step string, began time.Time) bool {
	at := w.watch.strict[step]
	return !at.IsZero() && at.Add(inForce).Before(began) && w.watch.ordered.Add(inForce).Before(began) && w.settledSince(at)
}

// heardOf is how long a replica takes to hear of a registration, beside the lag.
const heardOf = 2 * time.Second

// shadowsIn returns the steps that are registered as shadows.
func shadowsIn(annotations map[string]string) []string {
	return strings.FieldsFunc(annotations[webhookconf.ShadowAnnotation], func(r rune) bool { return r == ',' })
}

// mayDeny looks at a denial by a step for which versions declare modes: a live version has it in Deny, and it is not registered
// as a shadow, which a serving half may not see. The caller holds mu.
func (w *World) mayDeny(s *apiServer, step string, began time.Time, v verdict) {
	if !w.declaresModes(step) {
		return
	}
	if at := w.watch.mild[step]; !at.IsZero() && at.Before(began) {
		w.breaks("%s: no live version has had step %s in Deny for %s, and it denies a pod", s.name, step, time.Since(at).Round(time.Millisecond))
	}
	written, standing := w.history[configurations[1]], w.history[configurations[1]].last()
	if standing == nil || written[len(written)-1].at.Add(w.plan.Lag+heardOf).After(began) || w.plan.Split || w.watch.ordered.Add(time.Minute).After(began) || w.troubledSince(began, rough, slow, spoiled, lapsed, apart) {
		return
	}
	if last := v.called[len(v.called)-1]; slices.Contains(last.shadows, step) && slices.Contains(shadowsIn(standing.GetAnnotations()), step) {
		w.breaks("%s: step %s denies a pod, and is registered as a shadow", s.name, step)
	}
}
