// Package controller reconciles the certificate Secret, the webhook configurations with their caBundles, and the Lease
// with the versions of the program. Every replica runs one Controller, without leader election. Every write is guarded
// by the resourceVersion that its decision was based on. A replica that loses a race observes again.
//
// A pass observes all objects in cached copies that watches keep current, decides, and does at most one write. Before
// it writes a configuration, it rereads first the configurations and then the Secret. With this order, a replica with a
// late cache cannot revert the write of a faster one.
package controller

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"

	"code.cloudfoundry.org/eirinix/internal/certsecret"
	"code.cloudfoundry.org/eirinix/internal/cluster"
	"code.cloudfoundry.org/eirinix/internal/rollout"
	"code.cloudfoundry.org/eirinix/internal/wait"
	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

const (
	// passTimeout bounds one Reconcile.
	passTimeout = 30 * time.Second

	// firstRetry and lastRetry bound the delay after a failed pass.
	firstRetry, lastRetry = time.Second, 30 * time.Second

	// announceTimeout bounds a request with which a process ends: it records that a replica leaves its version, or takes back
	// half of a registration.
	announceTimeout = 2 * time.Second

	// actionsAtOnce bounds the writes in a row of one Reconcile. A whole rotation needs fewer.
	actionsAtOnce = 16

	// maxReplicas is the number of replicas that the distribution of pauses is designed for.
	maxReplicas = 1000
)

// Config holds the settings and dependencies of a Controller. It does not change.
type Config struct {
	Cache          cluster.Cache
	Configurations []webhookconf.Configuration
	Lease          *rollout.Lease // nil where versions do not matter: then no Lease is read or written

	Certificates Certificates
	Registration webhookconf.Registration // of this version, until Replace

	Registers bool // writes webhook configurations
	Serving   bool // is a replica of its version: it serves and registers
	OnlyTrust bool // writes caBundles, and no other field of a configuration; in a short-lived process
	Once      bool // runs in a short-lived process without history; it removes a CA that is not needed later than a replica does

	// Owner reads the Namespace that is to own the configurations. nil leaves the owners as they are.
	Owner func(context.Context) (*metav1.OwnerReference, error)

	Retain time.Duration // how long a CA that is not needed stays trusted
	Resync time.Duration // between passes when nothing happens, which cost no request; 0 means a minute

	Serve  func(map[string]rollout.Route) error // receives the recorded paths; nil in a process that serves nothing
	Ready  func(error)                          // called after each pass with the reason why API servers cannot call this process, or with nil; the field is nil if none ever calls it
	Report *Report
	Log    logr.Logger

	API    interface{ SilentUntil() time.Time } // a cluster.API, which reports outages; nil for none
	Now    func() time.Time                     // nil means time.Now
	Random func() float64                       // in [0, 1); nil means rand.Float64
}

// Certificates provides this process's serving certificate and the CAs that verify it, from one of two origins: a CA of
// our own (OwnCA) and an external issuer (Issued). GetCertificate and Verify are safe for concurrent use; the other
// methods are for one goroutine at a time.
type Certificates interface {
	// String names the origin in logs and errors.
	fmt.Stringer
	// Obtain returns once it has a certificate to serve. With wait set, it waits for a certificate that another process
	// makes, and logs the reason for the wait.
	Obtain(ctx context.Context, o Observation, wait bool) error
	// ObtainTrust returns once the CAs to trust are known, for a program that serves nothing.
	ObtainTrust(ctx context.Context, o Observation) error
	// Run keeps the certificate up to date until ctx ends. It can be called before Obtain.
	Run(ctx context.Context)
	GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error)
	// Verify reports why an API server that trusts this caBundle rejects the served certificate.
	Verify(bundle []byte) error
	// Certificate returns the served certificate, or nil if there is none yet.
	Certificate() *x509.Certificate

	look(ctx context.Context, c *Controller, o Observation) (Plan, error)
	// need rereads the CAs that every caBundle must hold. It is called after the configurations have been read.
	need(ctx context.Context, o Observation) ([]byte, error)
	// verifyRecorded is Verify against the caBundle that the registering half of a deployment has recorded: in the Secret, or
	// in the Lease, whose record it is given, if there is one.
	verifyRecorded(inLease []byte) error
	// othersTrusted reports whether API servers with this caBundle trust the certificates of other replicas.
	othersTrusted(bundle []byte, now time.Time) bool
}

