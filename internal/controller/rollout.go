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

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"code.cloudfoundry.org/eirinix/internal/cluster"
	"code.cloudfoundry.org/eirinix/internal/rollout"
)

// noVersions is logged if this process has no right to the Lease.
const noVersions = "versions of this program cannot see each other; grant get, list, watch, create and update on the Lease"

// unreachedAtMost is how many writes of the Lease in a row the registration itself may reject before this version
// replaces it. Such a registration covers this namespace and leads to no replica.
const unreachedAtMost = 3

// callsUs reports whether an error is that of a failed call of this program's own webhooks.
func (c *Controller) callsUs(err error) bool {
	return strings.Contains(err.Error(), "failed calling webhook") && strings.Contains(err.Error(), "."+c.Desired.Options.Fingerprint+".")
}

// AnotherProgramError reports that another program lives under the same fingerprint.
type AnotherProgramError struct{ Lease, Theirs, Ours string }

func (e *AnotherProgramError) Error() string {
	return fmt.Sprintf("another program uses the same fingerprint and Secret: API servers call it at %s, and this one at %s (Lease %s); "+
		"set ManagerOptions.OperatorFingerprint to another name, or stop that program", e.Theirs, e.Ours, e.Lease)
}

func (c *Controller) lease() *rollout.Lease {
	return &rollout.Lease{Client: c.Leases, Namespace: c.Namespace, Name: c.LeaseName, Saw: func(l *coordinationv1.Lease) { c.Cache.Saw(l) }}
}

// rollout takes part in the rollout of versions. It returns the version whose registration takes precedence, which is
// this one if versions cannot be known.
func (c *Controller) rollout(ctx context.Context) (first string, again time.Time, did bool, err error) {
	if c.Leases == nil || c.Once { // a short-lived process registers on request; see Order
		return c.Desired.Version, again, false, nil
	}
	lease := c.lease().Empty()
	err = c.Cache.Get(ctx, lease)
	switch {
	case errors.Is(err, cluster.ErrUnseen):
		c.unknown.Store(true)
		c.Report.logLimited(c.Log, noVersions, c.lease().String())
		return c.Desired.Version, again, false, nil
	case apierrors.IsNotFound(err):
		lease.Annotations = nil
	case err != nil:
		return "", again, false, err
	}
	c.unknown.Store(false)
	now := c.Now()
	found := rollout.Read(lease.Annotations)
	from := now // the silence of other versions counts from here
	if until := c.API.SilentUntil(); until.After(now) {
		from = until
	}
	c.seen = rollout.Sight(c.seen, found, from)
	c.versions = found
	if routes := found.Routes(c.Desired.Version); c.Serve != nil && (c.routes == nil || !reflect.DeepEqual(routes, c.routes)) {
		c.routes = routes
		c.Serve(routes)
	}
	if !c.Lives || c.removing.Load() || c.left.Load() {
		return found.First(), again, false, nil
	}
	d := rollout.Decide(rollout.Input{Version: c.Desired.Version, Record: c.Record, Found: found, Seen: c.seen, Now: now})
	if d.Other != "" {
		c.refused.Store(true)
		return "", again, false, &AnotherProgramError{Lease: c.lease().String(), Theirs: d.Other, Ours: c.Record.Target}
	}
	again = d.Again
	c.forget("versions", d.Next == nil)
	if d.Next == nil {
		return found.First(), again, false, nil
	}
	if wait := c.hesitate("versions", d.Why, d.Pause); d.Pause > 0 && wait > 0 {
		return found.First(), rollout.Soonest(again, now.Add(wait)), false, nil
	}
	err = c.lease().Write(ctx, lease, d.Next)
	if err == nil || !c.callsUs(err) { // a lost race proves nothing about the registration
		c.unreached = 0
	} else if c.unreached++; c.unreached >= unreachedAtMost {
		return c.Desired.Version, again, false, nil // no replica answers its calls, and it rejects even this write
	}
	if err != nil {
		return "", again, false, err
	}
	c.Log.V(1).Info("recorded this version in the Lease", "reason", d.Why, "version", c.Desired.Version)
	return found.First(), again, true, nil
}

// stillFirst rereads the Lease, after the configurations have been reread. It returns a conflict if the registration of
// another version takes precedence. Otherwise a replica with a late copy of the Lease could revert that version's
// write.
func (c *Controller) stillFirst(ctx context.Context) error {
	if c.Leases == nil || c.unknown.Load() || c.Once || c.unreached >= unreachedAtMost {
		return nil
	}
	return c.lease().StillFirst(ctx, c.Desired.Version)
}

// Leave records in the Lease that this replica stops. Other replicas of its version contradict the record. If there are
// none, the next version waits only briefly, and after the last replica not at all.
func (c *Controller) Leave(ctx context.Context, last bool) error {
	if !c.Lives || c.Leases == nil || c.unknown.Load() {
		return nil
	}
	c.left.Store(true)
	return c.lease().Change(ctx, func(found rollout.Versions) rollout.Versions {
		return found.Leave(c.Desired.Version, last || c.refused.Load())
	})
}

// Order gives this version's registration precedence over all others, on the request of a user. Without rights on the
// Lease it does nothing.
func (c *Controller) Order(ctx context.Context) error {
	err := c.lease().Change(ctx, func(found rollout.Versions) rollout.Versions { return found.Order(c.Desired.Version, c.Record) })
	if apierrors.IsForbidden(err) {
		c.Report.logLimited(c.Log, noVersions, c.lease().String())
		return nil
	}
	return err
}

// Versions returns the versions that the last pass has observed.
func (c *Controller) Versions(ctx context.Context) rollout.Versions {
	select {
	case c.passing <- struct{}{}:
		defer func() { <-c.passing }()
		return c.versions
	case <-ctx.Done():
		return nil
	}
}
