package cluster

// This file reads a few objects, from copies or, in a short-lived process, from the API server. Objects are untyped, so
// that nothing is lost that a newer API server knows.
//
// A copy is what the API server has sent last, and nothing else. It is watched with a field selector that restricts the
// watch to the one object. Where watching is forbidden, the object is polled. Where reading is forbidden, there is no copy.

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"code.cloudfoundry.org/eirinix/internal/lograte"
	"code.cloudfoundry.org/eirinix/internal/wait"
)

const (
	// rememberRefusal is how long a refused permission is not checked again.
	rememberRefusal = 10 * time.Minute

	// remindOfPolling is the interval at which a refused watch is logged again. Polling is slower, but works.
	remindOfPolling = 24 * time.Hour
)

// ErrUnseen reports that reading an object is forbidden, or that it has not been read yet. The reason is wrapped too,
// if it is known.
var ErrUnseen = errors.New("it cannot be read")

// unseen returns ErrUnseen with the reason. It hides a NotFound, because a missing kind must not be taken for a missing
// object.
func unseen(why error) error {
	if apierrors.IsNotFound(why) {
		why = errors.New(why.Error())
	}
	return fmt.Errorf("%w: %w", ErrUnseen, why)
}

// Cache holds copies of objects, as the API server has sent them. Get fills in a typed object, or an untyped one that
// has its apiVersion and kind, without the managed fields. It fails with ErrUnseen or NotFound. Answered tells it that the API
// server has just answered a request of this process for an object: a copy that is polled, or was refused, is read again at
// once. Polls reports whether a copy is polled.
type Cache interface {
	Get(ctx context.Context, into client.Object) error
	Answered(object client.Object)
	Polls(object client.Object) bool
}

// Access holds the permissions for an object.
type Access struct{ Get, Watch bool }

// Followed is an object that Objects follow. Object has its name and namespace set, and its apiVersion and kind if it is
// untyped.
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
	all    []*followed
	grants atomic.Int64 // how often a right has come back

	mu      sync.Mutex
	changed []func()
}

type followed struct {
	Followed
	kind               schema.GroupVersionKind
	at                 dynamic.ResourceInterface
	log                logr.Logger
	refusals, failures lograte.Limiter // of watches; of reads while the object is unknown
	again              chan struct{}   // asks for the next look at once

	mu     sync.Mutex
	object *unstructured.Unstructured // as the API server has sent it last, never modified; nil if it is missing
	why    error                      // the ErrUnseen to return while the object is unknown or reading is forbidden; else nil
	polled bool
	seen   chan struct{} // closed after the first read, or when reading is forbidden
	once   sync.Once
}

// NewObjects returns copies of the objects to follow. It sends no request.
func NewObjects(config *rest.Config, log logr.Logger, follow ...Followed) (*Objects, error) {
	c, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	o := &Objects{}
	for _, one := range follow {
		f := &followed{
			Followed: one, refusals: lograte.Limiter{Every: remindOfPolling}, again: make(chan struct{}, 1), seen: make(chan struct{}),
			why: unseen(errors.New("the API server has not sent it yet")),
		}
		if f.at, f.kind, err = locate(c, one.Object); err != nil {
			return nil, err
		}
		f.log = log.WithValues("kind", f.kind.Kind, "name", one.Object.GetName())
		o.all = append(o.all, f)
	}
	return o, nil
}

// Notify registers f to be called after each change. f must be quick.
func (o *Objects) Notify(f func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.changed = append(o.changed, f)
}

// Wake calls all functions that were passed to Notify.
func (o *Objects) Wake() {
	o.mu.Lock()
	all := o.changed
	o.mu.Unlock()
	for _, f := range all {
		f()
	}
}

// Retry makes refused permissions be checked again at once. It is called when one has been granted that was refused,
// because the others come with it.
func (o *Objects) Retry() {
	o.grants.Add(1)
	for _, f := range o.all {
		wait.Signal(f.again)
	}
}

