package eirinixtest

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/internal/apiserver"
	"code.cloudfoundry.org/eirinix/internal/fakeapi"
)

// HarnessOptions says what NewHarness cannot know. Its zero value is right for extensions of built-in kinds.
type HarnessOptions struct {
	// Manager are the options of the Manager that is made for extensions; ExtensionManagers keep their own. Set
	// Manager.Scheme for custom resources. Host may be left out, because nobody calls it, and Logger: then
	// the log goes to the test's.
	Manager eirinix.ManagerOptions

	// Resources are custom resources with an irregular plural, without namespace, or unknown to the scheme.
	Resources []eirinix.OfflineResource

	// Namespaces are the labels of namespaces, by name. Every namespace exists, with the label
	// kubernetes.io/metadata.name that an API server puts on it.
	Namespaces map[string]map[string]string

	// API is what handlers find behind the Manager's connection. Default: the one that a Manager's RestConfig leads
	// to, else an empty one. Managers that have a RestConfig, KubeConfig or KubeManager of
	// their own keep that.
	API *API

	// Authorizer answers the authorizer of matchConditions. Default: members of system:masters may do
	// everything, and others nothing.
	Authorizer authorizer.UnconditionalAuthorizer

	// ReviewVersion is "v1beta1" for an API server that prefers it. Default: what the configuration lists first.
	ReviewVersion string
}

// Harness is the admission of an API server in memory, around everything of an eirinix program but the network: it
// reads the webhook configurations that the program would register, decides as the API server does whom to call (rules
// and CEL conditions with its own code), sends AdmissionReviews through the complete request path, checks the answers as the API server does, and
// applies patches with its library. Mutating webhooks are called one after another, once more where reinvocation is
// due, and then the validating ones.
//
// What comes before and after admission it does not do: objects are neither defaulted nor validated nor stored,
// unknown fields are not pruned, and managedFields are not kept. Updates it completes and judges a little: a validating
// webhook sees the old spec in an update of status, and nothing but new spec.ephemeralContainers in an update of those, and
// changes of immutable fields of Pods and Jobs are refused. Of other versions of a kind (matchPolicy
// Equivalent) it converts custom resources as strategy None does, and built-in kinds as far as the scheme can.
//
// Make one with NewHarness. Its methods are safe for concurrent use, but like t.Fatalf they must be called on the
// test's own goroutine if they are to stop the test.
type Harness struct {
	t        TB
	opts     HarnessOptions
	log      *testLog
	programs []program

	server *apiserver.Server
}

// program is one Manager under test.
type program struct {
	*eirinix.ExtensionManager
	wired bool // its connection is the harness's API
}

// NewHarness makes a Harness of parts: extensions, steps and whatever else AddExtension takes, in their order;
// *eirinix.ExtensionManagers, each of which counts as a program of its own with its own configurations; and
// functions that change the options.
//
//	h := eirinixtest.NewHarness(t, sidecar.Extension{}, func(o *eirinixtest.HarnessOptions) { o.Manager.Namespace = "apps" })
//
// The test fails at once if a part cannot be added, or if the API server would refuse the configurations.
func NewHarness(t TB, parts ...any) *Harness {
	t.Helper()

	h := &Harness{t: t, log: newTestLog(t)}
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
		Scheme: h.opts.Manager.Scheme, Namespaces: h.opts.Namespaces, Authorizer: h.opts.Authorizer, Version: h.opts.ReviewVersion,
	}
	if h.opts.API == nil {
		h.opts.API = h.findAPI(managers)
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

// add takes in the webhooks of a program.
func (h *Harness) add(m *eirinix.ExtensionManager) error {
	o := m.GetManagerOptions()
	if o.RestConfig == nil && o.KubeConfig == "" && o.KubeManager == nil {
		o.RestConfig = h.opts.API.RestConfig() // never the cluster of whoever runs the test
		m.SetManagerOptions(o)
	}
	wired := o.KubeManager == nil && fakeapi.Of(o.RestConfig) == h.opts.API.objects
	offline, err := m.Offline(eirinix.OfflineOptions{Resources: h.opts.Resources, Observe: observeStep})
	if err != nil {
		return err
	}
	h.programs = append(h.programs, program{m, wired})
	if h.server.Scheme == nil && offline.Scheme != clientgoscheme.Scheme {
		h.server.Scheme = offline.Scheme
	}
	return h.server.Add(apiserver.Program{
		Handler: offline.Handler, Mutating: offline.Mutating, Validating: offline.Validating, Mapper: offline.Mapper,
	})
}

func observeStep(ctx context.Context, step string) func(eirinix.StepEnd) {
	ended := apiserver.Observe(ctx, step)
	return func(end eirinix.StepEnd) { ended(apiserver.StepEnd(end)) }
}

// findAPI is the API that the Managers are connected to already, or a new one.
func (h *Harness) findAPI(managers []*eirinix.ExtensionManager) *API {
	h.t.Helper()
	all := []eirinix.ManagerOptions{h.opts.Manager}
	for _, m := range managers {
		all = append(all, m.GetManagerOptions())
	}
	var scheme *runtime.Scheme
	for _, o := range all {
		if a := fakeapi.Of(o.RestConfig); a != nil {
			return &API{a}
		}
		if scheme == nil {
			scheme = o.Scheme
		}
	}
	return NewAPI(h.t, func(o *APIOptions) { o.Scheme, o.Resources = scheme, h.opts.Resources })
}

// Manager is the Manager of the extensions; where only ExtensionManagers were given, the first of them.
func (h *Harness) Manager() *eirinix.ExtensionManager {
	return h.programs[len(h.programs)-1].ExtensionManager
}

// API is what handlers find behind the Manager's connection: it records what they read and write there.
func (h *Harness) API() *API { return h.opts.API }
