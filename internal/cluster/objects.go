package cluster

// This file keeps copies of a few objects. It uses controller-runtime's cache, with a watch that a field selector
// restricts to the one object. Where watching is forbidden, it polls the object. Where reading is forbidden, it keeps
// no copy.

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"code.cloudfoundry.org/eirinix/internal/lograte"
	"code.cloudfoundry.org/eirinix/internal/wait"
)

const (
	// rememberRefusal is how long a refused permission is not checked again.
	rememberRefusal = 10 * time.Minute

	// firstPoll and lastPoll limit the time between two reads of an object for which watching is forbidden, before
	// jitter.
	firstPoll, lastPoll = time.Second, 30 * time.Second

	// remindOfPolling is the interval at which a refused watch is logged again. Polling is slower, but works.
	remindOfPolling = 24 * time.Hour

	// endWithin limits the wait for a watch to end.
	endWithin = 500 * time.Millisecond
)

// Access holds the permissions for an object.
type Access struct{ Get, Watch bool }

// Followed is an object that Objects follow. Object has its name and namespace set.
type Followed struct {
	Object client.Object
	// Access returns the permissions that this process has for the object. It is called again every ten minutes while
	// watching is forbidden. If it is nil or fails, an attempt shows the permissions.
	Access func(context.Context) (Access, error)
	// Needed is set if the process waits for the object. A refused permission is then tried again after 1 s, later up
	// to 30 s, plus jitter.
	Needed bool
}

// Objects holds copies of a few objects. It is safe for concurrent use.
type Objects struct {
	config *rest.Config
	http   *http.Client
	mapper meta.RESTMapper
	log    logr.Logger
	reader client.Reader // without a cache
	all    []*followed

	mu      sync.Mutex
	changed []func()
}

type followed struct {
	Followed
	kind     schema.GroupVersionKind
	refusals lograte.Limiter // of watches

	mu     sync.Mutex
	cache  cache.Cache // while it is watched
	synced func() string
	object client.Object // as last read or written by this process, beside the cache; nil if missing
	known  bool          // it has been read
	denied bool          // reading is forbidden
	why    error         // the ErrUnseen to return while the object is unknown or reading is forbidden
	saws   int           // calls of Saw that stored an object
	seen   chan struct{} // closed after the first read, or when reading is forbidden
	once   sync.Once
}

// NewObjects returns copies of the objects to follow. It sends no request.
func NewObjects(config *rest.Config, log logr.Logger, follow ...Followed) (*Objects, error) {
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	o := &Objects{config: config, http: httpClient, log: log}
	mapper := meta.NewDefaultRESTMapper(nil)
	for _, f := range follow {
		kind, err := apiutil.GVKForObject(f.Object, scheme.Scheme)
		if err != nil {
			return nil, err
		}
		scope := meta.RESTScopeRoot
		if f.Object.GetNamespace() != "" {
			scope = meta.RESTScopeNamespace
		}
		mapper.Add(kind, scope)
		o.all = append(o.all, &followed{
			Followed: f, kind: kind, refusals: lograte.Limiter{Every: remindOfPolling}, seen: make(chan struct{}), why: unseen(errors.New("the API server has not sent it yet")),
		})
	}
	o.mapper = mapper
	o.reader, err = client.New(config, client.Options{HTTPClient: httpClient, Scheme: scheme.Scheme, Mapper: mapper})
	return o, err
}

// Notify registers f to be called after each change. f must be quick.
func (o *Objects) Notify(f func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.changed = append(o.changed, f)
}

// Wake calls all functions that were passed to Notify.
func (o *Objects) Wake() { o.notify() }

func (o *Objects) notify() {
	o.mu.Lock()
	all := o.changed
	o.mu.Unlock()
	for _, f := range all {
		f()
	}
}

// Run follows the objects until ctx ends.
func (o *Objects) Run(ctx context.Context) {
	var following sync.WaitGroup
	for _, f := range o.all {
		following.Go(func() { o.follow(ctx, f) })
	}
	following.Wait()
}

// Seen returns when each object has been read once, or reading it is forbidden.
func (o *Objects) Seen(ctx context.Context) error {
	for _, f := range o.all {
		select {
		case <-f.seen:
		case <-ctx.Done():
			return fmt.Errorf("%s %s could not be read: %w", f.kind.Kind, f.Object.GetName(), context.Cause(ctx))
		}
	}
	return nil
}

