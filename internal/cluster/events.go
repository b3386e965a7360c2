package cluster

// This file is for observing a program from outside: Events, and metrics that several parts of a program share.

import (
	"context"
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
)

// NewRecorder returns a recorder of Events. An Event that repeats is counted in a series. The recorder ends with ctx.
// It is nil if Events cannot be recorded.
func NewRecorder(ctx context.Context, clients Clients, controller string) events.EventRecorder {
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: clients.EventsV1()})
	if err := broadcaster.StartRecordingToSinkWithContext(ctx); err != nil {
		return nil
	}
	context.AfterFunc(ctx, broadcaster.Shutdown)
	return broadcaster.NewRecorder(scheme.Scheme, controller)
}

// Gauges registers gauges, or returns the ones that another part of the program has registered.
func Gauges(registerer prometheus.Registerer, namespace, name, help string, labels ...string) (*prometheus.GaugeVec, error) {
	g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help}, labels)
	err := registerer.Register(g)
	if registered, ok := errors.AsType[prometheus.AlreadyRegisteredError](err); ok {
		if same, ok := registered.ExistingCollector.(*prometheus.GaugeVec); ok {
			return same, nil
		}
	}
	return g, err
}
