package reads

// This file follows the objects of one kind and selector with a list and a watch.

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"code.cloudfoundry.org/eirinix/internal/wait"
)

const (
	// firstRetry and lastRetry limit the delay before an interrupted source is asked for again, before jitter. A call
	// that finds the objects too old shortens it to soonest, because a call is a proof that an API server is up.
	firstRetry, lastRetry = 500 * time.Millisecond, 30 * time.Second
	soonest               = time.Second

	// unlistedRetry limits the delay before a source is asked for that has never been listed: its steps wait, and no event
	// tells that a right was granted. With jitter, attempts are less than five seconds apart.
	unlistedRetry = 3 * time.Second

	// answerTimeout limits the wait for an answer: a page of a list, or the begin of a watch. After silence, a request
	// without an answer is a reason that is said.
	answerTimeout, silence = 30 * time.Second, time.Second

	// unnoticed is how long a connection can be dead before a watch shows it. Over HTTP/2, client-go asks after 30 s of
	// silence, and waits 15 s (readIdleTimeout and pingTimeout of k8s.io/apimachinery/pkg/util/net). Over HTTP/1.1 a watch
	// lasts shortWatch, and ends at the latest after unnoticed.
	unnoticed  = 45 * time.Second
	shortWatch = 25 * time.Second

	// longWatch is how long other watches last, with as much again at random. watchMargin is how much longer one can last.
	longWatch, watchMargin = 5 * time.Minute, 30 * time.Second

	// pageSize is the number of objects of a page of a list.
	pageSize = 500
)

// origin identifies the objects of a source.
type origin struct {
	kind                      schema.GroupVersionKind
	form                      form
	namespace, labels, fields string
}

// source follows the objects of an origin, and passes them to its views. Its own fields do not change while it runs,
// but for those of the goroutine that runs it.
type source struct {
	origin
	set      *Set
	labelled labels.Selector
	selected fields.Selector
	example  client.Object // of the declared type
	views    []*view
	patience time.Duration // the shortest MaxStale of a use; 0 for none
	client   client.WithWatch
	log      logr.Logger

	listed  atomic.Bool  // at least once
	held    atomic.Int64 // objects, for the metrics
	settled chan struct{}
	settle  sync.Once

	version     string       // of the last event; empty before a list
	pending     [][]incoming // a list that is stored once its watch has begun; nil for none
	complete    time.Time    // the end of that list
	interrupted bool         // the version may be one that the cluster no longer has

	account
}

func newSource(s *Set, of origin, v *view) *source {
	return &source{
		origin: of, set: s, labelled: v.declaration.Labels, selected: v.declaration.Fields, example: v.declaration.Object,
		settled: make(chan struct{}), log: s.log, account: newAccount(),
	}
}

// tolerate takes the MaxStale of a use into account.
func (s *source) tolerate(stale time.Duration) {
	if stale > 0 && (s.patience == 0 || stale < s.patience) {
		s.patience = stale
	}
}

// String names the objects for messages. No two sources have the same name.
func (s *source) String() string { return describe(s.origin, s.namespace) }

// describe names the objects of an origin in these namespaces.
func describe(of origin, namespaces string) string {
	var b strings.Builder
	b.WriteString([...]string{typed: "", untyped: "unstructured ", metadata: "metadata of "}[of.form])
	b.WriteString(of.kind.GroupKind().String())
	if namespaces != "" {
		fmt.Fprintf(&b, " in namespace %s", namespaces)
	}
	if of.labels != "" {
		fmt.Fprintf(&b, " with labels %s", of.labels)
	}
	if of.fields != "" {
		fmt.Fprintf(&b, " with fields %s", of.fields)
	}
	return b.String()
}

// run follows the objects until ctx ends.
func (s *source) run(ctx context.Context, c client.WithWatch) {
	s.client = c
	pause := s.pauses()
	for ctx.Err() == nil {
		s.begin()
		alive, err := s.follow(ctx)
		if ctx.Err() != nil {
			return
		}
		s.failed(err)
		if alive > soonest && err == nil {
			continue // it has ended as agreed
		}
		if alive > time.Minute {
			pause = s.pauses()
		}
		pause(ctx)
	}
}

