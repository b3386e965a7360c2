package webhookconf

// This file puts off repairs that are undone again and again. One edit, and a few, are healed at once: they are accidents.
// A tool that applies its own copy again and again can be told what to apply, and this process cannot.

import (
	"time"

	"k8s.io/client-go/util/workqueue"
)

const (
	// quiet is how long a configuration must have been in order for its troubles to be forgotten.
	quiet = 15 * time.Minute

	// firstRepair is the delay of the first repair. It doubles with each that follows.
	firstRepair = 50 * time.Millisecond
)

// Drift remembers how often objects had to be repaired. It is for one goroutine at a time.
type Drift struct {
	failures workqueue.TypedRateLimiter[string]
	all      map[string]*repair
	want     string
}

// repair is the state of one object. since is when it was found broken, and due when it is to be repaired; both are zero
// while it is in order. inOrder is since when it is, or was.
type repair struct{ since, due, inOrder time.Time }

// NewDrift makes a Drift. most bounds how long a repair is put off.
func NewDrift(most time.Duration) *Drift {
	return &Drift{failures: workqueue.NewTypedItemExponentialFailureRateLimiter[string](firstRepair, most), all: map[string]*repair{}}
}

// Of begins anew when something else is wanted: it is no fault of others that it is not there yet.
func (d *Drift) Of(want string) *Drift {
	if d.want != want {
		d.want, d.all = want, map[string]*repair{}
	}
	return d
}

// Look notes whether an object is in order. It returns when the object is to be repaired, and how often it was lately. One
// that was never in order is repaired at once.
func (d *Drift) Look(object string, ok bool, now time.Time) (due time.Time, times int) {
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
