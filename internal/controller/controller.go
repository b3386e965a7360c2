// Package controller keeps the cluster as it should be: the certificate Secret, the webhook configurations and their
// caBundle, and the Lease with the versions of the program. Every replica runs one Controller. There is no leader: every
// write is guarded by the resourceVersion that it was decided on, and losing a race is a reason to look again.
//
// A pass observes all objects in copies that watches keep, decides, and does at most one thing. Before a configuration is
// written, it and then the Secret are read anew, in this order: a replica whose copies are late cannot take back what a
// faster one has published.
package controller

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/workqueue"

	"code.cloudfoundry.org/eirinix/internal/certsecret"
	"code.cloudfoundry.org/eirinix/internal/cluster"
	"code.cloudfoundry.org/eirinix/internal/rollout"
	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

const (
	// resync is how often a pass is made when nothing happens. It costs no request.
	resync = time.Minute

	// passTimeout bounds one pass.
	passTimeout = 30 * time.Second

	// firstRetry and lastRetry bound the time after a pass that failed.
	firstRetry, lastRetry = time.Second, 30 * time.Second

	// actionsAtOnce bounds what is done in a row: more than a whole rotation has.
	actionsAtOnce = 16

	// replicasAtMost is the number of replicas for which pauses are made.
	replicasAtMost = 1000
)

// Config is all that a Controller works with. It does not change.
type Config struct {
	Cache          cluster.Cache
	Configurations []webhookconf.Configuration
	Leases         rollout.Leases // nil where versions are of no concern: then no Lease is read or written
	Namespace      string         // of the Lease
	LeaseName      string

	Certificates Certificates
	Desired      webhookconf.Desired // Version names this version
	Record       rollout.Record      // of this version: Target and Steps

	Registers bool        // may write configurations
	Lives     bool        // is a replica of its version: it serves, and registers
	After     *Controller // whose place it takes in this process, once that one's Run has ended; nil for none
	OnlyTrust bool        // writes caBundles and nothing else of a configuration
	Once      bool        // is a short process that knows nothing of the past: a CA leaves a caBundle late

	Retain time.Duration // how long a CA that is not needed stays trusted
	Lag    time.Duration // how long an API server may take to hear of a write

	Serve func(map[string]rollout.Route) // is given the paths of other versions; nil where nothing is served
	Ready func(error)                    // is told after each pass why API servers cannot call this process; nil where none can
	Told  *Report
	Log   logr.Logger

	API    *cluster.API     // tells of outages; nil for none
	Now    func() time.Time // nil means time.Now
	Random func() float64   // in [0, 1); nil means rand.Float64
}

// Controller is one process's part. Its methods may be called from any goroutine.
type Controller struct {
	Config

	over    atomic.Bool   // configurations are being removed, and not written any more
	unknown atomic.Bool   // the Lease may not be read
	refused atomic.Bool   // another program came first
	left    atomic.Bool   // this replica stops, and answers no question any more
	passing chan struct{} // holds one during a pass: one at a time

	// The rest belongs to the pass.
	seen              map[string]rollout.Sighting
	versions          rollout.Versions
	routes            map[string]rollout.Route
	pauses            map[string]pause
	drift, trustDrift *webhookconf.Drift // of entries, and of caBundles
	managers          map[string]string  // the last other client that wrote a configuration, by its name
	standing          map[string]bool    // configurations that were in order once
	spread            time.Time          // until when an API server may not trust what was added to a caBundle in use
	doubtedAt         time.Time          // since when API servers trust other replicas and not this one
	unreached         int                // how often in a row the registration itself has refused the Lease
	wasReady          bool
}

// New makes a Controller.
func New(c Config) *Controller {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Random == nil {
		c.Random = rand.Float64
	}
	if c.API == nil {
		c.API = &cluster.API{}
	}
	made := &Controller{
		Config: c, wasReady: c.After != nil && c.After.wasReady, passing: make(chan struct{}, 1), pauses: map[string]pause{}, managers: map[string]string{}, standing: map[string]bool{},
		drift: webhookconf.NewDrift(troubleMost), trustDrift: webhookconf.NewDrift(trustTroubleMost),
	}
	made.over.Store(c.After != nil && c.After.over.Load())
	made.After = nil // nothing else of it is kept
	return made
}

// Run makes passes until ctx ends: after each change of an object, when something is due, and every minute.
func (c *Controller) Run(ctx context.Context, objects *cluster.Objects) {
	const item = "pass"
	queue := workqueue.NewTypedDelayingQueue[string]()
	failures := workqueue.NewTypedItemExponentialFailureRateLimiter[string](firstRetry, lastRetry)
	objects.Notify(func() { queue.Add(item) })
	defer context.AfterFunc(ctx, queue.ShutDown)()
	queue.Add(item)
	for {
		if _, ended := queue.Get(); ended {
			return
		}
		again, err := c.Reconcile(ctx)
		queue.Done(item)
		if err != nil && ctx.Err() == nil {
			c.Told.say(c.Log, "certificates and registration could not be looked after; everything stays as it was, and it is tried again", err.Error())
			queue.AddAfter(item, cluster.Jittered(failures.When(item)))
			continue
		}
		failures.Forget(item)
		queue.AddAfter(item, again)
	}
}

