package cluster

// This file records Events.

import (
	"context"

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