// Run follows the objects until ctx ends.
func (o *Objects) Run(ctx context.Context) {
	ctx = logr.NewContext(ctx, logr.Discard()) // what matters of client-go's reports is logged here
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
	delays := wait.Backoff(firstPause, LastPause)
	for ctx.Err() == nil {
		access := Access{Get: true, Watch: true}
		if f.Access != nil {
			if known, err := f.Access(ctx); err == nil {
				access = known
			}
		}
		if access.Watch {
			if err := o.watch(ctx, f); ctx.Err() == nil {
				if _, ok := f.refusals.Allow("watch", ""); ok {
					f.log.Info("an object may not be watched, so it is read every 30 s; grant list and watch on it", "reason", err)
				}
			}
		}
		refused := ErrUnseen
		if access.Watch || access.Get {
			refused = o.poll(ctx, f)
		}
		if refused == nil {
			continue
		}
		o.set(f, nil, refused, false)
		pause := wait.Jittered(rememberRefusal)
		if f.Needed {
			pause = delays()
		}
		_ = wait.SleepUnless(ctx, pause, f.again)
	}
}

// watch returns when the API server refuses the watch, or when ctx ends.
func (o *Objects) watch(ctx context.Context, f *followed) error {
	var now *unstructured.Unstructured
	begun, only := false, fields.OneTermEqualSelector(metav1.ObjectNameField, f.Object.GetName()).String()
	return (&Follower{
		List: func(ctx context.Context, o metav1.ListOptions) (client.ObjectList, error) {
			o.FieldSelector = only
			return f.at.List(ctx, o)
		},
		Watch: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = only
			return f.at.Watch(ctx, o)
		},
		Restart: func() { now, begun = nil, false },
		Take: func(how watch.EventType, object client.Object) {
			tree, _ := object.(*unstructured.Unstructured) // all are
			switch {
			case !f.is(object):
				return
			case how == watch.Deleted:
				now = nil
			default:
				now = withoutManagedFields(tree)
			}
			if begun {
				o.set(f, now, nil, false)
			}
		},
		Begun: func() {
			begun = true
			o.set(f, now, nil, false)
		},
		Ended: func(_ time.Time, err error) time.Duration {
			switch {
			case apierrors.IsForbidden(err):
				return 0
			case err != nil:
				o.failed(f, err)
			}
			return LastPause
		},
	}).Run(ctx)
}

// is reports whether an object is the one that is followed.
func (f *followed) is(object client.Object) bool {
	return object.GetObjectKind().GroupVersionKind() == f.kind && client.ObjectKeyFromObject(object) == client.ObjectKeyFromObject(f.Object)
}

// poll reads the object repeatedly, for ten minutes, or until a right has come back. If reading is forbidden, it returns the reason.
func (o *Objects) poll(ctx context.Context, f *followed) error {
	until, delays, grants := time.Now().Add(rememberRefusal), wait.Backoff(firstPause, LastPause), o.grants.Load()
	for ctx.Err() == nil && time.Now().Before(until) && o.grants.Load() == grants {
		object, err := f.at.Get(ctx, f.Object.GetName(), metav1.GetOptions{})
		switch {
		case apierrors.IsForbidden(err):
			return unseen(err)
		case err != nil && !apierrors.IsNotFound(err):
			o.failed(f, err)
		case o.set(f, withoutManagedFields(object), nil, true):
			delays = wait.Backoff(firstPause, LastPause)
		}
		_ = wait.SleepUnless(ctx, delays(), f.again)
	}
	return nil
}

// failed logs why an object cannot be read. While the object is unknown, it is also the reason that Get returns.
func (o *Objects) failed(f *followed, err error) {
	f.mu.Lock()
	before := f.why
	if before != nil {
		f.why = unseen(err)
	}
	f.mu.Unlock()
	if before == nil {
		f.log.V(1).Info("a copy may be outdated, because the object cannot be read; trying again", "reason", err.Error())
		return
	}
	if _, ok := f.failures.Allow("", ""); ok {
		f.log.Info("an object cannot be read, and what needs it waits; trying again", "reason", err.Error())
	}
	if before.Error() != unseen(err).Error() {
		o.Wake()
	}
}

// set stores what the API server has sent: the object, nil for a missing one, or the refusal to read it. It notifies of
// a change, and reports whether there was one.
func (o *Objects) set(f *followed, object *unstructured.Unstructured, refused error, polled bool) bool {
	f.mu.Lock()
	if refused == nil && !polled { // a watch is allowed
		f.refusals.Forget("watch")
	}
	changed := (f.why == nil) != (refused == nil) || f.polled != polled || versionOf(f.object) != versionOf(object)
	regained := f.why != nil && refused == nil
	f.object, f.why, f.polled = object, refused, polled
	f.once.Do(func() { close(f.seen); changed, regained = true, false }) // before, nothing was refused
	f.mu.Unlock()
	if regained {
		o.Retry()
	}
	if changed {
		o.Wake()
	}
	return changed
}

