package serving

// This file is for a controller-runtime manager: it serves on the manager's webhook server, or takes its place.

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"code.cloudfoundry.org/eirinix/internal/lograte"
	"code.cloudfoundry.org/eirinix/internal/wait"
)

// pollServer is the interval at which the manager's server is polled until it has started. It offers no notification.
const pollServer = 250 * time.Millisecond

// Hosted is the webhook server of the program's own controller-runtime manager, which also serves our paths. It starts
// and ends with that manager.
type Hosted struct {
	host     *webhook.DefaultServer
	handler  http.Handler
	prefix   string
	log      logr.Logger
	draining atomic.Bool
	done     chan struct{}
}

// NewHosted returns a Hosted that serves handler below a prefix.
func NewHosted(host *webhook.DefaultServer, handler http.Handler, prefix string, log logr.Logger) *Hosted {
	return &Hosted{host: host, handler: http.StripPrefix(prefix, handler), prefix: prefix, log: log, done: make(chan struct{})}
}

// Start registers the handler on the server and returns when the server answers. The handler receives every path below
// the prefix, including unknown ones, which belong to another version.
func (s *Hosted) Start(ctx context.Context) (err error) {
	defer func() {
		if v := recover(); v != nil { // Register panics if a path is taken
			err = fmt.Errorf("eirinix: the KubeManager's webhook server cannot serve the paths below %s; give each Manager an OperatorFingerprint of its own: %v", s.prefix, v)
		}
	}()
	s.host.Register(s.prefix+"/", s.handler)
	answers, waiting := s.host.StartedChecker(), lograte.Limiter{}
	for {
		err := answers(nil)
		if err == nil {
			s.log.Info("serving on the KubeManager's webhook server", "address", s.Addr().String())
			return nil
		}
		waiting.Info(s.log, "waiting for the KubeManager's webhook server", err.Error())
		if err := wait.Sleep(ctx, pollServer); err != nil {
			return err
		}
	}
}

func (s *Hosted) Done() <-chan struct{} { return s.done }
func (s *Hosted) Err() error            { return nil }
func (s *Hosted) Drain()                { s.draining.Store(true) }
func (s *Hosted) Draining() bool        { return s.draining.Load() }

// Shutdown only drains. It leaves the server to its manager, which waits for calls in flight.
func (s *Hosted) Shutdown(context.Context) error {
	s.Drain()
	return nil
}

func (s *Hosted) Port() int { return cmp.Or(s.host.Options.Port, webhook.DefaultPort) }

func (s *Hosted) Addr() net.Addr {
	return hostedAddr(net.JoinHostPort(s.host.Options.Host, strconv.Itoa(s.Port())))
}

// Registered returns the paths of the handlers that were registered on a webhook server with this mux. A mux does not list
// its paths, but controller-runtime has a metric for each path of any server.
func Registered(mux *http.ServeMux) (paths []string) {
	families, _ := ctrlmetrics.Registry.Gather() // an error is about other metrics
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			if family.GetName() != "controller_runtime_webhook_requests_in_flight" {
				break
			}
			path := metric.GetLabel()[0].GetValue()
			if _, pattern := mux.Handler(&http.Request{URL: &url.URL{Path: path}}); pattern == path {
				paths = append(paths, path)
			}
		}
	}
	return paths
}

// hostedAddr is an address as it was configured.
type hostedAddr string

func (hostedAddr) Network() string  { return "tcp" }
func (a hostedAddr) String() string { return string(a) }

// Placeholder takes the place of the webhook server within a controller-runtime manager. The Manager runs the real one itself: it
// must outlive the manager's context, or requests in flight would be cut off. Handlers that a program registers here
// (for a conversion webhook, say) are served on the same port, below their own paths.
type Placeholder struct {
	Mux   *http.ServeMux
	Ready func() error
}

func (Placeholder) NeedLeaderElection() bool                  { return false }
func (s Placeholder) Register(path string, hook http.Handler) { s.Mux.Handle(path, hook) }
func (s Placeholder) WebhookMux() *http.ServeMux              { return s.Mux }
func (s Placeholder) StartedChecker() healthz.Checker {
	return func(*http.Request) error { return s.Ready() }
}

func (Placeholder) Start(ctx context.Context) error {
	<-ctx.Done()
	return nil
}
