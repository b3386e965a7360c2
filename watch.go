package eirinix

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os/signal"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
)

const (
	// rewatchAfter keeps a watch that ends at once from becoming a busy loop.
	rewatchAfter = time.Second

	// listPage bounds one answer of a list, and with it the memory that both sides need for it.
	listPage = 500
)

// watchLoop makes sure that a program which calls both Start and Watch hears of every event once.
type watchLoop struct {
	mu   sync.Mutex
	done chan struct{} // closed when the loop has ended; nil before it began
	err  error         // of the loop; read after done is closed
}

// Watch runs the watchers alone: nothing is served or registered. It returns nil after SIGINT, SIGTERM or
// Stop, and an error when pods may not be watched. Where Start runs the watchers already, it waits with it.
func (m *ExtensionManager) Watch() error {
	if err := m.Validate(); err != nil {
		return err
	}
	m.mu.Lock()
	root := m.root // not GetContext: that lives on while Start drains, and Start waits for the watchers
	m.mu.Unlock()
	ctx, release := signal.NotifyContext(root, syscall.SIGINT, syscall.SIGTERM)
	defer release()
	if err := m.watchPods(ctx); !errors.Is(err, errStopped) {
		return err
	}
	return nil
}

// watchPods runs the loop until ctx ends, or waits for the one that runs already. Its error is errStopped
// after a stop.
func (m *ExtensionManager) watchPods(ctx context.Context) error {
	w := &m.watching
	w.mu.Lock()
	if w.done != nil {
		w.mu.Unlock()
		select {
		case <-w.done:
			return w.err
		case <-ctx.Done():
			return errStopped
		}
	}
	w.done = make(chan struct{})
	w.mu.Unlock()
	defer close(w.done)
	w.err = m.runWatch(ctx)
	return w.err
}

func (m *ExtensionManager) runWatch(ctx context.Context) error {
	client, err := m.GetKubeClient()
	if err != nil {
		return err
	}
	o, log := m.GetManagerOptions(), m.logr()
	selector := ""
	if *o.FilterEiriniApps {
		selector = labels.Set{LabelSourceType: sourceTypeApp}.String()
	}
	log.Info("watching pods", "namespace", orAll(o.Namespace), "labels", selector)
	w := podWatch{
		pods:            client.Pods(o.Namespace),
		selector:        selector,
		resourceVersion: o.WatcherStartRV,
		deliver:         m.deliver,
		log:             log,
	}
	err = w.run(ctx)
	if ctx.Err() != nil {
		return errStopped
	}
	if apierrors.IsForbidden(err) {
		return fmt.Errorf("eirinix: pods in %s cannot be watched (needs list and watch on pods): %w", orAll(o.Namespace), err)
	}
	return fmt.Errorf("eirinix: pods in %s cannot be watched: %w", orAll(o.Namespace), err)
}

func orAll(namespace string) string {
	if namespace == "" {
		return "all namespaces"
	}
	return namespace
}

// deliver gives an event to every watcher in turn. One that panics does not end the others.
func (m *ExtensionManager) deliver(event watch.Event) {
	for _, w := range m.ListWatchers() {
		func() {
			defer func() {
				if r := recover(); r != nil {
					m.logr().Info("watcher panicked; it gets the next event all the same", "watcher", fmt.Sprintf("%T", w), "panic", fmt.Sprint(r), "stack", string(debug.Stack()))
				}
			}()
			w.Handle(m, event)
		}()
	}
}

// podWatch follows pods across everything that interrupts a watch. It differs from client-go's reflector in
// what its users rely on: the pods that are there at the beginning are no events, a watch can begin at a
// given resourceVersion, and events stay ADDED, MODIFIED and DELETED.
type podWatch struct {
	pods            corev1client.PodInterface
	selector        string // of labels
	resourceVersion string // after which events count; empty means from now on
	deliver         func(watch.Event)
	log             logr.Logger

	known map[types.UID]*corev1.Pod // what watchers have heard of, or could have seen in the first list
}

