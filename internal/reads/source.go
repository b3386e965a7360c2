package reads

// This file follows the objects of one kind and selector with client-go's reflector, and keeps account of whether the
// watch is alive.

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
	utilwait "k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

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

	// listTimeout limits a list, answerTimeout the wait for the begin of a watch, and watchMargin how much longer than
	// agreed a watch can last.
	listTimeout, answerTimeout, watchMargin = 2 * time.Minute, 30 * time.Second, 30 * time.Second
)

// origin identifies the objects of a source.
type origin struct {
	kind                      schema.GroupVersionKind
	form                      form
	namespace, labels, fields string
}

// source follows the objects of an origin, and passes them to its views. Its fields above mu do not change while it
// runs.
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

	listed   atomic.Bool  // at least once
	received atomic.Int64 // objects of the initial list so far
	held     atomic.Int64 // objects, for the metrics
	settled  chan struct{}
	settle   sync.Once
	wake     chan struct{}
	lately   atomic.Pointer[time.Time] // the last attempt

	mu    sync.Mutex
	since time.Time     // when the watch broke; zero while it is alive
	why   error         // the last failure; nil if there was none
	said  bool          // the log says that the objects are too old, or missing
	alive chan struct{} // closed when the watch is alive again; nil while it is
}

func newSource(s *Set, of origin, v *view) *source {
	src := &source{
		origin: of, set: s, labelled: v.declaration.Labels, selected: v.declaration.Fields, example: v.declaration.Object,
		settled: make(chan struct{}), wake: make(chan struct{}, 1), log: s.log, since: time.Now(), alive: make(chan struct{}),
	}
	src.lately.Store(new(time.Time))
	return src
}

// tolerate takes the MaxStale of a use into account.
func (s *source) tolerate(stale time.Duration) {
	if stale > 0 && (s.patience == 0 || stale < s.patience) {
		s.patience = stale
	}
}

// String names the objects for messages.
func (s *source) String() string {
	var b strings.Builder
	b.WriteString(s.kind.GroupKind().String())
	if s.namespace != "" {
		fmt.Fprintf(&b, " in namespace %s", s.namespace)
	}
	if s.labels != "" {
		fmt.Fprintf(&b, " with labels %s", s.labels)
	}
	if s.fields != "" {
		fmt.Fprintf(&b, " with fields %s", s.fields)
	}
	return b.String()
}

// UnlistedError is the reason why a source has never been listed. It does not unwrap to the API server's refusal, which
// would look like a denial of the step.
type UnlistedError struct {
	Objects string
	Err     error // nil if nothing has failed yet
}

func (e *UnlistedError) Error() string {
	if e.Err == nil {
		return e.Objects + " have not been listed yet"
	}
	return fmt.Sprintf("%s cannot be listed: %v", e.Objects, e.Err)
}

