package webhookconf

// This file counts how often what this process writes is undone. One edit, and a few, are healed at once: they are
// accidents. A tool that applies its own copy of the configuration again and again is stronger than we are, because it
// can be told what to apply and we cannot, so it is not fought for ever: the repair comes later and later, and the
// user is told who does it.

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// soon is how shortly after a repair the next harm counts as an answer to it.
	soon = time.Minute

	// lately is the same for what is told, not for what is done: harm that comes every few minutes is repaired at
	// once, but somebody should know.
	lately = 15 * time.Minute

	// sameHarm is how often the same harm is repaired at once. It comes from a tool after that.
	sameHarm = 5

	// anyHarm is how often harm of any kind is.
	anyHarm = 20

	// rememberHarm bounds the memory.
	rememberHarm = 64
)

// delays are those before a repair, when repairs are put off.
type delays struct{ first, most time.Duration }

var (
	// putOff is for edited entries and for a configuration that is deleted.
	putOff = delays{5 * time.Second, 10 * time.Minute}

	// putOffTrust is for caBundles, without which every call fails: it is cheap to write them, and dear not to.
	putOffTrust = delays{2 * time.Second, 15 * time.Second}
)

// Contest tells of a configuration that somebody else keeps changing.
type Contest struct {
	Harm  string    // what he does, such as "edited"
	Times int       // how often he did, shortly after each repair
	By    string    // his name as a field manager; empty when it is not known, as after a deletion
	Until time.Time // the repair is put off until then; zero when it is not
}

// harm is one time that what stands was undone.
type harm struct {
	what  string        // equal for equal harm
	after time.Duration // how long things had been in order
}

// contest remembers harm of one configuration. It is for one goroutine at a time.
type contest struct {
	delays
	// anyCounts says that harm of another kind each time counts, too.
	anyCounts bool

	all     []harm
	since   time.Time // when the harm that has not been repaired yet was first seen; zero for none
	inOrder time.Time // since when things were in order before; zero when they have not been yet
}

// harmed notes what was found wrong, and tells how often that happened and when it is to be repaired: now, or later.
// What is wrong from the start is nobody's answer, and is not counted.
func (c *contest) harmed(now time.Time, what string) (times int, at time.Time) {
	if c.inOrder.IsZero() {
		return 0, now
	}
	if c.since.IsZero() {
		c.all = append(c.all, harm{what: what, after: now.Sub(c.inOrder)})
		c.all = c.all[max(0, len(c.all)-rememberHarm):]
	}
	if c.since.IsZero() || c.since.After(now) {
		c.since = now
	}
	c.all[len(c.all)-1].what = what // it may have got worse
	return c.count(what, lately), c.since.Add(c.delay(what))
}

// healed notes that things are in order.
func (c *contest) healed(now time.Time) {
	if !c.since.IsZero() || c.inOrder.IsZero() || c.inOrder.After(now) {
		c.inOrder = now
	}
	c.since = time.Time{}
}

// count is how often the harm was done, each time within the period after the repair. The first time is no answer to
// anything, but what is answered to.
func (c *contest) count(what string, within time.Duration) int {
	return c.run(within, func(h harm) bool { return h.what == what })
}

func (c *contest) run(within time.Duration, counts func(harm) bool) int {
	n := 0
	for _, h := range slices.Backward(c.all) {
		if counts(h) {
			n++
		}
		if h.after > within {
			break
		}
	}
	return n
}

func (c *contest) delay(what string) time.Duration {
	level := c.count(what, soon) - sameHarm
	if c.anyCounts {
		level = max(level, c.run(soon, func(harm) bool { return true })-anyHarm)
	}
	if level <= 0 {
		return 0
	}
	return min(c.first<<min(level-1, 16), c.most)
}

// told is what the user is told; nil while it may be an accident.
func (c *contest) told(now time.Time, kind string, times int, at time.Time, by string) *Contest {
	late := now.Before(at)
	if times <= sameHarm && !late {
		return nil
	}
	told := &Contest{Harm: kind, Times: times, By: by}
	if late {
		told.Until = at
	}
	return told
}

// lastManager is who wrote the object last beside us, going by its managed fields; empty when nothing tells.
func lastManager(fields []metav1.ManagedFieldsEntry) string {
	var last metav1.ManagedFieldsEntry
	for _, f := range fields {
		if f.Manager == fieldManager || f.Time == nil {
			continue
		}
		if last.Time == nil || last.Time.Before(f.Time) {
			last = f
		}
	}
	return last.Manager
}
