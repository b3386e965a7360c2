// Package eirinix turns a program into a Kubernetes admission webhook.
//
// The program has steps. A Mutation changes objects of one kind, a Validation accepts or refuses them, and a Subresource
// decides about exec, eviction or scale. The Manager does everything else: certificates, registration, TLS, the wire
// protocol, patches, draining and diagnosis.
//
//	x := eirinix.NewManager(eirinix.ManagerOptions{ServiceName: "extensions", WebhookNamespace: "cf-system"})
//	x.AddExtension(eirinix.Mutation[*appsv1.Deployment]{ID: "replicas", Apply: setReplicas})
//	x.AddExtension(eirinix.Validation[*corev1.ConfigMap]{ID: "immutable", Update: keepVersion})
//	if err := x.Start(); err != nil {
//		log.Fatal(err)
//	}
//
// A step that returns Deny or Invalid refuses the object. Any other error is a failure, of which FailurePolicy decides.
// Settings say for which objects a step is called, and which others it reads, which Call.Reader returns.
//
// # How the API server calls the program
//
// In Service mode, as above, the API server calls that Service. In URL mode, with Host and Port, it calls
// https://Host:Port. In a split deployment one program calls RegisterExtensions and exits, and another one serves with
// RegisterWebHook set to false. Both share the certificate Secret.
//
// # Objects in the cluster
//
// The Secret <fingerprint>-setupcertificate holds the CA that all replicas share. Each process signs its own serving
// certificate and keeps it in memory.
//
// The MutatingWebhookConfiguration <fingerprint>-mutating-hook registers the mutating steps, and the
// ValidatingWebhookConfiguration <fingerprint>-validating-hook the validating ones. They are updated in place and stay
// when the program stops, so that no object slips through unchanged during a restart.
//
// # EiriniX
//
// Manager, Extension, Watcher, Reconciler, ContextFreeReconciler and LabelGUID come from EiriniX, whose programs keep their
// shape; docs/migrating-from-eirinix.md has what changes. AddExtension accepts them beside steps. A new program needs an Extension only to see the admission
// request itself; a Mutation is shorter. A Watcher receives pod events, alone (Watch) or beside steps (Start). A
// Reconciler registers a controller on GetKubeManager.
package eirinix

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"code.cloudfoundry.org/eirinix/internal/chain"
	"code.cloudfoundry.org/eirinix/internal/cluster"
	"code.cloudfoundry.org/eirinix/internal/controller"
	"code.cloudfoundry.org/eirinix/internal/seam"
	"code.cloudfoundry.org/eirinix/internal/serving"
)

// Manager is the interface through which an Extension uses the program that it runs in: clients, logger and options.
// Its methods are safe for concurrent use. Those that need the cluster connect on first use.
//
// The set of methods is EiriniX's and does not change, because programs check in generated fakes of it. New methods are
// added to *ExtensionManager only.
type Manager interface {
	// AddExtension adds an Extension, a Watcher or a Reconciler. It must be called before Start. An error is returned
	// and also remembered: Validate, Start and RegisterExtensions report it again.
	AddExtension(v any) error
	// AddReconciler adds a Reconciler. It must be called before Start.
	AddReconciler(r Reconciler)
	// AddWatcher adds a Watcher. It must be called before Start or Watch.
	AddWatcher(w Watcher)
	// ListExtensions returns the extensions in the order in which they were added.
	ListExtensions() []Extension
	// ListReconcilers returns the reconcilers in the order in which they were added.
	ListReconcilers() []Reconciler
	// Start runs the Manager until SIGINT, SIGTERM, Stop or an error.
	Start() error
	// Stop makes Start, Run and Watch return. It does not wait for them.
	Stop()
	// Watch runs only the watchers, until SIGINT, SIGTERM, Stop or an error.
	Watch() error
	// RegisterExtensions writes the certificate Secret and the webhook configuration once, and returns.
	RegisterExtensions() error
	// PatchFromPod returns the response that changes the pod of the request into pod. Fields that the Go type does not
	// know are kept. It needs no cluster.
	PatchFromPod(req admission.Request, pod *corev1.Pod) admission.Response
	// GetContext returns a context that ends when the Manager stops. It is never nil.
	GetContext() context.Context
	// GetKubeClient returns a client for the core API.
	GetKubeClient() (corev1client.CoreV1Interface, error)
	// GetKubeConnection returns the connection that all clients use. Copy it before changing it.
	GetKubeConnection() (*rest.Config, error)
	// GetKubeManager returns the controller-runtime manager, for reconcilers. It is made on first use. If it cannot be
	// made, for example without a kubeconfig, it is nil and an error is logged.
	GetKubeManager() manager.Manager
	// GetLogger returns the logger. It is never nil.
	GetLogger() *zap.SugaredLogger
	// GetManagerOptions returns the options with their defaults filled in.
	GetManagerOptions() ManagerOptions
	// SetManagerOptions replaces the options. It must be called before Start. Defaults are filled in again.
	SetManagerOptions(ManagerOptions)
}

