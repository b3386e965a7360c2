package eirinix

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"code.cloudfoundry.org/eirinix/internal/ca"
	"code.cloudfoundry.org/eirinix/internal/certsource"
)

// follower is the upkeep of certificates that come from elsewhere: what is registered trusts what is served here and
// what is to be served next, then that is served, and what nobody needs any more goes after a while. Every replica has
// one, and they need not know of each other: each adds what it needs, and takes away only what it has not needed, nor
// seen anybody add, for as long as a certificate may be in use.
type follower struct {
	certs  *external
	reg    *registration
	writes bool // may write configurations
	retain time.Duration
	clock  *serverClock
	report *certificateReport

	mu        sync.Mutex // one look at a time
	said      reminder
	wrote     reminder
	strangers ca.Strangers
	trusted   *certsource.Material // what waits and is trusted by what is registered
	since     time.Time
}

// settling is how long a new certificate waits after the API server was seen to trust it: with several API servers,
// others hear of what one has written a moment later, and there is nothing here that both old and new trust.
const settling = 10 * time.Second

// newFollower is called after the connection is made.
func (m *ExtensionManager) newFollower(certs *external, reg *registration, log logr.Logger) *follower {
	o := m.GetManagerOptions()
	return &follower{
		certs: certs, reg: reg, writes: *o.RegisterWebHook || reg.grows, retain: o.retain(), clock: &m.clock,
		report: m.newCertificateReport(certs.namespace, certs.name, reg, log), said: reminder{log: log}, wrote: reminder{log: log},
	}
}

// run works until ctx ends.
func (f *follower) run(ctx context.Context) {
	keepUp(ctx, f, &f.said, f.reg.watches(), f.certs.changed)
}

// tick looks at everything once, does what is due, and tells when to look again.
func (f *follower) tick(ctx context.Context) (next time.Duration, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.certs.leaf() == nil {
		return resync, nil // RegisterExtensions, which has written all that it knows
	}
	defer func() {
		_, waiting := f.certs.pending()
		if err != nil {
			waiting = err
		}
		f.report.failed(waiting)
		f.report.serves(f.certs.leaf(), f.clock)
	}()
	hesitated := false
	for range actionsAtOnce {
		found, err := f.reg.look(ctx)
		if err != nil {
			return 0, err
		}
		live, unseen := found.live, found.unseen
		again := f.takeOver(live, unseen)
		wants, err := f.certs.wants(ctx) // less, once the next one is served
		if err != nil {
			return 0, err
		}
		tolerated, until := f.strangers.Tolerate(live, wants, f.clock.Now(),
			func(*x509.Certificate) time.Duration { return f.retain }, func(*x509.Certificate) bool { return true })
		due, reason := whatIsTrusted(live, wants, tolerated)
		f.report.synced(due == ca.Wait)
		f.report.standing(ctx, found, "")
		until = soonest(soonest(until, again), found.again)
		if due == ca.Wait && found.due {
			reason = found.reason
		} else if due == ca.Wait {
			return waitUntil(until, f.clock), nil
		}
		if !f.writes {
			f.said.say("this replica may not do what the certificates need", fmt.Errorf("%s; call RegisterExtensions", reason))
			return waitUntil(until, f.clock), nil
		}
		if !hesitated { // all replicas see the same
			hesitated = true
			if err := pause(ctx, rand.N(hesitation)); err != nil {
				return 0, err
			}
			continue
		}
		f.wrote.say("registering again", errors.New(reason))
		done, err := f.reg.write(ctx, func(live []byte) []byte {
			if due == lacking {
				return live
			}
			return ca.Common(live, tolerated)
		})
		switch {
		case err != nil:
			return 0, err
		case f.reg.over.Load():
			return resync, nil
		case !done.again.IsZero():
			return waitUntil(soonest(until, done.again), f.clock), nil
		}
	}
	return retryKeeping, nil // others write faster than we look
}

// What is wrong with what is registered.
const (
	lacking   ca.Action = "add"
	excessive ca.Action = "remove"
)

// whatIsTrusted compares what is registered with what must be trusted, and what may be.
func whatIsTrusted(live []ca.Registered, wants, tolerated []byte) (due ca.Action, reason string) {
	for _, l := range live {
		if !ca.Contains(l.Bundle, wants) {
			return lacking, fmt.Sprintf("the caBundle of %s lacks a CA that is in use", l.Name)
		}
	}
	for _, l := range live {
		if !ca.Contains(ca.Bundle(wants, tolerated), l.Bundle) {
			return excessive, fmt.Sprintf("the caBundle of %s holds a CA that nobody has needed for a while", l.Name)
		}
	}
	return ca.Wait, ""
}

// takeOver serves what waits if the API server trusts it, or tells when to look again. Where that cannot be seen, it goes
// by what was trusted before; and a certificate that is nearly over is not worth keeping.
func (f *follower) takeOver(live []ca.Registered, unseen bool) (again time.Time) {
	next, _ := f.certs.pending()
	if next == nil {
		return time.Time{}
	}
	if unseen {
		live = []ca.Registered{{Name: "what was registered last", Bundle: f.certs.served.Load().Bundle}}
	}
	now, doubt := f.clock.Now(), f.certs.trustedLike(next, live)
	if spent := f.certs.spent(); !now.Before(spent) {
		because := "the last one is nearly over"
		if doubt != nil {
			because += ", though the API server may not trust this one yet: " + doubt.Error()
		}
		f.certs.swap(next, because)
		return time.Time{}
	} else if doubt != nil {
		f.trusted = nil
		f.said.say("a new certificate waits until the API server trusts it", doubt)
		return spent
	}
	if f.trusted != next {
		f.trusted, f.since = next, now
	}
	settled := f.since.Add(min(settling, f.retain/10))
	if now.Before(settled) {
		return settled
	}
	f.certs.swap(next, "the API server trusts it")
	return time.Time{}
}

// soonest is the earlier of two times, either of which may be zero for never.
func soonest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
