package reads

// This file follows the objects of one kind and selector with a list and a watch, and keeps account of how old they can
// be.

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
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

// source follows the objects of an origin, and passes them to its views. Its fields above mu do not change while it
// runs, but for those of the goroutine that runs it.
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
	wake    chan struct{}

	version     string       // of the last event; empty before a list
	pending     [][]incoming // a list that is stored once its watch has begun; nil for none
	asked       time.Time    // the begin of that list
	interrupted bool         // the version may be one that the cluster no longer has

	mu     sync.Mutex
	since  time.Time     // from when on changes may be missing; zero while the watch is alive
	sign   time.Time     // the last sign of life
	why    error         // the last failure; nil if there was none
	said   []string      // the kinds of reasons that the log has since then
	began  time.Time     // the attempt that goes on; zero for none
	tried  time.Time     // the end of the last attempt
	slowly bool          // the last attempt took longer than a call waits
	ended  chan struct{} // closed at the end of this attempt, or of the next one
}

func newSource(s *Set, of origin, v *view) *source {
	return &source{
		origin: of, set: s, labelled: v.declaration.Labels, selected: v.declaration.Fields, example: v.declaration.Object,
		settled: make(chan struct{}), wake: make(chan struct{}, 1), log: s.log, since: time.Now(), ended: make(chan struct{}),
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

// broken returns for how long changes may be missing, and the reason. It is 0 while the watch is alive.
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

// awaitAlive makes an interrupted source try again, and returns when that attempt or ctx ends. All calls share one
// attempt. It returns at once where waiting gains nothing: after a refusal, after an attempt that got no answer in the
// time of a call or has just failed, and during one that is already late.
func (s *source) awaitAlive(ctx context.Context) {
	s.mu.Lock()
	ended := s.ended
	late := !s.began.IsZero() && time.Since(s.began) > soonest
	useless := s.since.IsZero() || late || refused(s.why) || s.slowly || s.began.IsZero() && time.Since(s.tried) < soonest
	s.mu.Unlock()
	if useless {
		return
	}
	wait.Signal(s.wake)
	select {
	case <-ended:
	case <-ctx.Done():
	}
}

// run follows the objects until ctx ends.
func (s *source) run(ctx context.Context, c client.WithWatch) {
	s.client = c
	pause := s.pauses()
	for ctx.Err() == nil {
		s.mu.Lock()
		s.began = time.Now()
		s.mu.Unlock()
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
		delay = delay/2 + rand.N(delay) // when an API server ends, the watches of all replicas end
		timer := time.NewTimer(delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-s.wake: // by a call that has seen that the last attempt is old enough
		case <-ctx.Done():
		}
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
	if s.pending != nil && s.patience > 0 && time.Since(s.asked) > s.patience { // the watch was refused for that long
		s.pending = nil
		cancel()
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

// refused reports whether the API server has refused the objects, so that only a change in the cluster helps.
func refused(err error) bool {
	_, undiscovered := errors.AsType[*apiutil.ErrResourceDiscoveryFailed](err)
	_, scoped := errors.AsType[*scopeError](err)
	return err != nil && (apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) || apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) ||
		apierrors.IsBadRequest(err) || meta.IsNoMatchError(err) || undiscovered || scoped)
}

// scopeError is the error for a namespace of a kind that has none.
type scopeError struct{ kind string }

func (e *scopeError) Error() string {
	return e.kind + " is in no namespace; leave out Read.Namespaces"
}

// errSilent is the reason while a request has no answer.
var errSilent = errors.New("the API server has not answered in full for a second; it is being waited for")

// errUnanswered is the reason after a request that got none.
var errUnanswered = fmt.Errorf("the API server has not answered within %s", answerTimeout)

// attempted records the end of an attempt. The caller holds mu.
func (s *source) attempted() {
	s.slowly, s.began, s.tried = !s.began.IsZero() && time.Since(s.began) > soonest, time.Time{}, time.Now()
	close(s.ended)
	s.ended = make(chan struct{})
}

// failed records the end of an attempt or a watch. It logs why steps wait, and that objects are refused which were not.
func (s *source) failed(err error) {
	if errors.Is(err, context.Canceled) {
		err = errUnanswered
	}
	s.mu.Lock()
	s.attempted()
	s.mu.Unlock()
	s.broke(err)
}

// broke records that the source is not up to date.
func (s *source) broke(err error) {
	silent := errors.Is(err, errSilent)
	s.mu.Lock()
	if silent && s.began.IsZero() { // the answer came at that moment
		s.mu.Unlock()
		return
	}
	if s.since.IsZero() {
		if s.since = time.Now().Add(-unnoticed); s.since.Before(s.sign) {
			s.since = s.sign
		}
	}
	if err != nil {
		s.why = err
	}
	reason := fmt.Sprintf("%s %t", apierrors.ReasonForError(err), silent)
	say := err != nil && (!s.listed.Load() || refused(err)) && s.says(reason)
	s.mu.Unlock()
	if err != nil && !silent {
		s.settle.Do(func() { close(s.settled) })
	}
	if say && !s.listed.Load() {
		s.log.Info("objects that steps read cannot be listed; the steps wait for them", "objects", s.String(), "reason", err.Error())
	} else if say {
		s.log.Info("objects that steps read are refused; the steps fail once the objects are too old", "objects", s.String(), "reason", err.Error())
	}
	s.set.metrics.interrupted(s)
}

// says reports whether the log does not yet have a reason of that kind in this interruption. The caller holds mu.
func (s *source) says(kind string) bool {
	if slices.Contains(s.said, kind) {
		return false
	}
	s.said = append(s.said, kind)
	return true
}

// alive records a sign of life.
func (s *source) alive() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sign = time.Now()
}

// succeeded records that the watch is alive, and stores the list before it.
func (s *source) succeeded() {
	if s.pending != nil {
		s.store()
	}
	s.mu.Lock()
	said, broken, regained := s.said, s.since, refused(s.why)
	s.since, s.sign, s.why, s.said = time.Time{}, time.Now(), nil, nil
	s.attempted()
	s.mu.Unlock()
	if len(said) > 0 {
		s.log.Info("objects that steps read are up to date again", "objects", s.String(), "after", time.Since(broken).Round(time.Millisecond).String())
	}
	s.set.metrics.interrupted(s)
	if regained && s.set.Regained != nil {
		s.set.Regained()
	}
}

// sayStale logs once in each interruption that steps fail for it.
func (s *source) sayStale(step string, err error) {
	s.mu.Lock()
	say := !s.since.IsZero() && s.says("stale")
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
	s.asked = time.Now()
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
			s.version, s.pending, s.interrupted = list.GetResourceVersion(), all, false
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