// follow watches or polls an object as its permissions allow, and checks them again from time to time.
func (o *Objects) follow(ctx context.Context, f *followed) {
	delays := wait.Backoff(firstPoll, lastPoll)
	for ctx.Err() == nil {
		access, refused := Access{Get: true, Watch: true}, ErrUnseen
		if f.Access != nil {
			if known, err := f.Access(ctx); err == nil {
				access = known
			}
		}
		switch {
		case ctx.Err() != nil:
			return
		case access.Watch:
			if err := o.watch(ctx, f); ctx.Err() == nil {
				if _, ok := f.refusals.Allow("watch", ""); ok {
					o.log.Info("an object may not be watched, so it is read every 30 s; grant list and watch on it", "kind", f.kind.Kind, "name", f.Object.GetName(), "reason", err)
				}
			}
			refused = o.poll(ctx, f)
		case access.Get:
			refused = o.poll(ctx, f)
		}
		if refused == nil {
			continue
		}
		if f.set(nil, refused) {
			o.notify()
		}
		pause := wait.Jittered(rememberRefusal)
		if f.Needed {
			pause = delays()
		}
		_ = wait.Sleep(ctx, pause)
	}
}

// withoutManagedFields drops the managed fields, which are half of many objects. The transform of controller-runtime
// does the same through an interface. With that, the linker keeps the method in all kinds of the API.
func withoutManagedFields(object any) (any, error) {
	if typed, ok := object.(metav1.ObjectMetaAccessor); ok {
		if meta, ok := typed.GetObjectMeta().(*metav1.ObjectMeta); ok {
			meta.ManagedFields = nil
		}
	}
	if tree, ok := object.(*unstructured.Unstructured); ok {
		unstructured.RemoveNestedField(tree.Object, "metadata", "managedFields")
	}
	return object, nil
}

// watch returns when the API server refuses the watch, or when ctx ends.
func (o *Objects) watch(ctx context.Context, f *followed) error {
	ctx, refuse := context.WithCancelCause(ctx)
	defer refuse(nil)
	only := fields.OneTermEqualSelector(metav1.ObjectNameField, f.Object.GetName())
	if ns := f.Object.GetNamespace(); ns != "" { // makes the cache ask in that namespace; ByObject.Namespaces would hide the informer
		only = fields.AndSelectors(only, fields.OneTermEqualSelector("metadata.namespace", ns))
	}
	by := cache.ByObject{Field: only, Transform: withoutManagedFields}
	c, err := cache.New(o.config, cache.Options{
		HTTPClient: o.http, Scheme: scheme.Scheme, Mapper: o.mapper, ByObject: map[client.Object]cache.ByObject{f.Object: by},
		DefaultWatchErrorHandler: func(_ context.Context, _ *toolscache.Reflector, err error) {
			if apierrors.IsForbidden(err) {
				refuse(err)
			} else if !apierrors.IsResourceExpired(err) {
				o.failed(f, err)
				o.log.V(1).Info("a watch was interrupted; it begins anew", "kind", f.kind.Kind, "name", f.Object.GetName(), "reason", err.Error())
			}
		},
	})
	if err != nil {
		return err
	}
	informer, err := c.GetInformer(ctx, f.Object, cache.BlockUntilSynced(false))
	if err != nil {
		return err
	}
	changed := func() {
		f.mu.Lock()
		synced := f.cache != nil // before that, Get does not return the contents
		f.mu.Unlock()
		if synced {
			o.notify()
		}
	}
	handler, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { changed() },
		UpdateFunc: func(any, any) { changed() },
		DeleteFunc: func(any) { changed() },
	})
	if err != nil {
		return err
	}
	var running sync.WaitGroup
	running.Go(func() {
		select {
		case <-handler.HasSyncedChecker().Done(): // WaitForCacheSync checks only every 100 ms, which would delay each start
		case <-ctx.Done():
			return
		}
		f.mu.Lock()
		f.cache, f.denied = c, false
		if shared, ok := informer.(toolscache.SharedIndexInformer); ok {
			f.synced = shared.GetStore().LastStoreSyncResourceVersion // the informer's own is ahead of its store
		}
		f.mu.Unlock()
		f.refusals.Forget("watch")
		f.once.Do(func() { close(f.seen) })
		o.notify()
	})
	ended := make(chan error, 1)
	go func() { ended <- c.Start(ctx) }()
	select {
	case err = <-ended:
	case <-ctx.Done(): // a reflector that backs off ignores the context, and can sleep for a minute
		timer := time.NewTimer(endWithin)
		defer timer.Stop()
		select {
		case err = <-ended:
		case <-timer.C:
		}
	}
	running.Wait()
	f.keep(context.WithoutCancel(ctx))
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	return err
}

