package certsource

// This file follows one object of the API, and never reads another.

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
)

const (
	// callTimeout bounds one request to the API server, watches aside.
	callTimeout = 30 * time.Second

	// watchFor is how long one watch lasts, as the API server is asked; up to as much again is added at random.
	watchFor = 5 * time.Minute

	// retryWatch is how long polling goes on where a watch is forbidden before it is tried again: the right may
	// have been granted.
	retryWatch = 10 * time.Minute
)

// single follows one object by its name with list and watch, which a field selector restricts to it on the
// server's side. Where it may not, it gets the object again and again.
type single[T any] struct {
	kind, name string // as in an RBAC rule: "secrets"
	poll       time.Duration
	log        logr.Logger

	// find picks the object out of the answer to a list; nil when it does not exist.
	find  func(context.Context, metav1.ListOptions) (object *T, resourceVersion string, err error)
	get   func(context.Context, string, metav1.GetOptions) (*T, error)
	watch func(context.Context, metav1.ListOptions) (watch.Interface, error)

	rights *rights
}

// rights is what is known of the right to list and watch.
type rights struct {
	deniedAt time.Time // zero when it was not
	said     bool      // that it was
}

// follow calls look with the object, or nil when it does not exist, or why it cannot be read: at first, with
// every change, and every poll even without one. It returns when look returns true or ctx ends.
func (s *single[T]) follow(ctx context.Context, look func(*T, error) (done bool)) {
	for ctx.Err() == nil {
		object, version, err := s.read(ctx)
		if ctx.Err() != nil || look(object, err) {
			return
		}
		if err == nil && version != "" {
			done, err := s.stream(ctx, object, version, look)
			switch {
			case done:
				return
			case apierrors.IsForbidden(err):
				s.forbidden(err)
			case err != nil:
				s.log.V(1).Info("the watch was interrupted; it is begun again", "kind", s.kind, "name", s.name, "because", err.Error())
			}
		}
		if !pause(ctx, s.poll) {
			return
		}
	}
}

// read returns no resourceVersion where a watch is not worth a try.
func (s *single[T]) read(ctx context.Context) (object *T, version string, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if s.rights.deniedAt.IsZero() || time.Since(s.rights.deniedAt) > retryWatch {
		object, version, err = s.find(ctx, s.only())
		if !apierrors.IsForbidden(err) {
			return object, version, err
		}
		s.forbidden(err)
	}
	object, err = s.get(ctx, s.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, "", nil
	}
	if err != nil {
		return nil, "", err
	}
	return object, "", nil
}

func (s *single[T]) only() metav1.ListOptions {
	return metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, s.name).String()}
}

func (s *single[T]) forbidden(err error) {
	s.rights.deniedAt = time.Now()
	if !s.rights.said {
		s.rights.said = true
		s.log.Info("may not be watched, and is read again and again instead; grant list and watch on it",
			"kind", s.kind, "name", s.name, "every", s.poll.String(), "because", err.Error())
	}
}

// stream watches from the version on which look has seen the object, until the watch ends.
func (s *single[T]) stream(ctx context.Context, object *T, version string, look func(*T, error) bool) (done bool, err error) {
	o := s.only()
	o.ResourceVersion, o.AllowWatchBookmarks = version, true
	seconds := int64((watchFor + rand.N(watchFor)).Seconds())
	o.TimeoutSeconds = &seconds
	events, err := s.watch(ctx, o)
	if err != nil {
		return false, err
	}
	defer events.Stop()
	*s.rights = rights{}
	every := time.NewTicker(s.poll)
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return false, nil
		case <-every.C:
		case event, open := <-events.ResultChan():
			if !open {
				return false, nil
			}
			if event.Type == watch.Bookmark {
				continue
			}
			if object, err = s.take(event); err != nil {
				return false, err
			}
		}
		if look(object, nil) {
			return true, nil
		}
	}
}

// take returns the object after an event, nil after its deletion.
func (s *single[T]) take(event watch.Event) (*T, error) {
	if event.Type == watch.Error {
		return nil, apierrors.FromObject(event.Object)
	}
	object, ok := any(event.Object).(*T)
	if !ok {
		return nil, fmt.Errorf("the API server sent a %T where %s were due", event.Object, s.kind)
	}
	if event.Type == watch.Deleted {
		return nil, nil
	}
	return object, nil
}