// pauses returns a function that waits before the next attempt, longer each time.
func (s *source) pauses() func(context.Context) {
	delays := wait.Backoff(firstRetry, lastRetry)
	return func(ctx context.Context) {
		delay := delays()
		if !s.listed.Load() {
			delay = min(delay, unlistedRetry)
		}
		delay = delay/2 + rand.N(delay)          // when an API server ends, the watches of all replicas end
		_ = wait.SleepUnless(ctx, delay, s.wake) // by a call that has seen that the last attempt is old enough
	}
}

// errLate is the reason after a watch that did not end when agreed.
var errLate = errors.New("the watch did not end when agreed; the connection is dead, or the API server hangs")

// follow brings the objects up to date, and follows them until the watch ends. It returns for how long.
func (s *source) follow(ctx context.Context) (alive time.Duration, err error) {
	if err := s.locate(ctx); err != nil {
		return 0, err
	}
	if s.version == "" {
		if err := s.list(ctx); err != nil {
			return 0, err
		}
	}
	list, err := s.newList()
	if err != nil {
		return 0, err
	}
	lasts, late := longWatch+rand.N(longWatch), watchMargin
	if s.set.unwatched.Load() {
		lasts, late = shortWatch, unnoticed-shortWatch
	}
	watching, cancel, answered := s.await(ctx)
	defer cancel()
	w, err := s.client.Watch(watching, list, s.options(metav1.ListOptions{
		ResourceVersion: s.version, AllowWatchBookmarks: true, TimeoutSeconds: new(int64(lasts.Seconds())),
	}))
	answered()
	if err != nil {
		s.interrupted = true
		return 0, s.outdated(err)
	}
	defer w.Stop()
	if s.pending != nil && s.patience > 0 && time.Since(s.complete) > s.patience { // the watch was refused for that long
		s.pending = nil
		w.Stop()
		return s.follow(ctx)
	}
	deadline := time.AfterFunc(lasts+late, cancel)
	defer deadline.Stop()
	s.succeeded()
	began := time.Now()
	if err = s.outdated(s.receive(w)); err == nil && watching.Err() != nil {
		err = errLate
	}
	if s.interrupted = err != nil; err == nil {
		s.alive() // the API server has ended it, or its host
	}
	return time.Since(began), err
}

// receive takes the events of a watch until it ends.
func (s *source) receive(w watch.Interface) error {
	for event := range w.ResultChan() {
		if event.Type == watch.Error {
			return apierrors.FromObject(event.Object)
		}
		object, ok := event.Object.(client.Object)
		if !ok {
			return fmt.Errorf("the API server sent a %T for an object", event.Object)
		}
		s.version = object.GetResourceVersion()
		switch event.Type {
		case watch.Bookmark:
		case watch.Deleted:
			s.remove(object)
		default:
			s.update(object)
		}
		s.alive()
	}
	return nil
}

// outdated makes the next attempt list the objects if the API server no longer has their version, or not yet.
func (s *source) outdated(err error) error {
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge) {
		s.version = ""
	}
	return err
}

// locate finds out after an interruption whether the watch can go on. It cannot if the cluster has gone back, as after a
// restore: the API server would wait for a version of the future. After an interruption that was too long for a step only
// a list shows that the objects are up to date, because a watch that goes on gives no sign once it has caught up.
func (s *source) locate(ctx context.Context) error {
	if broken, _ := s.broken(); s.patience > 0 && broken > s.patience && s.pending == nil {
		s.version = ""
	}
	if s.version == "" || !s.interrupted {
		return nil
	}
	list, err := s.page(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return err
	}
	if order, err := resourceversion.CompareResourceVersion(list.GetResourceVersion(), s.version); err != nil || order < 0 {
		s.version = ""
	}
	return nil
}

// scopeError is the error for a namespace of a kind that has none.
type scopeError struct{ kind string }

func (e *scopeError) Error() string {
	return e.kind + " is in no namespace; leave out Read.Namespaces"
}

