package controller

// This file observes the webhook configurations, decides which of their fields are due, and writes them. It delays repairs
// that other clients keep reverting. A single edit, or a few, are repaired at once because they are accidents. An operator
// can reconfigure a tool that keeps applying its own copy, but cannot reconfigure this process.

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"code.cloudfoundry.org/eirinix/internal/ca"
	"code.cloudfoundry.org/eirinix/internal/certsecret"
	"code.cloudfoundry.org/eirinix/internal/cluster"
	"code.cloudfoundry.org/eirinix/internal/list"
	"code.cloudfoundry.org/eirinix/internal/rollout"
	"code.cloudfoundry.org/eirinix/internal/wait"
	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

const (
	// maxTrouble and trustTroubleMost bound the delay of a repair. Without its caBundle every call fails.
	maxTrouble, trustTroubleMost = 10 * time.Minute, 15 * time.Second

	// contestedAfter is the number of repairs in a row after which they are reported: a tool keeps reverting them.
	contestedAfter = 5
)

// observed is one configuration as the pass has read it.
type observed struct {
	webhookconf.Configuration
	found webhookconf.Found
	holds bool // this version has entries of its kind
}

// Observation is the state of both webhook configurations at one moment.
type Observation struct {
	Live   []ca.Registered // the caBundles in force, and an empty one for a missing configuration
	Unseen bool            // this process has no right to read a configuration that holds entries of this version

	claimed []string // see Controller.claimed

	all []observed
	now func(context.Context) (Observation, error) // reads the API server
}

// pinnedNow returns what the configurations pin at the API server.
func (o Observation) pinnedNow(ctx context.Context) (certsecret.Pinned, error) {
	live, err := o.now(ctx)
	return webhookconf.Pinned(live.found()), err
}

// lent returns a configuration with the caBundles of the others, and the notes on their CAs, if it has none of its own.
// Replicas with a certificate of another CA answer the calls of its first entries too.
func (o Observation) lent(found webhookconf.Found) webhookconf.Found {
	for _, conf := range o.all {
		if ca.Bundle(found.Bundles...) == nil {
			found.Bundles, found.Unneeded = conf.found.Bundles, conf.found.Unneeded
		}
	}
	return found
}

func (o Observation) found() []webhookconf.Found {
	return list.Of(o.all, func(conf observed) webhookconf.Found { return conf.found })
}

// aim decides what is to be registered, given what is in force.
func (c *Controller) aim(o *Observation) {
	var declares func(string) bool
	if !c.Once {
		declares = c.versions.Declares(c.registration.Version)
	}
	found := o.found()
	c.registration = c.registration.Seen(found)
	c.desired = c.registration.Desired(found, declares)
	for i := range o.all {
		o.all[i].holds = o.all[i].Holds(c.desired.Entries)
	}
}

func (c *Controller) observe(ctx context.Context) (Observation, error) {
	return c.look(ctx, func(ctx context.Context, conf webhookconf.Configuration) (webhookconf.Found, error) {
		return conf.Read(ctx, c.Cache.Get)
	})
}

// Observe returns both configurations, for a process without a Controller.
func Observe(ctx context.Context, cache cluster.Cache, configurations []webhookconf.Configuration) (Observation, error) {
	return New(Config{Cache: cache, Configurations: configurations}).observe(ctx)
}

// reread returns both configurations from the API server.
func (c *Controller) reread(ctx context.Context) (Observation, error) {
	return c.look(ctx, func(ctx context.Context, conf webhookconf.Configuration) (webhookconf.Found, error) {
		if errors.Is(c.Cache.Get(ctx, conf.Object()), cluster.ErrUnseen) {
			return webhookconf.Found{}, cluster.ErrUnseen
		}
		return conf.Get(ctx)
	})
}

