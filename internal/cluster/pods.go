package cluster

// This file follows pods for a program's watchers.

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/pager"
	watchtools "k8s.io/client-go/tools/watch"

	"code.cloudfoundry.org/eirinix/internal/wait"
)

// rewatchAfter prevents a busy loop if a watch ends at once.
const rewatchAfter = time.Second

// PodWatch follows pods across all interruptions of a watch. It differs from client-go's reflector in ways that its
// users rely on. The initial pods are no events, a watch can start at a given resourceVersion, and events stay ADDED,
// MODIFIED and DELETED. The RetryWatcher of client-go asks for ever with a resourceVersion that is refused as too old
// when the watch begins.
type PodWatch struct {
	Pods            corev1client.PodInterface
	Selector        string // of labels
	ResourceVersion string // events after it are delivered; empty means from now on
	Deliver         func(watch.Event)
	Log             logr.Logger

	known map[types.UID]*corev1.Pod // the pods that watchers know, or could have seen in the first list
}

// Run delivers events until ctx ends, or watching is refused.
func (w *PodWatch) Run(ctx context.Context) error {
	w.known = map[types.UID]*corev1.Pod{}
	if w.ResourceVersion == "" {
		if err := w.relist(ctx, nil); err != nil {
			return err
		}
	}
	for {
		err := w.follow(ctx)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, watchtools.ErrWatchClosed): // the API server ends every watch after some minutes
		case apierrors.IsResourceExpired(err), apierrors.IsGone(err):
			w.Log.Info("the API server's history does not reach back to where the watch was; listing pods again", "resourceVersion", w.ResourceVersion)
			if err := w.relist(ctx, w.Deliver); err != nil {
				return err
			}
			continue
		case wait.Transient(err):
			w.Log.Info("the watch was interrupted; going on where it was", "in", rewatchAfter.String(), "error", err.Error())
		default:
			return err
		}
		if err := wait.Sleep(ctx, rewatchAfter); err != nil {
			return err
		}
	}
}

// follow watches from w.ResourceVersion until the watch ends.
func (w *PodWatch) follow(ctx context.Context) error {
	events, err := w.Pods.Watch(ctx, metav1.ListOptions{
		LabelSelector: w.Selector, ResourceVersion: w.ResourceVersion, AllowWatchBookmarks: true,
	})
	if err != nil {
		return err
	}
	_, err = watchtools.UntilWithoutRetry(ctx, events, func(event watch.Event) (bool, error) { return false, w.take(event) })
	return err
}

func (w *PodWatch) take(event watch.Event) error {
	if event.Type == watch.Error {
		return apierrors.FromObject(event.Object)
	}
	pod, ok := event.Object.(*corev1.Pod)
	if !ok {
		return fmt.Errorf("the API server sent a %T where a pod was due", event.Object)
	}
	w.ResourceVersion = pod.ResourceVersion
	switch event.Type {
	case watch.Added, watch.Modified:
		w.known[pod.UID] = pod
	case watch.Deleted:
		delete(w.known, pod.UID)
	default: // a bookmark only moves the resourceVersion
		return nil
	}
	w.Deliver(event)
	return nil
}

// relist lists the pods and delivers the events that were missed. deliver is nil for the first list, which has missed
// none. A pod that is gone is DELETED in its last observed state.
func (w *PodWatch) relist(ctx context.Context, deliver func(watch.Event)) error {
	var all runtime.Object
	pages := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return w.Pods.List(ctx, o) })
	err := wait.Retry(ctx, w.Log, "the list of pods", func(ctx context.Context) (err error) {
		all, _, err = pages.List(ctx, metav1.ListOptions{LabelSelector: w.Selector})
		return err
	})
	if err != nil {
		return err
	}
	list, err := meta.ListAccessor(all)
	if err != nil {
		return err
	}
	now, order := map[types.UID]*corev1.Pod{}, []*corev1.Pod{}
	_ = meta.EachListItem(all, func(o runtime.Object) error { // all are pods
		pod, _ := o.(*corev1.Pod)
		now[pod.UID], order = pod, append(order, pod)
		return nil
	})
	before := w.known
	w.known, w.ResourceVersion = now, list.GetResourceVersion()
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
