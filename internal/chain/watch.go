package chain

// This file is about steps that watch: their denials are reported, and their changes are thrown away. It runs those in
// ModeShadow, after their requests have been answered.

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"
	admissionv1 "k8s.io/api/admission/v1"

	"code.cloudfoundry.org/eirinix/internal/decode"
	"code.cloudfoundry.org/eirinix/internal/hang"
	"code.cloudfoundry.org/eirinix/internal/patch"
	"code.cloudfoundry.org/eirinix/internal/wait"
)

// Mode decides about the effect of a step's result. Failures are not results: in every mode, failurePolicy decides on
// them.
type Mode uint8

const (
	ModeDeny   Mode = iota // a denial refuses the request, and changes are made
	ModeWarn               // both are only reported, as warnings
	ModeAudit              // both are only reported, as audit annotations
	ModeShadow             // both are only logged and counted; the step runs after the answer
)

func (m Mode) String() string { return [...]string{"Deny", "Warn", "Audit", "Shadow"}[m] }

// Bounds of a report. API servers shorten warnings when all of an answer exceed 4,096 bytes
// (k8s.io/apiserver/pkg/endpoints/filters/warning.go).
const (
	maxPaths      = 10
	maxReportText = 1000
)

// watched counts the result of a step that watches: a denial, or the patches that it made. It adds to the answer what the
// step would have done, and logs it. A step in ModeAudit shows the user nothing, so its own warnings are dropped.
func (r *run) watched(i int, of result, d *denial, made [][]byte) {
	s, call, would, what := r.steps[i], &r.calls[i], "", ""
	switch {
	case d != nil:
		of.decision, would, what = decisionWouldDeny, "deny", d.status.Message
	case len(made) > 0:
		of.decision, would, what = decisionWouldPatch, "change", changedPaths(made)
	}
	of.reason = what
	r.decided(i, of)
	if what = strings.ToValidUTF8(what[:min(len(what), maxReportText)], ""); would != "" {
		r.denials.Of(r.blaming(r.log, s.Name), s.Name+" would "+would, what).Info("would "+would, "mode", of.mode.String(), "reason", what)
		switch of.mode {
		case ModeWarn:
			call.Warn(fmt.Sprintf("step %q would %s this: %s", s.Name, would, what))
		case ModeAudit:
			call.Annotate("would-"+would, s.Name+": "+what)
		}
	}
	warned := len(r.feedback.warnings)
	r.feedback.add(s.Name, call)
	if of.mode == ModeAudit {
		r.feedback.warnings = r.feedback.warnings[:warned]
	}
}

// changedPaths lists the first of the Paths of patches.
func changedPaths(patches [][]byte) string {
	paths := Paths(patches...)
	if more := len(paths) - maxPaths; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(paths[:maxPaths], ", "), more)
	}
	return strings.Join(paths, ", ")
}