func (c *Controller) look(ctx context.Context, read func(context.Context, webhookconf.Configuration) (webhookconf.Found, error)) (o Observation, err error) {
	o.now = c.reread
	for _, conf := range c.Configurations {
		found, err := read(ctx, conf)
		switch {
		case errors.Is(err, cluster.ErrUnseen) || apierrors.IsForbidden(err):
			o.Unseen = o.Unseen || conf.Holds(c.desired.Entries)
			continue
		case err != nil:
			return o, err
		}
		o.all = append(o.all, observed{Configuration: conf, found: found})
		for _, bundle := range found.Bundles {
			o.Live = append(o.Live, ca.Registered{Name: conf.String(), Bundle: bundle})
		}
	}
	if c.OnlyTrust && len(o.all) < len(c.Configurations) && len(o.Live) == 0 {
		o.Unseen = true // no readable configuration shows a registration
	}
	return o, nil
}

// readable returns the API server's error if this process registers, but cannot read a configuration that holds its
// entries. One that can be read again by now is followed again at once, and with it all that was refused.
func (c *Controller) readable(ctx context.Context, o Observation) error {
	if !o.Unseen || !c.Registers || c.OnlyTrust {
		return nil
	}
	for _, conf := range c.Configurations {
		if conf.Holds(c.desired.Entries) {
			if _, err := conf.Get(ctx); err != nil {
				return err
			}
			c.Cache.Answered(conf.Object())
		}
	}
	return nil
}

// work holds the parts of the configurations that are due to be written.
type work struct {
	entries map[string]bool // by configuration: whether the entries of this version are due
	trust   bool            // caBundles are due
	reason  string
	pause   time.Duration // the longest random delay of the write
}

// absent returns the objects that hold entries of this version, do not exist, and are created by their user.
func (o Observation) absent() (all []string) {
	for _, conf := range o.all {
		if conf.holds && !conf.found.Exists && !conf.Creates() {
			all = append(all, conf.String())
		}
	}
	return all
}

// due decides which parts are due to be written, and when to look again at a delayed repair.
func (c *Controller) due(o Observation, plan Plan, first string) (w work, again time.Time) {
	w.entries, w.pause = map[string]bool{}, rollout.PauseLong
	absent := o.absent()
	if c.Report.Waits(ForDefinition, len(absent) > 0); len(absent) > 0 {
		c.Report.logLimited(c.Log, "waiting for objects that this program does not create", strings.Join(absent, ", "))
	}
	now, lacks := c.Now(), plan.Missing != ""
	if now.Before(c.undone) {
		again = c.undone
	}
	var surplus []string
	if !lacks && (c.Once || plan.Surplus != "" || len(c.noted) > 0) {
		surplus = c.outgrown(o, plan)
	}
	outgrown := len(surplus) > 0
	trustAt, trustTimes := c.trustDrift.of(string(plan.Want)).look("caBundle", !lacks, now)
	surplusAt, surplusTimes := c.surplusDrift.lookAtEach(surplus, now)
	for _, conf := range o.all {
		if !c.registersIn(conf, first) {
			continue
		}
		ok, drift := conf.found.Intact(c.desired), c.drift
		if !conf.Creates() { // without its conversion, a definition serves wrong data
			drift = c.trustDrift
		}
		at, times := drift.look(conf.Name(), ok, now)
		c.Report.contested(c, conf, max(times, trustTimes, surplusTimes))
		switch {
		case ok:
		case now.Before(at):
			again = rollout.Soonest(again, at)
		default:
			w.entries[conf.Name()] = true
			w.reason, w.pause = fmt.Sprintf("%s does not hold the entries of this version", conf), min(w.pause, rollout.PauseShort)
			if !conf.found.Exists || c.Once {
				w.pause = 0
			}
		}
	}
	switch {
	case lacks && now.Before(trustAt):
		again = rollout.Soonest(again, trustAt)
	case lacks:
		w.trust, w.reason = true, plan.Missing
		if !c.wasReady { // replicas that start, where nothing pins a CA of theirs, replace each other's in the Secret until then
			w.pause = 0
		}
	case outgrown && c.Once:
		w.trust, w.reason = true, "a CA is not needed"
	case outgrown && now.Before(surplusAt):
		again = rollout.Soonest(again, surplusAt)
	case outgrown:
		w.trust, w.reason = true, cmp.Or(plan.Surplus, "a CA that is in use is noted as not needed")
	case plan.Surplus != "": // replicas are being asked
		again = rollout.Soonest(again, now.Add(min(webhookconf.AskedFor, c.Retain)))
	}
	return w, again
}

