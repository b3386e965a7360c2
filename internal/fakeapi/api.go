// Package fakeapi is a Kubernetes API in memory, for handlers that use a client where there is no cluster.
package fakeapi

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"code.cloudfoundry.org/eirinix/internal/inprocess"
)

// API is a Kubernetes API in memory, for handlers that use a client: it has the objects it was given, takes writes as
// an API server without admission, defaults and validation would, and keeps a record of everything it was asked.
// Clients of all kinds can talk to it: Client, and client-go's on RestConfig. Watches are refused, so caches and
// informers do not work; the clients of a Manager that is connected to it read directly.
//
// Make one with New. It is safe for concurrent use.
type API struct {
	scheme *runtime.Scheme
	mapper meta.RESTMapper
	client client.Client

	mu       sync.Mutex
	objects  map[objectKey]*unstructured.Unstructured
	version  int // the resourceVersion given last
	requests []Request
	stalled  chan struct{} // nil unless nobody is answered
}

type objectKey struct {
	schema.GroupResource
	namespace, name string
}

// Request is something that an API was asked to do.
type Request struct {
	Verb            string // get, list, watch, create, update, patch, delete, deletecollection
	Resource        schema.GroupVersionResource
	Subresource     string
	Namespace, Name string // Name is empty for collections and generated names
	DryRun          bool
	Body            json.RawMessage // nil for none
	Status          int             // HTTP code of the answer
}

// Writes tells whether the request changes what is stored. A dry run does not, nor does a review, by which clients
// ask what they may do.
func (r Request) Writes() bool {
	switch r.Verb {
	case "get", "list", "watch":
		return false
	}
	return !r.DryRun && !r.isReview()
}

func (r Request) isReview() bool {
	return r.Resource.Group == "authorization.k8s.io" || r.Resource.Group == "authentication.k8s.io"
}

// String is the request in a line, as in "create configmaps default/counter".
func (r Request) String() string {
	resource := r.Resource.Resource
	if r.Resource.Group != "" {
		resource += "." + r.Resource.Group
	}
	if r.Subresource != "" {
		resource += "/" + r.Subresource
	}
	object := r.Name
	if r.Namespace != "" {
		object = r.Namespace + "/" + object
	}
	dry := ""
	if r.DryRun {
		dry = " (dry run)"
	}
	return strings.TrimSpace(r.Verb+" "+resource+" "+object) + dry
}

// New makes an API of the kinds that scheme and mapper know, with these objects in it, of the scheme or unstructured.
func New(scheme *runtime.Scheme, mapper meta.RESTMapper, objects ...client.Object) (*API, error) {
	a := &API{scheme: scheme, mapper: mapper, objects: map[objectKey]*unstructured.Unstructured{}}
	for _, object := range objects {
		if err := a.Put(object); err != nil {
			return nil, err
		}
	}
	var err error
	a.client, err = client.New(a.RestConfig(), client.Options{Scheme: a.scheme, Mapper: a.mapper})
	return a, err
}

// Put has the API hold an object, in the place of one of the same name.
func (a *API) Put(object client.Object) error {
	kind, err := apiutil.GVKForObject(object, a.scheme)
	if err != nil {
		return fmt.Errorf("the scheme does not know %T: %w", object, err)
	}
	mapping, err := a.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return fmt.Errorf("nothing tells the plural of %s: %w", kind, err)
	}
	tree, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return err
	}
	u := &unstructured.Unstructured{Object: tree}
	u.SetGroupVersionKind(kind)
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace && u.GetNamespace() == "" {
		u.SetNamespace("default")
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.store(objectKey{mapping.Resource.GroupResource(), u.GetNamespace(), u.GetName()}, u)
	return nil
}

// Remove takes an object away, if it is there.
func (a *API) Remove(resource schema.GroupResource, namespace, name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.objects, objectKey{resource, namespace, name})
}

// connection leads to an API.
type connection struct {
	inprocess.Transport
	api *API
}

// NoWatches tells the Manager that caches do not work here, so that its clients read directly.
func (connection) NoWatches() {}

// Of is the API that a connection leads to; nil for another one's.
func Of(c *rest.Config) *API {
	if c == nil {
		return nil
	}
	network, _ := c.Transport.(connection)
	return network.api
}

// RestConfig is a connection to the API, for ManagerOptions.RestConfig and for clients of your own. Nothing leaves
// the process. It is the caller's own.
func (a *API) RestConfig() *rest.Config {
	return &rest.Config{
		Host: "http://api.invalid", Transport: connection{inprocess.Transport{Handler: http.HandlerFunc(a.serve)}, a}, QPS: -1,
		ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeJSON}, // else clients choose protobuf
	}
}

// Client is a controller-runtime client of the API.
func (a *API) Client() client.Client { return a.client }

// Requests is everything that was asked so far, in order.
func (a *API) Requests() []Request {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]Request(nil), a.requests...)
}

// Forget empties the record.
func (a *API) Forget() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.requests = nil
}

// Stall leaves everything that is asked without an answer, as an API server that hangs, until the returned function
// is called. A client's own context still ends its wait.
func (a *API) Stall() (resume func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	stalled := make(chan struct{})
	a.stalled = stalled
	return sync.OnceFunc(func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		close(stalled)
		if a.stalled == stalled {
			a.stalled = nil
		}
	})
}

// await returns when the API answers again, or the client has gone.
func (a *API) await(ctx context.Context) error {
	a.mu.Lock()
	stalled := a.stalled
	a.mu.Unlock()
	if stalled == nil {
		return nil
	}
	select {
	case <-stalled:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