// Plan holds the actions that the certificates require of the control loop.
type Plan struct {
	Want      []byte // CAs that every caBundle must hold
	Tolerated []byte // further CAs that a caBundle can hold
	Missing   string // why a caBundle must be written at once; empty if no write is needed
	Surplus   string // why a CA can leave a caBundle
	Retain    func(live []byte) []byte
	Asks      func(*x509.Certificate) bool // selects the CAs about which a replica asks the others before they leave a caBundle
	// Distrusted removes CAs that are not needed from the caBundles at once.
	Distrusted bool

	Apply     func(context.Context) error // the next step of a rotation, or a correction of the Secret; nil for none
	Reason    string
	Blocked   string            // the action that this process has no right to take, and the remedy
	RequeueAt time.Time         // when to look again
	Waiting   error             // why no newer certificate is served
	own       *certsecret.State // the state of a CA of our own; nil for an external issuer
}

// Controller is the reconciler of one process. Its methods are safe for concurrent use.
type Controller struct {
	Config

	removing atomic.Bool   // configurations are being removed and must not be written
	stopping atomic.Bool   // this replica is stopping and no longer answers the probes of other versions
	passing  chan struct{} // holds one element during a pass, so that passes run one at a time
	state    atomic.Pointer[State]

	// The fields below belong to the pass.
	standing          string    // the version that stands in the configurations
	unknown           bool      // this process has no right to read the Lease
	sawLease          time.Time // when it was read last
	blindUntil        time.Time // until then, silence of other versions proves nothing
	refused           bool      // the registration of another program stands
	registration      webhookconf.Registration
	desired           webhookconf.Desired  // what is registered of it, as the configurations were read last
	inForce           map[string][]string  // steps that the API server calls, by path
	noted             map[string]time.Time // since when a CA is seen to be noted as not needed, by hash
	ownerDue          bool                 // the Namespace is to be read
	conflicts         int                  // in a row
	seen              map[string]rollout.Observation
	versions          rollout.Versions
	routes            map[string]rollout.Route
	pauses            map[string]pause
	drift, trustDrift *drift            // drift of the entries, and of the caBundles and conversions
	surplusDrift      *drift            // of each CA that is not needed, by its hash: that several leave is no drift
	managers          map[string]string // the last other client that wrote a configuration, by the configuration's name
	registered        map[string]bool   // configurations that have been in order at least once
	spread            time.Time         // until then, an API server may use a caBundle of before, which did not trust this replica
	undone            time.Time         // until then, no entries are written, because half of them was refused
	doubtedAt         time.Time         // since when API servers have trusted other replicas and not this one
	unreached         int               // how often in a row the registration itself has rejected the write of the Lease
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
	c.Resync = cmp.Or(c.Resync, time.Minute)
	if c.API == nil {
		c.API = &cluster.API{}
	}
	made := &Controller{
		Config: c, ownerDue: c.Owner != nil, passing: make(chan struct{}, 1), managers: map[string]string{}, registered: map[string]bool{},
		trustDrift: newDrift(trustTroubleMost), surplusDrift: newDrift(trustTroubleMost),
	}
	made.begin(c.Registration)
	return made
}

// begin starts anew with the registration of another version.
func (c *Controller) begin(r webhookconf.Registration) {
	c.registration, c.desired, c.routes = r, r.Desired(nil, nil), nil
	c.seen, c.pauses, c.drift = nil, map[string]pause{}, newDrift(maxTrouble)
	c.state.Store(&State{c.versions, "", c.desired})
}