// claimed notes which CAs other replicas are asked about. It returns the hashes of those that one of them needs: their notes
// have gone.
func (c *Controller) claimed(o Observation) (claimed []string) {
	before := c.noted
	c.noted = map[string]time.Time{}
	for _, conf := range o.all {
		for hash := range conf.found.Unneeded {
			c.noted[hash] = c.Now()
		}
	}
	for hash, since := range before {
		if _, still := c.noted[hash]; still {
			c.noted[hash] = since
		} else {
			claimed = append(claimed, hash)
		}
	}
	return claimed
}

// outgrown returns the hashes of the CAs that should leave a caBundle, or a note on which should come or go. The empty one is that of
// all that is no CA of a caBundle.
func (c *Controller) outgrown(o Observation, plan Plan) (hashes []string) {
	for _, conf := range o.all {
		bundle, unneeded := c.trusted(conf.found, plan.Want, plan)
		live, before := ca.Bundle(conf.found.Bundles...), len(hashes)
		for _, certificate := range ca.SplitBundle(live) {
			hash := ca.HashOf(certificate)
			if !ca.Contains(bundle, ca.EncodeCertificate(certificate)) || !unneeded[hash].Equal(conf.found.Unneeded[hash]) {
				hashes = append(hashes, hash)
			}
		}
		if len(hashes) == before && (!ca.Contains(bundle, live) || len(unneeded) != len(conf.found.Unneeded)) {
			hashes = append(hashes, "")
		}
	}
	return hashes
}

// registersIn reports whether this version's entries belong in a configuration.
func (c *Controller) registersIn(conf observed, first string) bool {
	if !c.Registers || c.OnlyTrust || first != c.desired.Version || c.removing.Load() || c.Now().Before(c.undone) {
		return false
	}
	if c.unknown && c.registered[conf.Name()] && conf.found.Version != c.desired.Version && conf.found.Version != "" {
		return false // versions are unknown here, and another one has registered after this one
	}
	return conf.holds || conf.found.Exists && len(conf.found.Bundles) > 0
}

// publish writes the configurations: the entries that are due, and every caBundle. It reports whether anything changed,
// since the cached copies behind the decision may have been late.
func (c *Controller) publish(ctx context.Context, plan Plan, w work) (did bool, err error) {
	o, err := c.reread(ctx)
	if err == nil {
		err = c.readable(ctx, o)
	}
	if err != nil {
		return did, err
	}
	if len(w.entries) > 0 {
		if err := c.stillFirst(ctx, o); err != nil {
			return did, err
		}
		if c.Owner != nil {
			c.readOwner(ctx)
		}
	}
	c.aim(&o)
	need, err := c.Certificates.need(ctx, o)
	if err != nil {
		return did, err
	}
	var created []webhookconf.Configuration
	for _, conf := range o.all {
		var change webhookconf.Change
		if w.entries[conf.Name()] {
			change.Entries, conf.found = &c.desired, o.lent(conf.found)
		}
		change.Bundle, change.Unneeded = c.trusted(conf.found, need, plan)
		_, outcome, err := conf.Put(ctx, conf.found, change)
		c.Cache.Answered(conf.Object())
		if apierrors.IsForbidden(err) && !conf.holds {
			continue // it holds no entry of this version, so no right is needed
		}
		if err != nil {
			for _, half := range created { // half a registration would reject objects forever
				if wait.Transient(err) || conflicts(err) || wait.Vanished(err) {
					break // a later pass completes it
				}
				if undo := c.undo(ctx, half); undo != nil {
					err = errors.Join(err, undo)
				}
			}
			return did, webhookconf.ExplainSize(err, change.Bundle, len(c.desired.Entries))
		}
		if outcome == webhookconf.Created || outcome == webhookconf.Updated {
			did = true
			if outcome == webhookconf.Created {
				created = append(created, conf)
			}
			c.Log.Info("registered", "configuration", conf.String(), "outcome", outcome, "calls", c.desired.Options.Target.String(), "reason", w.reason)
			if manager := conf.found.LastManager(); manager != "" {
				c.managers[conf.Name()] = manager
			}
		}
		c.registered[conf.Name()] = true
	}
	return did, nil
}

