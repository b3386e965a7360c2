package world

// This file is RegisterExtensions: the CronJob of a split deployment, people who call it, and the configurations afterwards.

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"code.cloudfoundry.org/eirinix"
)

// registersEvery is how often the CronJob of a split deployment runs.
const registersEvery = 3 * time.Minute

// cron is that CronJob. While a rollout is under way it is still that of the version before: the serving half comes first.
func (w *World) cron() {
	rng := w.stream("cron", 0)
	last := w.releases[0]
	for wait := time.Second; w.wait(wait); wait = registersEvery {
		w.mu.Lock()
		wanted, suspended := w.wanted, w.watch.suspended
		rolls := slices.ContainsFunc(w.processes, func(p *process) bool { return p.generation != w.generation })
		w.mu.Unlock()
		if time.Now().Before(suspended) {
			continue
		}
		if !rolls && !wanted.crashes {
			last = wanted
		}
		w.orders(last, rng)
	}
}

func (w *World) register(f Fault, rng *rand.Rand) {
	if own := w.stream("darkened", int(f.At)); w.plan.Modes && !w.plan.Unregister && own.IntN(2) == 0 && !w.shadowsFirst(own) {
		return
	}
	r := w.live(rng)
	if len(w.releases) > 1 && rng.IntN(2) == 0 { // the serving half first
		w.rollout(f, rng)
		w.mu.Lock()
		r = w.wanted
		w.mu.Unlock()
		if !w.await(r) {
			return
		}
	}
	w.orders(r, rng)
	if own := w.stream("once more", int(f.At)); own.IntN(2) == 0 && w.wait(10*time.Second) {
		w.orders(r, rng)
	}
}

// ordersWithin is how long RegisterExtensions takes at most: some seconds where no API server answers.
const ordersWithin = 25 * time.Second

func (w *World) orders(r release, rng *rand.Rand) {
	w.mu.Lock()
	w.watch.ordered = time.Now()
	clear(w.watch.force) // it registers its steps, and no others
	before, lease := w.writesOf(belongings[0].name, belongings[1].name, belongings[2].name), w.writesOf(belongings[3].name)
	w.mu.Unlock()
	w.tool("registers "+r.name, r, rng, func(_ context.Context, m *eirinix.ExtensionManager) error {
		began := time.Now()
		err := m.RegisterExtensions()
		if took := time.Since(began); took > ordersWithin {
			w.violate("RegisterExtensions has taken %s: %v", took.Round(time.Second), err)
		}
		if err == nil {
			w.isRegistered(r, began)
			w.registersAgain(r, began, before, lease)
		}
		return err
	})
}

// isRegistered looks at the configurations after RegisterExtensions has succeeded: they hold each step that has a call of its own.
func (w *World) isRegistered(r release, began time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.watch.ordered.Equal(began) && w.watch.ordered.After(began) || w.watch.damaged.After(began) || w.troubledSince(began, slow, spoiled, lapsed, strange) {
		return
	}
	for _, kind := range configurations {
		w.registersModes(r, kind, began)
		for _, step := range r.steps {
			name, mutates := step, kind == configurations[0]
			if step != reader && mutates {
				name += "-sets"
			}
			if step == reader && !mutates || step != reader && !r.isolated[step] || mutates && r.judges {
				continue
			}
			if !slices.ContainsFunc(webhooksOf(w.history[kind].last()), func(h hook) bool { return strings.HasPrefix(h.Name, name+".") }) {
				w.breaks("RegisterExtensions of %s has succeeded, and the %s lacks step %s", r.name, kind, name)
			}
		}
	}
}

// shadowsFirst puts a step into Shadow, and waits until that is in force. It returns false if the world is over.
func (w *World) shadowsFirst(rng *rand.Rand) bool {
	steps := w.common()
	w.setMode(steps[rng.IntN(len(steps))], string(eirinix.ModeShadow))
	return w.wait(inMode + 10*time.Second)
}

// registersModes looks at the shadows in a configuration after RegisterExtensions has succeeded. The caller holds mu.
func (w *World) registersModes(r release, kind string, began time.Time) {
	last := w.history[kind].last()
	for step, m := range w.modes {
		mutates := strings.HasSuffix(step, "-sets")
		if mutates != (kind == configurations[0]) || last == nil || !r.has(strings.TrimSuffix(step, "-sets")) || r.judges || w.declaresModes(step) || strings.Contains(m.text, " ") ||
			!m.bad.IsZero() || m.since.Add(inMode).After(began) || !w.settledSince(m.since) {
			continue
		}
		if is := slices.Contains(shadowsIn(last.GetAnnotations()), step); is != (m.mode == eirinix.ModeShadow) {
			w.breaks("RegisterExtensions of %s has succeeded, step %s is in %q since %s, and a shadow in the %s: %t", r.name, step, m.text, time.Since(m.since).Round(time.Second), kind, is)
		}
	}
}