var _ Manager = (*ExtensionManager)(nil)

// errStopped is the cause of a requested stop.
var errStopped = controller.ErrStopped

// ExtensionManager is the Manager that NewManager returns. Its methods are safe for concurrent use. It runs only once:
// after Stop, make a new one.
type ExtensionManager struct {
	mu sync.Mutex // guards everything down to hooks
	setup

	root          context.Context // ends on Stop
	stop          context.CancelFunc
	running       context.Context // of Run; nil before Run
	started       bool
	instance      string                 // the name of this Manager among the replicas
	joined        manager.Manager        // the KubeManager that this Manager is a part of
	hosted        bool                   // the program has started the KubeManager
	entered       bool                   // a runnable of the KubeManager runs this Manager
	onlyRegisters bool                   // RegisterExtensions has been called
	host          *webhook.DefaultServer // the KubeManager's webhook server if that serves; else nil
	hostOptions   webhook.Options        // of the KubeManager's webhook server, also if ours is in its place
	watching      watchLoop
	serving       serving.Receiver // nil until the port is open
	hooks         *http.ServeMux   // the handlers that the program itself registered on the webhook server

	// The fields below are safe for concurrent use without mu.
	readiness *controller.Readiness
	api       cluster.API             // the state that the library's own requests share
	program   atomic.Pointer[program] // nil until steps are served
	taps      seam.Taps
	pods      chain.Pods      // the pods that extensions are working on
	network   serving.Network // of a test, as resync is; set before the Manager runs
	resync    time.Duration   // see controller.Config
}

// setup is what a program has given to its Manager. The slices only grow, so a copy does not change.
type setup struct {
	options     ManagerOptions
	connection  *connection // that the options describe
	steps       []definition
	conversions []seam.Conversion
	watchers    []Watcher
	reconcilers []Reconciler
	addErrors   []error
}

// serves reports whether there is anything that the API server calls.
func (s setup) serves() bool { return len(s.steps)+len(s.conversions) > 0 }

// given returns what the program has given until now.
func (m *ExtensionManager) given() setup {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.setup
}

// NewManager makes a Manager. It never fails: Validate and Start report invalid options. It touches neither the network
// nor files, except that it reads the pod's own namespace where WebhookNamespace needs that, and that with a KubeManager it
// checks whether the certificate files of the KubeManager's webhook server exist.
func NewManager(opts ManagerOptions) *ExtensionManager {
	m := &ExtensionManager{
		setup:     setup{options: opts.withDefaults()},
		readiness: controller.NewReadiness(errors.New("not started")),
		instance:  newInstance(),
		hooks:     http.NewServeMux(),
	}
	m.connection = m.newConnection()
	m.resetContext()
	m.join()
	return m
}

// resetContext derives the root context from the options. The caller holds mu, or m is not shared yet.
func (m *ExtensionManager) resetContext() {
	parent := context.Background()
	if c := m.options.Context; c != nil && *c != nil {
		parent = *c
	}
	if m.stop != nil {
		m.stop()
	}
	m.root, m.stop = context.WithCancel(parent)
}

