package reads

// This file follows the objects of one kind and selector, and passes them to views.

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"code.cloudfoundry.org/eirinix/internal/cluster"
	"code.cloudfoundry.org/eirinix/internal/wait"
)

// unlistedPause limits the pause before a source is asked for that has never been listed: its steps wait, and no event
// tells that a right was granted. Other pauses get longer, and a call that finds the objects too old shortens them to
// soonest, because a call is a proof that an API server is up.
const unlistedPause, soonest = 4 * time.Second, time.Second

// answerTimeout limits the wait for an answer: a page of a list, or the begin of a watch. After silence, a request without
// an answer is a reason that is said.
const answerTimeout, silence = 30 * time.Second, time.Second

// origin identifies the objects of a source.
type origin struct {
	kind                      schema.GroupVersionKind
	form                      form
	namespace, labels, fields string
}

// source follows the objects of an origin, and passes them to its views. It is safe for concurrent use.
type source struct {
	origin
	set      *Set
	declared Declaration // of the first view
	views    []*view
	patience time.Duration // the shortest MaxStale of a use; 0 for none

	listed  atomic.Bool  // at least once
	held    atomic.Int64 // objects, for the metrics
	settled chan struct{}
	settle  sync.Once
	wake    chan struct{} // by a call

	pending [][]incoming // a list that is stored once its watch has begun; nil for none; only for the goroutine of run

	mu     sync.Mutex    // guards the rest, which calls ask about
	since  time.Time     // from when on changes may be missing; zero while the watch is alive
	sign   time.Time     // the last sign of life
	why    error         // the last failure; nil if there was none
	said   []string      // the kinds of reasons that the log has since then
	began  time.Time     // the attempt that goes on; zero for none
	tried  time.Time     // the end of the last attempt
	slowly bool          // the last attempt took longer than a call waits
	ended  chan struct{} // closed at the end of this attempt, or of the next one
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
	_ = (&cluster.Follower{
		List: func(ctx context.Context, o metav1.ListOptions) (client.ObjectList, error) {
			list, err := s.newList(c)
			if err != nil {
				return nil, err
			}
			ctx, answered := s.await(ctx)
			defer answered()
			return list, c.List(ctx, list, s.options(o))
		},
		Watch: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			list, err := s.newList(c)
			if err != nil {
				return nil, err
			}
			ctx, answered := s.await(ctx)
			defer answered()
			return c.Watch(ctx, list, s.options(o))
		},
		Resumes: s.resumes, Brief: s.set.unwatched.Load, Wake: s.wake,
		Restart: func() { s.pending = [][]incoming{} },
		Take:    s.take,
		Begun:   s.succeeded,
		Ended:   s.failed,
	}).Run(ctx)
}

// resumes reports whether a watch can begin with a list, or go on with the last event. After an interruption that was too
// long for a step only a list shows that the objects are up to date, because a watch that goes on gives no sign once it has
// caught up.
func (s *source) resumes(listed time.Time) bool {
	age, _ := s.broken()
	if !listed.IsZero() {
		age = time.Since(listed)
	}
	return s.patience == 0 || age <= s.patience
}

// take takes an object of a list, or a change. A list is stored once its watch has begun, because without it a step would
// look at objects of any age.
func (s *source) take(how watch.EventType, object client.Object) {
	switch {
	case s.pending != nil:
		s.pending = append(s.pending, s.transform(object))
	case how == watch.Deleted:
		s.remove(object)
	default:
		s.update(object)
	}
}

// errScope is the error for a namespace of a kind that has none.
var errScope = errors.New("is in no namespace; leave out Read.Namespaces")

// options returns the options of a request.
func (s *source) options(o metav1.ListOptions) *client.ListOptions {
	return &client.ListOptions{Namespace: s.namespace, LabelSelector: s.declared.Labels, FieldSelector: s.declared.Fields, Limit: o.Limit, Continue: o.Continue, Raw: &o}
}

func (s *source) newList(c client.Client) (client.ObjectList, error) {
	if s.namespace != "" {
		if namespaced, err := c.IsObjectNamespaced(s.declared.Object); err != nil {
			return nil, err
		} else if !namespaced {
			return nil, fmt.Errorf("%s %w", s.kind.Kind, errScope)
		}
	}
	return newList(c.Scheme(), s.declared)
}

// await limits the wait for an answer. The function ends the wait.
func (s *source) await(ctx context.Context) (_ context.Context, answered func()) {
	s.mu.Lock()
	if s.began.IsZero() { // an attempt begins with its first request
		s.began = time.Now()
	}
	s.mu.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	deadline, silent := time.AfterFunc(answerTimeout, cancel), time.AfterFunc(silence, func() { s.broke(errSilent) })
	return ctx, func() { deadline.Stop(); silent.Stop() }
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
