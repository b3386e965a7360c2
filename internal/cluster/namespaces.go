package cluster

// This file keeps the labels of all namespaces.

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Namespaces knows the labels of all namespaces. It watches their metadata from the first question on. It is safe for
// concurrent use.
type Namespaces struct {
	ctx    context.Context // of the watch
	config *rest.Config

	mu      sync.Mutex
	watched *namespaceCache // nil before the first question, and after a watch has failed
	running sync.WaitGroup
}

type namespaceCache struct {
	cache  cache.Cache
	client client.Client
	synced <-chan struct{}
	failed <-chan struct{} // closed when the watch has ended
	why    error           // valid once failed is closed
}

// NewNamespaces returns Namespaces whose watch ends with ctx. It sends no request.
func NewNamespaces(ctx context.Context, config *rest.Config) *Namespaces {
	return &Namespaces{ctx: ctx, config: config}
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
	case <-w.synced:
	case <-w.failed:
		return nil, w.why
	case <-ctx.Done():
		return nil, fmt.Errorf("the namespaces have not been listed yet: %w", context.Cause(ctx))
	}
	found := emptyNamespace()
	err = w.cache.Get(ctx, client.ObjectKey{Name: name}, found)
	if apierrors.IsNotFound(err) {
		found = emptyNamespace()
		err = w.client.Get(ctx, client.ObjectKey{Name: name}, found)
	}
	return found.Labels, err
}

func emptyNamespace() *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}}
}

// watch returns the running watch, or a new one if there is none or the last one was refused.
func (n *Namespaces) watch() (*namespaceCache, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if w := n.watched; w != nil {
		select {
		case <-w.failed:
		default:
			return w, nil
		}
	}
	if err := context.Cause(n.ctx); err != nil {
		return nil, err
	}
	ctx, refuse := context.WithCancelCause(n.ctx)
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Namespace"), meta.RESTScopeRoot)
	c, err := cache.New(n.config, cache.Options{
		Scheme: scheme.Scheme, Mapper: mapper, DefaultTransform: onlyLabels,
		DefaultWatchErrorHandler: func(_ context.Context, _ *toolscache.Reflector, err error) {
			if apierrors.IsForbidden(err) {
				refuse(err)
			}
		},
	})
	if err != nil {
		refuse(nil)
		return nil, err
	}
	live, err := client.New(n.config, client.Options{Scheme: scheme.Scheme, Mapper: mapper})
	if err != nil {
		refuse(nil)
		return nil, err
	}
	informer, err := c.GetInformer(ctx, emptyNamespace(), cache.BlockUntilSynced(false))
	if err != nil {
		refuse(nil)
		return nil, err
	}
	failed := make(chan struct{})
	w := &namespaceCache{cache: c, client: live, synced: informer.HasSyncedChecker().Done(), failed: failed}
	n.running.Go(func() {
		defer close(failed)
		err := c.Start(ctx)
		if w.why = context.Cause(ctx); w.why == nil {
			w.why = err
		}
		refuse(nil)
	})
	n.watched = w
	return w, nil
}

// onlyLabels drops everything but the name, the version and the labels.
func onlyLabels(object any) (any, error) {
	if n, ok := object.(*metav1.PartialObjectMetadata); ok {
		n.ObjectMeta = metav1.ObjectMeta{Name: n.Name, UID: n.UID, ResourceVersion: n.ResourceVersion, Labels: n.Labels}
	}
	return object, nil
}
