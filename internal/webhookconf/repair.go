package webhookconf

// This file tells when what was undone is written again, and what the user hears of it.

import (
	"bytes"
	"time"
)

// repair notes that what stands there is not what should, and tells when it is to be repaired.
func (r *registrarOf[C, W]) repair(found C, now time.Time) (time.Time, *Contest) {
	var none C
	what, kind, by := "", "deleted", ""
	if found != none {
		what, kind, by = r.kind.Digest(*r.kind.webhooks(found)), "edited", lastManager(found.GetManagedFields())
	}
	times, at := r.steps.harmed(now, what)
	return at, r.tell(now, r.steps.told(now, kind, times, at, by))
}

// undone notes that caBundles are wrong, and tells whether that happens so often that it is not repaired now.
func (r *registrarOf[C, W]) undone(existing C, live [][]byte, p *planned) bool {
	found := bytes.Join(live, nil)
	if r.known == nil || bytes.Equal(found, r.known) {
		return false // what is to be trusted has changed, not what stands there
	}
	times, at := r.trust.harmed(p.now, string(found))
	if c := r.tell(p.now, r.trust.told(p.now, "caBundle", times, at, lastManager(existing.GetManagedFields()))); c != nil {
		p.Contest = c
	}
	if !p.now.Before(at) {
		return false
	}
	p.At = at
	return true
}

// tell remembers what is told.
func (r *registrarOf[C, W]) tell(now time.Time, c *Contest) *Contest {
	if c != nil {
		r.told, r.toldAt = c, now
	}
	return c
}

// telling is what was told, for as long as more of it would be the same story.
func (r *registrarOf[C, W]) telling(now time.Time) *Contest {
	if r.told == nil || now.Sub(r.toldAt) > lately {
		return nil
	}
	c := *r.told
	if !now.Before(c.Until) {
		c.Until = time.Time{}
	}
	return &c
}
