package cluster

// This file follows pods for a program's watchers.

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"code.cloudfoundry.org/eirinix/internal/wait"
)

const (
	// rewatchAfter prevents a busy loop if a watch ends at once.
	rewatchAfter = time.Second

	// listPage limits one response of a list, and with it the memory that both sides need for it.
	listPage = 500
)

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
		if ctx.Err() != nil {
			return err
		}
		switch {
		case err == nil: // the API server ends every watch after some minutes
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
	var now map[types.UID]*corev1.Pod
	var order []*corev1.Pod
	err := wait.Retry(ctx, w.Log, "the list of pods", func(ctx context.Context) error {
		now, order = map[types.UID]*corev1.Pod{}, nil
		o := metav1.ListOptions{LabelSelector: w.Selector, Limit: listPage}
		for {
			page, err := w.Pods.List(ctx, o)
			if apierrors.IsResourceExpired(err) && o.Continue != "" {
				// The list took longer than the history reaches back, so it starts again.
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
			w.ResourceVersion = page.ResourceVersion
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