func (s *source) unlisted() error {
	if s.listed.Load() {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return &UnlistedError{s.String(), s.why}
}

// broken returns the time since when the watch is broken, and the reason. It is 0 while the watch is alive.
func (s *source) broken() (time.Duration, string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.since.IsZero() {
		return 0, ""
	}
	why := "the watch has ended"
	if s.why != nil {
		why = s.why.Error()
	}
	return max(time.Since(s.since), 1), why
}

// awaitAlive makes an interrupted source try again, and returns when its watch is alive or ctx ends.
func (s *source) awaitAlive(ctx context.Context) {
	s.mu.Lock()
	alive := s.alive
	s.mu.Unlock()
	if alive == nil {
		return
	}
	wait.Signal(s.wake)
	select {
	case <-alive:
	case <-ctx.Done():
	}
}

// run follows the objects until ctx ends.
func (s *source) run(ctx context.Context, c client.WithWatch) {
	s.client = c
	silent := logr.Discard() // what matters is logged here
	ctx = logr.NewContext(ctx, silent)
	reflector := toolscache.NewReflectorWithOptions(&toolscache.ListWatch{
		ListWithContextFunc: s.list, WatchFuncWithContext: s.watch,
	}, s.example, s, toolscache.ReflectorOptions{
		Name: s.String(), Logger: &silent,
		Backoff: &utilwait.Backoff{Duration: firstRetry, Cap: soonest, Factor: 2, Steps: 3, Jitter: 1},
	})
	pause := s.pauses()
	for ctx.Err() == nil {
		began := time.Now()
		err := reflector.ListAndWatchWithContext(ctx)
		if errors.Is(err, errOutdated) {
			continue // the reason of the interruption stays
		}
		if s.failed(err); time.Since(began) > time.Minute {
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
		delay = delay/2 + rand.N(delay) // when an API server ends, the watches of all replicas end
		timer := time.NewTimer(delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		case <-s.wake:
			_ = wait.Sleep(ctx, max(0, min(delay, soonest-time.Since(*s.lately.Load()))))
		}
	}
}

// refused reports whether the API server has refused the objects, so that only a change in the cluster helps.
func refused(err error) bool {
	_, undiscovered := errors.AsType[*apiutil.ErrResourceDiscoveryFailed](err)
	_, scoped := errors.AsType[*scopeError](err)
	return err != nil && (apierrors.IsForbidden(err) || apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) || apierrors.IsBadRequest(err) ||
		meta.IsNoMatchError(err) || undiscovered || scoped)
}

// scopeError is the error for a namespace of a kind that has none.
type scopeError struct{ kind string }

func (e *scopeError) Error() string {
	return e.kind + " is in no namespace; leave out Read.Namespaces"
}

// failed records the end of the list or watch.
func (s *source) failed(err error) {
	s.mu.Lock()
	if s.since.IsZero() {
		s.since, s.alive = time.Now(), make(chan struct{})
	}
	if err != nil {
		s.why = err
	}
	listed := s.listed.Load()
	say := refused(err) && !listed && !s.said
	s.said = s.said || say
	s.mu.Unlock()
	if refused(err) && !listed {
		s.settle.Do(func() { close(s.settled) })
	}
	if say {
		s.log.Info("objects that steps read cannot be listed; the steps wait for them", "objects", s.String(), "reason", err.Error())
	}
	s.set.metrics.interrupted(s)
}

// succeeded records that the watch is alive.
func (s *source) succeeded() {
	s.mu.Lock()
	alive, said, broken := s.alive, s.said, s.since
	s.since, s.why, s.said, s.alive = time.Time{}, nil, false, nil
	s.mu.Unlock()
	if alive != nil {
		close(alive)
	}
	if said {
		s.log.Info("objects that steps read are up to date again", "objects", s.String(), "after", time.Since(broken).Round(time.Millisecond).String())
	}
	s.set.metrics.interrupted(s)
}

// sayStale logs once in each interruption that steps fail for it.
func (s *source) sayStale(step string, err error) {
	s.mu.Lock()
	say := !s.said && !s.since.IsZero()
	s.said = s.said || say
	s.mu.Unlock()
	if say {
		s.log.Info("objects that steps read are too old; the steps fail, and failurePolicy decides", "objects", s.String(), "step", step, "reason", err.Error())
	}
}

// options returns the options of a request.
func (s *source) options(o metav1.ListOptions) *client.ListOptions {
	return &client.ListOptions{Namespace: s.namespace, LabelSelector: s.labelled, FieldSelector: s.selected, Limit: o.Limit, Continue: o.Continue, Raw: &o}
}

func (s *source) newList() (client.ObjectList, error) {
	s.lately.Store(new(time.Now()))
	if s.namespace != "" {
		if namespaced, err := s.client.IsObjectNamespaced(s.example); err != nil {
			return nil, err
		} else if !namespaced {
			return nil, &scopeError{s.kind.Kind}
		}
	}
	return newList(s.client.Scheme(), Declaration{Object: s.example, Kind: s.kind})
}

func (s *source) list(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	list, err := s.newList()
	if err != nil {
		return nil, err
	}
	if err := s.client.List(ctx, list, s.options(o)); err != nil {
		return nil, err
	}
	return list, nil
}

// errOutdated is the reason to list the objects again.
var errOutdated = errors.New("the watch was broken for too long to be continued")

// watch begins a watch. If the API server cannot be reached, it tries again, so that the reflector does not list all
// objects again for a short interruption. After a longer one only a list shows that the objects are up to date: a watch
// that continues does not say when it has caught up.
func (s *source) watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	s.failed(nil) // the watch before has ended
	pause := s.pauses()
	for {
		if broken, _ := s.broken(); o.SendInitialEvents == nil && s.patience > 0 && broken > s.patience {
			return nil, errOutdated
		}
		w, err := s.begin(ctx, o)
		var status apierrors.APIStatus
		switch {
		case err == nil:
			if o.SendInitialEvents == nil { // else the objects follow
				s.succeeded()
			}
			return w, nil
		case ctx.Err() != nil, refused(err), errors.As(err, &status) && !apierrors.IsTooManyRequests(err):
			return nil, err
		}
		s.failed(err)
		if pause(ctx); ctx.Err() != nil {
			return nil, err
		}
	}
}