// undo takes back half of a registration, also if this process ends meanwhile. The next try comes some time later: the changes that
// this process makes wake it.
func (c *Controller) undo(ctx context.Context, half webhookconf.Configuration) error {
	c.undone = c.Now().Add(lastRetry)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), announceTimeout)
	defer cancel()
	_, err := half.Delete(ctx, nil)
	return err
}

// readOwner reads the Namespace that is to own the configurations. One that was deleted and made again has another UID. A
// missing one is read again with each pass.
func (c *Controller) readOwner(ctx context.Context) {
	owner, err := c.Owner(ctx)
	if c.ownerDue = err != nil; err == nil || apierrors.IsNotFound(err) {
		c.registration.Options.OwnedBy = owner
	}
}

// trusted returns the caBundle of a configuration: the needed CAs, and those of its current CAs that another process
// may still need.
func (c *Controller) trusted(found webhookconf.Found, need []byte, plan Plan) (bundle []byte, unneeded map[string]time.Time) {
	live := ca.Bundle(found.Bundles...)
	if !c.Once {
		kept := ca.Common(live, plan.Tolerated)
		if plan.Retain != nil {
			kept = ca.Bundle(kept, plan.Retain(live))
		}
		return found.Outgrow(need, kept, c.noted, plan.Asks, min(webhookconf.AskedFor, c.Retain), c.Now())
	}
	retain := c.Retain
	if plan.Distrusted {
		retain = 0
	}
	return found.Outgrow(need, nil, found.Unneeded, func(*x509.Certificate) bool { return true }, retain, c.Now())
}

// Remove deletes the configurations, except those that another version has registered and answers for. left reports whether
// there are such.
func (c *Controller) Remove(ctx context.Context) (left bool, err error) {
	if err := c.enter(ctx); err != nil {
		return false, err
	}
	defer c.exit()
	for _, conf := range c.Configurations {
		outcome, err := conf.Delete(ctx, func(version string) bool {
			answers := c.answers(ctx, version)
			left = left || answers
			return answers
		})
		if apierrors.IsForbidden(err) && !conf.Holds(c.desired.Entries) {
			if found, err := conf.Get(ctx); err != nil || !found.Exists {
				continue // as far as can be seen there is nothing to remove, so no right is needed
			}
		}
		if err != nil {
			return left, err
		}
		if outcome != webhookconf.Absent {
			c.Log.Info("unregistered", "configuration", conf.String(), "outcome", outcome)
		}
	}
	return left, nil
}

// answers reports whether replicas of another version, which stands, answer for what it registers, by the Lease as the API
// server has it: a copy can still hold the version that a change of the steps has just left. If it does not answer, the last
// pass decides.
func (c *Controller) answers(ctx context.Context, standing string) bool {
	if c.Lease == nil || c.unknown || standing == c.registration.Version {
		return false
	}
	err := c.Lease.StillFirst(ctx, c.registration.Version, standing)
	if err == nil || conflicts(err) {
		return err != nil
	}
	seen, known := c.versions[standing]
	return known && !seen.Removed
}