// AddExtension adds an Extension, a Mutation, Validation, Subresource or conversion.Of (by value), a Watcher or a Reconciler
// (including EiriniX's context-free one). Mutating steps run in the order in which they are added. So do validating
// steps, and each of them sees the object after all mutations.
func (m *ExtensionManager) AddExtension(v any) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	err := m.add(v)
	if err != nil {
		m.addErrors = append(m.addErrors, err)
	}
	return err
}

func (m *ExtensionManager) add(v any) error {
	if v == nil {
		return errors.New("eirinix: AddExtension got nil; give it an Extension, Mutation, Validation, Subresource, conversion.Of, Watcher or Reconciler")
	}
	if isNil(v) {
		return fmt.Errorf("eirinix: AddExtension got a nil %T; give it a value", v)
	}
	if m.started {
		return fmt.Errorf("eirinix: AddExtension got %T after Start; add everything before", v)
	}
	switch v := v.(type) {
	case Extension:
		return m.addStep(defineExtension(v))
	case typed:
		return m.addStep(v.define())
	case seam.Converter:
		return m.addConversion(v.Define())
	case Watcher:
		m.watchers = append(m.watchers, v)
	case Reconciler:
		m.reconcilers = append(m.reconcilers, v)
	case ContextFreeReconciler:
		m.reconcilers = append(m.reconcilers, AdaptReconciler(v))
	default:
		return notAnExtension(v)
	}
	return nil
}

func (m *ExtensionManager) addStep(d definition, err error) error {
	if err != nil {
		return err
	}
	if err := d.rename(func(name string) bool {
		return slices.ContainsFunc(m.steps, func(s definition) bool { return s.name == name })
	}); err != nil {
		return err
	}
	m.steps = append(m.steps, d)
	return nil
}

func (m *ExtensionManager) addConversion(c seam.Conversion, err error) error {
	if err != nil {
		return err
	}
	if slices.Contains(crdsOf(m.conversions), c.CRD) {
		return fmt.Errorf("eirinix: the conversion of %q is already added; a definition has one Hub, so give all versions to one conversion.Of", c.CRD)
	}
	if len(m.conversions) == 0 {
		if err := m.startEarly(); err != nil {
			return err
		}
	}
	m.conversions = append(m.conversions, c)
	return nil
}

// AddWatcher adds a Watcher. Unlike AddExtension it returns no error. Validate and Start report a nil Watcher.
func (m *ExtensionManager) AddWatcher(w Watcher) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if isNil(w) {
		m.addErrors = append(m.addErrors, errors.New("eirinix: AddWatcher got nil; give it a Watcher"))
		return
	}
	m.watchers = append(m.watchers, w)
}

// AddReconciler adds a Reconciler. Unlike AddExtension it returns no error. Validate and Start report a nil Reconciler,
// or one that is added after Start.
func (m *ExtensionManager) AddReconciler(r Reconciler) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if isNil(r) {
		m.addErrors = append(m.addErrors, errors.New("eirinix: AddReconciler got nil; give it a Reconciler"))
		return
	}
	if m.started {
		m.addErrors = append(m.addErrors, fmt.Errorf("eirinix: AddReconciler got %T after Start; add everything before", r))
		m.options.Logger.Error(m.addErrors[len(m.addErrors)-1].Error())
		return
	}
	m.reconcilers = append(m.reconcilers, r)
}

// ListExtensions returns a copy of the list of extensions, without typed steps.
func (m *ExtensionManager) ListExtensions() []Extension {
	list := []Extension{}
	for _, s := range m.given().steps {
		if s.extension != nil {
			list = append(list, s.extension)
		}
	}
	return list
}

// ListReconcilers returns a copy of the list of reconcilers.
func (m *ExtensionManager) ListReconcilers() []Reconciler {
	return append([]Reconciler{}, m.given().reconcilers...)
}