// begin sends the request of a watch. The watch ends at the latest when its agreed time is over.
func (s *source) begin(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	list, err := s.newList()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	deadline := time.AfterFunc(answerTimeout, cancel)
	w, err := s.client.Watch(ctx, list, s.options(o))
	if err != nil {
		deadline.Stop()
		cancel()
		return nil, err
	}
	agreed := time.Hour
	if o.TimeoutSeconds != nil {
		agreed = time.Duration(*o.TimeoutSeconds) * time.Second
	}
	deadline.Reset(agreed + watchMargin)
	return &bounded{w, func() { deadline.Stop(); cancel() }}, nil
}

// bounded is a watch with a deadline.
type bounded struct {
	watch.Interface
	done func()
}

// Stop ends the watch.
func (b *bounded) Stop() {
	b.Interface.Stop()
	b.done()
}

var (
	_ toolscache.ReflectorStore    = (*source)(nil)
	_ toolscache.TransformingStore = (*source)(nil)
)

// Transformer returns the function that the reflector applies to each object of a list, so that a list takes no more
// memory than what is kept of it.
func (s *source) Transformer() toolscache.TransformFunc {
	return func(o any) (any, error) {
		if !s.listed.Load() {
			s.received.Add(1)
		}
		return s.transform(o), nil
	}
}

// transform returns an object as each view of the source stores it, or nil if it is no object.
func (s *source) transform(o any) []incoming {
	if made, ok := o.([]incoming); ok {
		return made
	}
	object, ok := o.(client.Object)
	if !ok {
		return nil
	}
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

// Add stores a new object.
func (s *source) Add(o any) error { return s.Update(o) }

// Update stores an object.
func (s *source) Update(o any) error {
	in := s.transform(o)
	if in == nil {
		return fmt.Errorf("%T is no object", o)
	}
	var added int64
	for i, v := range s.views {
		v.change(func() { added = v.put(in[i]) })
	}
	s.held.Add(added)
	s.set.metrics.stored(s)
	return nil
}

// Delete removes an object.
func (s *source) Delete(o any) error {
	object, ok := o.(client.Object)
	if !ok {
		return fmt.Errorf("%T is no object", o)
	}
	namespace, name := object.GetNamespace(), object.GetName()
	var removed int64
	for _, v := range s.views {
		v.change(func() { removed = v.drop(namespace, name) })
	}
	s.held.Add(-removed)
	s.set.metrics.stored(s)
	return nil
}

// Replace stores the objects of a list instead of all before.
func (s *source) Replace(objects []any, _ string) error {
	all := make([][]incoming, 0, len(objects))
	for i, o := range objects {
		if in := s.transform(o); in != nil {
			all = append(all, in)
		}
		objects[i] = nil
	}
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
	first := !s.listed.Swap(true)
	s.set.metrics.stored(s)
	s.succeeded()
	if first {
		s.settle.Do(func() { close(s.settled) })
		wait.Signal(s.set.changed)
	}
	return nil
}

// Resync does nothing: there is no period.
func (s *source) Resync() error { return nil }
