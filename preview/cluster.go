package preview

// This file simulates the cluster: an API that holds the manifests, and its admission.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"go.uber.org/zap"
	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/internal/apiserver"
	"code.cloudfoundry.org/eirinix/internal/fakeapi"
	"code.cloudfoundry.org/eirinix/offline"
)

// cluster is the simulated cluster: an API that holds the input, and its admission.
type cluster struct {
	flags  *flags
	api    *fakeapi.API
	server *apiserver.Server
	reads  map[string][]*declared // by step
}

// request is a request to send.
type request struct {
	manifest
	of  string // the kind and name of the owner, if a controller makes the object
	old apiserver.Document

	finalizer string // that the request removes from an object that has been deleted
	apiserver.Request
}

// result is a request with its outcome.
type result struct {
	request
	namespace string
	outcome   *apiserver.Outcome
	requests  []fakeapi.Request            // requests of steps to the API
	known     map[string]map[string]string // labels of the namespaces among the manifests
}

// changed reports whether admission has changed the object.
func (s *result) changed() bool { return s.outcome.Before.YAML() != s.outcome.After.YAML() }

func newCluster(m *eirinix.ExtensionManager, in *input, f *flags, o Options) (*cluster, error) {
	options := m.GetManagerOptions()
	scheme := options.Scheme
	if scheme == nil {
		scheme = clientgoscheme.Scheme
	}
	resources := o.Resources
	for _, r := range in.resources(scheme.Recognizes) {
		if !slices.ContainsFunc(resources, func(given offline.Resource) bool { return given.Kind == r.Kind }) {
			resources = append(resources, r)
		}
	}
	if !f.verbose {
		options.Logger = zap.NewNop().Sugar()
		m.SetManagerOptions(options)
	}
	c := &cluster{flags: f}
	modes, err := in.modes(options)
	if err != nil {
		return nil, err
	}
	offlineOptions := offline.Options{Resources: resources, Objects: c.existing, Modes: modes, Observe: func(ctx context.Context, step string) func(offline.StepEnd) {
		ended := apiserver.Observe(ctx, step)
		return func(end offline.StepEnd) { ended(apiserver.StepEnd(end)) }
	}}
	played, err := offline.Of(m, offlineOptions)
	if meta.IsNoMatchError(err) {
		return nil, fmt.Errorf("%w: give CustomResourceDefinitions with -f or -with, or have the program name its kinds in preview.Options.Resources", err)
	}
	if err != nil {
		return nil, err
	}
	c.server = &apiserver.Server{
		Scheme: played.Scheme, Namespace: cmp.Or(f.namespace, options.Namespace), Namespaces: in.namespaces(),
	}
	if c.reads, err = declaredBy(played); err != nil {
		return nil, err
	}
	if c.api, err = fakeapi.New(played.Scheme, played.Mapper, o.Objects...); err != nil {
		return nil, err
	}
	options.RestConfig, options.KubeConfig, options.KubeManager = c.api.RestConfig(), "", nil
	m.SetManagerOptions(options)
	// A Manager that runs keeps its connection.
	if connected, err := m.GetKubeConnection(); err != nil || fakeapi.Of(connected) != c.api {
		return nil, errors.Join(errors.New("the Manager is already running; use a Manager that has not been started"), err)
	}
	program := apiserver.Program{
		Handler: played.Handler, Mutating: played.Mutating, Validating: played.Validating, Mapper: played.Mapper,
	}
	for _, conversion := range played.Conversions {
		program.Conversions = append(program.Conversions, apiserver.Conversion(conversion))
	}
	if err := c.server.Add(program); err != nil {
		return nil, err
	}
	// The API holds all existing objects and all manifests. admit removes an object before its own creation.
	for _, m := range slices.Concat(in.with, in.manifests, in.old) {
		if err := c.put(m.object); err != nil {
			return nil, fmt.Errorf("%s: %w", m.source, err)
		}
	}
	return c, nil
}

// keepOptions saves the Manager's options and returns a function that restores them.
func keepOptions(m *eirinix.ExtensionManager) (restore func()) {
	options := m.GetManagerOptions()
	return func() { m.SetManagerOptions(options) }
}

// put stores an object in the API. An object without a name is skipped, because only a server could name it.
func (c *cluster) put(object *unstructured.Unstructured) error {
	if object.GetName() == "" {
		return nil
	}
	at, err := c.server.PlaceOf(object.GroupVersionKind())
	if err != nil {
		return err
	}
	object = object.DeepCopy()
	object.SetNamespace(c.server.NamespaceOf(at, object))
	return c.api.Put(object)
}

// identity identifies an object.
type identity struct {
	schema.GroupKind
	namespace, name string
}

func (c *cluster) identityOf(m manifest) identity {
	namespace := m.object.GetNamespace()
	if at, err := c.server.PlaceOf(m.document.Kind); err == nil {
		namespace = c.server.NamespaceOf(at, m.object)
	}
	return identity{m.document.Kind.GroupKind(), namespace, m.object.GetName()}
}

