package cluster

// This file keeps copies of a few objects: by controller-runtime's cache, with a watch
// that a field selector restricts to the one object; by reading it again and again where watching is not allowed; not at
// all where reading is not.

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"sync"
	"time"

	"github.com/go-logr/logr"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

const (
	// rememberRefusal is how long a right that was refused is not asked for again.
	rememberRefusal = 10 * time.Minute

	// firstPoll and lastPoll bound the time between two readings of an object that may not be watched.
	firstPoll, lastPoll = time.Second, 30 * time.Second

	// endWithin is how long a watch that ends is waited for.
	endWithin = 500 * time.Millisecond
)

// ErrUnseen says that an object may not be read here, or has not been read yet. Why is wrapped beside it, where it is known.
var ErrUnseen = errors.New("it cannot be read")

// unseen is ErrUnseen with the reason. That a whole kind is not found does not make the object a missing one.
func unseen(why error) error {
	if apierrors.IsNotFound(why) {
		why = errors.New(why.Error())
	}
	return fmt.Errorf("%w: %w", ErrUnseen, why)
}

// Cache holds copies of objects. Get fails with ErrUnseen or NotFound. Saw takes in an object that this process has read
// or written itself, which a watch may not have brought yet.
type Cache interface {
	Get(ctx context.Context, into client.Object) error
	Saw(object client.Object)
}

var (
	_ Cache = (*Objects)(nil)
	_ Cache = (*Direct)(nil)
)

// Access is what may be done with an object.
type Access struct{ Get, Watch bool }

// Followed is an object that Objects follow. Object has its name and namespace set.
type Followed struct {
	Object client.Object
	// Access asks what this process may do with it. It is asked again every ten minutes while watching is not allowed. Where
	// it is nil or fails, trying shows it.
	Access func(context.Context) (Access, error)
	// Needed has a right that is refused tried again within half a minute: the process waits for the object.
	Needed bool
}

// Objects are copies of a few objects. They are safe for concurrent use.
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
	kind schema.GroupVersionKind

	mu     sync.Mutex
	cache  cache.Cache // while it is watched
	synced func() string
	object client.Object // as this process has read or written it last, beside the cache; nil for missing
	known  bool          // it has been read
	denied bool          // it may not be read
	why    error         // of ErrUnseen, while it is not known or may not be read
	said   bool          // that it may not be watched
	saws   int           // calls of Saw
	seen   chan struct{} // closed when it has been read for the first time, or may not be
	once   sync.Once
}

// NewObjects touches no network.
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
		o.all = append(o.all, &followed{Followed: f, kind: kind, seen: make(chan struct{}), why: unseen(errors.New("the API server has not sent it yet"))})
	}
	o.mapper = mapper
	o.reader, err = client.New(config, client.Options{HTTPClient: httpClient, Scheme: scheme.Scheme, Mapper: mapper})
	return o, err
}

// Notify has f called after each change. f must be quick.
func (o *Objects) Notify(f func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.changed = append(o.changed, f)
}

// Wake has all that Notify was called with look again.
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

// Seen returns when each object has been read once, or may not be read.
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

