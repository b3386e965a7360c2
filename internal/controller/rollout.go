package controller

// This file reads and writes the Lease through which the versions of a program know each other. Package rollout
// decides.

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"code.cloudfoundry.org/eirinix/internal/ca"
	"code.cloudfoundry.org/eirinix/internal/cluster"
	"code.cloudfoundry.org/eirinix/internal/rollout"
	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

// noVersions is logged if this process has no right to the Lease.
const noVersions = "versions of this program cannot see each other; grant get, list, watch, create and update on the Lease"

// maxUnreached is how many writes of the Lease in a row the registration itself may reject before this version
// replaces it. Such a registration covers this namespace and leads to no replica.
const maxUnreached = 3

// answersWithin is the number of seconds in which a replica answers that polls the Lease.
const answersWithin = 45

// blindWait is how long a version that can read the Lease no more waits for the one that stood in it: those that do not know
// this version cannot answer its calls. A right that has come back is noticed within ten minutes.
const blindWait = 15 * time.Minute

// callsUs reports whether an error is that of a failed call of this program's own webhooks.
func (c *Controller) callsUs(err error) bool {
	return strings.Contains(err.Error(), "failed calling webhook") && strings.Contains(err.Error(), c.registration.Options.WebhookName("")+`"`)
}

// AnotherProgramError reports that another program lives under the same fingerprint.
type AnotherProgramError struct{ Lease, Theirs, Ours string }

func (e *AnotherProgramError) Error() string {
	return fmt.Sprintf("another program uses the same fingerprint and Secret: API servers call it at %s, and this one at %s (Lease %s); "+
		"stop that program first, or, if both are to run, give this one an OperatorFingerprint of its own", e.Theirs, e.Ours, e.Lease)
}

// record returns the initial record of this version.
func (c *Controller) record(o *Observation) rollout.Record {
	r := rollout.Record{Target: c.registration.Options.Target.Program(), Steps: c.registration.Desired(o.found(), nil).Registered()}
	if c.Cache.Polls(c.Lease.Empty()) {
		r.Within = answersWithin
	}
	return r
}

// rollout takes part in the rollout of versions. It returns the version whose registration takes precedence, which is
// this one if versions cannot be known.
func (c *Controller) rollout(ctx context.Context, o *Observation) (first string, again time.Time, did bool, err error) {
	version := c.registration.Version
	if c.Lease == nil || c.Once { // a short-lived process registers on request; see Order
		return version, again, false, nil
	}
	lease := c.Lease.Empty()
	err = c.Cache.Get(ctx, lease)
	switch {
	case errors.Is(err, cluster.ErrUnseen):
		// The other replicas have the same rights, and their watches begin again after a pause.
		c.unknown, c.blindUntil = true, c.Now().Add(cluster.Rewatched)
		c.Report.logLimited(c.Log, noVersions, c.Lease.String())
		if first, again = c.versions.First(webhookconf.Standing(o.found())), c.sawLease.Add(blindWait); first == "" || !c.Now().Before(again) {
			return version, time.Time{}, false, nil
		}
		return first, again, false, nil
	case apierrors.IsNotFound(err):
		lease = c.Lease.Empty()
	case err != nil:
		return "", again, false, err
	}
	now, found := c.Now(), rollout.Read(lease.GetAnnotations())
	c.unknown, c.sawLease = false, now
	proves := c.API.SilentUntil()
	if c.blindUntil.After(proves) {
		proves = c.blindUntil
	}
	c.seen = rollout.Observe(c.seen, found, now, proves)
	c.versions = found
	standing := webhookconf.Standing(o.found())
	c.standing = standing
	if first = found.First(standing); !c.Serving || c.removing.Load() || c.stopping.Load() {
		return first, again, false, nil
	}
	d := rollout.Decide(rollout.Input{Version: version, Record: c.record(o), Found: found, Standing: standing, Seen: c.seen, Now: now})
	if d.Other != "" {
		other := &AnotherProgramError{Lease: c.Lease.String(), Theirs: d.Other, Ours: c.registration.Options.Target.Program()}
		if d.Stands {
			c.refused = true
			return "", again, false, other
		}
		c.Report.newcomer(c.Log, other)
	}
	again = d.RequeueAt
	c.forget("versions", d.Next == nil)
	if d.Next == nil {
		return first, again, false, nil
	}
	if wait := c.hesitate("versions", d.Why, d.Pause); d.Pause > 0 && wait > 0 {
		return first, rollout.Soonest(again, now.Add(wait)), false, nil
	}
	err = c.Lease.Write(ctx, lease, d.Next)
	c.Cache.Answered(lease)
	c.forget("versions", err == nil || conflicts(err))
	if err == nil || !c.callsUs(err) { // a lost race proves nothing about the registration
		c.unreached = 0
	} else if c.unreached++; c.unreached >= maxUnreached {
		return version, again, false, nil // no replica answers its calls, and it rejects even this write
	}
	if err != nil {
		return "", again, false, err
	}
	c.Log.V(1).Info("recorded this version in the Lease", "reason", d.Why, "version", version)
	return first, again, true, nil
}

