package serving

// This file is for the program's own controller-runtime manager: it serves on the webhook server of that, or takes its
// place.

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"code.cloudfoundry.org/eirinix/internal/lograte"
	"code.cloudfoundry.org/eirinix/internal/wait"
)

// HostOf returns the KubeManager's own webhook server if it has certificates, with a copy of its options. So it does if it
// has handlers, because with the first one it sets its CertDir. A server without certificates is switched off, and only the
// options are returned, for the server in its place. Asking for the server has added it to the KubeManager, and without
// certificates it would keep the KubeManager from starting.
func HostOf(mgr manager.Manager, log logr.Logger) (*webhook.DefaultServer, webhook.Options) {
	server, ok := mgr.GetWebhookServer().(*webhook.DefaultServer)
	switch {
	case !ok:
		return nil, webhook.Options{}
	case server.Options.Port < 0: // by the program, or by another Manager, which then has its address and its handlers
		return nil, webhook.Options{TLSOpts: server.Options.TLSOpts}
	}
	o := server.Options
	dir, cert, key := HostFiles(o)
	_, noCertificate := os.Stat(filepath.Join(dir, cert))
	_, noKey := os.Stat(filepath.Join(dir, key))
	if o.CertDir != "" || o.CertName != "" || o.KeyName != "" || errors.Join(noCertificate, noKey) == nil || HasCertificates(o) {
		return server, o
	}
	if o.WebhookMux == nil {
		o.WebhookMux = http.NewServeMux() // to see later what was registered
	}
	server.Options.Port, server.Options.WebhookMux = -1, o.WebhookMux
	log.Info("the KubeManager's own webhook server has no certificates and is switched off; the Manager runs a server of its own, with the TLSOpts of that one, and at its Host and Port if ListenAddress is empty. To use that one, set its CertDir, or register a handler on it, before NewManager")
	return nil, o
}

// HostFiles returns the certificate files of a webhook server. The defaults are those of controller-runtime.
func HostFiles(o webhook.Options) (dir, cert, key string) {
	dir = cmp.Or(o.CertDir, filepath.Join(os.TempDir(), "k8s-webhook-server", "serving-certs"))
	return dir, cmp.Or(o.CertName, "tls.crt"), cmp.Or(o.KeyName, "tls.key")
}

// HasCertificates reports whether the TLS options of a server provide a certificate.
func HasCertificates(o webhook.Options) bool {
	config := ChangedTLS(new(tls.Config), o.TLSOpts)
	return config.GetCertificate != nil || len(config.Certificates) > 0
}

// CheckReplaced returns an error for each option of a KubeManager's webhook server that a Server in its place cannot keep,
// and for each change of TLS that a Server cannot keep beside those.
func CheckReplaced(o webhook.Options, change func(*tls.Config)) error {
	errs := []error{CheckTLS("ManagerOptions.KubeManager has a webhook server whose TLSOpts", o.TLSOpts)}
	if errs[0] != nil {
		o.TLSOpts = nil // they are reported once
	}
	errs = append(errs, CheckTLS("ManagerOptions.TLS", append(slices.Clip(o.TLSOpts), change)))
	if dir, _, _ := HostFiles(o); o.ClientCAName != "" {
		errs = append(errs, fmt.Errorf("eirinix: ManagerOptions.KubeManager has a webhook server with ClientCAName, but without certificates, so that the Manager's server takes its place; set ClientCA.File to %q in place of it", filepath.Join(dir, o.ClientCAName)))
	}
	if o.WebhookMux == nil {
		return errors.Join(errs...)
	}
	if paths := Registered(o.WebhookMux); len(paths) > 0 {
		errs = append(errs, fmt.Errorf("eirinix: ManagerOptions.KubeManager has a webhook server with handlers, but without certificates, so that the Manager's server takes its place and does not serve %s; add them with AddExtension, or register them before NewManager, so that the other server serves all", strings.Join(paths, ", ")))
	}
	return errors.Join(errs...)
}

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
