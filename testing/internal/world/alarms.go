package world

// This file is how a person hears of a state that lasts, beside the log: by a finding of a diagnosis, and a metric by which an alert fires.

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/diagnosis"
)

// alarm is the finding and the metric of a state.
type alarm struct {
	finds diagnosis.Code
	gauge string
}

// alarms are those of states, by the words that logs have for them.
var alarms = map[string]alarm{
	missing:    {diagnosis.ReadsNotListed, "read_missing"},
	unreadable: {diagnosis.ReadsNotListed, "read_interruption_timestamp_seconds"},
	unknown:    {diagnosis.ReadsNotListed, "registration_waiting"},
}

// waits sees that a metric tells of a step that waits since the start for what it reads.
func (w *World) waits() {
	now, err := gather()
	w.mu.Lock()
	defer w.mu.Unlock()
	if p := w.settledOne(time.Now().Add(-settling / 4)); err == nil && p != nil && len(w.policies) == 1 && !w.troubledSince(w.began, rough, slow, apart) && now.of("registration_waiting", "reason=reads") == 0 {
		w.breaks("%s has a step that waits, and eirinix_registration_waiting is %v", p, now["registration_waiting"])
	}
}

// settledOne returns a replica that has been at work since then; nil for none. The caller holds mu.
func (w *World) settledOne(since time.Time) *process {
	i := slices.IndexFunc(w.processes, func(p *process) bool {
		return !p.leaving && !p.readySince.IsZero() && p.readySince.Before(since) && p.wire.hears()
	})
	if i < 0 {
		return nil
	}
	return w.processes[i]
}

// diagnosed returns the findings of a replica.
func (p *process) diagnosed() diagnosis.Report {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return p.manager.Diagnose(ctx)
}

// alarmed sees that a state, of which logs tell in these words since then, has a finding and a metric.
func (w *World) alarmed(words string, began time.Time, still func() bool) {
	a, known := alarms[words]
	w.mu.Lock()
	p, started := w.settledOne(time.Now().Add(-mostSilent/2)), w.started
	later := words == unreadable && (w.startedAt.After(began) || !w.plan.settled("another program")) // nothing is interrupted for it, and all write the same metrics
	w.mu.Unlock()
	if !known || p == nil || began.Sub(w.began) < settling { // at the start, other words tell of it
		return
	}
	now, err := gather()
	report, lasts := p.diagnosed(), still()
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil || !lasts || p.leaving || w.started != started || w.troubledSince(began, rough, slow, lapsed, apart, unissued) {
		return
	}
	if f, found := report.Find(a.finds); !found || f.Remedy == "" {
		w.breaks("a log tells %q, and a diagnosis of %s does not, with a remedy: %s", words, p, report)
	}
	if !later && !slices.ContainsFunc(slices.Collect(maps.Values(now[a.gauge])), func(n float64) bool { return n > 0 }) {
		w.breaks("a log tells %q, and eirinix_%s is %v", words, a.gauge, now[a.gauge])
	}
}

// rings sees the same of a state that lasts for d, whether logs tell of it again or not.
func (w *World) rings(d time.Duration, words string, still func() bool) {
	began := time.Now()
	if d <= mostSilent {
		return
	}
	w.tasks.Go(func() {
		if w.wait(mostSilent) && still() {
			w.alarmed(words, began, still)
		}
	})
}

// blamesBundle looks at the diagnosis of a configuration with caBundles of another client, which may not be repaired now: a problem of
// that configuration with this code, and a remedy. Nothing else is to blame.
func (w *World) blamesBundle(b belonging, code diagnosis.Code, still func() bool) {
	began := time.Now()
	if !w.wait(10 * time.Second) {
		return
	}
	w.mu.Lock()
	p := w.settledOne(began.Add(-settling))
	w.mu.Unlock()
	if p == nil || !still() {
		return
	}
	report, lasts := p.diagnosed(), still()
	w.mu.Lock()
	defer w.mu.Unlock()
	if !lasts || p.leaving || w.troubledSince(began.Add(-settling), rough, lapsed, apart, unissued, strange) {
		return
	}
	ours := func(f eirinix.Finding) bool {
		return f.Code == code && strings.HasSuffix(f.Object, " "+b.name) && f.Severity == diagnosis.Problem && f.Remedy != ""
	}
	if !slices.ContainsFunc(report.Findings, ours) && !w.plan.Split { // a serving half may read no configuration
		w.breaks("the %s holds caBundles of another client (%s), and a diagnosis of %s does not say so: %s", b.kind, code, p, report)
	}
	if slices.ContainsFunc(report.Findings, func(f eirinix.Finding) bool { return strings.Contains(f.Message, "another server") }) {
		w.breaks("the %s holds caBundles of another client (%s), and a diagnosis of %s blames another server: %s", b.kind, code, p, report)
	}
}

// blanks has another client write caBundles that nothing can use into a configuration, which may not be repaired now.
func (w *World) blanks(b belonging, resource string, rng *rand.Rand) {
	bundle, code := "", diagnosis.BundleEmpty
	if rng.IntN(2) == 0 {
		bundle, code = encoded([]byte("not a certificate")), diagnosis.BundleUnreadable
	}
	found := w.find(b.kind, b.namespace, b.name)
	if found == nil || len(webhooksOf(found)) == 0 {
		return
	}
	object := found.DeepCopy()
	hooks, _, _ := unstructured.NestedSlice(object.Object, "webhooks")
	for _, h := range hooks {
		if config, ok := h.(map[string]any)["clientConfig"].(map[string]any); ok {
			config["caBundle"] = bundle
		}
	}
	w.harms(b)
	spoilt := func() bool {
		hooks := webhooksOf(w.find(b.kind, b.namespace, b.name))
		return len(hooks) > 0 && encoded(hooks[0].ClientConfig.CABundle) == bundle
	}
	w.excuseWhile(spoiled, func() bool { return w.rights.deny("update", resource) || spoilt() })
	w.tell(fate, "writes caBundles that nothing can use into the %s (%s)", b.kind, code)
	err := unstructured.SetNestedSlice(object.Object, hooks, "webhooks")
	if err == nil {
		err = w.api.Put(object)
	}
	if err != nil {
		w.violate("an edit failed: %v", err)
	}
	w.observe()
	w.tasks.Go(func() {
		w.blamesBundle(b, code, func() bool { return w.rights.deny("update", resource) && spoilt() })
	})
}
