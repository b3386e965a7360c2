// Package controller reconciles the certificate Secret, the webhook configurations with their caBundles, and the Lease
// with the versions of the program. Every replica runs one Controller, without leader election. Every write is guarded
// by the resourceVersion that its decision was based on. A replica that loses a race observes again.
//
// A pass observes all objects in cached copies that watches keep current, decides, and does at most one write. Before
// it writes a configuration, it rereads first the configurations and then the Secret. With this order, a replica with a
// late cache cannot revert the write of a faster one.
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
	"code.cloudfoundry.org/eirinix/internal/wait"
	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

const (
	// resync is the interval between passes when nothing happens. Such a pass costs no request.
	resync = time.Minute

	// passTimeout bounds one Reconcile.
	passTimeout = 30 * time.Second

	// firstRetry and lastRetry bound the delay after a failed pass.
	firstRetry, lastRetry = time.Second, 30 * time.Second

	// actionsAtOnce bounds the writes in a row of one Reconcile. A whole rotation needs fewer.
	actionsAtOnce = 16

	// replicasAtMost is the number of replicas that the distribution of pauses is designed for.
	replicasAtMost = 1000
)

// Config holds the settings and dependencies of a Controller. It does not change.
type Config struct {
	Cache          cluster.Cache
	Configurations []webhookconf.Configuration
	Leases         rollout.Leases // nil where versions do not matter: then no Lease is read or written
	Namespace      string         // of the Lease
	LeaseName      string

	Certificates Certificates
	Desired      webhookconf.Desired // Version names this version
	Record       rollout.Record      // of this version: Target and Steps

	Registers bool        // writes webhook configurations
	Lives     bool        // is a replica of its version: it serves and registers
	After     *Controller // the Controller that this one replaces in this process, after the Run of that one has ended; nil for none
	OnlyTrust bool        // writes caBundles, and no other field of a configuration
	Once      bool        // runs in a short-lived process without history; it removes a CA that is not needed later than a replica does

	Retain time.Duration // how long a CA that is not needed stays trusted
	Lag    time.Duration // how long an API server may take to observe a write

	Serve  func(map[string]rollout.Route) // receives the paths of other versions; nil in a process that serves nothing
	Ready  func(error)                    // called after each pass with the reason why API servers cannot call this process, or with nil; the field is nil if none ever calls it
	Report *Report
	Log    logr.Logger

	API    *cluster.API     // reports outages; nil for none
	Now    func() time.Time // nil means time.Now
	Random func() float64   // in [0, 1); nil means rand.Float64
}

// Controller is the reconciler of one process. Its methods are safe for concurrent use.
type Controller struct {
	Config

	removing atomic.Bool   // configurations are being removed and must not be written
	unknown  atomic.Bool   // this process has no right to read the Lease
	refused  atomic.Bool   // another program registered first
	left     atomic.Bool   // this replica is stopping and no longer answers the questions of other versions
	passing  chan struct{} // holds one element during a pass, so that passes run one at a time

	// The fields below belong to the pass.
	seen              map[string]rollout.Sighting
	versions          rollout.Versions
	routes            map[string]rollout.Route
	pauses            map[string]pause
	drift, trustDrift *webhookconf.Drift // drift of the entries, and of the caBundles
	managers          map[string]string  // the last other client that wrote a configuration, by the configuration's name
	registered        map[string]bool    // configurations that have been in order at least once
	spread            time.Time          // until then, an API server may not trust a CA that was added to a caBundle in use
	doubtedAt         time.Time          // since when API servers have trusted other replicas and not this one
	unreached         int                // how often in a row the registration itself has rejected the write of the Lease
	wasReady          bool
}

