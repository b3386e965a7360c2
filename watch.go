package eirinix

// This file runs the watchers.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/signal"
	"runtime/debug"
	"sync"
	"syscall"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/watch"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"code.cloudfoundry.org/eirinix/internal/cluster"
)

// watchLoop makes sure that a program that calls both Start and Watch receives every event only once.
type watchLoop struct {
	mu   sync.Mutex
	done chan struct{} // closed when the loop has ended; nil before it begins
	err  error         // the error of the loop; read only after done is closed
}

// Watch runs only the watchers and neither serves nor registers. It returns nil after SIGINT, SIGTERM or Stop, and an
// error if pods must not be watched. If Start already runs the watchers, Watch waits for them to end.
func (m *ExtensionManager) Watch() error {
	if err := m.Validate(); err != nil {
		return err
	}
	m.mu.Lock()
	root := m.root // not GetContext, which lasts while Start drains, and Start waits for the watchers
	m.mu.Unlock()
	ctx, release := signal.NotifyContext(root, syscall.SIGINT, syscall.SIGTERM)
	defer release()
	if err := m.watchPods(ctx); !errors.Is(err, errStopped) {
		return err
	}
	return nil
}

// watchPods runs the loop until ctx ends, or waits for the loop that is already running. Its error is errStopped after
// a stop.
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
	given, err := m.GetKubeConnection()
	if err != nil {
		return err
	}
	config := rest.CopyConfig(given)
	config.Wrap(cluster.OwnPauses)
	client, err := corev1client.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("eirinix: the kubeconfig cannot be used: %w", err)
	}
	o, log := m.GetManagerOptions(), m.given().log()
	selector := ""
	if *o.FilterEiriniApps {
		selector = labels.Set{LabelSourceType: sourceTypeApp}.String()
	}
	namespace := cmp.Or(o.Namespace, "all namespaces")
	log.Info("watching pods", "namespace", namespace, "labels", selector)
	w := cluster.PodWatch{
		Pods: client.Pods(o.Namespace), Selector: selector, ResourceVersion: o.WatcherStartRV, Deliver: m.deliver, Log: log,
	}
	err = w.Run(ctx)
	if ctx.Err() != nil {
		return errStopped
	}
	if apierrors.IsForbidden(err) {
		return fmt.Errorf("eirinix: pods in %s cannot be watched (needs list and watch on pods): %w", namespace, err)
	}
	return fmt.Errorf("eirinix: pods in %s cannot be watched: %w", namespace, err)
}

// deliver passes an event to every watcher in turn. If a watcher panics, the other watchers still receive the event.
func (m *ExtensionManager) deliver(event watch.Event) {
	for _, w := range m.ListWatchers() {
		func() {
			defer func() {
				if r := recover(); r != nil {
					m.given().log().Info("watcher panicked; it still receives the next event", "watcher", fmt.Sprintf("%T", w), "panic", fmt.Sprint(r), "stack", string(debug.Stack()))
				}
			}()
			w.Handle(m, event)
		}()
	}
}