// ListWatchers returns a copy of the list of watchers.
func (m *ExtensionManager) ListWatchers() []Watcher {
	return append([]Watcher{}, m.given().watchers...)
}

// PatchFromPod returns the response that changes the pod of the request into pod. Its Patches are RFC 6902 operations
// for the difference between the two Go values. Fields that are unknown to the Go type, or unchanged, are not in the
// patch. An equal pod results in an allowing Response without a patch.
//
// The pod is not kept: later changes to it do not affect the patch.
func (m *ExtensionManager) PatchFromPod(req admission.Request, pod *corev1.Pod) admission.Response {
	return m.pods.Patch(req, pod)
}

// GetContext returns a context that ends when the Manager stops. Before Start it is derived from the context of the
// options.
func (m *ExtensionManager) GetContext() context.Context {
	m.mu.Lock()
	defer m.mu.Unlock()
	return cmp.Or(m.running, m.root)
}

// GetLogger returns the logger of the options, or the default logger.
func (m *ExtensionManager) GetLogger() *zap.SugaredLogger {
	return m.given().options.Logger
}

// GetManagerOptions returns a copy of the options with their defaults filled in.
func (m *ExtensionManager) GetManagerOptions() ManagerOptions {
	return m.given().options
}

// SetManagerOptions replaces the options. It must be called before Start: a running Manager keeps the old options.
// Defaults are filled in again, except that without a Logger the current one is kept. An existing connection is dropped
// if KubeManager, KubeConfig, RestConfig, Namespace or Scheme changes.
func (m *ExtensionManager) SetManagerOptions(o ManagerOptions) {
	m.mu.Lock()
	defer m.mu.Unlock()
	old := m.options
	if o.Logger == nil && o.Logr.GetSink() == nil {
		o.Logger = old.Logger
	}
	// A default name from GetManagerOptions must not outlive the fingerprint that it was derived from.
	if o.SetupCertificateName == certificateName(old.OperatorFingerprint) && o.OperatorFingerprint != old.OperatorFingerprint {
		o.SetupCertificateName = ""
	}
	m.options = o.withDefaults()
	m.options.lifetimes = old.lifetimes
	if m.started {
		m.options.Logger.Warn("eirinix: SetManagerOptions after Start: running parts keep the old options")
		return
	}
	if m.options.Context != old.Context && m.root.Err() == nil {
		m.resetContext()
	}
	m.join()
	if o.KubeManager != old.KubeManager || o.KubeConfig != old.KubeConfig || o.RestConfig != old.RestConfig || o.Namespace != old.Namespace || o.Scheme != old.Scheme {
		m.connection = m.newConnection()
	}
}

// Ready returns a channel that is closed once the extensions are served and registered, and the serving certificate
// verifies against the caBundle in the API server. For a Manager without extensions it is closed once the Manager runs.
// It stays open if Start returns an error.
//
// Each API server takes some more milliseconds to apply a new configuration, and does not report when it has.
func (m *ExtensionManager) Ready() <-chan struct{} { return m.readiness.First() }

// Addr returns the address that the Manager listens on, with the port that was picked if ListenAddress requested a free
// one. It is nil until the port is open.
func (m *ExtensionManager) Addr() net.Addr {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.serving == nil {
		return nil
	}
	return m.serving.Addr()
}

// newInstance returns a unique name for this Manager, which distinguishes its answer to a diagnosis from those of other
// replicas.
func newInstance() string {
	host, _ := os.Hostname()
	return host + "/" + rand.Text()[:6]
}

// stoppedOr returns errStopped if ctx has ended, because an operation that a stop interrupts has not failed. Otherwise
// it returns err with the package's prefix.
func stoppedOr(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return errStopped
	}
	return prefixed(err)
}

// prefixed adds the package's name to an error that does not have that prefix yet.
func prefixed(err error) error {
	if err == nil || strings.HasPrefix(err.Error(), "eirinix: ") {
		return err
	}
	return fmt.Errorf("eirinix: %w", err)
}