// requests returns the requests for the input. A manifest of an old object becomes an update, as kubectl apply makes
// it. The flags decide about the others. unmatched are the old objects that have no manifest.
func (in *input) requests(c *cluster, f *flags) (all []request, unmatched []string, err error) {
	old := map[identity]manifest{}
	for _, m := range in.old {
		old[c.identityOf(m)] = m
	}
	for _, m := range in.manifests {
		id := c.identityOf(m)
		before, updated := old[id]
		updated = updated && id.name != ""
		r := request{manifest: m, Request: apiserver.Request{Operation: f.admissionOperation(updated), DryRun: f.dryRun}}
		if updated {
			delete(old, id)
			r.old = before.document
			if r.document, err = applied(c.server.Scheme, before.document, m.document); err != nil {
				return nil, nil, fmt.Errorf("%s: it cannot be applied to %s: %w", m.source, before.source, err)
			}
		}
		if f.user != "" {
			r.User = user.DefaultInfo{Name: f.user, Groups: append(slices.Clone(f.groups), user.AllAuthenticated)}
		}
		all = append(all, r)
	}
	for _, m := range in.old {
		if id := c.identityOf(m); old[id].document.Raw != nil {
			unmatched = append(unmatched, strings.TrimSpace(id.namespace+" "+describe(m.object)))
			delete(old, id)
		}
	}
	return all, unmatched, nil
}

// send sends an object, and then the objects that controllers would create for it, or the updates by which its finalizers go.
// It omits those that no webhook's rules match.
func (c *cluster) send(ctx context.Context, r request) ([]*result, error) {
	s, err := c.admit(ctx, r)
	if err != nil {
		return nil, err
	}
	all := []*result{s}
	for !c.flags.noChildren && s.outcome.Allowed() && r.Operation != admissionv1.Delete {
		made, ok := childOf(s)
		if !ok {
			break
		}
		if s, err = c.admit(ctx, made); err != nil {
			return nil, err
		}
		if s.wanted() {
			all = append(all, s)
		}
	}
	if r.Operation != admissionv1.Delete {
		return all, nil
	}
	for _, f := range apiserver.Finalizing(r.document) {
		if !s.outcome.Allowed() {
			break
		}
		r.finalizer, r.Operation, r.old, r.document = f.Finalizer, admissionv1.Update, f.Old, f.New
		if s, err = c.admit(ctx, r); err != nil {
			return nil, err
		}
		if s.wanted() {
			all = append(all, s)
		}
	}
	return all, nil
}

// wanted reports whether the rules of any webhook match such requests.
func (s *result) wanted() bool {
	return len(s.outcome.Calls) > 0 || slices.ContainsFunc(s.outcome.Passed, func(p apiserver.Pass) bool { return !p.Rules })
}

func (c *cluster) admit(ctx context.Context, r request) (*result, error) {
	at, err := c.server.PlaceOf(r.document.Kind)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.source, err)
	}
	switch r.Operation {
	case admissionv1.Create: // it does not exist yet
		c.api.Remove(at.Resource.GroupResource(), c.server.NamespaceOf(at, r.object), r.object.GetName())
		r.Object = r.document
	case admissionv1.Update:
		r.Object, r.OldObject = r.document, r.old
	case admissionv1.Delete:
		r.OldObject = r.document
	}
	before := len(c.api.Requests())
	c.look()
	outcome, err := c.server.Send(ctx, r.Request)
	if err != nil { // it is invalid, for a real API server too
		outcome = &apiserver.Outcome{Err: apierrors.NewBadRequest(err.Error()), Before: r.document, After: r.document}
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	c.looked(outcome)
	if named := outcome.After.Unstructured(); outcome.Allowed() && r.Operation == admissionv1.Create && named.GetName() == "" && named.GetGenerateName() == "" {
		outcome.Err = apierrors.NewBadRequest("metadata.name: Required value: name or generateName is required")
	}
	s := &result{request: r, namespace: c.server.NamespaceOf(at, r.object), known: c.server.Namespaces, outcome: outcome, requests: c.api.Requests()[before:]}
	if outcome.Allowed() && r.of == "" && r.finalizer == "" && !outcome.After.Absent() {
		if err := c.put(outcome.After.Unstructured()); err != nil {
			return nil, fmt.Errorf("%s: %w", r.source, err)
		}
	}
	return s, nil
}

// unsure returns a caveat to the reason why a webhook was not called, if the labels of the namespace are unknown.
func (s *result) unsure(p apiserver.Pass) string {
	if _, ok := s.known[s.namespace]; ok || !p.Namespace {
		return ""
	}
	return ", whose labels are not known, because it is not among the manifests (give the Namespace with -with)"
}

// missed returns the requests of steps for objects that are not among the manifests.
func (s *result) missed() []string {
	var all []string
	for _, r := range s.requests {
		if r.Status == http.StatusNotFound && !slices.Contains(all, r.String()) {
			all = append(all, r.String())
		}
	}
	return all
}

// written returns the requests with which steps wrote to the API.
func (s *result) written() []string {
	var all []string
	for _, r := range s.requests {
		if r.Writes() && r.Status < http.StatusBadRequest {
			all = append(all, r.String())
		}
	}
	return all
}
