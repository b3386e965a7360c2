package cluster

// This file connects to a cluster: it loads the configuration, and makes the clients of the API groups that the library
// uses, and the controller-runtime manager of programs that bring none.

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"

	"github.com/go-logr/logr"
	"go.uber.org/zap/zapcore"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes/scheme"
	authenticationv1client "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationv1client "k8s.io/client-go/kubernetes/typed/authorization/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	eventsv1client "k8s.io/client-go/kubernetes/typed/events/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/flowcontrol"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// LoadConfig returns the connection's configuration and the namespace of its context. It reads the kubeconfig at that
// path. If the path is empty, it uses the service account of the pod, or else the kubeconfig that kubectl finds. Errors
// name the option of the Manager.
func LoadConfig(kubeconfig string) (*rest.Config, string, error) {
	if kubeconfig == "" {
		cfg, err := rest.InClusterConfig()
		if err == nil {
			return cfg, "", nil
		}
		if !errors.Is(err, rest.ErrNotInCluster) {
			return nil, "", fmt.Errorf("eirinix: this is a pod without usable service account (automountServiceAccountToken?); mount one, or set ManagerOptions.KubeConfig: %w", err)
		}
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules() // $KUBECONFIG, ~/.kube/config
	rules.ExplicitPath = kubeconfig
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil)
	cfg, err := loader.ClientConfig()
	switch {
	case err == nil:
	case kubeconfig != "":
		return nil, "", fmt.Errorf("eirinix: ManagerOptions.KubeConfig %q cannot be used; give the path of a kubeconfig file: %w", kubeconfig, err)
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

// Clients holds the clients of the API groups that this library uses. A whole kubernetes.Clientset implements it too,
// but links the clients of all groups into each program.
type Clients interface {
	Discovery() discovery.DiscoveryInterfaces
	AuthenticationV1() authenticationv1client.AuthenticationV1Interface
	AuthorizationV1() authorizationv1client.AuthorizationV1Interface
	CoreV1() corev1client.CoreV1Interface
	EventsV1() eventsv1client.EventsV1Interface
}

type clients struct {
	discovery      *discovery.DiscoveryClient
	authentication *authenticationv1client.AuthenticationV1Client
	authorization  *authorizationv1client.AuthorizationV1Client
	core           *corev1client.CoreV1Client
	events         *eventsv1client.EventsV1Client
}

// NewClients returns clients that share connections and a rate limit, as those of a Clientset do.
func NewClients(config *rest.Config) (Clients, error) {
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	return NewClientsWith(config, httpClient)
}

// NewClientsWith is NewClients with an existing HTTP client.
func NewClientsWith(config *rest.Config, httpClient *http.Client) (Clients, error) {
	shared := *config
	if shared.RateLimiter == nil && shared.QPS > 0 {
		shared.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(shared.QPS, shared.Burst)
	}
	var (
		c    clients
		errs [5]error
	)
	c.discovery, errs[0] = discovery.NewDiscoveryClientForConfigAndClient(&shared, httpClient)
	c.authentication, errs[1] = authenticationv1client.NewForConfigAndClient(&shared, httpClient)
	c.authorization, errs[2] = authorizationv1client.NewForConfigAndClient(&shared, httpClient)
	c.core, errs[3] = corev1client.NewForConfigAndClient(&shared, httpClient)
	c.events, errs[4] = eventsv1client.NewForConfigAndClient(&shared, httpClient)
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	return &c, nil
}

func (c *clients) Discovery() discovery.DiscoveryInterfaces { return c.discovery }

func (c *clients) AuthenticationV1() authenticationv1client.AuthenticationV1Interface {
	return c.authentication
}

func (c *clients) AuthorizationV1() authorizationv1client.AuthorizationV1Interface {
	return c.authorization
}

func (c *clients) CoreV1() corev1client.CoreV1Interface       { return c.core }
func (c *clients) EventsV1() eventsv1client.EventsV1Interface { return c.events }

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

// NewKubeManager returns a controller-runtime manager. Its cache holds objects of the namespace alone, unless that is
// empty. ready is for its readiness probe.
func NewKubeManager(cfg *rest.Config, options manager.Options, namespace string, ready func() error) (manager.Manager, error) {
	// Two Managers in one process can have controllers of the same name.
	options.Controller = config.Controller{SkipNameValidation: new(true)}
	if namespace != "" {
		options.Cache.DefaultNamespaces = map[string]cache.Config{namespace: {}}
	}
	if _, unwatchable := cfg.Transport.(interface{ NoWatches() }); unwatchable { // an in-memory API, of a test or a preview
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
		mgr.AddReadyzCheck("eirinix", func(*http.Request) error { return ready() }),
	); err != nil {
		return nil, fmt.Errorf("eirinix: cannot add health checks to the controller-runtime manager: %w", err)
	}
	return mgr, nil
}

// Calm returns a core for the log of a controller-runtime manager.
func Calm(c zapcore.Core) zapcore.Core { return calm{c} }

// calm is a core for controller-runtime's manager. The lines with which it stops are of level Debug: there are many of
// them, before each error of Start.
type calm struct{ zapcore.Core }

func (c calm) With(fields []zapcore.Field) zapcore.Core { return calm{c.Core.With(fields)} }

func (c calm) Check(entry zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if strings.HasPrefix(entry.Message, "Stopping and waiting for ") || strings.HasPrefix(entry.Message, "Wait completed, ") {
		entry.Level = zapcore.DebugLevel
	}
	return c.Core.Check(entry, checked)
}

var processLogger sync.Once // SetLogger is not safe for Managers that start at the same time

// SetProcessLogger sets the logger of controller-runtime's packages, unless the program has set one. It is one for the
// whole process. Without it, those packages log a complaint with a stack trace. The first call wins.
func SetProcessLogger(log logr.Logger) {
	processLogger.Do(func() { logf.SetLogger(log) })
}
