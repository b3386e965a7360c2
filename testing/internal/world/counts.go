package world

// This file compares the metrics of the program with the calls and answers that API servers have seen.

import (
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

// tally counts the calls for one path, as API servers know them.
type tally struct {
	sent, answered, denied int // requests, and answers
	operations, bytes      int // of the patches in the answers
}

// tallied changes the tally of the path that a webhook calls.
func (w *World) tallied(to admissionregistrationv1.WebhookClientConfig, change func(*tally)) {
	_, at := webhookconf.TargetOf(to)
	w.tallyAt(at, change)
}

// tallyAt changes the tally of a path.
func (w *World) tallyAt(at string, change func(*tally)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := w.watch.tallies[path.Base(at)]
	if t == nil {
		t = &tally{}
		w.watch.tallies[path.Base(at)] = t
	}
	change(t)
}

// totals adds an answer.
func (w *World) totals(h hook, r *admissionv1.AdmissionResponse) error {
	var operations []any
	if len(r.Patch) > 0 {
		if err := json.Unmarshal(r.Patch, &operations); err != nil {
			return err
		}
	}
	w.tallied(h.ClientConfig, func(t *tally) {
		t.answered++
		t.operations, t.bytes = t.operations+len(operations), t.bytes+len(r.Patch)
		if !r.Allowed {
			t.denied++
		}
	})
	if !r.Allowed {
		w.tellsDenial(r.UID)
	}
	return nil
}

// gathered holds the metrics of the library, which all programs of this process share, by name, and by labels such as "step=a".
type gathered map[string]map[string]float64

func gather() (gathered, error) {
	families, err := metrics.Registry.Gather()
	all := gathered{}
	for _, f := range families {
		name, ours := strings.CutPrefix(f.GetName(), "eirinix_")
		if !ours {
			continue
		}
		all[name] = map[string]float64{}
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			all[name][strings.Join(labels, ",")] += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return all, err
}

// of returns the sum of a metric over those that have all of these labels.
func (g gathered) of(name string, labels ...string) (sum int) {
	for all, n := range g[name] {
		held := strings.Split(all, ",")
		if !slices.ContainsFunc(labels, func(l string) bool { return !slices.Contains(held, l) }) {
			sum += int(n)
		}
	}
	return sum
}

// held are gauges of unfinished work.
var held = []string{"admission_in_flight_requests", "admission_left_behind_runs", "conversion_left_behind_runs"}

// counted compares the metrics with the tallies, when all processes have ended. An answer that no API server has seen is counted, too.
func (w *World) counted() {
	now, err := gather()
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		w.breaks("the metrics cannot be read: %v", err)
	}
	for _, name := range held {
		for labels, n := range now[name] {
			if n != 0 {
				w.breaks("every process has ended, and %s is %v (%s)", name, n, labels)
			}
		}
	}
	for labels, n := range now["registration_waiting"] {
		if n != 0 && (strings.Contains(labels, "reason=kind") || strings.Contains(labels, "reason=reads")) {
			w.breaks("every process has ended, and eirinix_registration_waiting is %v (%s)", n, labels)
		}
	}
	for at, t := range w.watch.tallies {
		webhook := "webhook=" + at
		for _, c := range []struct {
			what, name string
			labels     []string
			seen       int
			lost       bool // some may be in answers that were lost
		}{
			{"answers", "admission_duration_seconds", []string{webhook}, t.answered, t.sent > t.answered},
			{"operations of patches", "admission_patch_operations_total", []string{webhook}, t.operations, t.sent > t.answered},
			{"bytes of patches", "admission_patch_bytes_total", []string{webhook}, t.bytes, t.sent > t.answered},
			{"denials", "admission_decisions_total", []string{webhook, "decision=denied"}, t.denied, true},
		} {
			n := now.of(c.name, c.labels...) - w.before.of(c.name, c.labels...)
			if n < c.seen || n > c.seen && !c.lost {
				w.breaks("API servers have seen %d %s of %s, and eirinix_%s counts %d", c.seen, c.what, at, c.name, n)
			}
		}
	}
	for status, seen := range w.watch.refusals {
		if status == http.StatusOK || status == http.StatusInternalServerError { // steps have seen those
			continue
		}
		code := "code=" + strconv.Itoa(status)
		if n := now.of("admission_refused_requests_total", code) - w.before.of("admission_refused_requests_total", code); n < seen {
			w.breaks("API servers have seen the status %d %d times, and eirinix_admission_refused_requests_total counts %d", status, seen, n)
		}
	}
	for decision, words := range map[string]string{"would_deny": "would deny", "would_patch": "would change"} {
		n := now.of("admission_decisions_total", "decision="+decision) - w.before.of("admission_decisions_total", "decision="+decision)
		if n > 0 && !slices.ContainsFunc(w.story, func(l line) bool { return strings.HasPrefix(l.text, words) }) {
			w.breaks("a step %s %d times by eirinix_admission_decisions_total, and no log tells it", words, n)
		}
	}
	if len(w.boxes) > 0 && !w.plan.audits() {
		seen := int(w.boxes[0].later.panicked.Load())
		if n := now.of("admission_panics_total") - w.before.of("admission_panics_total"); n < seen {
			w.breaks("steps have panicked %d times, and eirinix_admission_panics_total counts %d", seen, n)
		}
	}
	crd := []string{"crd=" + definitionName, "result=converted"}
	if n := now.of("conversion_objects_total", crd...) - w.before.of("conversion_objects_total", crd...); n < w.watch.converted {
		w.breaks("API servers have had %d objects converted, and eirinix_conversion_objects_total counts %d", w.watch.converted, n)
	}
}

// gauges looks at the metrics of a world at rest. Values that an earlier world has left are none of its own.
func (w *World) gauges() {
	now, err := gather()
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		w.breaks("the metrics cannot be read: %v", err)
	}
	expected := map[string]int{
		"certificate_bundle_in_sync": 1, "certificate_failing": 0, "registration_contested": 0, "registration_versions": 1, "registration_waiting": 0, "read_missing": 0,
	}
	if w.watch.contest.Add(quiet + repairedWithin).After(time.Now()) { // a tool is remembered for a while after the last repair
		delete(expected, "registration_contested")
	}
	// Replicas with other sources, and tools, see CAs that they do not need. RegisterExtensions retains one that another client has added.
	if w.plan.Issued || w.plan.Split && !w.plan.settled("edit", "contest", "restore", "deletion", "namespace", "right") {
		delete(expected, "certificate_bundle_in_sync")
	}
	if w.plan.Signed && w.isPending(settling) { // a renewal, which begins at a random moment
		delete(expected, "certificate_failing")
	}
	if !w.plan.settled("another program") { // one that has ended leaves its metrics in this process
		delete(expected, "registration_waiting")
	}
	if w.find("ConfigMap", namespace, policyName) == nil && w.find("NetworkPolicy", namespace, policyName) == nil {
		delete(expected, "read_missing")
		delete(expected, "registration_waiting")
	}
	if secret := w.find("Secret", namespace, fingerprint+"-setupcertificate"); secret != nil && !w.wanted.issued {
		if state, err := decode(secret); err == nil {
			expected["certificate_generation"] = int(state.CurrentID)
			about := func(over time.Duration) bool { return over > 0 && over < 2*registersEvery }
			if since := time.Since(state.Since); w.plan.Split && (about(since) || about(since-w.plan.Leaf*11/10)) { // the CronJob is about to add a CA, or to take one away
				delete(expected, "certificate_bundle_in_sync")
			}
			if current, err := state.Current(); err == nil {
				if ends := now.of("certificate_expiration_timestamp_seconds", "role=ca", "secret="+namespace+"/"+theSecret); ends != int(current.Certificate.NotAfter.Unix()) {
					w.breaks("at rest, the CA ends at %s, and eirinix_certificate_expiration_timestamp_seconds says %s", current.Certificate.NotAfter, time.Unix(int64(ends), 0).UTC())
				}
			}
			if now.of("certificate_phase", "phase="+string(state.Phase)) != 1 || now.of("certificate_phase") != 1 {
				w.breaks("at rest, the rotation is %s, and eirinix_certificate_phase says %v", state.Phase, now["certificate_phase"])
			}
		}
	}
	secret := "secret=" + namespace + "/" + theSecret
	if at := time.Unix(int64(now.of("canary_last_success_timestamp_seconds", secret)), 0); at.Before(w.watch.diagnosed.Add(-2 * time.Second)) {
		w.breaks("the program was diagnosed at %s, and eirinix_canary_last_success_timestamp_seconds says %s", w.watch.diagnosed, at.UTC())
	}
	w.ends(now.of("certificate_expiration_timestamp_seconds", "role=serving", secret))
	for name, right := range expected {
		for labels, n := range now[name] {
			if was, there := w.before[name][labels]; int(n) != right && !(there && n == was) {
				w.breaks("at rest, eirinix_%s is %v and not %d (%s)", name, n, right, labels)
			}
		}
	}
	policies := 1.0
	if w.unruled() {
		policies = 0
	}
	for labels, n := range now["read_objects"] {
		if was, there := w.before["read_objects"][labels]; (n > 1 || n != policies && strings.Contains(labels, " "+namespace+" ")) && strings.Contains(labels, "="+policyName) && !(there && n == was) {
			w.breaks("at rest, eirinix_read_objects is %v for %v policies (%s)", n, policies, labels)
		}
	}
	for labels, at := range now["read_interruption_timestamp_seconds"] {
		if at != 0 && at != w.before["read_interruption_timestamp_seconds"][labels] && time.Since(time.Unix(int64(at), 0)) > time.Minute {
			w.breaks("at rest, eirinix_read_interruption_timestamp_seconds is %v (%s)", at, labels)
		}
	}
}
