package eirinix

import (
	"context"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"
)

const (
	// resync is how often everything is looked at when nothing tells of a change.
	resync = time.Minute

	// retryKeeping is how soon a look that failed is repeated.
	retryKeeping = 2 * time.Second

	// hesitation bounds how long a replica waits, at random, before it heals what all replicas see at once. The first
	// one writes, and the rest find it done.
	hesitation = time.Second
)

// upkeep keeps certificates and configurations as they should be.
type upkeep interface {
	// run works until ctx ends.
	run(ctx context.Context)
	// tick looks at everything once, does what is due, and tells when to look again.
	tick(ctx context.Context) (next time.Duration, err error)
}

func (c *certificates) upkeep(m *ExtensionManager, reg *registration, log logr.Logger) upkeep {
	return m.newKeeper(c, reg, log)
}

func (f *external) upkeep(m *ExtensionManager, reg *registration, log logr.Logger) upkeep {
	return m.newFollower(f, reg, log)
}

// watched is an object whose changes are worth a look.
type watched struct {
	name  string
	start func(context.Context) (watch.Interface, error)
}

// keepUp looks whenever an object changes, something pokes, or time has come, until ctx ends.
func keepUp(ctx context.Context, u upkeep, said *reminder, objects []watched, poked <-chan struct{}) {
	changed := make(chan struct{}, 1)
	var watches sync.WaitGroup
	defer watches.Wait()
	for _, o := range objects {
		watches.Go(func() { o.follow(ctx, said.log, changed) })
	}
	for {
		next, err := u.tick(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			said.say("the certificates could not be looked after; what is served stays as it was, and it is tried again", err)
			next = retryKeeping
		}
		timer := time.NewTimer(next)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-changed:
			timer.Stop()
		case <-poked:
			timer.Stop()
		case <-timer.C:
		}
	}
}

// waitUntil is how long nothing need be looked at; at is zero for nothing in sight.
func waitUntil(at time.Time, clock *serverClock) time.Duration {
	if at.IsZero() {
		return resync
	}
	return min(max(at.Sub(clock.Now()), time.Millisecond), resync)
}

// follow sends word of every change of the object. Without the right to watch it, resync has to do.
func (o watched) follow(ctx context.Context, log logr.Logger, changed chan<- struct{}) {
	said := false
	for ctx.Err() == nil {
		w, err := o.start(ctx)
		if apierrors.IsForbidden(err) {
			if !said {
				said = true
				log.Info("may not be watched, and is looked at every minute instead; grant watch on it", "what", o.name, "because", err.Error())
			}
			if pause(ctx, 5*resync) != nil {
				return
			}
			continue
		}
		for err == nil {
			event, open := <-w.ResultChan()
			if !open {
				break
			}
			if event.Type != watch.Bookmark {
				poke(changed)
			}
		}
		if w != nil {
			w.Stop()
		}
		if pause(ctx, retryKeeping/2) != nil {
			return
		}
		poke(changed) // what happened meanwhile went unseen
	}
}

func poke(changed chan<- struct{}) {
	select {
	case changed <- struct{}{}:
	default: // somebody has said so already
	}
}
