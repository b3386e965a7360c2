package certsecret_test

// The world of the model: its clock, its chances, what is done to it, and what must always hold.

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"code.cloudfoundry.org/eirinix/internal/certsecret"
)

// rules of the protocol, each of which can be broken on purpose.
type rules struct {
	uncrossed    bool // cross-signed certificates are not sent along
	unconfirmed  bool // the next CA is activated whatever is registered
	prunesAtOnce bool // the old CA is not retained
	readsFirst   bool // the Secret is read before the configuration that is written
	swapsFirst   bool // a staged CA signs at once
}

// settings of a world. The protocol holds what it promises when lag and looks are shorter than retain, by as much as the
// clocks of two replicas may differ: by retain it knows that nobody calls by the bundle before the last one, and that
// nobody serves what does not know of the last rotation.
type settings struct {
	replicas int

	authorities, leaves, retain time.Duration // lifetimes
	resync                      time.Duration // how often a replica looks when nothing tells of a change
	lag                         time.Duration // for how long an API server may call by a configuration that was replaced
	looks                       time.Duration // from one reading of the Secret to adopting the next one, at most
	records                     bool          // at rest, what is recorded as registered must be what is
	patience                    time.Duration // how long a caBundle must have held too much before that is taken away

	slow     float64       // share of actions that take up to looks
	flaky    float64       // share of requests that fail
	requests time.Duration // mean time between requested rotations; 0: none
	crashes  time.Duration // mean time between crashes
	losses   time.Duration // mean time between faults of the Secret
	older    bool          // one of them is that an older copy is put back
	starters bool          // a new process starts at the moment of such a fault
	blanks   time.Duration // mean time between faults of a caBundle

	broken rules
}

type event struct {
	every time.Duration
	at    time.Time
	do    func()
}

type world struct {
	settings
	seed           uint64
	rng            *rand.Rand
	began, now     time.Time
	secret         *memory
	configurations []*configuration
	replicas       []*replica
	events         []*event
	trust          *trust
	trace          []entry
	steps          int
	asked, staged  int // rotations
	lastStaged     int64
	decoded        *certsecret.State // of the Secret in version decodedOf
	decodedOf      string
	writes         int // by replicas
	violation      string
}

type entry struct {
	at     time.Time
	who    fmt.Stringer
	format string
	args   []any
}

func newWorld(s settings, seed uint64) *world {
	w := &world{
		settings: s, seed: seed, rng: rand.New(rand.NewPCG(seed, seed)), began: now, now: now,
		secret: &memory{}, trust: newTrust(),
		configurations: []*configuration{{name: "mutating"}, {name: "validating"}},
	}
	for id := range s.replicas {
		r := w.newReplica(id + 1)
		w.replicas = append(w.replicas, r)
		r.start()
		r.wakeAt = w.now.Add(w.delay())
	}
	w.every(s.requests, w.request)
	w.every(s.crashes, w.crash)
	w.every(s.losses, w.lose)
	w.every(s.blanks, w.blank)
	return w
}

func (w *world) every(mean time.Duration, do func()) {
	if mean > 0 {
		w.events = append(w.events, &event{every: mean, at: w.now.Add(w.after(mean)), do: do})
	}
}

func (w *world) after(mean time.Duration) time.Duration {
	return time.Duration(w.rng.ExpFloat64() * float64(mean))
}

func (w *world) chance(share float64) bool { return share > 0 && w.rng.Float64() < share }

// short is what an action takes when nothing holds it up.
func (w *world) short() time.Duration {
	return time.Duration(1 + w.rng.Int64N(int64(20*time.Millisecond)))
}

// delay is what an action takes.
func (w *world) delay() time.Duration {
	switch {
	case w.chance(w.slow):
		return time.Duration(w.rng.Int64N(int64(w.looks)))
	case w.chance(0.1):
		return time.Duration(w.rng.Int64N(int64(5 * time.Second)))
	}
	return w.short()
}

// step lets happen what is next, and tells whether all is still well.
func (w *world) step() bool {
	w.steps++
	at, do := w.now.AddDate(100, 0, 0), func() {}
	consider := func(t time.Time, f func()) {
		if t.Before(at) {
			at, do = t, f
		}
	}
	for _, e := range w.events {
		consider(e.at, func() { e.at = e.at.Add(w.after(e.every)); e.do() })
	}
	for _, r := range w.replicas {
		consider(r.wakeAt, r.goOn)
		if r.alive && r.serves != nil { // serving.Leaf.Run
			consider(r.serves.renewAt.Add(-r.clock), func() { _ = r.use(r.serves.authority) })
		}
	}
	if at.After(w.now) {
		w.now = at
	}
	do()
	w.check()
	return w.violation == ""
}

func (r *replica) goOn() {
	if !r.alive {
		if !r.w.starters && r.w.lost() {
			r.wakeAt = r.w.now.Add(time.Minute)
			return
		}
		r.w.note(r, "starts")
		r.start()
	}
	d, ok := r.next()
	if !ok {
		r.w.note(r, "gives up")
		r.crash()
		d = r.w.after(r.w.resync)
	}
	r.wakeAt = r.w.now.Add(d)
	if r.idle && r.poked {
		r.wakeAt = r.w.now.Add(r.w.short())
	}
}

// changed wakes whoever watches. Word gets lost now and then.
func (w *world) changed() {
	for _, r := range w.replicas {
		if !r.alive || w.chance(0.1) {
			continue
		}
		r.poked = true
		if soon := w.now.Add(w.delay()); r.idle && soon.Before(r.wakeAt) {
			r.wakeAt = soon
		}
	}
}

func (w *world) fail(format string, args ...any) {
	if w.violation == "" {
		w.violation = fmt.Sprintf(format, args...)
	}
}

const traced = 60

func (w *world) note(who fmt.Stringer, format string, args ...any) {
	if len(w.trace) >= 4*traced {
		w.trace = slices.Clone(w.trace[len(w.trace)-traced:])
	}
	w.trace = append(w.trace, entry{w.now, who, format, args})
}

// String tells what happened last.
func (w *world) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d, step %d: %s\n", w.seed, w.steps, w.violation)
	for _, e := range w.trace[max(0, len(w.trace)-traced):] {
		fmt.Fprintf(&b, "%14s  %-10s %s\n", e.at.Sub(w.began).Round(time.Millisecond), e.who, fmt.Sprintf(e.format, e.args...))
	}
	return b.String()
}

// stop ends all coroutines.
func (w *world) stop() {
	for _, r := range w.replicas {
		r.crash()
	}
}
