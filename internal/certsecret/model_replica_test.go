package certsecret_test

// A replica of the model: a coroutine that stops before every request to the API server and before it changes what
// it serves. What it does in between is what the root package's keeper, certificates and registration do, by the
// real Store and the real decision.

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"code.cloudfoundry.org/eirinix/internal/ca"
	"code.cloudfoundry.org/eirinix/internal/certsecret"
)

const (
	hesitation   = time.Second     // as the keeper's
	retryKeeping = 2 * time.Second // as the keeper's
)

type replica struct {
	w     *world
	id    int
	clock time.Duration // how far its idea of the API server's clock is off
	store *certsecret.Store

	next        func() (time.Duration, bool) // goes on, and tells when to go on again
	kill        func()
	yield       func(time.Duration) bool
	alive, idle bool
	writing     bool // configurations, and what is recorded of them
	poked       bool // something changed while it was busy
	wakeAt      time.Time

	state       *certsecret.State
	of          *certsecret.State // whose current authority is
	authorityOf *ca.Authority
	serves      *chain
	ready       bool
	excessSince time.Time
	sawSecretAt time.Time
	mustLookBy  time.Time // the bound that the protocol needs
}

func (w *world) newReplica(id int) *replica {
	r := &replica{w: w, id: id, clock: time.Duration(w.rng.Int64N(int64(4*time.Second))) - 2*time.Second}
	r.store = &certsecret.Store{
		Secrets: secretClient{r: r}, Namespace: namespace, Name: name, Lifetime: w.authorities, Now: r.now,
	}
	return r
}

func (r *replica) String() string { return fmt.Sprintf("replica %d", r.id) }

func (r *replica) now() time.Time { return r.w.now.Add(r.clock) }

// start begins a process without memory.
func (r *replica) start() {
	r.state, r.serves, r.ready, r.poked, r.idle, r.excessSince = nil, nil, false, false, false, time.Time{}
	r.alive, r.wakeAt, r.mustLookBy = true, r.w.now, time.Time{}
	r.next, r.kill = iter.Pull(iter.Seq[time.Duration](r.run))
}

// crash ends it at whatever it is doing.
func (r *replica) crash() {
	r.alive = false
	r.kill()
	r.serves, r.ready = nil, false
}

func (r *replica) run(yield func(time.Duration) bool) {
	r.yield = yield
	for {
		err := r.begin()
		if err == nil {
			break
		}
		if !repeats(err) || r.wait("tries again", time.Second) != nil {
			return // the process ends, and another one starts
		}
	}
	for {
		next, err := r.tick()
		if err != nil {
			next = retryKeeping
		}
		if r.sleep(next) != nil {
			return
		}
	}
}

// begin is what happens before the keeper runs: obtain, serve, register.
func (r *replica) begin() error {
	if r.serves == nil {
		state, err := r.restore(nil)
		if err != nil {
			return err
		}
		if err := r.adopt(state); err != nil {
			return err
		}
	}
	return r.write(r.w.patience > 0)
}

// tick is keeper.tick.
func (r *replica) tick() (time.Duration, error) {
	hesitated := false
	for range 16 {
		var live []ca.Registered
		var versions []version
		for _, c := range r.w.configurations {
			v, err := r.readConfiguration(c)
			if err != nil {
				return 0, err
			}
			versions, live = append(versions, v), append(live, v.live(c.name))
		}
		state, err := r.restore(r.state)
		if err != nil {
			return 0, err
		}
		if err := r.act("adopts"); err != nil {
			return 0, err
		}
		if err := r.adoptIfTrusted(state, live); err != nil {
			return 0, err
		}
		r.becomeReady(versions)
		due := ca.WhatIsDue(r.situation(state, live))
		if due.Action != ca.Publish {
			r.excessSince = time.Time{}
		}
		if due.Action == ca.Publish && state.Phase != ca.Staged && !hesitated {
			hesitated = true
			if err := r.wait("hesitates", time.Duration(r.w.rng.Int64N(int64(hesitation)))); err != nil {
				return 0, err
			}
			continue
		}
		if due.Action == ca.Wait {
			return r.until(due), nil
		}
		if due.Action == ca.Publish && r.mayYetGrow(state, live) {
			return r.w.resync, nil
		}
		r.w.note(r, "%s is due: %s", due.Action, due.Reason)
		if err := r.do(due, state, live); err != nil && !apierrors.IsConflict(err) {
			return 0, err
		}
	}
	return retryKeeping, nil
}

func (r *replica) situation(state *certsecret.State, live []ca.Registered) ca.Situation {
	s := ca.Situation{
		Now: r.now(), Phase: state.Phase, Since: state.Since, Retain: r.w.retain, Requested: state.Requested(),
		Bundle: state.Bundle(), Live: live,
	}
	if authority, err := r.current(state); err == nil {
		s.Current = authority.Certificate
	}
	if r.w.broken.unconfirmed && s.Phase == ca.Staged {
		s.Live = nil
	}
	if r.w.broken.prunesAtOnce {
		s.Retain = 0
	}
	return s
}

// lacks tells whether something that must be trusted is not registered.
func lacks(state *certsecret.State, live []ca.Registered) bool {
	return slices.ContainsFunc(live, func(l ca.Registered) bool { return !ca.Contains(l.Bundle, state.Bundle()) })
}

// mayYetGrow tells a patient replica to leave a bundle that holds too much for a while: somebody may know more of the
// Secret than stands in it now.
func (r *replica) mayYetGrow(state *certsecret.State, live []ca.Registered) bool {
	if r.w.patience == 0 || lacks(state, live) {
		r.excessSince = time.Time{}
		return false
	}
	if r.excessSince.IsZero() {
		r.excessSince = r.w.now
	}
	return r.w.now.Sub(r.excessSince) < r.w.patience
}

func (r *replica) do(due ca.Due, state *certsecret.State, live []ca.Registered) error {
	if due.Action == ca.Publish {
		return r.write(r.w.patience > 0 && lacks(state, live))
	}
	step := map[ca.Action]func(context.Context, *certsecret.State) (*certsecret.State, error){
		ca.Stage: r.store.Stage, ca.Activate: r.store.Activate, ca.Prune: r.store.Prune,
	}[due.Action]
	_, err := step(impatient, state)
	return err
}

func (r *replica) until(due ca.Due) time.Duration {
	if due.At.IsZero() {
		return r.w.resync
	}
	return min(max(due.At.Sub(r.now()), time.Millisecond), r.w.resync)
}

// act is a moment at which others may act, for as long as it pleases the world.
func (r *replica) act(what string) error { return r.wait(what, r.w.delay()) }

func (r *replica) wait(what string, d time.Duration) error {
	if !r.alive {
		return errCrashed
	}
	if r.serves != nil && !r.mustLookBy.IsZero() {
		if left := r.mustLookBy.Sub(r.w.now); d > left {
			d = max(left, r.w.short())
		}
	}
	if !r.yield(d) {
		r.alive = false
		return errCrashed
	}
	r.w.note(r, what)
	return nil
}

// sleep waits until something changes, or for d.
func (r *replica) sleep(d time.Duration) error {
	if !r.alive {
		return errCrashed
	}
	if r.poked {
		d = r.w.short()
	}
	r.idle = true
	err := r.wait("looks", d)
	r.idle, r.poked = false, false
	if errors.Is(err, errCrashed) {
		return err
	}
	return nil
}
