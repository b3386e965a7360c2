package controller

// This file counts how often objects had to be repaired, and decides when the next repair is due.

import (
	"slices"
	"time"

	"k8s.io/client-go/util/workqueue"

	"code.cloudfoundry.org/eirinix/internal/rollout"
)

const (
	// quiet is how long a configuration must have been in order before its failures are forgotten.
	quiet = 15 * time.Minute

	// firstRepair is the delay of the first repair. It doubles with each further repair.
	firstRepair = 50 * time.Millisecond
)

// drift counts how often objects had to be repaired. It belongs to the pass.
type drift struct {
	failures workqueue.TypedRateLimiter[string]
	all      map[string]*repair
	want     string
	stale    bool // another state is desired than at the last look
}

// repair is the state of one object. The field since is when it was found broken, and due is when its repair is due.
// Both are zero while it is in order. inOrder is when its current or last period in order began, and broken when it was last
// seen broken, whatever was desired then.
type repair struct{ since, due, inOrder, broken time.Time }

// newDrift returns a drift. most bounds the delay of a repair. The code of its limiter is large, and each call would have a copy.
//
//go:noinline
func newDrift(most time.Duration) *drift {
	return &drift{failures: workqueue.NewTypedItemExponentialFailureRateLimiter[string](firstRepair, most), all: map[string]*repair{}}
}

// of starts over when the desired state changes, because no other client has caused the difference then. It forgets no repair: that
// takes a quiet time, in which the desired state may change too.
func (d *drift) of(want string) *drift {
	d.stale = d.stale || d.want != want
	d.want = want
	return d
}

// lookAtEach is look for the objects that are not in order, of all that ever were not. It forgets each after a quiet time, because there
// can be any number.
func (d *drift) lookAtEach(broken []string, now time.Time) (due time.Time, times int) {
	for object, state := range d.all {
		if slices.Contains(broken, object) {
			continue
		}
		_, n := d.look(object, true, now)
		if times = max(times, n); now.Sub(state.inOrder) > quiet { // look has forgotten its failures
			delete(d.all, object)
		}
	}
	for _, object := range broken {
		at, n := d.look(object, false, now)
		due, times = rollout.Soonest(due, at), max(times, n)
	}
	return due, times
}

// look records whether an object is in order. It returns when its repair is due, and its number of recent repairs. An
// object that was never in order is repaired at once.
func (d *drift) look(object string, ok bool, now time.Time) (due time.Time, times int) {
	if d.stale {
		for _, state := range d.all {
			*state = repair{broken: state.broken}
		}
		d.stale = false
	}
	state := d.all[object]
	if state == nil {
		state = &repair{}
		d.all[object] = state
	}
	switch {
	case ok && (!state.since.IsZero() || state.inOrder.IsZero()):
		*state = repair{inOrder: now, broken: state.broken}
	case state.since.IsZero() && !state.broken.IsZero() && now.Sub(state.broken) > quiet:
		d.failures.Forget(object)
	}
	switch {
	case ok:
	case state.inOrder.IsZero():
		return now, d.failures.NumRequeues(object)
	case state.since.IsZero():
		state.since, state.due = now, now.Add(d.failures.When(object))
	}
	if !ok {
		state.broken = now
	}
	return state.due, d.failures.NumRequeues(object)
}
