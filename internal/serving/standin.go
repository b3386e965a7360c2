package serving

import (
	"context"
	"net/http"

	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
)

// StandIn stands in the controller-runtime manager for the webhook server. The Manager runs the real one
// itself, because it must outlive the manager's context, or requests in flight would be cut off. What a
// program registers here (a conversion webhook, say) is served on the same port, below its own path.
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