// follow does what is allowed, and asks again what is.
func (o *Objects) follow(ctx context.Context, f *followed) {
	for delay := firstPoll; ctx.Err() == nil; {
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
			if err := o.watch(ctx, f); ctx.Err() == nil && f.firstRefusal() {
				o.log.Info("an object may not be watched, so it is read every 30 s; grant list and watch on it", "kind", f.kind.Kind, "name", f.Object.GetName(), "reason", err)
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
		wait := rememberRefusal
		if f.Needed {
			wait, delay = delay, min(2*delay, lastPoll)
		}
		_ = Sleep(ctx, Jittered(wait))
	}
}

// withoutManagedFields drops what is half of many objects. (The transform of controller-runtime does the same by an interface,
// for which the linker keeps the method in all kinds of the API.)
func withoutManagedFields(object any) (any, error) {
	if typed, ok := object.(metav1.ObjectMetaAccessor); ok {
		if meta, ok := typed.GetObjectMeta().(*metav1.ObjectMeta); ok {
			meta.ManagedFields = nil
		}
	}
	return object, nil
}

// watch returns when the API server refuses it, or with ctx.
func (o *Objects) watch(ctx context.Context, f *followed) error {
	ctx, refuse := context.WithCancelCause(ctx)
	defer refuse(nil)
	only := fields.OneTermEqualSelector(metav1.ObjectNameField, f.Object.GetName())
	if ns := f.Object.GetNamespace(); ns != "" { // by it the cache asks in that namespace; ByObject.Namespaces would hide the informer
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
		synced := f.cache != nil // before, Get does not give what there is
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
		case <-handler.HasSyncedChecker().Done(): // WaitForCacheSync looks every 100 ms, which each start would wait for
		case <-ctx.Done():
			return
		}
		f.mu.Lock()
		f.cache, f.denied, f.said = c, false, false
		if shared, ok := informer.(toolscache.SharedIndexInformer); ok {
			f.synced = shared.GetStore().LastStoreSyncResourceVersion // the informer's own is ahead of its store
		}
		f.mu.Unlock()
		f.once.Do(func() { close(f.seen) })
		o.notify()
	})
	ended := make(chan error, 1)
	go func() { ended <- c.Start(ctx) }()
	select {
	case err = <-ended:
	case <-ctx.Done(): // a reflector that backs off heeds no context, and may sleep for a minute
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

// keep takes over the cache's last copy when a watch ends: it holds until the object has been read again.
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

// poll reads the object again and again, for ten minutes. It returns why it may not.
func (o *Objects) poll(ctx context.Context, f *followed) error {
	until, delay := time.Now().Add(rememberRefusal), firstPoll
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
			delay = firstPoll
			o.notify()
		}
		_ = Sleep(ctx, Jittered(delay))
		delay = min(2*delay, lastPoll)
	}
	return nil
}

// failed remembers why an object could not be read, and tells of it, until it is known.
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

// firstRefusal reports whether a watch is refused for the first time, or for the first time after it was not.
func (f *followed) firstRefusal() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	first := !f.said
	f.said = true
	return first
}

// seenHere counts what Saw has taken in: a reading that it overtook is older.
func (f *followed) seenHere() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.saws
}

// set stores what was read, or that it may not be, and reports whether it differs from before.
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

// Get fills in a copy of the object of its kind. The error is NotFound when it does not exist, and ErrUnseen while it is
// not known or may not be read.
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

// ahead reports whether this process has written or read a later version than the cache has seen.
func (f *followed) ahead() bool {
	if f.object == nil || f.synced == nil {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(f.object.GetResourceVersion(), f.synced())
	return err == nil && order > 0
}

// Saw takes notice of an object that this process has read or written past the cache.
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

// Direct is the Cache of a short process: it keeps nothing, and reads everything anew.
type Direct struct{ reader client.Reader }

// NewDirect touches no network.
func NewDirect(config *rest.Config) (*Direct, error) {
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	for object, scope := range map[client.Object]meta.RESTScope{
		&corev1.Secret{}:        meta.RESTScopeNamespace,
		&coordinationv1.Lease{}: meta.RESTScopeNamespace,
		&admissionregistrationv1.MutatingWebhookConfiguration{}:   meta.RESTScopeRoot,
		&admissionregistrationv1.ValidatingWebhookConfiguration{}: meta.RESTScopeRoot,
	} {
		kind, err := apiutil.GVKForObject(object, scheme.Scheme)
		if err != nil {
			return nil, err
		}
		mapper.Add(kind, scope)
	}
	reader, err := client.New(config, client.Options{HTTPClient: httpClient, Scheme: scheme.Scheme, Mapper: mapper})
	return &Direct{reader: reader}, err
}

// Get implements Cache.
func (d *Direct) Get(ctx context.Context, into client.Object) error {
	err := d.reader.Get(ctx, client.ObjectKeyFromObject(into), into)
	if apierrors.IsForbidden(err) {
		return unseen(err)
	}
	return err
}

// Saw implements Cache.
func (*Direct) Saw(client.Object) {}
