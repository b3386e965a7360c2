package controller_test

// This file runs the specs. It is the world of the models: its clock, its chances, and the processes that live in it. A process is a
// coroutine that runs shipped code. Each of its requests is a moment at which others may act. The seed decides all.

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"code.cloudfoundry.org/eirinix/internal/controller"
)

// suite is for bubbles, which Ginkgo does not know.
var suite *testing.T

func TestController(t *testing.T) {
	suite = t
	RegisterFailHandler(Fail)
	RunSpecs(t, "internal/controller")
}

// bubble runs f where real pauses, as those of certsecret.Store between two tries, take no time. A model's own time is
// another one, which its world decides. f must not fail a spec: it returns the result to check.
func bubble[T any](f func() T) (result T) {
	synctest.Test(suite, func(*testing.T) { result = f() })
	return result
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

var dawn = time.Date(2030, time.March, 1, 12, 0, 0, 0, time.UTC)

// pace is how fast things happen in a world.
type pace struct {
	slow    float64       // share of actions, and of deliveries to a watch, that are held up
	longest time.Duration // for up to so long
	flaky   float64       // share of requests that fail, and of answers that get lost
}

type world struct {
	pace
	seed       uint64
	rng        *rand.Rand
	began, now time.Time
	events     []*event
	processes  []*process
	objects    []*object
	versions   int // of objects; a backup takes them back
	made       int // objects
	writes     int // by processes
	steps      int
	violation  string
	trace      []entry

	check func()                                   // after each step
	wrote func(p *process, o *object, last stored) // after each write; last is the version before
}

// event is something that happens to the world, once or again and again.
type event struct {
	every time.Duration // on average; 0: once
	at    time.Time
	do    func()
}

type entry struct {
	at     time.Time
	who    fmt.Stringer
	format string
	args   []any
}

func newWorld(p pace, seed uint64) *world {
	return &world{pace: p, seed: seed, rng: rand.New(rand.NewPCG(seed, seed)), began: dawn, now: dawn, check: func() {}, wrote: func(*process, *object, stored) {}}
}

func (w *world) every(mean time.Duration, do func()) {
	if mean > 0 {
		w.events = append(w.events, &event{every: mean, at: w.now.Add(w.after(mean)), do: do})
	}
}

// in has something happen once, after d.
func (w *world) in(d time.Duration, do func()) {
	w.events = append(w.events, &event{at: w.now.Add(d), do: do})
}

func (w *world) after(mean time.Duration) time.Duration {
	return time.Duration(w.rng.ExpFloat64() * float64(mean))
}

func (w *world) chance(share float64) bool { return share > 0 && w.rng.Float64() < share }

// short is the time that an action takes when nothing holds it up.
func (w *world) short() time.Duration {
	return time.Duration(1 + w.rng.Int64N(int64(20*time.Millisecond)))
}

// delay is the time that an action takes.
func (w *world) delay() time.Duration {
	switch {
	case w.chance(w.slow):
		return time.Duration(w.rng.Int64N(int64(w.longest)))
	case w.chance(0.1):
		return time.Duration(w.rng.Int64N(int64(min(5*time.Second, w.longest))))
	}
	return w.short()
}

// step runs the next event, and reports whether every invariant still holds.
func (w *world) step() bool {
	w.steps++
	at, do := w.now.AddDate(100, 0, 0), func() {}
	consider := func(t time.Time, f func()) {
		if !t.IsZero() && t.Before(at) {
			at, do = t, f
		}
	}
	for i, e := range w.events {
		consider(e.at, func() {
			if e.every == 0 {
				w.events = slices.Delete(w.events, i, i+1)
			} else {
				e.at = e.at.Add(w.after(e.every))
			}
			e.do()
		})
	}
	for _, p := range w.processes {
		consider(p.wakeAt, p.goOn)
		consider(p.newsAt, p.hear)
		consider(p.alarm, p.rings)
	}
	if at.After(w.now) {
		w.now = at
	}
	do()
	w.check()
	return w.violation == ""
}

func (w *world) fail(format string, args ...any) {
	if w.violation == "" {
		w.violation = fmt.Sprintf(format, args...)
	}
}

const traced = 80

func (w *world) note(who fmt.Stringer, format string, args ...any) {
	if len(w.trace) >= 4*traced {
		w.trace = slices.Clone(w.trace[len(w.trace)-traced:])
	}
	w.trace = append(w.trace, entry{w.now, who, format, args})
}

// String describes the last events.
func (w *world) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d, step %d: %s\n", w.seed, w.steps, w.violation)
	for _, e := range w.trace[max(0, len(w.trace)-traced):] {
		fmt.Fprintf(&b, "%14s  %-12s %s\n", e.at.Sub(w.began).Round(time.Millisecond), e.who, fmt.Sprintf(e.format, e.args...))
	}
	return b.String()
}

// stop ends all coroutines.
func (w *world) stop() {
	for _, p := range slices.Clone(w.processes) {
		p.crash()
	}
}

type outside string

func (o outside) String() string { return string(o) }

const fate = outside("fate")

var errCrashed = errors.New("the process has crashed")