// serve serves the paths that the Lease records, and those that the API server calls. A failure is tried again with the
// next pass.
func (c *Controller) serve(o Observation) (again time.Time) {
	if c.inForce = webhookconf.InForce(o.found()); c.Serve == nil {
		return again
	}
	routes, again := c.paths(c.registration.Version)
	if c.routes != nil && reflect.DeepEqual(routes, c.routes) {
		return again
	}
	if err := c.Serve(routes); err != nil {
		c.Report.logLimited(c.Log, "the paths of another version cannot be served", err.Error())
		return c.Now().Add(firstRetry)
	}
	c.routes = routes
	return again
}

// paths returns the paths that a replica of a version serves, and when they change if nothing else does.
func (c *Controller) paths(version string) (routes map[string]rollout.Route, again time.Time) {
	routes, again = c.versions.Routes(version, c.seen, c.Now())
	return rollout.With(routes, c.inForce, c.desired.Kept), again
}

// stillFirst rereads the Lease, after the configurations have been reread. It returns a conflict if the registration of
// another version takes precedence. Otherwise a replica with a late copy of the Lease could revert that version's
// write.
func (c *Controller) stillFirst(ctx context.Context, o Observation) error {
	if c.Lease == nil || c.unknown || c.Once || c.unreached >= maxUnreached {
		return nil
	}
	err := c.Lease.StillFirst(ctx, c.registration.Version, webhookconf.Standing(o.found()))
	if apierrors.IsForbidden(err) {
		return nil // the copy, which a watch feeds, has decided
	}
	return err
}

// Leave records in the Lease that this replica stops, after which nothing is registered any more. Other replicas of its
// version contradict the record. If there are none, the next version waits only briefly, and after the last replica not
// at all.
func (c *Controller) Leave(ctx context.Context, last bool) error {
	c.stopping.Store(true)
	if err := c.enter(ctx); err != nil {
		return err
	}
	defer c.exit()
	return c.announce(ctx, last || c.refused)
}

func (c *Controller) announce(ctx context.Context, last bool) error {
	if !c.Serving || c.Lease == nil || c.unknown {
		return nil
	}
	version := c.registration.Version
	return c.Lease.Change(ctx, func(found rollout.Versions) rollout.Versions { return found.Leave(version, last) })
}

// Order gives this version's registration precedence over all others, on the request of a user. Without rights on the
// Lease it does nothing.
func (c *Controller) Order(ctx context.Context) error {
	o, err := c.observe(ctx)
	if err != nil {
		return err
	}
	err = c.Lease.Change(ctx, func(found rollout.Versions) rollout.Versions {
		return found.Order(c.registration.Version, c.record(&o))
	})
	if apierrors.IsForbidden(err) {
		c.Report.logLimited(c.Log, noVersions, c.Lease.String())
		return nil
	}
	return err
}

// recordTrust records in the Lease which CAs all caBundles hold now, where they come from a source. Those of the program's own CA
// are in its Secret.
func (c *Controller) recordTrust(ctx context.Context) error {
	if _, ok := c.Certificates.(*Issued); !ok || c.Lease == nil {
		return nil
	}
	o, err := c.observe(ctx)
	if err != nil || len(o.Live) == 0 {
		return err
	}
	bundle := o.Live[0].Bundle
	for _, l := range o.Live {
		bundle = ca.Common(bundle, l.Bundle)
	}
	err = c.Lease.Change(ctx, func(found rollout.Versions) rollout.Versions { return found.Trust(c.registration.Version, bundle) })
	if apierrors.IsForbidden(err) {
		return nil // Order has said so
	}
	return err
}
