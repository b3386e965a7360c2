// Package fakeapi is a Kubernetes API in memory, for handlers that use a client without a cluster.
//
// It is an HTTP server in the process, and not controller-runtime's fake client. A Manager is connected by a rest.Config
// and so are client-go's clients, and both need an API that speaks REST.
package fakeapi

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
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
	"code.cloudfoundry.org/eirinix/internal/list"
)

// API is a Kubernetes API in memory, for handlers that use a client. It holds the objects that it was given, and a
// record of every request. It accepts writes as an API server without admission, defaulting and validation would.
// Clients of all kinds can use it: Client, and those of client-go with RestConfig. Watches are refused there, so caches
// and informers do not work. The clients of a Manager that is connected to it read directly. A Server serves watches.
//
// Make one with New. It is safe for concurrent use.
type API struct {
	scheme *runtime.Scheme
	mapper meta.RESTMapper
	client client.Client

	mu       sync.Mutex
	objects  map[objectKey]*object
	servers  []*Server
	changes  []*change // since the version base; only for servers
	base     int
	version  int // the last resourceVersion that was assigned
	requests []Request
	stalled  chan struct{} // nil unless all requests stall
}

type objectKey struct {
	schema.GroupResource
	namespace, name string
}

// object is a stored object, which never changes.
type object struct {
	*unstructured.Unstructured
	texts map[schema.GroupVersion][]byte // as JSON; guarded by the API's mu
}

// text returns the object in a version, as JSON. The caller holds mu, and must not change the result.
func (o *object) text(version schema.GroupVersion) []byte {
	text, ok := o.texts[version]
	if !ok {
		tree := maps.Clone(o.Object)
		tree["apiVersion"] = version.String()
		text, _ = json.Marshal(tree) // a tree of JSON
		if o.texts == nil {
			o.texts = map[schema.GroupVersion][]byte{}
		}
		o.texts[version] = text
	}
	return text
}

// Request is a request to an API.
type Request struct {
	Verb            string // get, list, watch, create, update, patch, delete, deletecollection
	Resource        schema.GroupVersionResource
	Subresource     string
	Namespace, Name string // Name is empty for collections and generated names
	DryRun          bool
	Body            json.RawMessage // nil for none
	Status          int             // HTTP code of the response
}

// Writes reports whether the request changes stored objects. A dry run does not, nor does a review, with which
// clients query their permissions.
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

// String returns the request in one line, as in "create configmaps default/counter".
func (r Request) String() string {
	resource := r.Resource.GroupResource().String()
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

// New makes an API of the kinds that scheme and mapper know, with these objects in it. Objects are of the scheme or
// unstructured.
func New(scheme *runtime.Scheme, mapper meta.RESTMapper, objects ...client.Object) (*API, error) {
	a := &API{scheme: scheme, mapper: mapper, objects: map[objectKey]*object{}}
	for _, object := range objects {
		if err := a.Put(object); err != nil {
			return nil, err
		}
	}
	var err error
	a.client, err = client.New(a.RestConfig(), client.Options{Scheme: a.scheme, Mapper: a.mapper})
	return a, err
}

// Put stores an object, and replaces one of the same name.
func (a *API) Put(object client.Object) error {
	kind, err := apiutil.GVKForObject(object, a.scheme)
	if err != nil {
		return fmt.Errorf("the scheme does not know %T: %w", object, err)
	}
	mapping, err := a.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return fmt.Errorf("no mapper knows the plural of %s: %w", kind, err)
	}
	tree, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object.DeepCopyObject()) // the object is the caller's
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
	a.commit(objectKey{mapping.Resource.GroupResource(), u.GetNamespace(), u.GetName()}, u)
	return nil
}

// Objects returns the stored objects, ordered by namespace and name. It is no request: it is not recorded, and does not
// wait while the API is stalled. The caller must not change the objects. The API does not do so either, but replaces
// them.
func (a *API) Objects() []*unstructured.Unstructured {
	a.mu.Lock()
	defer a.mu.Unlock()
	return list.Of(keys(a.objects), func(key objectKey) *unstructured.Unstructured { return a.objects[key].Unstructured })
}

// Find returns the stored object of a kind and name, or nil. Like Objects, it is no request, and the caller must not change
// the object.
func (a *API) Find(kind, namespace, name string) *unstructured.Unstructured {
	a.mu.Lock()
	defer a.mu.Unlock()
	for key, o := range a.objects {
		if key.name == name && key.namespace == namespace && o.GetKind() == kind {
			return o.Unstructured
		}
	}
	return nil
}

// Remove removes an object, if it exists.
func (a *API) Remove(resource schema.GroupResource, namespace, name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if key := (objectKey{resource, namespace, name}); a.objects[key] != nil {
		a.commit(key, nil)
	}
}

// Backup is what an API held at a time.
type Backup struct {
	objects map[objectKey]*object
	version int
}

// Backup returns what the API holds.
func (a *API) Backup() *Backup {
	a.mu.Lock()
	defer a.mu.Unlock()
	return &Backup{maps.Clone(a.objects), a.version}
}

// Restore puts a backup in the place of all objects, as a restore of etcd does: resourceVersions that were assigned
// since then are assigned again. All servers start anew.
func (a *API) Restore(b *Backup) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.objects, a.version, a.changes, a.base = maps.Clone(b.objects), b.version, nil, b.version
	for _, s := range a.servers {
		s.restart()
	}
}

// connection is a client's connection to an API.
type connection struct {
	inprocess.Transport
	api *API
}

// NoWatches shows the Manager that caches do not work here, so that its clients read directly.
func (connection) NoWatches() {}

// Of returns the API to which a connection leads; nil for a connection to another one.
func Of(c *rest.Config) *API {
	if c == nil {
		return nil
	}
	network, _ := c.Transport.(connection)
	return network.api
}

// RestConfig returns a connection to the API, for ManagerOptions.RestConfig and for other clients. No request leaves
// the process. The caller owns the result.
func (a *API) RestConfig() *rest.Config {
	return &rest.Config{
		Host:          "http://api.invalid",
		Transport:     connection{inprocess.Transport{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { a.serve(w, r, nil) })}, a},
		QPS:           -1,
		ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeJSON}, // otherwise clients choose protobuf
	}
}

// Client returns a controller-runtime client of the API.
func (a *API) Client() client.Client { return a.client }

// Requests returns all requests so far, in order.
func (a *API) Requests() []Request {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]Request(nil), a.requests...)
}

// Forget clears the record of requests.
func (a *API) Forget() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.requests = nil
}

// Stall leaves every request unanswered, as an API server that hangs, until the returned function is called. A
// client's own context still ends its wait.
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

// await waits until the API answers again. It returns an error if ctx ends before.
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
