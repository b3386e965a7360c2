package eirinix

// This file connects to the cluster and makes the controller-runtime manager.

import (
	"cmp"
	"crypto/tls"
	"fmt"
	"net/http"
	"sync"

	"github.com/go-logr/logr"
	"github.com/go-logr/zapr"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"code.cloudfoundry.org/eirinix/internal/cluster"
	"code.cloudfoundry.org/eirinix/internal/metricsauth"
	"code.cloudfoundry.org/eirinix/internal/serving"
)

// ownQPS is the minimum rate limit, in requests per second, of the library's own client.
const ownQPS = 50

// connection holds the clients for the cluster, each made on first use. It is safe for concurrent use.
type connection struct {
	api         *cluster.API                                // the state that the library's own requests share
	hooks       *http.ServeMux                              // the handlers on the webhook server of the controller-runtime manager
	checkReady  func() error                                // of its health checks
	certificate func(*tls.ClientHelloInfo) *tls.Certificate // of its metrics server; nil until there is one

	mu               sync.Mutex // guards the fields below
	config           *rest.Config
	own              *rest.Config    // for the library's own requests, which have deadlines
	contextNamespace string          // of the kubeconfig's context
	clientset        cluster.Clients // uses own
	mapper           meta.RESTMapper // uses own
	manager          manager.Manager
	start            func(manager.Manager) <-chan struct{} // starts it; nil if it has been started, or must not be
	ended            <-chan struct{}                       // from start, if GetKubeManager called it
	saidDefault      bool                                  // the log already mentions the namespace "default"
}

// GetKubeConnection returns the connection to the cluster: RestConfig, else KubeConfig, else the pod's service account,
// else $KUBECONFIG, else ~/.kube/config. It reads files, but makes no request.
func (m *ExtensionManager) GetKubeConnection() (*rest.Config, error) {
	return m.given().kubeConnection()
}

func (s setup) kubeConnection() (*rest.Config, error) {
	s.connection.mu.Lock()
	defer s.connection.mu.Unlock()
	return s.connection.restConfig(s.options)
}

// newConnection returns a connection that is made on first use.
func (m *ExtensionManager) newConnection() *connection {
	return &connection{api: &m.api, hooks: m.hooks, checkReady: m.readiness.Check, certificate: m.servingCertificate}
}

// servingCertificate returns the certificate that the Manager serves with, or nil.
func (m *ExtensionManager) servingCertificate(hello *tls.ClientHelloInfo) *tls.Certificate {
	p := m.program.Load()
	if p == nil {
		return nil
	}
	certificate, _ := p.certificates.GetCertificate(hello)
	return certificate
}

// GetKubeClient returns a client for the core API that uses the Manager's connection.
func (m *ExtensionManager) GetKubeClient() (corev1client.CoreV1Interface, error) {
	config, err := m.GetKubeConnection()
	if err != nil {
		return nil, err
	}
	client, err := corev1client.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("eirinix: the kubeconfig cannot be used: %w", err)
	}
	return client, nil
}

// GetKubeManager returns the controller-runtime manager that uses the Manager's connection. Start starts it before the
// first call is served and stops it after the last. While the Manager runs, the first GetKubeManager starts it, and
// returns once its caches can be used. It is nil, and an error is logged, if the manager cannot be made.
func (m *ExtensionManager) GetKubeManager() manager.Manager {
	s := m.given()
	c := s.connection
	c.mu.Lock()
	mgr, err := c.kubeManager(s)
	if start := c.start; err == nil && start != nil {
		c.start, c.ended = nil, start(mgr)
	}
	ended := c.ended
	c.mu.Unlock()
	if err != nil {
		s.options.Logger.Errorw("there is no controller-runtime manager", "error", err.Error())
		return nil
	}
	if ended != nil { // this call or one before it has started it
		select {
		case <-mgr.Elected():
		case <-ended:
		}
	}
	return mgr
}

// startKubeManager starts the controller-runtime manager if the program has asked for it, or something is served by it.
// Otherwise GetKubeManager starts it: most programs need none, and it takes 25 goroutines.
func (s setup) startKubeManager(start func(manager.Manager) <-chan struct{}) error {
	c, o := s.connection, s.options
	c.mu.Lock()
	defer c.mu.Unlock()
	if o.KubeManager == nil && c.manager == nil && cmp.Or(o.MetricsBindAddress, "0") == "0" && cmp.Or(o.HealthProbeBindAddress, "0") == "0" {
		c.start = start
		return nil
	}
	mgr, err := c.kubeManager(s)
	if err == nil {
		start(mgr)
	}
	return err
}

// startNoKubeManager makes GetKubeManager return a manager that is not started.
func (s setup) startNoKubeManager() {
	s.connection.mu.Lock()
	defer s.connection.mu.Unlock()
	s.connection.start = nil
}

