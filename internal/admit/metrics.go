package admit

import (
	"errors"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admission/v1"
)

// decision is what became of a request in a step.
type decision int

const (
	decisionAllowed decision = iota // without a change
	decisionPatched                 // allowed, and the object changed
	decisionDenied
	decisionSkipped     // the step did not want it
	decisionFailed      // and so did the call: the step's failurePolicy is Fail
	decisionIgnored     // failed, and what the step did was undone: its failurePolicy is Ignore
	decisions       int = iota
)

var decisionLabels = [decisions]string{"allowed", "patched", "denied", "skipped", "failed", "ignored"}

var operationLabels = [...]admissionv1.Operation{admissionv1.Create, admissionv1.Update, admissionv1.Delete, admissionv1.Connect, "other"}

// operationIndex bounds what can become a label's value.
func operationIndex(operation admissionv1.Operation) int {
	for i, known := range operationLabels {
		if operation == known {
			return i
		}
	}
	return len(operationLabels) - 1
}

// Metrics counts what the webhooks do. It is safe for concurrent use; nil counts nothing.
//
// All values of labels come from the program, except the operation, which is one of four: who calls cannot
// make more series than there are steps.
type Metrics struct {
	decisions                   *prometheus.CounterVec
	duration, stepDuration      *prometheus.HistogramVec
	patchOperations, patchBytes *prometheus.CounterVec
	panics, refused             *prometheus.CounterVec
	inFlight                    prometheus.Gauge
	requestBytes                prometheus.Histogram
}

// NewMetrics registers the metrics, or finds them registered by another Manager of the program and shares
// them. Without a registerer they are kept, and shown nowhere. An error says that another collector has one
// of the names.
func NewMetrics(registerer prometheus.Registerer) (*Metrics, error) {
	r := registration{registerer: registerer}
	buckets := []float64{.00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}
	m := &Metrics{
		decisions: r.counters("admission_decisions_total",
			"Decisions of steps on admission requests; skipped requests did not match the step's rules or selectors.",
			"webhook", "step", "operation", "decision"),
		duration: r.histograms("admission_duration_seconds",
			"Time from the arrival of an admission request to the answer.", buckets, "webhook"),
		stepDuration: r.histograms("admission_step_duration_seconds",
			"Time that a step took to decide on an admission request.", buckets, "webhook", "step"),
		patchOperations: r.counters("admission_patch_operations_total",
			"JSON patch operations sent to the API server.", "webhook"),
		patchBytes: r.counters("admission_patch_bytes_total",
			"Bytes of JSON patches sent to the API server.", "webhook"),
		panics: r.counters("admission_panics_total",
			"Panics of steps.", "webhook", "step"),
		refused: r.counters("admission_refused_requests_total",
			"Requests that no webhook saw, by the HTTP status of the answer.", "code"),
		inFlight: register(&r, prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: metricsNamespace, Name: "admission_in_flight_requests",
			Help: "Admission requests that are being answered or wait for it.",
		})),
		requestBytes: register(&r, prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: metricsNamespace, Name: "admission_request_bytes",
			Help: "Size of admission requests.", Buckets: prometheus.ExponentialBuckets(1<<10, 4, 8), // to 16 MiB
		})),
	}
	return m, r.err
}

const metricsNamespace = "eirinix"

// registration registers collectors until one fails.
type registration struct {
	registerer prometheus.Registerer
	err        error
}

func (r *registration) counters(name, help string, labels ...string) *prometheus.CounterVec {
	return register(r, prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: metricsNamespace, Name: name, Help: help}, labels))
}

func (r *registration) histograms(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	opts := prometheus.HistogramOpts{Namespace: metricsNamespace, Name: name, Help: help, Buckets: buckets}
	return register(r, prometheus.NewHistogramVec(opts, labels))
}

// register returns the collector, or the one like it that is registered already.
func register[C prometheus.Collector](r *registration, c C) C {
	if r.registerer == nil || r.err != nil {
		return c
	}
	err := r.registerer.Register(c)
	if registered, ok := errors.AsType[prometheus.AlreadyRegisteredError](err); ok {
		if same, ok := registered.ExistingCollector.(C); ok {
			return same
		}
	}
	r.err = err
	return c
}

// arrived counts a request in; answered counts it out.
func (m *Metrics) arrived() {
	if m != nil {
		m.inFlight.Inc()
	}
}

func (m *Metrics) answered() {
	if m != nil {
		m.inFlight.Dec()
	}
}

// received notes the size of a request's body.
func (m *Metrics) received(bytes int) {
	if m != nil {
		m.requestBytes.Observe(float64(bytes))
	}
}

// refusedWith counts a request that no webhook sees, by the HTTP status of the answer.
func (m *Metrics) refusedWith(status int) {
	if m != nil {
		m.refused.WithLabelValues(strconv.Itoa(status)).Inc()
	}
}

// webhookMetrics are those of one webhook, looked up beforehand. nil counts nothing.
type webhookMetrics struct {
	all                         *Metrics
	name                        string
	duration                    prometheus.Observer
	patchOperations, patchBytes prometheus.Counter
}

func (m *Metrics) webhook(name string) *webhookMetrics {
	if m == nil {
		return nil
	}
	return &webhookMetrics{
		all: m, name: name, duration: m.duration.WithLabelValues(name),
		patchOperations: m.patchOperations.WithLabelValues(name), patchBytes: m.patchBytes.WithLabelValues(name),
	}
}

// answered notes how long a call took, and the patch that it was answered with, if any.
func (w *webhookMetrics) answered(took time.Duration, patchOperations, patchBytes int) {
	if w == nil {
		return
	}
	w.duration.Observe(took.Seconds())
	if patchOperations > 0 {
		w.patchOperations.Add(float64(patchOperations))
		w.patchBytes.Add(float64(patchBytes))
	}
}

// stepMetrics are those of one step of a webhook, looked up beforehand. nil counts nothing.
type stepMetrics struct {
	webhook  *webhookMetrics
	name     string
	duration prometheus.Observer
	panics   prometheus.Counter
	// Made when first needed: most steps know two operations and three decisions.
	decisions [len(operationLabels)][decisions]atomic.Pointer[prometheus.Counter]
}

func (w *webhookMetrics) step(name string) *stepMetrics {
	if w == nil {
		return nil
	}
	return &stepMetrics{
		webhook: w, name: name, duration: w.all.stepDuration.WithLabelValues(w.name, name),
		panics: w.all.panics.WithLabelValues(w.name, name),
	}
}

// decided counts a decision and how long it took. A step that skips takes no time.
func (s *stepMetrics) decided(operation admissionv1.Operation, d decision, took time.Duration) {
	if s == nil {
		return
	}
	index := operationIndex(operation)
	counter := s.decisions[index][d].Load()
	if counter == nil {
		c := s.webhook.all.decisions.WithLabelValues(s.webhook.name, s.name, string(operationLabels[index]), decisionLabels[d])
		counter = &c
		s.decisions[index][d].Store(counter)
	}
	(*counter).Inc()
	if d != decisionSkipped {
		s.duration.Observe(took.Seconds())
	}
}

// panicked counts a panic; the decision is counted beside it.
func (s *stepMetrics) panicked() {
	if s != nil {
		s.panics.Inc()
	}
}
