package admit

// This file counts requests and conversions for Prometheus.

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"code.cloudfoundry.org/eirinix/internal/chain"
	"code.cloudfoundry.org/eirinix/internal/collectors"
)

// Metrics counts the requests and the conversions, and the decisions of steps. It is safe for concurrent use.
type Metrics struct {
	steps        *chain.Metrics
	refused      *prometheus.CounterVec
	inFlight     prometheus.Gauge
	requestBytes prometheus.Observer

	conversionDuration                  *prometheus.HistogramVec
	conversionObjects, conversionPanics *prometheus.CounterVec
	conversionsLeft                     *prometheus.GaugeVec
}

// NewMetrics registers the metrics. If another Manager of the program has registered them, it shares those. Without a
// registerer, the metrics are counted but not exposed. It returns an error if another collector has one of the names.
func NewMetrics(registerer prometheus.Registerer) (*Metrics, error) {
	steps, err := chain.NewMetrics(registerer)
	r := collectors.Registration{Registerer: registerer, Err: err}
	m := &Metrics{
		steps: steps,
		refused: r.Counters("admission_refused_requests_total",
			"Requests that no webhook saw, by the HTTP status of the answer.", "code"),
		inFlight: r.Gauges("admission_in_flight_requests",
			"Admission requests in flight, including those that wait for a slot.").WithLabelValues(),
		requestBytes: r.Histograms("admission_request_bytes",
			"Size of requests.", prometheus.ExponentialBuckets(1<<10, 4, 8)).WithLabelValues(), // to 16 MiB
		conversionDuration: r.Histograms("conversion_duration_seconds",
			"Time from the arrival of a conversion request to the answer.", chain.Buckets, "crd"),
		conversionObjects: r.Counters("conversion_objects_total",
			"Objects of conversion requests: converted, or failed. Of those that are converted, incomplete have lost values, and ignored have annotations that are not applied.", "crd", "result"),
		conversionPanics: r.Counters("conversion_panics_total",
			"Panics of conversions.", "crd"),
		conversionsLeft: r.Gauges("conversion_left_behind_runs",
			"Conversion requests whose conversion continues after their deadline.", "crd"),
	}
	r.Gauges("admission_slots",
		"Number of requests that run steps at once; further requests wait.").WithLabelValues().Set(callsAtWork)
	r.Gauges("admission_in_flight_limit",
		"Number of requests in flight at which further ones are refused with 503.").WithLabelValues().Set(callsAtWork + callsWaiting)
	return m, r.Err
}

// Refused counts a request that no webhook sees, by the HTTP status of the answer.
func (m *Metrics) Refused(status int) {
	m.refused.WithLabelValues(strconv.Itoa(status)).Inc()
}

// ConversionMetrics counts the objects of one CustomResourceDefinition.
type ConversionMetrics struct{ succeeded, failed, incomplete, ignored, panics prometheus.Counter }

// Conversion returns the counters of a CustomResourceDefinition.
func (m *Metrics) Conversion(crd string) *ConversionMetrics {
	return &ConversionMetrics{
		succeeded: m.conversionObjects.WithLabelValues(crd, "converted"), failed: m.conversionObjects.WithLabelValues(crd, "failed"),
		incomplete: m.conversionObjects.WithLabelValues(crd, "incomplete"), ignored: m.conversionObjects.WithLabelValues(crd, "ignored"),
		panics: m.conversionPanics.WithLabelValues(crd),
	}
}

// These count an object that was converted, or could not be; one that was converted and has lost values, or has annotations
// that are not applied; and a panic.

func (c *ConversionMetrics) Converted()  { c.succeeded.Inc() }
func (c *ConversionMetrics) Failed()     { c.failed.Inc() }
func (c *ConversionMetrics) Incomplete() { c.incomplete.Inc() }
func (c *ConversionMetrics) Ignored()    { c.ignored.Inc() }
func (c *ConversionMetrics) Panicked()   { c.panics.Inc() }
