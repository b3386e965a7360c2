package eirinix

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/zapr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
)

// podNamespaceFile is where the kubelet tells a pod its namespace.
const podNamespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// connection is what the Manager knows of the cluster, each part made on first use. It is guarded by
// ExtensionManager.mu.
type connection struct {
	config           *rest.Config
	contextNamespace string // of the kubeconfig's context
	clientset        kubernetes.Interface
	manager          manager.Manager
	saidDefault      bool // that the namespace is "default"
}

// GetKubeConnection gives the connection to the cluster: RestConfig, else KubeConfig, else the pod's service
// account, else $KUBECONFIG, else ~/.kube/config. It reads files, but does not touch the network.
func (m *ExtensionManager) GetKubeConnection() (*rest.Config, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.restConfig()
}

// GetKubeClient gives a client for the core API on the Manager's connection.
func (m *ExtensionManager) GetKubeClient() (corev1client.CoreV1Interface, error) {
	clientset, err := m.clients()
	if err != nil {
		return nil, err
	}
	return clientset.CoreV1(), nil
}

// GetKubeManager gives the controller-runtime manager on the Manager's connection. Start starts it before
// the first call is served and stops it after the last.
func (m *ExtensionManager) GetKubeManager() manager.Manager {
	m.mu.Lock()
	defer m.mu.Unlock()
	mgr, err := m.kubeManager()
	if err != nil {
		m.options.Logger.Errorw("there is no controller-runtime manager", "error", err.Error())
		return nil
	}
	return mgr
}

// clients gives the clientset.
func (m *ExtensionManager) clients() (kubernetes.Interface, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.connection.clientset != nil {
		return m.connection.clientset, nil
	}
	config, err := m.restConfig()
	if err != nil {
		return nil, err
	}
	clientset, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("eirinix: the kubeconfig cannot be used: %w", err)
	}
	m.connection.clientset = clientset
	return clientset, nil
}

// restConfig is called under mu.
func (m *ExtensionManager) restConfig() (*rest.Config, error) {
	if m.connection.config != nil {
		return m.connection.config, nil
	}
	cfg, namespace, err := loadConfig(m.options)
	if err != nil {
		return nil, err
	}
	cfg = rest.CopyConfig(cfg)
	if cfg.UserAgent == "" {
		cfg.UserAgent = rest.DefaultKubernetesUserAgent() + " eirinix/" + m.options.OperatorFingerprint
	}
	if cfg.WarningHandler == nil && cfg.WarningHandlerWithContext == nil {
		cfg.WarningHandler = rest.NoWarnings{} // deprecations are for who writes YAML, not for a program's log
	}
	cfg.Wrap(m.clock.wrap)
	m.connection.config, m.connection.contextNamespace = cfg, namespace
	return cfg, nil
}

// loadConfig finds the connection and the namespace of its context.
func loadConfig(o ManagerOptions) (*rest.Config, string, error) {
	switch {
	case o.KubeManager != nil:
		return o.KubeManager.GetConfig(), "", nil
	case o.RestConfig != nil:
		return o.RestConfig, "", nil
	}
	if o.KubeConfig == "" {
		cfg, err := rest.InClusterConfig()
		if err == nil {
			return cfg, "", nil
		}
		if !errors.Is(err, rest.ErrNotInCluster) {
			return nil, "", fmt.Errorf("eirinix: this is a pod without usable service account (automountServiceAccountToken?); mount one, or set ManagerOptions.KubeConfig: %w", err)
		}
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules() // $KUBECONFIG, ~/.kube/config
	rules.ExplicitPath = o.KubeConfig
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil)
	cfg, err := loader.ClientConfig()
	switch {
	case err == nil:
	case o.KubeConfig != "":
		return nil, "", fmt.Errorf("eirinix: ManagerOptions.KubeConfig %q cannot be used; give the path of a kubeconfig file: %w", o.KubeConfig, err)
	case clientcmd.IsEmptyConfig(err):
		return nil, "", fmt.Errorf("eirinix: no kubeconfig found: this is no pod, and neither %s nor $KUBECONFIG holds one; set ManagerOptions.KubeConfig to the path of one", clientcmd.RecommendedHomeFile)
	default:
		return nil, "", fmt.Errorf("eirinix: the kubeconfig (%s) cannot be used: %w", strings.Join(rules.GetLoadingPrecedence(), ", "), err)
	}
	namespace, given, err := loader.Namespace()
	if err != nil || !given && namespace == metav1.NamespaceDefault {
		namespace = ""
	}
	return cfg, namespace, nil
}

// secretNamespace is where the certificate Secret lies.
func (m *ExtensionManager) secretNamespace() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	o := m.options
	switch {
	case o.WebhookNamespace != "":
		return o.WebhookNamespace
	case o.Namespace != "":
		return o.Namespace
	}
	if own, err := os.ReadFile(podNamespaceFile); err == nil && len(strings.TrimSpace(string(own))) > 0 {
		return strings.TrimSpace(string(own))
	}
	if m.connection.contextNamespace != "" {
		return m.connection.contextNamespace
	}
	if !m.connection.saidDefault {
		m.connection.saidDefault = true
		o.Logger.Infow("neither WebhookNamespace nor Namespace is set: the certificate Secret lies in the namespace \"default\"", "secret", o.SetupCertificateName)
	}
	return metav1.NamespaceDefault
}

