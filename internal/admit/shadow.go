package admit

// This file runs steps in ModeShadow, after their requests have been answered.

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"
	admissionv1 "k8s.io/api/admission/v1"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"code.cloudfoundry.org/eirinix/internal/patch"
	"code.cloudfoundry.org/eirinix/internal/wait"
)

// Bounds of the runs that wait. They are for bursts.
const (
	mostShadows     = 200      // of one step
	mostShadowBytes = 32 << 20 // of all steps: requests and patched objects

	// Shadows give way to calls: they run once no call has come for so long, or their queue is half full, or after as
	// many looks.
	quiet     = 5 * time.Millisecond
	mostLooks = 40

	// A run on an object that is not small is followed by a rest of so many times its length, while there are calls.
	smallObject = 16 << 10
	restTimes   = 4
	mostRest    = 50 * time.Millisecond

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

// shadow is a run that waits for its turn.
type shadow struct {
	chain *chain // of that step alone
	call  *answered
}

func (s *shadow) drop() { s.chain.stepMetrics[0].decided(s.call.request, decisionDropped, 0, nil) }

// shadowsOf returns the runs for after the answer.
func (c *chain) shadowsOf(ctx context.Context, req *admissionv1.AdmissionRequest, o outcome) (all []shadow) {
	if len(o.postponed) == 0 {
		return nil
	}
	call := &answered{request: req, trace: trace.SpanContextFromContext(ctx)}
	if o.response != nil {
		call.patch = o.response.Patch
	}
	for _, i := range o.postponed {
		all = append(all, shadow{c.shadows[i], call})
	}
	return all
}

// shadowOf returns a chain of one step, whose results are only logged and counted.
func (c *chain) shadowOf(i int) *chain {
	s := c.Steps[i]
	s.Ignore, s.Mode, s.Choose, s.Timeout = true, ModeShadow, nil, cmp.Or(s.Timeout, defaultTimeout)
	return &chain{
		Chain: Chain{Steps: []Step{s}, Validating: c.Validating}, webhook: c.webhook, name: s.Name, allIgnore: true, answered: true,
		strict: c.strict[i : i+1], types: c.types[i : i+1], sameObjects: []int{0}, zeroResponses: make([]sync.Once, 1), perform: c.perform[i : i+1],
		metrics: c.metrics, stepMetrics: c.stepMetrics[i : i+1], left: c.left[i : i+1],
	}
}

// shadowQueue holds the runs of one step that wait. Its worker ends when none is left.
type shadowQueue struct {
	waiting []shadow
	bytes   int
	working bool
}

// shadows holds what the shadows of all steps share: the bound on their queues, and memory that is not that of the calls.
type shadows struct {
	ctx     context.Context // ends with errStopped
	stop    context.CancelCauseFunc
	objects *objectBudget
	turn    chan struct{} // holds an element while the library works for a shadow, so that shadows use one core at most
	workers sync.WaitGroup

	mu      sync.Mutex
	bytes   int       // of the calls whose shadows wait or are at work
	last    time.Time // a call left shadows
	stopped bool
}

func newShadows() *shadows {
	s := &shadows{objects: newObjectBudget(decodedShadows), turn: make(chan struct{}, 1)}
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

// add adds runs, and drops those for which there is no room. It never waits. A queue can take no more bytes than are left
// for the others, so that a step that hangs does not keep them out.
func (a *shadows) add(h *Handler, all []shadow) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.last = time.Now()
	for _, s := range all {
		q, size := &s.chain.left[0].shadows, s.call.size()
		if a.stopped || len(q.waiting) == mostShadows || q.bytes+size > mostShadowBytes-a.bytes {
			s.drop()
			continue
		}
		if s.call.waiting++; s.call.waiting == 1 {
			a.bytes += size
		}
		q.waiting, q.bytes = append(q.waiting, s), q.bytes+size
		if !q.working {
			q.working = true
			a.workers.Go(func() { a.work(h, q) })
		}
	}
}

// work runs what waits, in order, until nothing does.
func (a *shadows) work(h *Handler, q *shadowQueue) {
	var ended *answered
	for {
		s, ok := a.next(q, ended)
		if !ok {
			return
		}
		ended = s.call
		for looks := 0; looks < mostLooks && a.givesWay(h, q); looks++ {
			_ = wait.Sleep(a.ctx, quiet)
		}
		if a.ctx.Err() != nil {
			s.drop()
		} else {
			h.runShadow(&s)
		}
	}
}

// givesWay reports whether calls are at work or will probably come, and the queue has room until they have been answered.
func (a *shadows) givesWay(h *Handler, q *shadowQueue) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(q.waiting) < mostShadows/2 && q.bytes < mostShadowBytes/4 && a.areCalls(h)
}

func (a *shadows) areCalls(h *Handler) bool {
	return a.ctx.Err() == nil && (len(h.slots.working) > 0 || time.Since(a.last) < quiet)
}

// rest keeps the turn after a run that began then. Under calls that do not end, shadows thus use a fifth of a core.
func (a *shadows) rest(h *Handler, s *shadow, began time.Time) {
	a.mu.Lock()
	rests := s.call.size() > smallObject && a.areCalls(h)
	a.mu.Unlock()
	if rests {
		_ = wait.Sleep(a.ctx, min(restTimes*time.Since(began), mostRest))
	}
}

// next gives back the bytes of the run that has ended, if any, and returns the next one.
func (a *shadows) next(q *shadowQueue, ended *answered) (s shadow, ok bool) {
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
	s, q.waiting[0] = q.waiting[0], shadow{}
	q.waiting = q.waiting[1:]
	return s, true
}

// Stop ends the shadows: the contexts of those that run end, and those that wait are dropped. It returns when no worker
// is left, and after two seconds at the latest: the program's own types can hang while they decode.
func (h *Handler) Stop() {
	h.prepare()
	h.shadows.mu.Lock()
	h.shadows.stopped = true
	h.shadows.mu.Unlock()
	h.shadows.stop(errStopped)
	ended := make(chan struct{})
	go func() { h.shadows.workers.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(2 * time.Second):
	}
}

// runShadow runs a step on the object as the call has left it. What the step returns is logged and counted. Memory for
// the object, and the work before and after the step, have a time of their own.
func (h *Handler) runShadow(s *shadow) {
	step := &s.chain.Steps[0]
	ctx, cancel := context.WithTimeout(trace.ContextWithSpanContext(h.shadows.ctx, s.call.trace), step.Timeout+defaultTimeout)
	defer cancel()
	log, req := s.chain.logger(h.logOf(ctx), s.call.request), s.call.request
	own := &turn{taken: h.shadows.turn}
	own.Lock()
	defer own.Unlock()
	defer h.shadows.rest(h, s, time.Now())
	after, err := s.call.object()
	if err == nil && !step.Matcher.matchesObjects(after, req.OldObject.Raw) {
		s.chain.stepMetrics[0].decided(req, decisionSkipped, 0, nil)
		return
	}
	r := h.traceRun(newRun(logf.IntoContext(ctx, log), log, s.chain, req, []want{wantKind | wantObject}, h.shadows.objects))
	r.turn, r.object.raw = own, after
	defer r.release()
	if err == nil {
		err = recovered(func() error { r.outcome(); return nil }) // a panic outside of the step
	}
	if err != nil {
		_ = r.failed(0, err, 0)
	}
}
