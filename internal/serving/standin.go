package serving

// This file holds a substitute for the webhook server of a controller-runtime manager.

import (
	"context"
	"net/http"

	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
)

// StandIn replaces the webhook server within the controller-runtime manager. The Manager runs the real one itself: it
// must outlive the manager's context, or requests in flight would be cut off. Handlers that a program registers here
// (for a conversion webhook, say) are served on the same port, below their own paths.
type StandIn struct {
	Mux   *http.ServeMux
	Ready func() error
}

var _ webhook.Server = StandIn{}

func (StandIn) NeedLeaderElection() bool                  { return false }
func (s StandIn) Register(path string, hook http.Handler) { s.Mux.Handle(path, hook) }
func (s StandIn) WebhookMux() *http.ServeMux              { return s.Mux }
func (s StandIn) StartedChecker() healthz.Checker {
	return func(*http.Request) error { return s.Ready() }
}

func (StandIn) Start(ctx context.Context) error {
	<-ctx.Done()
	return nil
}
