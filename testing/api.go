package eirinixtest

// This file provides API, the in-memory Kubernetes API for the clients of handlers under test.

import (
	"encoding/json"
	"errors"
	"fmt"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/internal/fakeapi"
	"code.cloudfoundry.org/eirinix/offline"
)

// APIOptions configures an API. The zero value is an empty cluster with the built-in kinds.
type APIOptions struct {
	Scheme    *runtime.Scheme    // default client-go's
	Resources []offline.Resource // custom resources, as in HarnessOptions
	Objects   []client.Object    // initial contents: Go objects of the scheme, or unstructured objects
}

// API is a Kubernetes API in memory, for handlers that use a client. It starts with the given objects and accepts
// writes as an API server without admission, defaulting and validation would. It records every request. All kinds of
// clients can use it: Client, and client-go's clients on RestConfig. Watches are refused, so caches and informers do
// not work. A Manager that is connected to it provides clients that read directly, such as
// Manager.GetKubeManager().GetClient().
//
// Use NewAPI or Harness.API to get one. An API is safe for concurrent use.
type API struct{ objects *fakeapi.API }

// APIRequest is a request that an API has received.
type APIRequest struct {
	Verb            string // get, list, watch, create, update, patch, delete, deletecollection
	Resource        schema.GroupVersionResource
	Subresource     string
	Namespace, Name string // Name is empty for collections and generated names
	DryRun          bool
	Body            json.RawMessage // nil for none
	Status          int             // HTTP status code of the response, such as 404 for a missing object
}

// Writes reports whether the request changes stored objects. Dry runs and reviews do not. Reviews are requests in the
// groups authorization.k8s.io and authentication.k8s.io, with which clients check permissions and identities.
func (r APIRequest) Writes() bool { return fakeapi.Request(r).Writes() }

// String formats the request on one line, as in "create configmaps default/counter".
func (r APIRequest) String() string { return fakeapi.Request(r).String() }

// NewAPI creates an API. It fails the test if an object is of an unknown kind.
func NewAPI(t TB, configure ...func(*APIOptions)) *API {
	t.Helper()

	var o APIOptions
	for _, f := range configure {
		f(&o)
	}
	a, err := newAPI(o)
	if err != nil {
		t.Fatalf("eirinixtest: NewAPI: %v", err)
		return nil
	}
	return a
}

func newAPI(o APIOptions) (*API, error) {
	if o.Scheme == nil {
		o.Scheme = clientgoscheme.Scheme
	}
	m := eirinix.NewManager(eirinix.ManagerOptions{Scheme: o.Scheme, Logger: zap.NewNop().Sugar()})
	played, err := offline.Of(m, offline.Options{Resources: o.Resources})
	if err != nil {
		return nil, err
	}
	objects, err := fakeapi.New(o.Scheme, played.Mapper, o.Objects...)
	if err != nil {
		return nil, inAPIOptions.addTo(err)
	}
	return &API{objects}, nil
}

// remedies are the options that make kinds known to an API.
type remedies struct{ resources, scheme string }

var (
	inAPIOptions     = remedies{"name it in APIOptions.Resources", "set APIOptions.Scheme"}
	inHarnessOptions = remedies{"name it in HarnessOptions.Resources", "set HarnessOptions.Manager.Scheme, or the Scheme of the ExtensionManager"}
)

// addTo adds the remedy to an error for an object of an unknown kind.
func (r remedies) addTo(err error) error {
	if meta.IsNoMatchError(err) {
		return fmt.Errorf("%w; %s", err, r.resources)
	}
	for cause := err; cause != nil; cause = errors.Unwrap(cause) {
		if runtime.IsNotRegisteredError(cause) { // it does not unwrap
			return fmt.Errorf("%w; %s", err, r.scheme)
		}
	}
	return err
}

// RestConfig returns a connection to the API, for ManagerOptions.RestConfig and for a test's own clients. No request
// leaves the process. Each call returns a copy that the caller can modify.
func (a *API) RestConfig() *rest.Config { return a.objects.RestConfig() }

// Client returns a controller-runtime client of the API.
func (a *API) Client() client.Client { return a.objects.Client() }

// Requests returns all requests so far, in order.
func (a *API) Requests() []APIRequest {
	var all []APIRequest
	for _, r := range a.objects.Requests() {
		all = append(all, APIRequest(r))
	}
	return all
}

// Writes returns those of Requests that changed stored objects.
func (a *API) Writes() []APIRequest {
	var writes []APIRequest
	for _, r := range a.Requests() {
		if r.Writes() {
			writes = append(writes, r)
		}
	}
	return writes
}

// Forget clears the record of requests.
func (a *API) Forget() { a.objects.Forget() }

// Stall leaves every request unanswered, as an API server that hangs does, until the returned function is called. A
// client still stops waiting when its own context ends.
func (a *API) Stall() (resume func()) { return a.objects.Stall() }
