package eirinixtest

import (
	"encoding/json"
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
)

// APIOptions says what an API serves. The zero value is an empty cluster with the built-in kinds.
type APIOptions struct {
	Scheme    *runtime.Scheme           // default client-go's
	Resources []eirinix.OfflineResource // custom resources, as in HarnessOptions
	Objects   []client.Object           // what there is from the beginning; of the scheme, or unstructured
}

// API is a Kubernetes API in memory, for handlers that use a client: it has the objects it was given, takes writes as
// an API server without admission, defaults and validation would, and keeps a record of everything it was asked.
// Clients of all kinds can talk to it: Client, and client-go's on RestConfig. Watches are refused, so caches and
// informers do not work; the clients of a Manager that is connected to it, such as Manager.GetKubeManager().GetClient(),
// read directly.
//
// Make one with NewAPI, or take a Harness's. It is safe for concurrent use.
type API struct{ objects *fakeapi.API }

// APIRequest is something that an API was asked to do.
type APIRequest struct {
	Verb            string // get, list, watch, create, update, patch, delete, deletecollection
	Resource        schema.GroupVersionResource
	Subresource     string
	Namespace, Name string // Name is empty for collections and generated names
	DryRun          bool
	Body            json.RawMessage // nil for none
	Status          int             // HTTP code of the answer, such as 404 for what there is not
}

// Writes tells whether the request changes what is stored. A dry run does not, nor does a review, by which clients
// ask what they may do.
func (r APIRequest) Writes() bool { return fakeapi.Request(r).Writes() }

// String is the request in a line, as in "create configmaps default/counter".
func (r APIRequest) String() string { return fakeapi.Request(r).String() }

// NewAPI makes an API. The test fails where its objects are of kinds that nothing is known of.
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
	offline, err := m.Offline(eirinix.OfflineOptions{Resources: o.Resources})
	if err != nil {
		return nil, err
	}
	objects, err := fakeapi.New(o.Scheme, offline.Mapper, o.Objects...)
	switch {
	case meta.IsNoMatchError(err):
		return nil, fmt.Errorf("%w; name it in APIOptions.Resources", err)
	case runtime.IsNotRegisteredError(err):
		return nil, fmt.Errorf("%w; set APIOptions.Scheme", err)
	}
	return &API{objects}, err
}

// RestConfig is a connection to the API, for ManagerOptions.RestConfig and for clients of your own. Nothing leaves
// the process. It is the caller's own.
func (a *API) RestConfig() *rest.Config { return a.objects.RestConfig() }

// Client is a controller-runtime client of the API.
func (a *API) Client() client.Client { return a.objects.Client() }

// Requests is everything that was asked so far, in order.
func (a *API) Requests() []APIRequest {
	var all []APIRequest
	for _, r := range a.objects.Requests() {
		all = append(all, APIRequest(r))
	}
	return all
}

// Writes are those of Requests that changed what is stored.
func (a *API) Writes() []APIRequest {
	var writes []APIRequest
	for _, r := range a.Requests() {
		if r.Writes() {
			writes = append(writes, r)
		}
	}
	return writes
}

// Forget empties the record.
func (a *API) Forget() { a.objects.Forget() }

// Stall leaves everything that is asked without an answer, as an API server that hangs, until the returned function
// is called. A client's own context still ends its wait.
func (a *API) Stall() (resume func()) { return a.objects.Stall() }
