package controller

// This file knows whether a program is ready, and why not.

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"code.cloudfoundry.org/eirinix/internal/ca"
	"code.cloudfoundry.org/eirinix/internal/lograte"
	"code.cloudfoundry.org/eirinix/internal/wait"
	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

// unreadyAfter is how long this process may be the only one that API servers do not trust before it becomes unready.
const unreadyAfter = 30 * time.Second

// ErrStopped is the reason why a program that stops is not ready.
var ErrStopped = errors.New("the Manager was stopped")

// Readiness is whether the program is ready. It is safe for concurrent use.
type Readiness struct {
	first chan struct{} // is closed once the program is ready for the first time

	mu  sync.Mutex
	why error // the reason why the program is not ready; nil once it is
}

// NewReadiness returns the Readiness of a program that is not ready, for this reason.
func NewReadiness(why error) *Readiness {
	return &Readiness{first: make(chan struct{}), why: why}
}

// First returns a channel that is closed once the program is ready for the first time.
func (r *Readiness) First() <-chan struct{} { return r.first }

// Begin makes the program ready for the first time. It must be called only once.
func (r *Readiness) Begin() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.why = nil
	close(r.first)
}

// Lack records the reason why the program is not ready. Before it is first ready, this is the condition that it waits for.
func (r *Readiness) Lack(why error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.why = why
}

// trusted records whether API servers trust the serving certificate: doubt is nil if they do, else the reason. It has
// no effect before the program was first ready, nor once it stops.
func (r *Readiness) trusted(doubt error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-r.first:
		if !errors.Is(r.why, ErrStopped) {
			r.why = doubt
		}
	default:
	}
}

// Check returns nil if the program is ready, else the reason why it is not.
func (r *Readiness) Check() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.why
}

// Report returns a function with which the controller reports whether API servers can call this process: nil if they can,
// else the reason why not. reached is closed the first time that they can. A final error before that is sent to failed.
// The function is for one goroutine at a time.
func (r *Readiness) Report(log logr.Logger, reached chan<- struct{}, failed chan<- error) func(error) {
	was, ended, waits := false, false, lograte.Limiter{}
	return func(err error) {
		_, replaced := errors.AsType[*AnotherProgramError](err)
		switch {
		case replaced && !ended, !was && isFinal(err): // the former also ends a program that is ready
			was, ended = true, ended || replaced
			failed <- fmt.Errorf("eirinix: %w", err)
		case was:
			r.trusted(err)
		case err == nil:
			was = true
			close(reached)
		default:
			r.Lack(err)
			waits.Info(log, "not ready: serving, but not registered", err.Error())
		}
	}
}

// isFinal reports whether an error ends the program: another program uses its fingerprint, or it lacks a right that it
// must have.
func isFinal(err error) bool {
	_, owned := errors.AsType[*webhookconf.OwnedElsewhereError](err)
	_, refused := errors.AsType[*wait.RefusedError](err)
	return owned || refused
}

// ready reports why API servers cannot call this process. A nil err means that they can.
func (c *Controller) ready(err error) {
	if c.Ready == nil {
		return
	}
	if err == nil && c.Now().Before(c.spread) {
		err = errors.New("waiting until API servers have observed a caBundle")
	}
	if _, ends := errors.AsType[*AnotherProgramError](err); c.wasReady && err != nil && !ends {
		return // once it has been ready, judge decides
	}
	c.wasReady = c.wasReady || err == nil
	c.Ready(err)
}

// judge reports why API servers cannot call this process. Until it has been ready once, everything must be in place.
// After that, a caBundle that trusts no replica makes none unready: it is repaired, and having no endpoint at all would
// be worse. If API servers trust other replicas and not this one, this one becomes unready after unreadyAfter.
func (c *Controller) judge(o Observation, first string) {
	if !c.wasReady {
		recorded := c.versions.Trusted()
		distrusted := o.Unseen && recorded != nil && c.Certificates.verifyRecorded(recorded) != nil
		for _, l := range o.Live { // an empty one can be used to call no replica
			distrusted = distrusted || len(ca.SplitBundle(l.Bundle)) > 0 && c.Certificates.Verify(l.Bundle) != nil
		}
		if distrusted {
			c.spread = c.Now().Add(min(settling, c.Retain/10)) // calls that have begun go on with the caBundle of then
		}
		c.ready(c.verify(o, first))
		return
	}
	var doubt error
	now := c.Now()
	for _, l := range o.Live {
		if err := c.Certificates.Verify(l.Bundle); err != nil && c.Certificates.othersTrusted(l.Bundle, now) {
			doubt = fmt.Errorf("%s: %w", l.Name, err)
		}
	}
	switch {
	case c.Ready == nil:
	case doubt == nil:
		c.doubtedAt = time.Time{}
		c.Ready(nil)
	case c.doubtedAt.IsZero():
		c.doubtedAt = now
	case now.Sub(c.doubtedAt) > unreadyAfter:
		c.Ready(doubt)
	}
}

// verify returns the reason why API servers cannot call this process yet.
func (c *Controller) verify(o Observation, first string) error {
	if c.Serving && !c.unknown && c.Lease != nil && c.versions[c.desired.Version].Ordinal == 0 {
		return errors.New("this version has no record in the Lease yet")
	}
	switch {
	case o.Unseen && c.Registers && !c.OnlyTrust: // it has just been allowed to read them, and the next pass registers
		return errors.New("the configurations have not been read yet")
	case o.Unseen:
		return c.Certificates.verifyRecorded(c.versions.Trusted())
	}
	other := first != c.desired.Version && first != ""
	ours := c.desired.Options.Target.Program()
	if target := c.versions[first].Target; other && c.Serving && target != ours {
		return fmt.Errorf("API servers call %s until it is known whether the process there still runs", target)
	}
	if target := c.versions[c.standing].Target; other && c.Serving && target != "" && target != ours {
		return fmt.Errorf("API servers still call %s, whose process has gone", target)
	}
	for _, conf := range o.all {
		missing := conf.found.Missing(c.desired)
		switch {
		case other && (len(conf.found.Bundles) > 0 || c.seen[first].Serving || !c.Serving): // it is in place or put back, and this process answers its calls
		case conf.holds && !conf.found.Exists && !conf.Creates(): // it is waited for
		case conf.holds && !conf.found.Exists && c.Registers:
			return fmt.Errorf("%s does not exist yet", conf)
		case conf.holds && !conf.found.Exists:
			return fmt.Errorf("%s does not exist; call RegisterExtensions", conf)
		case c.Serving && !conf.found.Intact(c.desired):
			return fmt.Errorf("%s does not hold the entries of this version yet", conf)
		case conf.holds && len(missing) > 0:
			return fmt.Errorf("%s does not hold %s; call RegisterExtensions of this version", conf, strings.Join(missing, ", "))
		}
		for _, bundle := range conf.found.Bundles {
			if err := c.Certificates.Verify(bundle); err != nil {
				return fmt.Errorf("%s holds another caBundle than the %s; a Manager that registers repairs it, and RegisterExtensions in a split deployment: %w", conf, c.Certificates, err)
			}
		}
	}
	return nil
}