// keep stores the cache's last copy when a watch ends. It is valid until the object has been read again.
func (f *followed) keep(ctx context.Context) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.cache == nil {
		return
	}
	if last, ok := f.Object.DeepCopyObject().(client.Object); ok && !f.ahead() {
		switch err := f.cache.Get(ctx, client.ObjectKeyFromObject(f.Object), last); {
		case err == nil:
			f.object, f.known = last, true
		case apierrors.IsNotFound(err):
			f.object, f.known = nil, true
		}
	}
	f.cache, f.synced = nil, nil
}

// poll reads the object repeatedly, for ten minutes. If reading is forbidden, it returns the reason.
func (o *Objects) poll(ctx context.Context, f *followed) error {
	until, delays := time.Now().Add(rememberRefusal), wait.Backoff(firstPoll, lastPoll)
	for ctx.Err() == nil && time.Now().Before(until) {
		object, ok := f.Object.DeepCopyObject().(client.Object)
		if !ok {
			return ErrUnseen
		}
		before := f.seenHere()
		err := o.reader.Get(ctx, client.ObjectKeyFromObject(f.Object), object)
		switch {
		case apierrors.IsForbidden(err):
			return unseen(err)
		case apierrors.IsNotFound(err):
			object, err = nil, nil
		}
		switch {
		case err != nil:
			o.failed(f, err)
		case f.seenHere() == before && f.set(object, nil):
			delays = wait.Backoff(firstPoll, lastPoll)
			o.notify()
		}
		_ = wait.Sleep(ctx, delays())
	}
	return nil
}

// failed stores the reason why an object could not be read, and notifies of it, while the object is unknown.
func (o *Objects) failed(f *followed, err error) {
	f.mu.Lock()
	why, before := unseen(err), f.why
	unknown := !f.known && f.cache == nil
	if unknown {
		f.why = why
	}
	f.mu.Unlock()
	if unknown && why.Error() != before.Error() {
		o.notify()
	}
}

// seenHere returns the number of objects that Saw has stored. A read during which it changes is outdated.
func (f *followed) seenHere() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.saws
}

// set stores the result of a read, or its refusal, and reports whether it differs from the previous one.
func (f *followed) set(object client.Object, refused error) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	denied := refused != nil
	same := f.known && f.denied == denied && versionOf(f.object) == versionOf(object)
	f.object, f.known, f.denied, f.why = object, true, denied, refused
	f.once.Do(func() { close(f.seen) })
	return !same
}

func versionOf(object client.Object) string {
	if object == nil {
		return ""
	}
	return string(object.GetUID()) + "/" + object.GetResourceVersion()
}

// Get fills in a copy of the object of that kind and name. The error is NotFound if the object does not exist, and
// ErrUnseen while it is unknown or reading it is forbidden.
func (o *Objects) Get(ctx context.Context, into client.Object) error {
	kind, err := apiutil.GVKForObject(into, scheme.Scheme)
	if err != nil {
		return err
	}
	for _, f := range o.all {
		if f.kind == kind && client.ObjectKeyFromObject(f.Object) == client.ObjectKeyFromObject(into) {
			return f.get(ctx, into)
		}
	}
	return ErrUnseen
}

func (f *followed) get(ctx context.Context, into client.Object) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	key := client.ObjectKeyFromObject(f.Object)
	if f.cache != nil && !f.ahead() {
		return f.cache.Get(ctx, key, into)
	}
	switch {
	case f.denied || !f.known && f.object == nil:
		return f.why
	case f.object == nil:
		return apierrors.NewNotFound(schema.GroupResource{Group: f.kind.Group, Resource: f.kind.Kind}, key.Name)
	}
	reflect.ValueOf(into).Elem().Set(reflect.ValueOf(f.object.DeepCopyObject()).Elem())
	return nil
}

// ahead reports whether this process has read or written a later version than the cache has observed.
func (f *followed) ahead() bool {
	if f.object == nil || f.synced == nil {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(f.object.GetResourceVersion(), f.synced())
	return err == nil && order > 0
}

// Saw stores an object that this process has read or written without the cache, unless a later version is stored.
func (o *Objects) Saw(object client.Object) {
	for _, f := range o.all {
		if client.ObjectKeyFromObject(f.Object) != client.ObjectKeyFromObject(object) || reflect.TypeOf(f.Object) != reflect.TypeOf(object) {
			continue
		}
		f.mu.Lock()
		older := false
		if f.object != nil {
			order, err := resourceversion.CompareResourceVersion(object.GetResourceVersion(), f.object.GetResourceVersion())
			older = err == nil && order < 0
		}
		if !older {
			f.object = object
			f.saws++
		}
		f.mu.Unlock()
	}
}
