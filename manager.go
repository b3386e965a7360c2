// Package eirinix makes a program a Kubernetes admission webhook.
//
// The program writes extensions; the Manager does everything else: certificates, registration, TLS, the
// wire protocol, the patch, draining and diagnosis.
//
//	x := eirinix.NewManager(eirinix.ManagerOptions{
//		Namespace: "cf-workloads",
//		Host:      "webhook.example.org",
//		Port:      8443,
//	})
//	x.AddExtension(&MyExtension{})
//	if err := x.Start(); err != nil {
//		log.Fatal(err)
//	}
//
// # Where the API server calls
//
// In URL mode (above) it calls https://Host:Port. In Service mode, with ServiceName and WebhookNamespace, it
// calls that Service. In a split deployment one program calls RegisterExtensions and exits, and another
// serves with RegisterWebHook set to false; both share the certificate Secret.
//
// # What lies in the cluster
//
// One Secret, <fingerprint>-setupcertificate, holds the CA that all replicas share; each process signs its
// own serving certificate and keeps it in memory. One MutatingWebhookConfiguration,
// <fingerprint>-mutating-hook, is written in place and stays when the program stops, so that a restart
// opens no gap.
//
// # Watchers and reconcilers
//
// A Watcher is told of pod events, alone (Watch) or beside extensions (Start). A Reconciler registers a
// controller on GetKubeManager. AddExtension takes all three kinds.
package eirinix

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"code.cloudfoundry.org/eirinix/internal/admit"
	"code.cloudfoundry.org/eirinix/internal/cluster"
)

// Manager is what an Extension sees of the program it runs in: clients, logger and options. Its methods are
// safe for concurrent use; those that need the cluster connect on first use. The set of methods is
// EiriniX's and stays as it is, because programs check in generated fakes of it; what is new stands on
// *ExtensionManager.
type Manager interface {
	// AddExtension adds an Extension, a Watcher or a Reconciler, before Start. An error is returned and
	// remembered: Validate, Start and RegisterExtensions report it again.
	AddExtension(v any) error
	// AddReconciler adds a Reconciler, before Start.
	AddReconciler(r Reconciler)
	// AddWatcher adds a Watcher, before Start or Watch.
	AddWatcher(w Watcher)
	// ListExtensions gives the extensions in the order in which they were added.
	ListExtensions() []Extension
	// ListReconcilers gives the reconcilers in the order in which they were added.
	ListReconcilers() []Reconciler
	// Start runs the Manager until SIGINT, SIGTERM, Stop or an error.
	Start() error
	// Stop makes Start, Run and Watch return. It does not wait for them.
	Stop()
	// Watch runs the watchers alone, until SIGINT, SIGTERM, Stop or an error.
	Watch() error
	// RegisterExtensions writes certificate Secret and webhook configuration, once, and returns.
	RegisterExtensions() error
	// PatchFromPod answers a request with what must change for its pod to become pod. Members that the
	// Go type does not know are kept. It needs no cluster.
	PatchFromPod(req admission.Request, pod *corev1.Pod) admission.Response
	// GetContext is never nil. It ends when the Manager stops.
	GetContext() context.Context
	// GetKubeClient gives a client for the core API.
	GetKubeClient() (corev1client.CoreV1Interface, error)
	// GetKubeConnection gives the connection that everything uses. Copy it before changing it.
	GetKubeConnection() (*rest.Config, error)
	// GetKubeManager gives the controller-runtime manager, for reconcilers. It is made on first use, and
	// nil (with a line in the log) where no kubeconfig can be found.
	GetKubeManager() manager.Manager
	// GetLogger is never nil.
	GetLogger() *zap.SugaredLogger
	// GetManagerOptions gives the options with their defaults filled in.
	GetManagerOptions() ManagerOptions
	// SetManagerOptions replaces the options, before Start; defaults are filled in again.
	SetManagerOptions(ManagerOptions)
}

var _ Manager = (*ExtensionManager)(nil)

// ExtensionManager is the Manager that NewManager makes. Its methods are safe for concurrent use. It runs
// once: after Stop, make a new one.
type ExtensionManager struct {
	mu          sync.Mutex // guards everything down to hooks
	options     ManagerOptions
	steps       []definition
	watchers    []Watcher
	reconcilers []Reconciler
	addErrors   []error

	root          context.Context // ends with Stop
	stop          context.CancelFunc
	running       context.Context // of Run; nil before
	started       bool
	ready         chan struct{}
	connection    connection
	instance      string                 // names this Manager among replicas
	joined        manager.Manager        // the KubeManager that this one is a part of
	hosted        bool                   // that one was started by the program
	onlyRegisters bool                   // RegisterExtensions was called
	host          *webhook.DefaultServer // the KubeManager's, where that one serves
	hostOptions   webhook.Options
	watching      watchLoop
	serving       server         // nil until the port is open
	unready       error          // what Ready waits for; nil once ready
	hooks         *http.ServeMux // what the program itself registered on the webhook server

	// These guard themselves.
	api       cluster.API               // what the library's own requests have in common
	program   atomic.Pointer[program]   // nil until steps are served
	records   atomic.Bool               // a recording has been asked for, which may not be over
	recording atomic.Pointer[recording] // nil while there is none
	pods      admit.Pods                // that extensions are working on
}