// Reconcile makes passes until nothing is due, and returns when something is again.
func (c *Controller) Reconcile(ctx context.Context) (again time.Duration, err error) {
	select {
	case c.passing <- struct{}{}:
		defer func() { <-c.passing }()
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, passTimeout, fmt.Errorf("not done within %s", passTimeout))
	defer cancel()
	defer func() { c.Told.failed(err) }()
	for range actionsAtOnce {
		at, did, err := c.pass(ctx)
		switch {
		case !c.Once && (apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err)):
			c.Log.V(1).Info("another replica was faster", "reason", err.Error())
			return c.jitter(100 * time.Millisecond), nil
		case err != nil:
			if !cluster.Transient(err) && !cluster.Vanished(err) && !errors.Is(err, certsecret.ErrNotReady) {
				err = &cluster.RefusedError{Err: err}
			}
			c.ready(err)
			return 0, err
		case !did:
			return c.until(at), nil
		}
	}
	return c.jitter(firstRetry), nil
}

// pass observes, decides, and does at most one thing.
func (c *Controller) pass(ctx context.Context) (again time.Time, did bool, err error) {
	first, again, did, err := c.rollout(ctx)
	if did || err != nil {
		return again, did, err
	}
	o, err := c.observe(ctx)
	if err != nil {
		return again, false, err
	}
	t, err := c.Certificates.look(ctx, c, o)
	if err == nil {
		err = c.readable(ctx, o)
	}
	if err != nil {
		return again, false, err
	}
	again = rollout.Soonest(again, t.Again)
	due, at := c.due(o, t, first)
	again = rollout.Soonest(again, at)
	c.Told.observed(c, t, first)
	c.judge(o, first)
	if !c.wasReady && c.Now().Before(c.spread) {
		again = rollout.Soonest(again, c.spread)
	}
	writes := due.any() && c.Registers && !c.over.Load()
	c.forget("registration", !writes)
	c.forget("certificates", writes || t.Do == nil)
	switch {
	case writes:
		if wait := c.hesitate("registration", due.reason, due.pause); wait > 0 {
			return rollout.Soonest(again, c.Now().Add(wait)), false, nil
		}
		did, err = c.publish(ctx, t, due)
	case due.trust:
		t.Blocked = fmt.Sprintf("%s; call RegisterExtensions", due.reason)
	case t.Do != nil:
		if wait := c.hesitate("certificates", t.Reason, rollout.PauseLong); wait > 0 {
			return rollout.Soonest(again, c.Now().Add(wait)), false, nil
		}
		did, err = true, t.Do(ctx)
	}
	if t.Blocked != "" {
		c.Told.blocked(c.Log, t.Blocked)
	}
	return again, did, err
}

// pause is a write that is put off.
type pause struct {
	what  string
	until time.Time
}

// hesitate returns how much longer an action is put off. All replicas see at once that it is due; the first one does it,
// and the others find it done. Pauses are distributed so that, of any number of replicas, few come first together: a late
// moment is likely, an early one rare.
func (c *Controller) hesitate(kind, what string, most time.Duration) time.Duration {
	if c.Once {
		return 0
	}
	now := c.Now()
	p, there := c.pauses[kind]
	if !there || p.what != what {
		late := 1 + math.Log(1-c.Random())/math.Log(replicasAtMost)
		p = pause{what: what, until: now.Add(time.Duration(float64(most) * max(0, late)))}
		c.pauses[kind] = p
	}
	if left := p.until.Sub(now); left > 0 {
		return left
	}
	delete(c.pauses, kind)
	return 0
}

// forget drops a pause when its action is not due any more: the next time begins with a pause of its own.
func (c *Controller) forget(kind string, over bool) {
	if over {
		delete(c.pauses, kind)
	}
}

// until is how long nothing need be done; at is zero for nothing in sight.
func (c *Controller) until(at time.Time) time.Duration {
	rest := resync - resync/10 + c.jitter(resync/5)
	if at.IsZero() {
		return rest
	}
	return min(max(at.Sub(c.Now()), time.Millisecond), rest)
}

func (c *Controller) jitter(d time.Duration) time.Duration {
	return time.Duration(c.Random() * float64(d))
}

// Obtain returns when there is a certificate.
func (c *Controller) Obtain(ctx context.Context) error {
	o, err := c.observe(ctx)
	if err != nil {
		return err
	}
	return c.Certificates.Obtain(ctx, o, false)
}

// Register writes the configurations because a person has asked for it.
func (c *Controller) Register(ctx context.Context) error {
	return cluster.Retry(ctx, c.Log, "the registration", func(ctx context.Context) error {
		o, err := c.observe(ctx)
		if err != nil {
			return err
		}
		if err := c.Certificates.ObtainTrust(ctx, o); err != nil {
			return err
		}
		if err := c.Order(ctx); err != nil {
			return err
		}
		_, err = c.Reconcile(ctx)
		return err
	})
}

// Stop has no configuration written from now on, because they are about to be removed. It returns when none is being
// written, or when ctx ends.
func (c *Controller) Stop(ctx context.Context) {
	c.over.Store(true)
	select {
	case c.passing <- struct{}{}:
		<-c.passing
	case <-ctx.Done():
	}
}

// Resume takes Stop back.
func (c *Controller) Resume() { c.over.Store(false) }

// ready reports why API servers cannot call this process; nil where they can.
func (c *Controller) ready(err error) {
	if c.Ready == nil {
		return
	}
	if err == nil && c.Now().Before(c.spread) {
		err = errors.New("waiting until API servers have heard of a caBundle")
	}
	if c.wasReady && err != nil {
		return // from then on, judge decides
	}
	c.wasReady = c.wasReady || err == nil
	c.Ready(err)
}