func versionOf(object *unstructured.Unstructured) string {
	if object == nil {
		return ""
	}
	return string(object.GetUID()) + "/" + object.GetResourceVersion()
}

// find returns the followed object of that kind and name, or nil.
func (o *Objects) find(object client.Object) *followed {
	kind, err := apiutil.GVKForObject(object, scheme.Scheme)
	for _, f := range o.all {
		if err == nil && f.kind == kind && client.ObjectKeyFromObject(f.Object) == client.ObjectKeyFromObject(object) {
			return f
		}
	}
	return nil
}

// Get fills in a copy of the object of that kind and name. The error is NotFound if the object does not exist, and
// ErrUnseen while it is unknown or reading it is forbidden.
func (o *Objects) Get(_ context.Context, into client.Object) error {
	f := o.find(into)
	if f == nil {
		return ErrUnseen
	}
	f.mu.Lock()
	object, why := f.object, f.why
	f.mu.Unlock()
	switch {
	case why != nil:
		return why
	case object == nil:
		return apierrors.NewNotFound(schema.GroupResource{Group: f.kind.Group, Resource: f.kind.Kind}, f.Object.GetName())
	}
	return fill(into, object)
}

// Polls reports whether the copy of an object is polled at present, so that a change is seen up to half a minute late.
func (o *Objects) Polls(object client.Object) bool {
	f := o.find(object)
	if f == nil {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.polled
}

// Answered implements Cache. A watch shows a write by itself.
func (o *Objects) Answered(object client.Object) {
	f := o.find(object)
	if f == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.polled || f.why != nil {
		wait.Signal(f.again)
	}
}

// Direct is the Cache of a short-lived process. It stores nothing and sends a request for each Get.
type Direct struct{ client dynamic.Interface }

// NewDirect returns a Direct. It sends no request.
func NewDirect(config *rest.Config) (*Direct, error) {
	c, err := dynamic.NewForConfig(config)
	return &Direct{client: c}, err
}

// Get implements Cache.
func (d *Direct) Get(ctx context.Context, into client.Object) error {
	at, _, err := locate(d.client, into)
	if err != nil {
		return err
	}
	found, err := at.Get(ctx, into.GetName(), metav1.GetOptions{})
	switch {
	case apierrors.IsForbidden(err):
		return unseen(err)
	case err != nil:
		return err
	}
	return fill(into, withoutManagedFields(found))
}

// Answered implements Cache.
func (*Direct) Answered(client.Object) {}

// Polls implements Cache.
func (*Direct) Polls(client.Object) bool { return false }

// locate returns where the API server serves an object. The guess from the kind to the resource is exact for the kinds
// that the library follows.
func locate(c dynamic.Interface, object client.Object) (dynamic.ResourceInterface, schema.GroupVersionKind, error) {
	kind, err := apiutil.GVKForObject(object, scheme.Scheme)
	if err != nil {
		return nil, kind, err
	}
	resource, _ := meta.UnsafeGuessKindToResource(kind)
	if ns := object.GetNamespace(); ns != "" {
		return c.Resource(resource).Namespace(ns), kind, nil
	}
	return c.Resource(resource), kind, nil
}

// withoutManagedFields drops the managed fields, which are half of many objects.
func withoutManagedFields(object *unstructured.Unstructured) *unstructured.Unstructured {
	if object != nil {
		unstructured.RemoveNestedField(object.Object, "metadata", "managedFields")
	}
	return object
}

// fill copies an untyped object to one of any type. Like client-go, it leaves the kind of a typed object empty.
func fill(into client.Object, from *unstructured.Unstructured) error {
	if tree, ok := into.(*unstructured.Unstructured); ok {
		tree.Object = runtime.DeepCopyJSON(from.Object)
		return nil
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(from.Object, into); err != nil {
		return fmt.Errorf("%s %s: %w", from.GetKind(), from.GetName(), err)
	}
	into.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	return nil
}
