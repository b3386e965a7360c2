package reads

// This file exposes how many objects are held, and whether they are up to date.

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"code.cloudfoundry.org/eirinix/internal/cluster"
)

// Metrics are the gauges of a program's sources. A nil Metrics counts nothing.
type Metrics struct{ objects, interruption, absent *prometheus.GaugeVec }

// NewMetrics registers the gauges, or finds those that another Manager has registered.
func NewMetrics(registerer prometheus.Registerer) (*Metrics, error) {
	objects, err := cluster.Gauges(registerer, "eirinix", "read_objects",
		"Objects that steps look at, as they are held in memory.", "objects")
	interruption, other := cluster.Gauges(registerer, "eirinix", "read_interruption_timestamp_seconds",
		"Time at which the watch of objects that steps look at broke; 0 while it is alive, or if it never was.", "objects")
	absent, third := cluster.Gauges(registerer, "eirinix", "read_missing",
		"1 if there is no object of those of which a step requires one, else 0.", "objects")
	return &Metrics{objects, interruption, absent}, errors.Join(err, other, third)
}

// missing sets whether an object of a view is missing that a step requires.
func (m *Metrics) missing(v *view, absent bool) {
	if m == nil || m.absent == nil {
		return
	}
	value := 0.
	if absent {
		value = 1
	}
	m.absent.WithLabelValues(v.String()).Set(value)
}

// stored sets the number of objects of a source.
func (m *Metrics) stored(s *source) {
	if m == nil || m.objects == nil {
		return
	}
	m.objects.WithLabelValues(s.String()).Set(float64(s.held.Load()))
}

// interrupted sets since when a source's watch is broken.
func (m *Metrics) interrupted(s *source) {
	if m == nil || m.interruption == nil {
		return
	}
	s.mu.Lock()
	since := s.since
	s.mu.Unlock()
	if !s.listed.Load() { // its steps are held back, which has a metric of its own
		since = time.Time{}
	}
	value := 0.
	if !since.IsZero() {
		value = float64(since.UnixMilli()) / 1000
	}
	m.interruption.WithLabelValues(s.String()).Set(value)
}
