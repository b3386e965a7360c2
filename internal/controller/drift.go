package controller

// This file delays repairs that other clients keep reverting. A single edit, or a few, are repaired at once because
// they are accidents. An operator can reconfigure a tool that keeps applying its own copy, but cannot reconfigure this
// process.

import (
	"time"

	"k8s.io/client-go/util/workqueue"
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
}

// repair is the state of one object. The field since is when it was found broken, and due is when its repair is due.
// Both are zero while it is in order. inOrder is when its current or last period in order began.
type repair struct{ since, due, inOrder time.Time }

// newDrift returns a drift. most bounds the delay of a repair.
func newDrift(most time.Duration) *drift {
	return &drift{failures: workqueue.NewTypedItemExponentialFailureRateLimiter[string](firstRepair, most), all: map[string]*repair{}}
}

// of starts over when the desired state changes, because no other client has caused the difference then.
func (d *drift) of(want string) *drift {
	if d.want != want {
		d.want, d.all = want, map[string]*repair{}
	}
	return d
}

// look records whether an object is in order. It returns when its repair is due, and its number of recent repairs. An
// object that was never in order is repaired at once.
func (d *drift) look(object string, ok bool, now time.Time) (due time.Time, times int) {
	state := d.all[object]
	if state == nil {
		state = &repair{}
		d.all[object] = state
	}
	switch {
	case ok && (!state.since.IsZero() || state.inOrder.IsZero()):
		*state = repair{inOrder: now}
	case ok && now.Sub(state.inOrder) > quiet:
		d.failures.Forget(object)
	case !ok && state.inOrder.IsZero():
		return now, 0
	case !ok && state.since.IsZero():
		state.since, state.due = now, now.Add(d.failures.When(object))
	}
	return state.due, d.failures.NumRequeues(object)
}
