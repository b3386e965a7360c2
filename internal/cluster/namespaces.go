package cluster

// This file keeps the labels of all namespaces.

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Namespaces knows the labels of all namespaces. It watches them from the first question on. It is safe for concurrent
// use.
type Namespaces struct {
	ctx context.Context // of the watch
	at  dynamic.ResourceInterface

	mu      sync.Mutex
	watched *namespaceWatch // nil before the first question, and after a watch has failed
	running sync.WaitGroup
}

type namespaceWatch struct {
	ctx    context.Context          // ends with the watch; its cause is the reason
	listed chan struct{}            // closed when all namespaces are known
	all    atomic.Pointer[sync.Map] // labels.Set by name
}

// NewNamespaces returns Namespaces whose watch ends with ctx. It sends no request.
func NewNamespaces(ctx context.Context, c dynamic.Interface) *Namespaces {
	return &Namespaces{ctx: ctx, at: c.Resource(corev1.SchemeGroupVersion.WithResource("namespaces"))}
}

// Wait returns after the watch has ended.
func (n *Namespaces) Wait() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.running.Wait()
}

// Labels returns the labels of a namespace. The first call waits until all namespaces have been listed. A namespace that
// the watch has not shown yet is read from the API server.
func (n *Namespaces) Labels(ctx context.Context, name string) (labels.Set, error) {
	w, err := n.watch() //nolint:contextcheck // the watch outlives the question
	if err != nil {
		return nil, err
	}
	select {
	case <-w.listed:
	case <-w.ctx.Done():
		return nil, context.Cause(w.ctx) //nolint:contextcheck // it is why the watch has ended
	case <-ctx.Done():
		return nil, fmt.Errorf("the namespaces have not been listed yet: %w", context.Cause(ctx))
	}
	if set, known := w.all.Load().Load(name); known {
		return set.(labels.Set), nil
	}
	found, err := n.at.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return found.GetLabels(), nil
}

// watch returns the running watch, or a new one if there is none or the last one was refused.
func (n *Namespaces) watch() (*namespaceWatch, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if w := n.watched; w != nil && w.ctx.Err() == nil {
		return w, nil
	}
	if err := context.Cause(n.ctx); err != nil {
		return nil, err
	}
	ctx, end := context.WithCancelCause(n.ctx)
	w := &namespaceWatch{ctx: ctx, listed: make(chan struct{})}
	n.running.Go(func() { end(n.follow(ctx, w)) })
	n.watched = w
	return w, nil
}

// follow returns when the API server refuses the watch, or when ctx ends. After a failure, the labels that were seen last stay
// in force.
func (n *Namespaces) follow(ctx context.Context, w *namespaceWatch) error {
	var latest *sync.Map
	return (&Follower{
		List:    func(ctx context.Context, o metav1.ListOptions) (client.ObjectList, error) { return n.at.List(ctx, o) },
		Watch:   n.at.Watch,
		Restart: func() { latest = &sync.Map{} },
		Take: func(how watch.EventType, object client.Object) {
			if how == watch.Deleted {
				latest.Delete(object.GetName())
			} else {
				latest.Store(object.GetName(), labels.Set(object.GetLabels()))
			}
		},
		Begun: func() {
			if w.all.Swap(latest) == nil {
				close(w.listed)
			}
		},
	}).Run(ctx)
}
