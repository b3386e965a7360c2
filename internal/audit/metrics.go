package audit

// This file exposes the result of the last audit that was complete.

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"code.cloudfoundry.org/eirinix/internal/collectors"
)

// Metrics are the gauges of audits. All Managers of a program share them. A nil Metrics counts nothing.
type Metrics struct{ objects, findings, duration, completedAt *prometheus.GaugeVec }

// NewMetrics registers the gauges, or finds those that an earlier audit has registered.
func NewMetrics(registerer prometheus.Registerer) (*Metrics, error) {
	r := collectors.Registration{Registerer: registerer}
	m := &Metrics{
		objects:     r.Gauges("audit_objects", "Objects that a step was asked about in the last complete audit.", "step"),
		findings:    r.Gauges("audit_findings", "Objects for which a step had a finding in the last complete audit, by result: denied, drift, failed, unknown.", "step", "result"),
		duration:    r.Gauges("audit_duration_seconds", "Time that the last complete audit took."),
		completedAt: r.Gauges("audit_last_completed_timestamp_seconds", "Time at which the last complete audit ended."),
	}
	return m, r.Err
}

// completed sets the gauges of the steps that were asked. Those of other steps stay.
func (m *Metrics) completed(steps []Step, s Summary, took time.Duration, at time.Time) {
	if m == nil {
		return
	}
	for _, step := range steps {
		m.objects.WithLabelValues(step.Name).Set(float64(s.Asked[step.Name]))
		for _, result := range []Result{Denied, Drift, Failed, Unknown} {
			m.findings.WithLabelValues(step.Name, string(result)).Set(float64(s.Findings[step.Name][result]))
		}
	}
	m.duration.WithLabelValues().Set(took.Seconds())
	m.completedAt.WithLabelValues().Set(float64(at.UnixMilli()) / 1000)
}