// NewManager makes a Manager. It never fails and touches neither network nor files, but that with a KubeManager it looks
// whether the certificates of that one's webhook server are there: what is wrong with the options is told by Validate
// and by Start.
func NewManager(opts ManagerOptions) *ExtensionManager {
	m := &ExtensionManager{
		options:  opts.withDefaults(),
		ready:    make(chan struct{}),
		unready:  errors.New("not started"),
		instance: newInstance(),
		hooks:    http.NewServeMux(),
	}
	m.resetContext()
	m.join()
	return m
}

// resetContext derives the root context from the options. It is called under mu, or before m is shared.
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

// AddExtension adds an Extension, a Mutation, Validation or Subresource (by value), a Watcher or a Reconciler
// (also EiriniX's context-free one). Mutating steps run in the order in which they are added; so do validating
// ones, each seeing the object as all mutations left it.
func (m *ExtensionManager) AddExtension(v any) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.add(v); err != nil {
		m.addErrors = append(m.addErrors, err)
		return err
	}
	return nil
}

func (m *ExtensionManager) add(v any) error {
	if v == nil {
		return errors.New("eirinix: AddExtension got nil; give it an Extension, Mutation, Validation, Subresource, Watcher or Reconciler")
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

// AddWatcher adds a Watcher. Unlike AddExtension it has no error to return; a nil one is reported by
// Validate and Start.
func (m *ExtensionManager) AddWatcher(w Watcher) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if isNil(w) {
		m.addErrors = append(m.addErrors, errors.New("eirinix: AddWatcher got nil; give it a Watcher"))
		return
	}
	m.watchers = append(m.watchers, w)
}

// AddReconciler adds a Reconciler. Unlike AddExtension it has no error to return; a nil one, or one that
// comes after Start, is reported by Validate and Start.
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

// ListExtensions gives a copy of the list of extensions; typed steps are not among them.
func (m *ExtensionManager) ListExtensions() []Extension {
	m.mu.Lock()
	defer m.mu.Unlock()
	list := make([]Extension, 0, len(m.steps))
	for _, s := range m.steps {
		if s.extension != nil {
			list = append(list, s.extension)
		}
	}
	return list
}

// ListReconcilers gives a copy of the list of reconcilers.
func (m *ExtensionManager) ListReconcilers() []Reconciler {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]Reconciler{}, m.reconcilers...)
}

// ListWatchers gives a copy of the list of watchers.
func (m *ExtensionManager) ListWatchers() []Watcher {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]Watcher{}, m.watchers...)
}

// Validate tells everything that is wrong with the options and with what was added, joined into one error
// (errors.Join), each with its remedy. It touches neither network nor files, and does not compile Settings.Conditions.
func (m *ExtensionManager) Validate() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	// A program that only watches or reconciles is called by nobody, and needs no address.
	called := len(m.steps) > 0 || len(m.watchers)+len(m.reconcilers) == 0
	return errors.Join(m.options.validate(called), m.validateHosted(), errors.Join(m.addErrors...), checkSteps(m.options, m.steps))
}

// PatchFromPod answers a request with what must change for its pod to become pod: RFC 6902 operations, in
// Response.Patches, for the difference between the two as Go values. What the Go type does not know, and
// what was not touched, is not in the patch. An equal pod gives an allowing Response without patch. The pod is not kept:
// what is done to it later is not in the patch.
func (m *ExtensionManager) PatchFromPod(req admission.Request, pod *corev1.Pod) admission.Response {
	return m.pods.Patch(req, pod)
}

// GetContext gives the context that ends when the Manager stops; before Start, that of the options.
func (m *ExtensionManager) GetContext() context.Context {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.running != nil {
		return m.running
	}
	return m.root
}

// GetLogger gives the logger of the options, or the default one.
func (m *ExtensionManager) GetLogger() *zap.SugaredLogger {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.options.Logger
}

// GetManagerOptions gives a copy of the options with their defaults filled in.
func (m *ExtensionManager) GetManagerOptions() ManagerOptions {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.options
}

// SetManagerOptions replaces the options. It may come late, but before Start; defaults are filled in
// again, and a logger left out stays the one there was. A connection that has been made is given up
// where the options now lead to another cluster.
func (m *ExtensionManager) SetManagerOptions(o ManagerOptions) {
	m.mu.Lock()
	defer m.mu.Unlock()
	old := m.options
	if o.Logger == nil {
		o.Logger = old.Logger
	}
	// The name that GetManagerOptions handed out must not outlive the fingerprint it was made from.
	if o.SetupCertificateName == certificateName(old.OperatorFingerprint) && o.OperatorFingerprint != old.OperatorFingerprint {
		o.SetupCertificateName = ""
	}
	m.options = o.withDefaults()
	if m.started {
		m.options.Logger.Warn("eirinix: SetManagerOptions after Start: what is already running keeps the old options")
		return
	}
	if m.options.Context != old.Context && m.root.Err() == nil {
		m.resetContext()
	}
	m.join()
	if o.KubeManager != old.KubeManager || o.KubeConfig != old.KubeConfig || o.RestConfig != old.RestConfig || o.Namespace != old.Namespace || o.Scheme != old.Scheme {
		m.connection = connection{}
	}
}