// kubeManager is called under mu.
func (m *ExtensionManager) kubeManager() (manager.Manager, error) {
	if m.options.KubeManager != nil {
		return m.options.KubeManager, nil
	}
	if m.connection.manager != nil {
		return m.connection.manager, nil
	}
	cfg, err := m.restConfig()
	if err != nil {
		return nil, err
	}
	o := m.options
	options := manager.Options{
		Scheme:                 o.Scheme,
		Logger:                 m.log(),
		WebhookServer:          ownServer{mux: m.hooks, ready: m.checkReady},
		Metrics:                metricsserver.Options{BindAddress: "0"},
		HealthProbeBindAddress: "0",
		// Controllers of two Managers in one process may have one name.
		Controller: config.Controller{SkipNameValidation: new(true)},
	}
	if o.MetricsBindAddress != "" {
		options.Metrics.BindAddress = o.MetricsBindAddress
	}
	if o.HealthProbeBindAddress != "" {
		options.HealthProbeBindAddress = o.HealthProbeBindAddress
	}
	if o.Namespace != "" {
		options.Cache.DefaultNamespaces = map[string]cache.Config{o.Namespace: {}}
	}
	if _, unwatchable := cfg.Transport.(interface{ NoWatches() }); unwatchable { // an API in memory, of a test or a preview
		options.NewClient = func(config *rest.Config, o client.Options) (client.Client, error) {
			o.Cache = nil
			return client.New(config, o)
		}
	}
	mgr, err := manager.New(cfg, options)
	if err != nil {
		return nil, fmt.Errorf("eirinix: cannot make the controller-runtime manager: %w", err)
	}
	if err := errors.Join(
		mgr.AddHealthzCheck("eirinix", healthz.Ping),
		mgr.AddReadyzCheck("eirinix", func(*http.Request) error { return m.checkReady() }),
	); err != nil {
		return nil, fmt.Errorf("eirinix: cannot add health checks to the controller-runtime manager: %w", err)
	}
	m.connection.manager = mgr
	return mgr, nil
}

// ownServer stands in the controller-runtime manager for the webhook server. The Manager runs the real one
// itself, because it must outlive the manager's context, or requests in flight would be cut off. What a
// program registers here (a conversion webhook, say) is served on the same port, below its own path.
type ownServer struct {
	mux   *http.ServeMux
	ready func() error
}

var _ webhook.Server = ownServer{}

func (ownServer) NeedLeaderElection() bool                  { return false }
func (s ownServer) Register(path string, hook http.Handler) { s.mux.Handle(path, hook) }
func (s ownServer) WebhookMux() *http.ServeMux              { return s.mux }
func (s ownServer) StartedChecker() healthz.Checker {
	return func(*http.Request) error { return s.ready() }
}

func (ownServer) Start(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// log is the logger of the options as a logr.Logger. It is called under mu.
func (m *ExtensionManager) log() logr.Logger {
	return zapr.NewLogger(m.options.Logger.Desugar()).WithName("eirinix")
}

// retryTransient runs f until it succeeds, ctx ends, or it fails for a reason that waiting does not mend.
// Each failure is logged with what is being waited for.
func retryTransient(ctx context.Context, log logr.Logger, what string, f func(context.Context) error) error {
	const first, most = 500 * time.Millisecond, 15 * time.Second
	for wait := first; ; wait = min(2*wait, most) {
		err := f(ctx)
		if err == nil || ctx.Err() != nil || !transient(err) {
			return err
		}
		log.Info("the API server does not answer yet; trying again", "for", what, "in", wait.String(), "error", err.Error())
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return err
		case <-timer.C:
		}
	}
}

// isNetworkError tells whether no answer came at all. An answer that cannot be trusted is a mistake in the
// kubeconfig, which waiting does not mend.
func isNetworkError(err error) bool {
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return false
	}
	_, isURL := errors.AsType[*url.Error](err)
	return isURL || utilnet.IsConnectionRefused(err) || utilnet.IsConnectionReset(err) || utilnet.IsTimeout(err) || utilnet.IsProbableEOF(err) || errors.Is(err, context.DeadlineExceeded)
}

// transient tells whether waiting may help: the API server is not there, or overloaded, or starting.
// What it answers on purpose (forbidden, invalid, unauthorized) stays as it is.
func transient(err error) bool {
	var status apierrors.APIStatus // no error type itself, so AsType does not take it
	if !errors.As(err, &status) {
		return !errors.Is(err, context.Canceled) && isNetworkError(err)
	}
	code := status.Status().Code
	return code >= 500 || code == http.StatusTooManyRequests || code == http.StatusRequestTimeout
}