// New returns a Controller.
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
		Config: c, wasReady: c.After != nil && c.After.wasReady, passing: make(chan struct{}, 1), pauses: map[string]pause{}, managers: map[string]string{}, registered: map[string]bool{},
		drift: webhookconf.NewDrift(troubleMost), trustDrift: webhookconf.NewDrift(trustTroubleMost),
	}
	made.removing.Store(c.After != nil && c.After.removing.Load())
	made.After = nil // no other state of it is kept
	return made
}

// Run makes passes until ctx ends: after each change of an object, when something is due, and at least once a minute.
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
			c.Report.logLimited(c.Log, "could not reconcile certificates and registration; retrying", err.Error())
			queue.AddAfter(item, wait.Jittered(failures.When(item)))
			continue
		}
		failures.Forget(item)
		queue.AddAfter(item, again)
	}
}

// Reconcile makes passes until nothing is due. It returns how long to wait before the next one.
func (c *Controller) Reconcile(ctx context.Context) (again time.Duration, err error) {
	select {
	case c.passing <- struct{}{}:
		defer func() { <-c.passing }()
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, passTimeout, fmt.Errorf("not done within %s", passTimeout))
	defer cancel()
	defer func() { c.Report.failed(err) }()
	for range actionsAtOnce {
		at, did, err := c.pass(ctx)
		switch {
		case !c.Once && (apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err)):
			c.Log.V(1).Info("another replica was faster", "reason", err.Error())
			return c.jitter(100 * time.Millisecond), nil
		case err != nil:
			if !wait.Transient(err) && !wait.Vanished(err) && !errors.Is(err, certsecret.ErrNotReady) {
				err = &wait.RefusedError{Err: err}
			}
			c.ready(err)
			return 0, err
		case !did:
			return c.until(at), nil
		}
	}
	return c.jitter(firstRetry), nil
}

// pass observes the objects, decides, and does at most one write.
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
	c.Report.observed(c, t, first)
	c.judge(o, first)
	if !c.wasReady && c.Now().Before(c.spread) {
		again = rollout.Soonest(again, c.spread)
	}
	writes := due.any() && c.Registers && !c.removing.Load()
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
		c.Report.blocked(c.Log, t.Blocked)
	}
	return again, did, err
}

// pause is a write that is delayed.
type pause struct {
	what  string
	until time.Time
}

// hesitate returns how much longer an action is delayed. All replicas observe at once that it is due. The first one
// does it, and the others find it done. The distribution of the pauses makes a late moment likely and an early one
// rare, so that few replicas act together, however many run.
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

// forget drops a pause whose action is no longer due. The next action begins with a pause of its own.
func (c *Controller) forget(kind string, over bool) {
	if over {
		delete(c.pauses, kind)
	}
}

// until returns the delay before the next pass. A zero at means that nothing is scheduled.
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

// Obtain returns once there is a certificate.
func (c *Controller) Obtain(ctx context.Context) error {
	o, err := c.observe(ctx)
	if err != nil {
		return err
	}
	return c.Certificates.Obtain(ctx, o, false)
}

// Register writes the configurations on the request of a user.
func (c *Controller) Register(ctx context.Context) error {
	return wait.Retry(ctx, c.Log, "the registration", func(ctx context.Context) error {
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

// Stop prevents further writes of the configurations, because they are about to be removed. It returns when no write is
// in flight, or when ctx ends.
func (c *Controller) Stop(ctx context.Context) {
	c.removing.Store(true)
	select {
	case c.passing <- struct{}{}:
		<-c.passing
	case <-ctx.Done():
	}
}

// Resume reverts Stop.
func (c *Controller) Resume() { c.removing.Store(false) }

// ready reports why API servers cannot call this process. A nil err means that they can.
func (c *Controller) ready(err error) {
	if c.Ready == nil {
		return
	}
	if err == nil && c.Now().Before(c.spread) {
		err = errors.New("waiting until API servers have observed a caBundle")
	}
	if c.wasReady && err != nil {
		return // once it has been ready, judge decides
	}
	c.wasReady = c.wasReady || err == nil
	c.Ready(err)
}
