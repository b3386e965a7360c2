package reads

// This file exposes how many objects are held, and whether they are up to date.

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"code.cloudfoundry.org/eirinix/internal/collectors"
)

// Metrics are the gauges of a program's sources. The zero value counts nothing.
type Metrics struct{ objects, interruption, absent *prometheus.GaugeVec }

// NewMetrics registers the gauges, or finds those that another Manager has registered.
func NewMetrics(registerer prometheus.Registerer) (*Metrics, error) {
	r := collectors.Registration{Registerer: registerer}
	m := &Metrics{
		objects: r.Gauges("read_objects", "Objects that steps look at, as they are held in memory.", "objects"),
		interruption: r.Gauges("read_interruption_timestamp_seconds",
			"Time at which the watch of objects that steps look at broke; 0 while it is alive, or if it never was.", "objects"),
		absent: r.Gauges("read_missing", "1 if there is no object of those of which a step requires one, else 0.", "objects"),
	}
	return m, r.Err
}

// set sets the gauge of some objects. It does nothing without metrics.
func set(gauge *prometheus.GaugeVec, objects fmt.Stringer, value float64) {
	if gauge != nil {
		gauge.WithLabelValues(objects.String()).Set(value)
	}
}

// stored sets the number of objects of a source.
func (m Metrics) stored(s *source) { set(m.objects, s, float64(s.held.Load())) }

// missing sets whether an object of a view is missing that a step requires.
func (m Metrics) missing(v *view, absent bool) {
	value := 0.
	if absent {
		value = 1
	}
	set(m.absent, v, value)
}

// interrupted sets since when a source's watch is broken.
func (m Metrics) interrupted(s *source) {
	s.mu.Lock()
	since, value := s.since, 0.
	s.mu.Unlock()
	if s.listed.Load() && !since.IsZero() { // before, its steps are held back, which has a metric of its own
		value = float64(since.UnixMilli()) / 1000
	}
	set(m.interruption, s, value)
}