func (w *podWatch) run(ctx context.Context) error {
	w.known = map[types.UID]*corev1.Pod{}
	if w.resourceVersion == "" {
		if err := w.relist(ctx, nil); err != nil {
			return err
		}
	}
	for {
		err := w.follow(ctx)
		if ctx.Err() != nil {
			return err
		}
		switch {
		case err == nil: // the API server ends every watch after some minutes
		case apierrors.IsResourceExpired(err), apierrors.IsGone(err):
			w.log.Info("the API server's history does not reach back to where the watch was; listing pods again", "resourceVersion", w.resourceVersion)
			if err := w.relist(ctx, w.deliver); err != nil {
				return err
			}
			continue
		case transient(err):
			w.log.Info("the watch was interrupted; going on where it was", "in", rewatchAfter.String(), "error", err.Error())
		default:
			return err
		}
		if err := pause(ctx, rewatchAfter); err != nil {
			return err
		}
	}
}

// follow watches from w.resourceVersion until the watch ends.
func (w *podWatch) follow(ctx context.Context) error {
	events, err := w.pods.Watch(ctx, metav1.ListOptions{
		LabelSelector: w.selector, ResourceVersion: w.resourceVersion, AllowWatchBookmarks: true,
	})
	if err != nil {
		return err
	}
	defer events.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case event, open := <-events.ResultChan():
			if !open {
				return nil
			}
			if err := w.take(event); err != nil {
				return err
			}
		}
	}
}

func (w *podWatch) take(event watch.Event) error {
	if event.Type == watch.Error {
		return apierrors.FromObject(event.Object)
	}
	pod, ok := event.Object.(*corev1.Pod)
	if !ok {
		return fmt.Errorf("the API server sent a %T where a pod was due", event.Object)
	}
	w.resourceVersion = pod.ResourceVersion
	switch event.Type {
	case watch.Added, watch.Modified:
		w.known[pod.UID] = pod
	case watch.Deleted:
		delete(w.known, pod.UID)
	default: // a bookmark only moves the resourceVersion
		return nil
	}
	w.deliver(event)
	return nil
}

// relist lists the pods and makes up the events that were missed; deliver is nil for the first list, which
// has missed none. A pod that is gone is DELETED in the last state that was seen of it.
func (w *podWatch) relist(ctx context.Context, deliver func(watch.Event)) error {
	var now map[types.UID]*corev1.Pod
	var order []*corev1.Pod
	err := retryTransient(ctx, w.log, "the list of pods", func(ctx context.Context) error {
		now, order = map[types.UID]*corev1.Pod{}, nil
		o := metav1.ListOptions{LabelSelector: w.selector, Limit: listPage}
		for {
			page, err := w.pods.List(ctx, o)
			if apierrors.IsResourceExpired(err) && o.Continue != "" {
				// The list took longer than the history reaches; begin it anew.
				return &apierrors.StatusError{ErrStatus: metav1.Status{Code: http.StatusServiceUnavailable, Message: err.Error()}}
			}
			if err != nil {
				return err
			}
			for i := range page.Items {
				pod := &page.Items[i]
				now[pod.UID] = pod
				order = append(order, pod)
			}
			w.resourceVersion = page.ResourceVersion
			if o.Continue = page.Continue; o.Continue == "" {
				return nil
			}
		}
	})
	if err != nil {
		return err
	}
	before := w.known
	w.known = now
	if deliver == nil {
		return nil
	}
	for uid, pod := range before {
		if now[uid] == nil {
			deliver(watch.Event{Type: watch.Deleted, Object: pod})
		}
	}
	for _, pod := range order {
		switch old := before[pod.UID]; {
		case old == nil:
			deliver(watch.Event{Type: watch.Added, Object: pod})
		case old.ResourceVersion != pod.ResourceVersion:
			deliver(watch.Event{Type: watch.Modified, Object: pod})
		}
	}
	return nil
}