// options returns the options of a request.
func (s *source) options(o metav1.ListOptions) *client.ListOptions {
	return &client.ListOptions{Namespace: s.namespace, LabelSelector: s.labelled, FieldSelector: s.selected, Limit: o.Limit, Continue: o.Continue, Raw: &o}
}

func (s *source) newList() (client.ObjectList, error) {
	if s.namespace != "" {
		if namespaced, err := s.client.IsObjectNamespaced(s.example); err != nil {
			return nil, err
		} else if !namespaced {
			return nil, &scopeError{s.kind.Kind}
		}
	}
	return newList(s.client.Scheme(), Declaration{Object: s.example, Kind: s.kind})
}

// await limits the wait for an answer. The second function ends the wait, the first one the request too.
func (s *source) await(ctx context.Context) (_ context.Context, cancel context.CancelFunc, answered func()) {
	ctx, cancel = context.WithCancel(ctx)
	deadline, silent := time.AfterFunc(answerTimeout, cancel), time.AfterFunc(silence, func() { s.broke(errSilent) })
	return ctx, cancel, func() { deadline.Stop(); silent.Stop() }
}

// page returns a page of a list.
func (s *source) page(ctx context.Context, o metav1.ListOptions) (client.ObjectList, error) {
	list, err := s.newList()
	if err != nil {
		return nil, err
	}
	ctx, cancel, answered := s.await(ctx)
	defer cancel()
	defer answered()
	return list, s.client.List(ctx, list, s.options(o))
}

// list lists all objects. They are stored once the watch has begun, because without it a step would look at objects of
// any age.
func (s *source) list(ctx context.Context) error {
	all, o := [][]incoming{}, metav1.ListOptions{Limit: pageSize}
	for {
		list, err := s.page(ctx, o)
		if apierrors.IsResourceExpired(err) && o.Continue != "" { // the pages took too long; all at once then
			all, o = nil, metav1.ListOptions{}
			continue
		}
		if err != nil {
			return err
		}
		if err := meta.EachListItem(list, func(o runtime.Object) error {
			object, ok := o.(client.Object)
			if !ok {
				return fmt.Errorf("the API server sent a %T for an object", o)
			}
			all = append(all, s.transform(object))
			return nil
		}); err != nil {
			return err
		}
		if o.Continue = list.GetContinue(); o.Continue == "" {
			s.version, s.pending, s.complete, s.interrupted = list.GetResourceVersion(), all, time.Now(), false
			return nil
		}
	}
}

// transform returns an object as each view of the source stores it. A list takes no more memory than what is kept of it.
func (s *source) transform(object client.Object) []incoming {
	in := make([]incoming, len(s.views))
	for i, v := range s.views {
		mine := object
		if i < len(s.views)-1 {
			mine, _ = object.DeepCopyObject().(client.Object)
		}
		in[i] = v.kept(mine)
	}
	return in
}

// update stores an object.
func (s *source) update(object client.Object) {
	var added int64
	for i, in := range s.transform(object) {
		s.views[i].change(func() { added = s.views[i].put(in) })
	}
	s.held.Add(added)
	s.set.metrics.stored(s)
}

// remove removes an object.
func (s *source) remove(object client.Object) {
	namespace, name := object.GetNamespace(), object.GetName()
	var removed int64
	for _, v := range s.views {
		v.change(func() { removed = v.drop(namespace, name) })
	}
	s.held.Add(-removed)
	s.set.metrics.stored(s)
}

// store stores the objects of the list instead of all before.
func (s *source) store() {
	all := s.pending
	s.pending = nil
	s.set.log.V(1).Info("listed objects that steps read", "objects", s.String(), "count", len(all))
	s.held.Store(int64(len(all)))
	for i, v := range s.views {
		mine := make([]incoming, 0, len(all))
		for _, in := range all {
			mine = append(mine, in[i])
		}
		v.change(func() {
			v.replace(s.namespace, mine)
			delete(v.missing, s)
		})
	}
	s.set.metrics.stored(s)
	if !s.listed.Swap(true) {
		s.settle.Do(func() { close(s.settled) })
		wait.Signal(s.set.changed)
	}
}
