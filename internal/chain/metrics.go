package chain

// This file counts decisions and patches for Prometheus.

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admission/v1"

	"code.cloudfoundry.org/eirinix/internal/collectors"
)

// decision is the result of a step for a request.
type decision int

const (
	decisionAllowed decision = iota // without a change
	decisionPatched                 // allowed, and the object changed
	decisionDenied
	decisionSkipped        // the step did not want it
	decisionFailed         // and so did the call: the step's failurePolicy is Fail
	decisionIgnored        // failed, and the step's changes were undone: its failurePolicy is Ignore
	decisionWouldDeny      // allowed, because the step only watches
	decisionWouldPatch     // not changed, because the step only watches
	decisionWouldFail      // failed, which matters to no request, because the step is a shadow
	decisionDropped        // not run: too many shadows wait, or the program stops
	decisionOwned          // skipped, because a controller keeps the object as it is
	decisions          int = iota
)

var decisionLabels = [decisions]string{"allowed", "patched", "denied", "skipped", "failed", "ignored", "would_deny", "would_patch", "would_fail", "dropped", "skipped_owned"}

var operationLabels = [...]admissionv1.Operation{
	admissionv1.Create, admissionv1.Update, admissionv1.Delete, admissionv1.Connect, "other",
}

// dryRunLabels are the values of the label for requests that are made, and for dry runs.
var dryRunLabels = [...]string{"false", "true"}

// operationIndex returns the index of an operation in operationLabels. All unknown operations share one index, which
// bounds the values of the label.
func operationIndex(operation admissionv1.Operation) int {
	if i := slices.Index(operationLabels[:], operation); i >= 0 {
		return i
	}
	return len(operationLabels) - 1
}

// Metrics counts the decisions and patches of the webhooks. It is safe for concurrent use.
//
// All values of labels come from the program, except the operation, which is one of four, and dry_run, which is one of
// two. A caller therefore cannot create more series than the steps allow.
type Metrics struct {
	decisions                   *prometheus.CounterVec
	duration, stepDuration      *prometheus.HistogramVec
	patchOperations, patchBytes *prometheus.CounterVec
	panics                      *prometheus.CounterVec
	left, timeout               *prometheus.GaugeVec
}

// Buckets are the upper bounds, in seconds, of the histograms of durations.
var Buckets = []float64{.00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}

// NewMetrics registers the metrics. If another Manager of the program has registered them, it shares those. Without a
// registerer, the metrics are counted but not exposed. It returns an error if another collector has one of the names.
func NewMetrics(registerer prometheus.Registerer) (*Metrics, error) {
	r := collectors.Registration{Registerer: registerer}
	m := &Metrics{
		decisions: r.Counters("admission_decisions_total",
			"Decisions of steps on admission requests; skipped requests did not match the step's rules or selectors, or left nothing to judge, and those of skipped_owned are of objects that a controller keeps as they are.",
			"webhook", "step", "operation", "decision", "dry_run"),
		duration: r.Histograms("admission_duration_seconds",
			"Time from the arrival of an admission request to the answer.", Buckets, "webhook"),
		stepDuration: r.Histograms("admission_step_duration_seconds",
			"Time that a step took to decide on an admission request.", Buckets, "webhook", "step"),
		patchOperations: r.Counters("admission_patch_operations_total",
			"JSON patch operations sent to the API server.", "webhook"),
		patchBytes: r.Counters("admission_patch_bytes_total",
			"Bytes of JSON patches sent to the API server.", "webhook"),
		panics: r.Counters("admission_panics_total",
			"Panics of steps.", "webhook", "step"),
		left: r.Gauges("admission_left_behind_runs",
			"Runs of steps that continue after the deadline of their request.", "webhook", "step"),
		timeout: r.Gauges("admission_step_timeout_seconds",
			"Time that a run of a step has, or shares with other steps of its call.", "webhook", "step"),
	}
	return m, r.Err
}

// webhookMetrics holds the metrics of one webhook, looked up beforehand.
type webhookMetrics struct {
	duration                    prometheus.Observer
	patchOperations, patchBytes prometheus.Counter
}

func (m *Metrics) webhook(name string) *webhookMetrics {
	return &webhookMetrics{
		duration: m.duration.WithLabelValues(name), patchOperations: m.patchOperations.WithLabelValues(name), patchBytes: m.patchBytes.WithLabelValues(name),
	}
}

// answered records how long a call took, and the patch in its answer, if any. exemplar can be nil.
func (w *webhookMetrics) answered(took time.Duration, patchOperations, patchBytes int, exemplar prometheus.Labels) {
	observe(w.duration, took, exemplar)
	if patchOperations > 0 {
		w.patchOperations.Add(float64(patchOperations))
		w.patchBytes.Add(float64(patchBytes))
	}
}

// stepMetrics holds the metrics of one step of a webhook, looked up beforehand.
type stepMetrics struct {
	decisions *prometheus.CounterVec
	duration  prometheus.Observer
	panics    prometheus.Counter
	left      prometheus.Gauge
	// Counters are made when they are first needed, because most steps use two operations and three decisions, and few
	// requests are dry runs.
	counters [len(dryRunLabels)][len(operationLabels)][decisions]atomic.Pointer[prometheus.Counter]
}

func (m *Metrics) step(webhook, name string) *stepMetrics {
	return &stepMetrics{
		decisions: m.decisions.MustCurryWith(prometheus.Labels{"webhook": webhook, "step": name}),
		duration:  m.stepDuration.WithLabelValues(webhook, name),
		panics:    m.panics.WithLabelValues(webhook, name),
		left:      m.left.WithLabelValues(webhook, name),
	}
}

// decided counts a decision and records how long it took. A request that is skipped or dropped takes no time, so none is
// recorded. exemplar can be nil.
func (s *stepMetrics) decided(req *admissionv1.AdmissionRequest, d decision, took time.Duration, exemplar prometheus.Labels) {
	index, dry := operationIndex(req.Operation), 0
	if req.DryRun != nil && *req.DryRun {
		dry = 1
	}
	counter := s.counters[dry][index][d].Load()
	if counter == nil {
		counter = new(s.decisions.WithLabelValues(string(operationLabels[index]), decisionLabels[d], dryRunLabels[dry]))
		s.counters[dry][index][d].Store(counter)
	}
	(*counter).Inc()
	if d != decisionSkipped && d != decisionOwned && d != decisionDropped {
		observe(s.duration, took, exemplar)
	}
}

// observe records a duration, with the labels that lead to its trace, if there are any.
func observe(o prometheus.Observer, took time.Duration, exemplar prometheus.Labels) {
	if with, ok := o.(prometheus.ExemplarObserver); ok && exemplar != nil {
		with.ObserveWithExemplar(took.Seconds(), exemplar)
		return
	}
	o.Observe(took.Seconds())
}