// Paths returns each path that the operations of patches change, in order and without values, because those can be secret.
func Paths(patches ...[]byte) (paths []string) {
	for _, operations := range patches {
		var all []struct{ Op, Path, From string }
		if json.Unmarshal(operations, &all) != nil {
			continue // it is a step's own patch that could not be tried
		}
		for _, o := range all {
			if o.Op == "test" {
				continue
			}
			if o.Path != "" {
				paths = append(paths, o.Path)
			}
			if o.From != "" && o.Op == "move" {
				paths = append(paths, o.From)
			}
		}
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}

// Bounds of the runs that wait. They are for bursts.
const (
	maxShadows     = 200      // of one step
	maxShadowBytes = 32 << 20 // of all steps: requests and patched objects

	// Shadows give way to calls: they run once no call has come for so long, or their queue is half full, or after as
	// many looks.
	quiet    = 5 * time.Millisecond
	maxLooks = 40

	// A run on an object that is not small is followed by a rest of so many times its length, while there are calls.
	smallObject = 16 << 10
	restTimes   = 4
	maxRest     = 50 * time.Millisecond

	longestTurn = time.Second
)

var errStopped = errors.New("the program stops")

// answered is what a call leaves to its shadows. They only read it.
type answered struct {
	request *admissionv1.AdmissionRequest
	patch   []byte // of the answer; nil if there is none
	trace   trace.SpanContext

	once  sync.Once
	after []byte // the object as the call leaves it; made when the first shadow needs it
	err   error

	waiting int // shadows that wait or are at work
}

// size counts the object twice if there will be a patched one.
func (a *answered) size() int {
	bytes := len(a.request.Object.Raw) + len(a.request.OldObject.Raw)
	if len(a.patch) > 0 {
		bytes += len(a.patch) + len(a.request.Object.Raw)
	}
	return bytes
}

// object returns the object as the call leaves it.
func (a *answered) object() ([]byte, error) {
	a.once.Do(func() {
		if a.after = a.request.Object.Raw; len(a.patch) > 0 {
			a.after, _, a.err = patch.Apply(a.after, a.patch)
		}
	})
	return a.after, a.err
}

// A Shadow is a run of a step that waits for its turn.
type Shadow struct {
	chain *Chain // of that step alone
	call  *answered
}

func (s *Shadow) drop() { s.chain.steps[0].metrics.decided(s.call.request, decisionDropped, 0, nil) }

// shadowsOf returns the runs of steps for after the answer, with a response or without one.
func (c *Chain) shadowsOf(ctx context.Context, req *admissionv1.AdmissionRequest, resp *admissionv1.AdmissionResponse, steps []int) (all []Shadow) {
	call := &answered{request: req, trace: trace.SpanContextFromContext(ctx)}
	if resp != nil {
		call.patch = resp.Patch
	}
	for _, i := range steps {
		all = append(all, Shadow{c.steps[i].shadow, call})
	}
	return all
}

// shadowOf returns a chain of one step, whose results are only logged and counted.
func (c *Chain) shadowOf(s *step) *Chain {
	alone := *s
	alone.Ignore, alone.Mode, alone.Choose, alone.Timeout = true, ModeShadow, nil, cmp.Or(s.Timeout, DefaultTimeout)
	return &Chain{
		Webhook: c.Webhook, Name: s.Name, validating: c.validating, allIgnore: true, answered: true,
		steps: []*step{&alone}, metrics: c.metrics,
	}
}

// shadowQueue holds the runs of one step that wait. Its worker ends when none is left.
type shadowQueue struct {
	waiting []Shadow
	bytes   int
	working bool
}

// Shadows runs the shadows of all steps. They share the bound on their queues, and memory that is not that of the calls.
// It is safe for concurrent use.
type Shadows struct {
	ctx     context.Context // ends with errStopped
	stop    context.CancelCauseFunc
	runner  Runner
	busy    func() bool
	turn    chan struct{} // holds an element while the library works for a shadow, so that shadows use one core at most
	workers sync.WaitGroup

	mu      sync.Mutex
	bytes   int       // of the calls whose shadows wait or are at work
	last    time.Time // a call left shadows
	stopped bool
}

// NewShadows returns the Shadows beside the calls of a Runner. They give way to calls while busy returns true. Stop ends
// them.
func NewShadows(r Runner, busy func() bool) *Shadows {
	r.Objects = newBudget(decode.MaxMemory / 2)
	s := &Shadows{runner: r, busy: busy, turn: make(chan struct{}, 1)}
	s.ctx, s.stop = context.WithCancelCause(context.Background())
	return s
}

// turn is the lock of one shadow's run on the turn of all. Its holder loses it after longestTurn, because types of the
// program can hang while they decode.
type turn struct {
	taken    chan struct{}
	giveBack func()
}

func (t *turn) Lock() {
	t.taken <- struct{}{}
	lose := sync.OnceFunc(func() { <-t.taken })
	timer := time.AfterFunc(longestTurn, lose)
	t.giveBack = func() { timer.Stop(); lose() }
}

func (t *turn) Unlock() { t.giveBack() }

// Add adds runs, and drops those for which there is no room. It never waits. A queue can take no more bytes than are left
// for the others, so that a step that hangs does not keep them out.
func (a *Shadows) Add(all []Shadow) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.last = time.Now()
	for _, s := range all {
		q, size := &s.chain.steps[0].left.shadows, s.call.size()
		if a.stopped || len(q.waiting) == maxShadows || q.bytes+size > maxShadowBytes-a.bytes {
			s.drop()
			continue
		}
		if s.call.waiting++; s.call.waiting == 1 {
			a.bytes += size
		}
		q.waiting, q.bytes = append(q.waiting, s), q.bytes+size
		if !q.working {
			q.working = true
			a.workers.Go(func() { a.work(q) })
		}
	}
}

