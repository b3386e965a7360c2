package cluster

// This file follows pods for a program's watchers.

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"code.cloudfoundry.org/eirinix/internal/wait"
)

// rewatchWithin limits the pause before a watch that has ended goes on.
const rewatchWithin = 5 * time.Second

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

	known  map[types.UID]*corev1.Pod // the pods that watchers know; nil until the first list of a watch from now on
	listed []*corev1.Pod             // that are not known yet; nil while a watch shows changes
}

// Run delivers events until ctx ends, or watching is refused.
func (w *PodWatch) Run(ctx context.Context) error {
	if w.ResourceVersion != "" {
		w.known = map[types.UID]*corev1.Pod{}
	}
	return (&Follower{
		List: func(ctx context.Context, o metav1.ListOptions) (client.ObjectList, error) {
			o.LabelSelector = w.Selector
			return w.Pods.List(ctx, o)
		},
		Watch: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			w.deliverMissed()
			o.LabelSelector = w.Selector
			return w.Pods.Watch(ctx, o)
		},
		Resumes: func(time.Time) bool { return true },
		Restart: func() { w.listed = []*corev1.Pod{} },
		Take:    w.take,
		Begun:   func() {},
		Ended: func(_ time.Time, err error) time.Duration {
			switch {
			case err == nil:
			case outdated(err):
				w.Log.Info("the API server's history does not reach back to where the watch was; listing pods again")
			case wait.Transient(err), errors.Is(err, errLate):
				w.Log.Info("the watch of pods was interrupted; going on where it was", "reason", err.Error())
			default:
				return 0
			}
			return rewatchWithin
		},
		version: w.ResourceVersion,
	}).Run(ctx)
}

// OwnPauses hides from client-go when to ask again, for a Follower, which has pauses of its own. client-go would ask ten times in
// a row, without telling the reason.
func OwnPauses(next http.RoundTripper) http.RoundTripper { return ownPauses{next} }

type ownPauses struct{ http.RoundTripper }

func (p ownPauses) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := p.RoundTripper.RoundTrip(r)
	if err == nil {
		response.Header.Del("Retry-After")
	}
	return response, err
}

func (w *PodWatch) take(how watch.EventType, object client.Object) {
	pod, _ := object.(*corev1.Pod) // all are pods
	switch {
	case w.listed != nil:
		w.listed = append(w.listed, pod)
		return
	case how == watch.Deleted:
		delete(w.known, pod.UID)
	default:
		w.known[pod.UID] = pod
	}
	w.Deliver(watch.Event{Type: how, Object: pod})
}

// deliverMissed delivers the events that a list has in place of a watch. The first list of a watch from now on has none. A
// pod that is gone is DELETED in its last observed state.
func (w *PodWatch) deliverMissed() {
	if w.listed == nil {
		return
	}
	deliver, before, now := w.Deliver, w.known, map[types.UID]*corev1.Pod{}
	if before == nil {
		deliver = func(watch.Event) {}
	}
	for _, pod := range w.listed {
		now[pod.UID] = pod
	}
	for uid, pod := range before {
		if now[uid] == nil {
			deliver(watch.Event{Type: watch.Deleted, Object: pod})
		}
	}
	for _, pod := range w.listed {
		switch old := before[pod.UID]; {
		case old == nil:
			deliver(watch.Event{Type: watch.Added, Object: pod})
		case old.ResourceVersion != pod.ResourceVersion:
			deliver(watch.Event{Type: watch.Modified, Object: pod})
		}
	}
	w.known, w.listed = now, nil
}