// Replace changes the registration of this process. If it is that of another version, the process leaves the version that
// it was of; last means that no other replica is. serve is called first, with the recorded paths: it serves the steps.
// Once this process stops, Replace does nothing, because no process would answer for what it registers.
func (c *Controller) Replace(ctx context.Context, r webhookconf.Registration, last bool, serve func(map[string]rollout.Route) error) error {
	if err := c.enter(ctx); err != nil {
		return err
	}
	defer c.exit()
	if c.stopping.Load() || c.removing.Load() {
		return nil
	}
	routes, _ := c.paths(r.Version)
	if err := serve(routes); err != nil {
		return err
	}
	r.Options.OwnedBy = c.registration.Options.OwnedBy
	if r.Version == c.registration.Version {
		c.registration, c.routes = r, nil
		c.drift.stale = true // this process desires something else from now on
		return nil
	}
	leaving, cancel := context.WithTimeout(context.WithoutCancel(ctx), announceTimeout)
	defer cancel()
	if err := c.announce(leaving, last); err != nil {
		c.Log.Info("could not record in the Lease that this replica has changed its steps; other versions notice within 20 s", "reason", err.Error())
	}
	c.begin(r)
	return nil
}

// enter and exit surround what belongs to the pass.
func (c *Controller) enter(ctx context.Context) error {
	select {
	case c.passing <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (c *Controller) exit() { <-c.passing }

// State is what the last pass has observed.
type State struct {
	Versions rollout.Versions
	First    string // the version whose registration takes precedence; "" if no version is live
	Desired  webhookconf.Desired
}

// State returns what the last pass has observed. It does not wait for one that is under way, which can last long where a
// diagnosis is wanted most.
func (c *Controller) State() State { return *c.state.Load() }

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
			queue.AddAfter(item, min(again, wait.Jittered(failures.When(item))))
			continue
		}
		failures.Forget(item)
		queue.AddAfter(item, again)
	}
}

// Reconcile makes passes until nothing is due. It returns how long to wait before the next one: after a failure, at most.
func (c *Controller) Reconcile(ctx context.Context) (again time.Duration, err error) {
	if err := c.enter(ctx); err != nil {
		return 0, err
	}
	defer c.exit()
	ctx, cancel := context.WithTimeoutCause(ctx, passTimeout, fmt.Errorf("not done within %s", passTimeout))
	defer cancel()
	defer func() { c.Report.failed(err) }()
	for range actionsAtOnce {
		at, did, err := c.pass(ctx)
		switch {
		case !c.Once && conflicts(err):
			c.Log.V(1).Info("another replica was faster", "reason", err.Error())
			c.conflicts = min(c.conflicts+1, 10) // until a copy of the object arrives, which starts a pass too
			return c.jitter(50 * time.Millisecond << c.conflicts), nil
		case err != nil:
			if !wait.Transient(err) && !wait.Vanished(err) && !errors.Is(err, certsecret.ErrNotReady) && !errors.Is(err, certsecret.ErrImmutable) {
				err = &wait.RefusedError{Err: err}
			}
			c.ready(err)
			return c.until(at), err
		case !did:
			c.conflicts = 0
			return c.until(at), nil
		case !c.Once && !c.OnlyTrust:
			return c.until(c.Now().Add(firstRetry)), nil // the copy of what was written arrives, and starts a pass
		}
	}
	return c.jitter(firstRetry), nil
}

// conflicts reports whether a write was refused because of another one.
func conflicts(err error) bool { return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) }

