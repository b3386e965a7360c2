package cluster

// This file follows objects: it brings a copy of them up to date, and keeps it so.

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"code.cloudfoundry.org/eirinix/internal/wait"
)

const (
	// firstPause and LastPause limit the time between two attempts.
	firstPause, LastPause = time.Second, 30 * time.Second

	// Rewatched is how long it takes at most until a watch that has failed begins again: a pause is up to a fifth longer.
	Rewatched = LastPause + LastPause/5

	// lasted is how long a watch lasts that worked; early, if it was ended without an error, as by a proxy. If it ended as
	// agreed, up to early before its time, the next one begins at once, else at a random moment within spreadWatches: when
	// an API server ends, all its watches are cut at once, in all replicas.
	lasted, early, spreadWatches = time.Minute, 5 * time.Second, 3 * time.Second

	// shortest is the agreed time of a watch, to which up to the same is added at random. It can end lateness later.
	shortest, lateness = 5 * time.Minute, 20 * time.Second

	// Unnoticed is how long a connection can be dead before a watch shows it. Over HTTP/2, client-go asks after 30 s of
	// silence, and waits 15 s (readIdleTimeout and pingTimeout of k8s.io/apimachinery/pkg/util/net). Where nothing asks, a
	// watch lasts brief, and ends at the latest after Unnoticed.
	Unnoticed = brief + lateness
	brief     = 25 * time.Second

	// pageSize is the number of objects of a page of a list.
	pageSize = 500
)

// Follower follows objects of a resource with lists and watches. All its functions are called on the goroutine of Run.
type Follower struct {
	List  func(context.Context, metav1.ListOptions) (client.ObjectList, error)
	Watch func(context.Context, metav1.ListOptions) (watch.Interface, error)

	// Resumes is nil for a few small objects: each watch begins with the latest state, and names no version that was seen
	// earlier. To go on would save nothing, and after a restore of etcd an API server sends nothing until its versions have
	// caught up.
	//
	// Otherwise the objects are listed in pages, and a watch goes on where the one before it was, if Resumes agrees. It gets
	// the time of the list with which the watch begins; zero if it begins with the last event.
	Resumes func(listed time.Time) bool

	// Brief reports that nothing notices a dead connection, so that watches must be short. nil means that something does.
	Brief func() bool

	Restart func()                               // what Take gets from now on replaces all before, once Begun is called
	Take    func(watch.EventType, client.Object) // takes an object of the latest state, or a change
	Begun   func()                               // the latest state is complete, and a watch shows each change

	// Ended gets the last sign of life of a watch, and why it or an attempt has ended; nil if the API server has ended it. It
	// returns the longest pause before the next attempt, or zero to give up. Without it, only a refusal ends Run.
	Ended func(alive time.Time, err error) (longest time.Duration)

	Wake <-chan struct{} // ends a pause

	version     string        // of the last event; empty before a list
	listed      time.Time     // the end of the list whose watch has not begun yet; zero for none
	interrupted bool          // the version may be one that the cluster no longer has
	began       time.Time     // when the last watch was asked for
	agreed      time.Duration // that it lasts from then on, in whole seconds
	alive       time.Time     // the last sign of life of a watch
}

// Run returns when ctx ends, or Ended gives up, with the reason.
func (f *Follower) Run(ctx context.Context) error {
	delays := wait.Backoff(firstPause, LastPause)
	for {
		known, err := f.follow(ctx)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		// An API server that stops ends its watches as if they were over, but sooner than agreed; a thousandth is left to the
		// clocks. One that refuses a watch has not stopped.
		f.interrupted = err != nil && (!apierrors.IsForbidden(err) || f.listed.IsZero()) || !known.IsZero() && time.Since(f.began) < f.agreed-f.agreed/1000
		if outdated(err) {
			f.version = ""
		}
		longest := LastPause
		if f.Ended != nil {
			longest = f.Ended(f.alive, err)
		} else if apierrors.IsForbidden(err) {
			longest = 0
		}
		if longest == 0 {
			return err
		}
		pause := delays()
		if worked := time.Since(known); !known.IsZero() && (worked > lasted || err == nil && worked > early) {
			delays = wait.Backoff(firstPause, LastPause)
			switch {
			case err == nil && worked > f.agreed-early:
				pause = 0
			case worked > lasted:
				pause = rand.N(spreadWatches)
			}
		}
		_ = wait.SleepUnless(ctx, min(pause, longest), f.Wake)
	}
}

// outdated reports whether the API server no longer has a version, or not yet.
func outdated(err error) bool {
	return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge)
}

