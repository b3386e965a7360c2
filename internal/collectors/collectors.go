// Package collectors registers the metrics of the library. All Managers of a program share them.
package collectors

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// Registration registers collectors until one fails. Their names begin with namespace.
type Registration struct {
	Registerer prometheus.Registerer // nil registers nothing
	Err        error                 // another collector has one of the names
}

const namespace = "eirinix"

// Counters makes counters.
func (r *Registration) Counters(name, help string, labels ...string) *prometheus.CounterVec {
	opts := prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}
	return register(r, prometheus.NewCounterVec(opts, labels))
}

// Gauges makes gauges.
func (r *Registration) Gauges(name, help string, labels ...string) *prometheus.GaugeVec {
	opts := prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help}
	return register(r, prometheus.NewGaugeVec(opts, labels))
}

// Histograms makes histograms.
func (r *Registration) Histograms(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	opts := prometheus.HistogramOpts{Namespace: namespace, Name: name, Help: help, Buckets: buckets}
	return register(r, prometheus.NewHistogramVec(opts, labels))
}

// register returns the collector, or the equal one that is registered already.
func register[C prometheus.Collector](r *Registration, c C) C {
	if r.Registerer == nil || r.Err != nil {
		return c
	}
	err := r.Registerer.Register(c)
	if registered, ok := errors.AsType[prometheus.AlreadyRegisteredError](err); ok {
		if same, ok := registered.ExistingCollector.(C); ok {
			return same
		}
	}
	r.Err = err
	return c
}