// own returns the connection for the library's own requests, with its clients. The requests have deadlines. While the
// API server does not answer, they wait for each other.
func (s setup) own() (*rest.Config, cluster.Clients, error) {
	c := s.connection
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.own != nil {
		return c.own, c.clientset, nil
	}
	config, err := c.restConfig(s.options)
	if err != nil {
		return nil, nil, err
	}
	config = rest.CopyConfig(config)
	config.Wrap(c.api.Wrap)
	// The API server compresses watches too. Each of them would hold 40 KB to decompress events that are smaller.
	config.DisableCompression = true
	// The default rate limit suits interactive use. A start checks a dozen rights at once, and the later requests have
	// limits of their own.
	config.QPS, config.Burst = max(config.QPS, ownQPS), max(config.Burst, 2*ownQPS)
	if c.clientset, err = cluster.NewClients(config); err != nil {
		return nil, nil, fmt.Errorf("eirinix: the kubeconfig cannot be used: %w", err)
	}
	c.own = config
	return config, c.clientset, nil
}

// restMapper returns the RESTMapper of the kinds that the cluster serves. It makes no request until it is used.
func (s setup) restMapper() (meta.RESTMapper, error) {
	config, _, err := s.own()
	if err != nil {
		return nil, err
	}
	if s.options.KubeManager != nil {
		return s.options.KubeManager.GetRESTMapper(), nil
	}
	c := s.connection
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mapper == nil {
		client, err := rest.HTTPClientFor(config)
		if err != nil {
			return nil, fmt.Errorf("eirinix: the kubeconfig cannot be used: %w", err)
		}
		if c.mapper, err = apiutil.NewDynamicRESTMapper(config, client); err != nil {
			return nil, fmt.Errorf("eirinix: the kubeconfig cannot be used: %w", err)
		}
	}
	return c.mapper, nil
}

// restConfig returns the connection, which is loaded on first use. The caller holds mu.
func (c *connection) restConfig(o ManagerOptions) (*rest.Config, error) {
	if c.config != nil {
		return c.config, nil
	}
	cfg, namespace, err := o.connection()
	if err != nil {
		return nil, err
	}
	cfg = rest.CopyConfig(cfg)
	cfg.UserAgent = cmp.Or(cfg.UserAgent, rest.DefaultKubernetesUserAgent()+" eirinix/"+o.OperatorFingerprint)
	if cfg.WarningHandler == nil && cfg.WarningHandlerWithContext == nil {
		cfg.WarningHandler = rest.NoWarnings{} // deprecation warnings are for authors of YAML, not for a program's log
	}
	c.config, c.contextNamespace = cfg, namespace
	return cfg, nil
}

// connection loads the connection, and returns it with the namespace of its context.
func (o ManagerOptions) connection() (*rest.Config, string, error) {
	switch {
	case o.KubeManager != nil:
		return o.KubeManager.GetConfig(), "", nil
	case o.RestConfig != nil:
		return o.RestConfig, "", nil
	}
	return cluster.LoadConfig(o.KubeConfig)
}

// secretNamespace returns the namespace of the certificate Secret.
func (s setup) secretNamespace() string {
	c, o := s.connection, s.options
	c.mu.Lock()
	defer c.mu.Unlock()
	if chosen := cmp.Or(o.WebhookNamespace, o.Namespace); chosen != "" {
		return chosen
	}
	if found := cmp.Or(podNamespace(), c.contextNamespace); found != "" {
		return found
	}
	if !c.saidDefault {
		c.saidDefault = true
		o.Logger.Infow("neither WebhookNamespace nor Namespace is set: the certificate Secret is in the namespace \"default\"", "secret", o.SetupCertificateName)
	}
	return metav1.NamespaceDefault
}

// kubeManager returns the controller-runtime manager, which is made on first use. The caller holds mu.
func (c *connection) kubeManager(s setup) (manager.Manager, error) {
	o := s.options
	if o.KubeManager != nil {
		return o.KubeManager, nil
	}
	if c.manager != nil {
		return c.manager, nil
	}
	cfg, err := c.restConfig(o)
	if err != nil {
		return nil, err
	}
	mgr, err := cluster.NewKubeManager(cfg, manager.Options{
		Scheme: o.Scheme, Logger: s.log(zap.WrapCore(cluster.Calm)), WebhookServer: serving.Placeholder{Mux: c.hooks, Ready: c.checkReady},
		Metrics: c.metrics(s), HealthProbeBindAddress: cmp.Or(o.HealthProbeBindAddress, "0"),
	}, o.Namespace, c.checkReady)
	if err != nil {
		return nil, err
	}
	c.manager = mgr
	return mgr, nil
}

// metrics returns the options of the metrics server.
func (c *connection) metrics(s setup) metricsserver.Options {
	options := metricsserver.Options{BindAddress: cmp.Or(s.options.MetricsBindAddress, "0")}
	if s.options.TracerProvider != nil { // only this format has exemplars
		options.HandlerOpts = append(options.HandlerOpts, func(o *promhttp.HandlerOpts) { o.EnableOpenMetrics = true })
	}
	if s.options.reviewsMetrics() {
		metricsauth.Protect(&options, c.certificate, s.log())
	}
	return options
}

// reviewsMetrics reports whether readers of the metrics are authenticated and authorized.
func (o ManagerOptions) reviewsMetrics() bool {
	return !o.MetricsUnauthenticated && metricsauth.Exposed(o.MetricsBindAddress)
}

// log returns the logger of the options as a logr.Logger.
func (s setup) log(options ...zap.Option) logr.Logger {
	options = append(options, zap.AddStacktrace(zapcore.FatalLevel)) // a stack trace of this library is of no use to readers of the program's log
	return zapr.NewLogger(s.options.Logger.Desugar().WithOptions(options...)).WithName("eirinix")
}
