package eirinixtest

// This file defines Harness, the simulated admission phase of an API server, and its options.

import (
	"context"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/internal/apiserver"
	"code.cloudfoundry.org/eirinix/internal/fakeapi"
	"code.cloudfoundry.org/eirinix/offline"
)

// HarnessOptions configures a Harness. The zero value is right for extensions of built-in kinds.
type HarnessOptions struct {
	// Manager holds the options of the Manager that is created for extensions. ExtensionManagers keep their own
	// options. Set Manager.Scheme for custom resources. Host is not needed, because nothing connects to the Manager.
	// Without a Logger, the log goes to the test's log.
	Manager eirinix.ManagerOptions

	// Resources lists custom resources that are cluster-scoped, have an irregular plural, or are unknown to the
	// scheme.
	Resources []offline.Resource

	// Namespaces maps the names of namespaces to their labels, for selectors: to them, every namespace exists and has the
	// label kubernetes.io/metadata.name, which an API server sets. A step that reads Namespaces finds those in Objects.
	Namespaces map[string]map[string]string

	// Objects are the objects in the cluster beside that of the request. They are stored in API, so that handlers with a
	// client find them, and steps find those that they declare in Settings.Reads. Objects are Go objects of the scheme, or
	// unstructured objects. Without a namespace they are in "default". Namespaces among them have their labels, unless
	// Namespaces names them too.
	Objects []client.Object

	// API is the Kubernetes API that handlers reach through the Manager's connection. The default is the API that a
	// Manager's RestConfig connects to, or else an empty one. Managers with their own RestConfig, KubeConfig or
	// KubeManager keep that connection. At each call, steps read the current contents of the API that their Manager is
	// connected to. If that is not in memory, they read those of this API.
	API *API

	// Authorizer is the authorizer that CEL expressions in matchConditions use. By default, members of system:masters
	// can do everything and other users nothing.
	Authorizer authorizer.UnconditionalAuthorizer

	// CheckTime is how long CheckProperties, or another check, may take. 0 means 25 s.
	CheckTime time.Duration

	// ReviewVersion is "v1beta1" to simulate an API server that prefers it. The default is the version that the
	// configuration lists first.
	ReviewVersion string
}

// Harness simulates the admission phase of an API server in memory. It exercises everything of an eirinix program but
// the network. It reads the webhook configurations that the program would register. It selects the webhooks to call as
// the API server does, with the API server's own code for rules and CEL conditions. It sends AdmissionReviews through
// the complete request path, checks the responses as the API server does, and applies patches with the API server's
// library. Mutating webhooks are called one after another, and once more if a reinvocation is due. The validating
// webhooks follow.
//
// The Harness does not simulate the phases before and after admission. Objects are neither defaulted nor validated nor
// stored. Unknown fields are not pruned, and managedFields are not maintained. Updates are simulated in part. In an
// update of status, a validating webhook sees the old spec. In an update of ephemeral containers, it sees no change
// but that of spec.ephemeralContainers. Changes of immutable fields of Pods and Jobs are refused, but for other nodes of
// a Pod with a scheduling gate. For other versions of a kind (matchPolicy Equivalent), custom resources are converted by
// the program that has their Conversion. Without one they are converted as strategy None does. Built-in kinds are not
// converted.
//
// Use NewHarness to create one. Its methods are safe for concurrent use. Like t.Fatalf, they stop the test only if
// they are called on the test's own goroutine.
type Harness struct {
	t        TB
	ctx      context.Context // of every request; ends when the time of a check is used up
	opts     HarnessOptions
	log      *testLog
	programs []*program

	conversions []conversion

	server *apiserver.Server
}

// program is one Manager under test.
type program struct {
	*eirinix.ExtensionManager
	wired bool // its connection leads to the harness's API

	scheme  *runtime.Scheme
	reads   map[string][]eirinix.Read // of the steps
	objects *fakeapi.API              // from which the steps read
}

// NewHarness creates a Harness from parts. A part is an extension, a step or any other value that AddExtension takes;
// these keep their order. A part can also be an *eirinix.ExtensionManager, which counts as a separate program with its
// own configurations. A func(*HarnessOptions) changes the options.
//
//	h := eirinixtest.NewHarness(t, sidecar.Extension{}, func(o *eirinixtest.HarnessOptions) { o.Manager.Namespace = "apps" })
//
// NewHarness fails the test if a part cannot be added, or if the API server would refuse the configurations.
func NewHarness(t TB, parts ...any) *Harness {
	t.Helper()

	h := &Harness{t: t, ctx: context.Background(), log: newTestLog(t)}
	var managers []*eirinix.ExtensionManager
	var extensions []any
	for _, part := range parts {
		switch part := part.(type) {
		case func(*HarnessOptions):
			part(&h.opts)
		case *eirinix.ExtensionManager:
			managers = append(managers, part)
		default:
			extensions = append(extensions, part)
		}
	}
	if len(managers)+len(extensions) == 0 {
		t.Fatalf("eirinixtest: NewHarness got nothing to test; give it an extension, a step or an *eirinix.ExtensionManager")
		return nil
	}
	h.server = &apiserver.Server{
		Scheme: h.opts.Manager.Scheme, Namespaces: h.namespaces(), Authorizer: h.opts.Authorizer, Version: h.opts.ReviewVersion,
	}
	if err := h.prepareAPI(managers); err != nil {
		t.Fatalf("eirinixtest: NewHarness: %v", err)
		return nil
	}
	if len(extensions) > 0 {
		o := h.opts.Manager
		if o.Logger == nil {
			o.Logger = h.log.logger()
		}
		m := eirinix.NewManager(o)
		for _, e := range extensions {
			if err := m.AddExtension(e); err != nil {
				t.Fatalf("eirinixtest: NewHarness: %v", err)
				return nil
			}
		}
		managers = append(managers, m)
	}
	for _, m := range managers {
		if err := h.add(m); err != nil {
			t.Fatalf("eirinixtest: NewHarness: %v", err)
			return nil
		}
	}
	if h.server.Scheme == nil {
		h.server.Scheme = clientgoscheme.Scheme
	}
	h.server.Namespace = h.Manager().GetManagerOptions().Namespace
	return h
}