// pass observes the objects, decides, and does at most one write. When it fails, what is due again is the part of this version
// in the rollout: it must not wait for a write that fails and fails.
func (c *Controller) pass(ctx context.Context) (again time.Time, did bool, err error) {
	o, err := c.observe(ctx)
	first, answers, did, leaseErr := c.rollout(ctx, &o)
	defer func() {
		if err != nil {
			again = answers
		}
	}()
	again = rollout.Soonest(answers, c.serve(o))
	switch {
	case did || err == nil && (conflicts(leaseErr) || errors.As(leaseErr, new(*AnotherProgramError))):
		return again, did, leaseErr
	case err != nil:
		return again, false, errors.Join(err, leaseErr)
	}
	if c.ownerDue {
		c.readOwner(ctx)
	}
	c.aim(&o)
	c.state.Store(&State{c.versions, first, c.desired})
	o.claimed = c.claimed(o)
	plan, err := c.Certificates.look(ctx, c, o)
	if err == nil {
		err = c.readable(ctx, o)
	}
	if err != nil {
		return again, false, err
	}
	again = rollout.Soonest(again, plan.RequeueAt)
	due, at := c.due(o, plan, first)
	again = rollout.Soonest(again, at)
	c.Report.observed(c, plan, first)
	if leaseErr == nil {
		c.judge(o, first)
	}
	if !c.wasReady && c.Now().Before(c.spread) {
		again = rollout.Soonest(again, c.spread)
	}
	writes := (due.trust || len(due.entries) > 0) && c.Registers && !c.removing.Load()
	c.forget("registration", !writes)
	c.forget("certificates", writes || plan.Apply == nil)
	switch {
	case writes:
		if wait := c.hesitate("registration", due.reason, due.pause); wait > 0 {
			again = rollout.Soonest(again, c.Now().Add(wait))
			break
		}
		if did, err = c.publish(ctx, plan, due); err == nil && !did && plan.Apply != nil {
			did, err = true, plan.Apply(ctx)
		}
		c.forget("registration", err == nil || conflicts(err))
	case due.trust:
		plan.Blocked = fmt.Sprintf("%s; call RegisterExtensions", due.reason)
	case plan.Apply != nil:
		if wait := c.hesitate("certificates", plan.Reason, rollout.PauseLong); wait > 0 {
			again = rollout.Soonest(again, c.Now().Add(wait))
			break
		}
		did, err = true, plan.Apply(ctx)
		c.forget("certificates", err == nil || conflicts(err))
	}
	if plan.Blocked != "" {
		c.Report.blocked(c.Log, plan.Blocked)
	}
	if err == nil && !did {
		err = leaseErr // it stops nothing but the entries
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
		late := 1 + math.Log(1-c.Random())/math.Log(maxReplicas)
		p = pause{what: what, until: now.Add(time.Duration(float64(most) * max(0, late)))}
		c.pauses[kind] = p
	}
	return max(0, p.until.Sub(now))
}

// forget drops the pause of an action that is done, or no longer due, or for which another replica was faster. The next action
// begins with a pause of its own. An action that has failed is repeated without one, because a pass that only waits would end
// the row of failures, and the delays between them would not grow.
func (c *Controller) forget(kind string, over bool) {
	if over {
		delete(c.pauses, kind)
	}
}

// until returns the delay before the next pass. A zero at means that nothing is scheduled.
func (c *Controller) until(at time.Time) time.Duration {
	rest := c.Resync - c.Resync/10 + c.jitter(c.Resync/5)
	if at.IsZero() {
		return rest
	}
	return min(max(at.Sub(c.Now()), time.Millisecond), rest)
}

// byOwnClock returns the moment at which c.Now is as far on as another clock, which shows now, at that time; zero for zero.
// Certificates have a clock that may be behind for ever. Its times, taken for those of c.Now, would be over, and the next
// pass due at once.
func (c *Controller) byOwnClock(at, now time.Time) time.Time {
	if at.IsZero() {
		return at
	}
	return c.Now().Add(at.Sub(now))
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
		if _, err = c.Reconcile(ctx); err != nil {
			return err
		}
		return c.recordTrust(ctx)
	})
}

// Stop prevents further writes of the configurations, because they are about to be removed. It returns when no write is
// in flight, or when ctx ends.
func (c *Controller) Stop(ctx context.Context) {
	c.removing.Store(true)
	if c.enter(ctx) == nil {
		c.exit()
	}
}

// Resume reverts Stop.
func (c *Controller) Resume() { c.removing.Store(false) }