// process is one that runs, from its start to its end. An object of the API server that it watches has a view.
type process struct {
	w           *world
	name        string
	skew        time.Duration // of its clock
	alive, idle bool
	poked       bool // there is news
	wakeAt      time.Time
	newsAt      time.Time // when a watch delivers next; zero for never
	alarm       time.Time // when rings is called; zero for never
	rings       func()
	until       time.Time // the deadline of its requests; zero for none
	views       map[*object]*view
	polls       bool             // it may not watch the Lease
	back        time.Time        // until then, an outage cuts it off
	silent      time.Time        // what cluster.API says of the last outage that is over for it
	limit       func() time.Time // by when it must go on; zero for any time
	ended       func()           // it has ended by itself
	next        func() (time.Duration, bool)
	kill        func()
	yield       func(time.Duration) bool
}

func (p *process) String() string { return p.name }

// now is the time by the process's clock.
func (p *process) now() time.Time { return p.w.now.Add(p.skew) }

// newProcess makes a process, which begins with start.
func (w *world) newProcess(name string, skew time.Duration) *process {
	return &process{w: w, name: name, skew: skew, limit: func() time.Time { return time.Time{} }, rings: func() {}, ended: func() {}}
}

func (p *process) start(run func()) {
	p.alive, p.wakeAt = true, p.w.now.Add(p.w.short())
	p.list()
	p.next, p.kill = iter.Pull(func(yield func(time.Duration) bool) {
		p.yield = yield
		run()
	})
	p.w.processes = append(p.w.processes, p)
}

// crash ends it at whatever it is doing.
func (p *process) crash() {
	p.alive, p.newsAt, p.alarm = false, time.Time{}, time.Time{}
	p.kill()
	p.w.processes = slices.DeleteFunc(p.w.processes, func(other *process) bool { return other == p })
}

func (p *process) goOn() {
	d, ok := p.next()
	if !ok {
		p.crash()
		p.ended()
		return
	}
	p.wakeAt = p.w.now.Add(d)
	if p.idle && p.poked {
		p.wakeAt = p.w.now.Add(p.w.short())
	}
}

// poke wakes it if it sleeps.
func (p *process) poke() {
	p.poked = true
	if soon := p.w.now.Add(p.w.short()); p.idle && soon.Before(p.wakeAt) {
		p.wakeAt = soon
	}
}

// act is a moment at which others may act, for as long as it pleases the world.
func (p *process) act(deed string) error { return p.wait(deed, p.w.delay()) }

func (p *process) wait(deed string, d time.Duration) error {
	if !p.alive {
		return errCrashed
	}
	if by := p.limit(); !by.IsZero() {
		if left := by.Sub(p.w.now); d > left {
			d = max(left, p.w.short())
		}
	}
	if !p.yield(d) {
		p.alive = false
		return errCrashed
	}
	p.w.note(p, deed)
	return nil
}

// sleep waits until something changes, or for d.
func (p *process) sleep(d time.Duration) error {
	if !p.alive {
		return errCrashed
	}
	if p.poked {
		d = p.w.short()
	}
	p.idle = true
	err := p.wait("looks", d)
	p.idle, p.poked = false, false
	return err
}

// reconcile is one turn of Controller.Run: passes, and the time until the next ones. Deadlines are those that are shipped,
// in the world's time.
func (p *process) reconcile(c *controller.Controller, failures *int) (next time.Duration, err error) {
	p.until = p.w.now.Add(controller.PassTimeout)
	next, err = c.Reconcile(context.Background())
	p.until = time.Time{}
	if err == nil {
		*failures = 0
		return next, nil
	}
	p.w.note(p, "fails: %v", err)
	delay := min(controller.FirstRetry<<min(*failures, 10), controller.LastRetry)
	*failures++
	return min(next, delay+time.Duration(p.w.rng.Int64N(int64(delay/5)))), err
}

// rotationSteps and rolloutSteps are of all worlds together.
const (
	rotationSteps = 12_000
	rolloutSteps  = 6_000
)

// volume returns how many steps a model has in this run, and its first seed. EIRINIX_SOAK=1 makes it two million, with
// other seeds each time (-ginkgo.seed repeats one run); another number is that of steps. EIRINIX_STEPS is the number of
// steps of a shorter run, which is the same each time.
func volume(usual int) (steps int, seed uint64) {
	if n, err := strconv.Atoi(os.Getenv("EIRINIX_STEPS")); err == nil && n > 0 {
		return n, 1
	}
	text := os.Getenv("EIRINIX_SOAK")
	if text == "" {
		return usual, 1
	}
	steps, seed = 2_000_000, uint64(GinkgoRandomSeed())<<16
	if n, err := strconv.Atoi(text); err == nil && n > 1 {
		steps = n
	}
	return steps, seed
}

// holds expects that nothing was violated.
func holds(w *world) {
	GinkgoHelper()
	Expect(w.violation).To(BeEmpty(), w.String)
}

// is reports a violation that was meant to come about.
func is(w *world, as string) {
	GinkgoHelper()
	Expect(w.violation).To(ContainSubstring(as), w.String)
	AddReportEntry(fmt.Sprintf("seed %d, step %d: %s", w.seed, w.steps, w.violation), ReportEntryVisibilityFailureOrVerbose)
}