// add registers the webhooks of a program.
func (h *Harness) add(m *eirinix.ExtensionManager) error {
	o := m.GetManagerOptions()
	if o.RestConfig == nil && o.KubeConfig == "" && o.KubeManager == nil {
		o.RestConfig = h.opts.API.RestConfig() // never the cluster of the user who runs the test
		m.SetManagerOptions(o)
	}
	p := &program{ExtensionManager: m, objects: h.opts.API.objects}
	p.wired = o.KubeManager == nil && fakeapi.Of(o.RestConfig) == p.objects
	if connected := apiOf(o); connected != nil {
		p.objects = connected
	}
	played, err := offline.Of(m, offline.Options{Resources: h.opts.Resources, Observe: observeStep, Objects: p.existing})
	if err != nil {
		return err
	}
	p.scheme, p.reads = played.Scheme, played.Reads
	if err := p.checkFields(); err != nil {
		return err
	}
	h.programs = append(h.programs, p)
	if h.server.Scheme == nil && played.Scheme != clientgoscheme.Scheme {
		h.server.Scheme = played.Scheme
	}
	added := apiserver.Program{
		Handler: p.inWorld(played.Handler), Mutating: played.Mutating, Validating: played.Validating, Mapper: played.Mapper,
	}
	for _, c := range played.Conversions {
		h.conversions = append(h.conversions, conversion{apiserver.Conversion(c), played.Handler})
		added.Conversions = append(added.Conversions, apiserver.Conversion(c))
	}
	return h.server.Add(added)
}

func observeStep(ctx context.Context, step string) func(offline.StepEnd) {
	ended := apiserver.Observe(ctx, step)
	return func(end offline.StepEnd) { ended(apiserver.StepEnd(end)) }
}

// apiOf returns the API in memory that a Manager is connected to, or nil.
func apiOf(o eirinix.ManagerOptions) *fakeapi.API {
	if o.KubeManager != nil {
		return fakeapi.Of(o.KubeManager.GetConfig())
	}
	return fakeapi.Of(o.RestConfig)
}

// existing returns the objects that the program's steps read from.
func (p *program) existing(context.Context) ([]client.Object, error) {
	stored := p.objects.Objects()
	all := make([]client.Object, len(stored))
	for i, o := range stored {
		all[i] = o
	}
	return all, nil
}

// prepareAPI chooses the API, and stores the objects of the options in it.
func (h *Harness) prepareAPI(managers []*eirinix.ExtensionManager) error {
	h.t.Helper()
	remedies := inAPIOptions
	if h.opts.API == nil {
		h.opts.API, remedies = h.findAPI(managers)
	}
	for i, o := range h.opts.Objects {
		if err := h.opts.API.objects.Put(o); err != nil {
			return fmt.Errorf("HarnessOptions.Objects[%d]: %w", i, remedies.addTo(err))
		}
	}
	return nil
}

// namespaces returns the labels of the namespaces, by name.
func (h *Harness) namespaces() map[string]map[string]string {
	all := map[string]map[string]string{}
	for _, o := range h.opts.Objects {
		_, typed := o.(*corev1.Namespace)
		if typed || o.GetObjectKind().GroupVersionKind() == corev1.SchemeGroupVersion.WithKind("Namespace") {
			all[o.GetName()] = o.GetLabels()
		}
	}
	maps.Copy(all, h.opts.Namespaces)
	return all
}

// findAPI returns the API that a Manager is already connected to, or a new one. It also returns the
// remedies for unknown kinds.
func (h *Harness) findAPI(managers []*eirinix.ExtensionManager) (*API, remedies) {
	h.t.Helper()
	all := []eirinix.ManagerOptions{h.opts.Manager}
	for _, m := range managers {
		all = append(all, m.GetManagerOptions())
	}
	var scheme *runtime.Scheme
	for _, o := range all {
		if a := fakeapi.Of(o.RestConfig); a != nil {
			return &API{a}, inAPIOptions
		}
		if scheme == nil {
			scheme = o.Scheme
		}
	}
	return NewAPI(h.t, func(o *APIOptions) { o.Scheme, o.Resources = scheme, h.opts.Resources }), inHarnessOptions
}

// Manager returns the Manager of the extensions. If only ExtensionManagers were given, it returns the first of them.
func (h *Harness) Manager() *eirinix.ExtensionManager {
	return h.programs[len(h.programs)-1].ExtensionManager
}

// API returns the Kubernetes API that handlers reach through the Manager's connection. It records their reads and
// writes.
func (h *Harness) API() *API { return h.opts.API }