// follow brings the objects up to date, and follows them until the watch ends. It returns the time since which they were
// known, and the reason unless the watch ended by itself.
func (f *Follower) follow(ctx context.Context) (known time.Time, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if f.Resumes == nil {
		f.Restart()
		known, err = f.watch(ctx, metav1.ListOptions{SendInitialEvents: new(true), ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan})
		if !errors.Is(err, errSilent) && !apierrors.IsInvalid(err) && !apierrors.IsBadRequest(err) && !apierrors.IsMethodNotSupported(err) {
			return known, err
		}
		f.version = "" // earlier releases cannot send the latest state in a watch, and a list says why an API server does not
	} else if err = f.locate(ctx); err != nil {
		return known, err
	}
	if f.version == "" {
		err = f.list(ctx, nil)
	}
	if err != nil {
		return known, err
	}
	return f.watch(ctx, metav1.ListOptions{ResourceVersion: f.version})
}

// locate finds out after an interruption whether the watch can go on. It cannot if the cluster has gone back, as after a
// restore: the API server would wait for a version of the future, or, once its versions have caught up, leave out changes.
// Only a list shows those, so objects that fit into a page are listed.
func (f *Follower) locate(ctx context.Context) error {
	if f.listed.IsZero() && !f.Resumes(f.listed) {
		f.version = ""
	}
	if f.version == "" || !f.interrupted {
		return nil
	}
	page, err := f.List(ctx, metav1.ListOptions{Limit: pageSize})
	if err != nil {
		return err
	}
	if order, err := resourceversion.CompareResourceVersion(page.GetResourceVersion(), f.version); err != nil || order < 0 || page.GetContinue() == "" {
		return f.list(ctx, page)
	}
	return nil
}

// list takes all objects. The first page is known already, unless it is nil.
func (f *Follower) list(ctx context.Context, page client.ObjectList) (err error) {
	f.Restart()
	for o := (metav1.ListOptions{Limit: pageSize}); ; page = nil {
		if page == nil {
			page, err = f.List(ctx, o)
		}
		if apierrors.IsResourceExpired(err) && o.Continue != "" { // the pages took too long; all at once then
			o = metav1.ListOptions{}
			f.Restart()
			continue
		}
		if err == nil {
			err = meta.EachListItem(page, func(o runtime.Object) error {
				_, err := f.receive(watch.Event{Type: watch.Added, Object: o})
				return err
			})
		}
		if err != nil {
			f.version = ""
			return err
		}
		if o.Continue = page.GetContinue(); o.Continue == "" {
			f.version, f.listed = page.GetResourceVersion(), time.Now()
			return nil
		}
	}
}

var (
	// errSilent is the end of a watch that has not sent the latest state.
	errSilent = errors.New("the watch does not begin with the latest state")

	// errLate is the reason after a watch that did not end when agreed.
	errLate = errors.New("the watch did not end when agreed; the connection is dead, or the API server hangs")
)

// watch takes what a watch sends until it ends. While known is zero, the latest state is not complete.
func (f *Follower) watch(ctx context.Context, o metav1.ListOptions) (known time.Time, err error) {
	if f.agreed = (shortest + rand.N(shortest)).Truncate(time.Second); f.Brief != nil && f.Brief() {
		f.agreed = brief
	}
	f.began = time.Now()
	o.AllowWatchBookmarks, o.TimeoutSeconds = true, new(int64(f.agreed.Seconds()))
	events, err := f.Watch(ctx, o)
	if err != nil {
		return known, err
	}
	defer events.Stop()
	if !f.listed.IsZero() && f.Resumes != nil && !f.Resumes(f.listed) { // the watch was refused for that long
		f.version = ""
		events.Stop()
		return f.follow(ctx)
	}
	late := time.NewTimer(requestTimeout)
	defer late.Stop()
	for complete := o.SendInitialEvents == nil; ; {
		if complete && known.IsZero() {
			late.Reset(f.agreed + lateness)
			known, f.alive, f.listed = time.Now(), time.Now(), time.Time{}
			f.Begun()
		}
		var event watch.Event
		open := true
		select {
		case <-ctx.Done():
			return known, context.Cause(ctx)
		case <-late.C:
			err = errLate
		case event, open = <-events.ResultChan():
			if open {
				complete, err = f.receive(event)
			}
		}
		switch {
		case known.IsZero() && (!open || errors.Is(err, errLate)):
			return known, errSilent
		case err != nil:
			return known, err
		}
		f.alive = time.Now()
		if !open { // the API server has ended it, or its host
			return known, nil
		}
	}
}

// receive takes an event, or an object of a list, and reports whether it completes the latest state.
func (f *Follower) receive(event watch.Event) (complete bool, err error) {
	object, ok := event.Object.(client.Object)
	switch {
	case event.Type == watch.Error:
		return false, apierrors.FromObject(event.Object)
	case !ok:
		return false, fmt.Errorf("the API server sent a %T for an object", event.Object)
	case event.Type == watch.Added, event.Type == watch.Modified, event.Type == watch.Deleted:
		f.Take(event.Type, object)
	}
	f.version = object.GetResourceVersion()
	return event.Type == watch.Bookmark && object.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true", nil
}