// work runs what waits, in order, until nothing does.
func (a *Shadows) work(q *shadowQueue) {
	var ended *answered
	for {
		s, ok := a.next(q, ended)
		if !ok {
			return
		}
		ended = s.call
		for looks := 0; looks < maxLooks && a.givesWay(q); looks++ {
			_ = wait.Sleep(a.ctx, quiet)
		}
		if a.ctx.Err() != nil {
			s.drop()
		} else {
			a.run(&s)
		}
	}
}

// givesWay reports whether calls are at work or will probably come, and the queue has room until they have been answered.
func (a *Shadows) givesWay(q *shadowQueue) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(q.waiting) < maxShadows/2 && q.bytes < maxShadowBytes/4 && a.areCalls()
}

func (a *Shadows) areCalls() bool {
	return a.ctx.Err() == nil && (a.busy() || time.Since(a.last) < quiet)
}

// rest keeps the turn after a run that began then. Under calls that do not end, shadows thus use a fifth of a core.
func (a *Shadows) rest(s *Shadow, began time.Time) {
	a.mu.Lock()
	rests := s.call.size() > smallObject && a.areCalls()
	a.mu.Unlock()
	if rests {
		_ = wait.Sleep(a.ctx, min(restTimes*time.Since(began), maxRest))
	}
}

// next gives back the bytes of the run that has ended, if any, and returns the next one.
func (a *Shadows) next(q *shadowQueue, ended *answered) (s Shadow, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if ended != nil {
		q.bytes -= ended.size()
		if ended.waiting--; ended.waiting == 0 {
			a.bytes -= ended.size()
		}
	}
	if len(q.waiting) == 0 {
		q.waiting, q.working = nil, false
		return s, false
	}
	s, q.waiting[0] = q.waiting[0], Shadow{}
	q.waiting = q.waiting[1:]
	return s, true
}

// Stop ends the shadows: the contexts of those that run end, and those that wait are dropped. It returns when no worker
// is left, and after two seconds at the latest: the program's own types can hang while they decode.
func (a *Shadows) Stop() {
	a.mu.Lock()
	a.stopped = true
	a.mu.Unlock()
	a.stop(errStopped)
	ended := make(chan struct{})
	go func() { a.workers.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(2 * time.Second):
	}
}

// run runs a step on the object as the call has left it. What the step returns is logged and counted. Memory for
// the object, and the work before and after the step, have a time of their own.
func (a *Shadows) run(s *Shadow) {
	step := s.chain.steps[0]
	ctx, cancel := context.WithTimeout(trace.ContextWithSpanContext(a.ctx, s.call.trace), step.Timeout+DefaultTimeout)
	defer cancel()
	req := s.call.request
	own := &turn{taken: a.turn}
	own.Lock()
	defer own.Unlock()
	defer a.rest(s, time.Now())
	after, err := s.call.object()
	if err == nil && !step.Matcher.matchesObjects(after, req.OldObject.Raw) {
		step.metrics.decided(req, decisionSkipped, 0, nil)
		return
	}
	r := a.runner.newRun(ctx, s.chain, req, Selection{wantKind | wantObject})
	r.turn, r.object.raw = own, after
	defer r.release()
	if err == nil {
		err = hang.Recovered(func() error { r.outcome(); return nil }) // a panic outside of the step
	}
	if err != nil {
		_ = r.failed(0, result{err: err})
	}
}
