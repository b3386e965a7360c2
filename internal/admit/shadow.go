package admit

// This file runs steps in ModeShadow, after their requests have been answered.

import (
	"cmp"
	"context"
	"errors"
	"sync"

	"go.opentelemetry.io/otel/trace"
	admissionv1 "k8s.io/api/admission/v1"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"code.cloudfoundry.org/eirinix/internal/patch"
)

// Bounds of the runs that wait. They are for bursts.
const (
	mostShadows     = 200      // of one step
	mostShadowBytes = 16 << 20 // of all steps: requests and patches
)

var errStopped = errors.New("the program stops")

// shadow is a run that waits for its turn. Nothing changes the values that it holds.
type shadow struct {
	chain   *chain // of that step alone
	request *admissionv1.AdmissionRequest
	patch   []byte            // of the call's answer; nil if there is none
	trace   trace.SpanContext // of the call
}

// size counts the object twice if there will be a patched one.
func (s *shadow) size() int {
	bytes := len(s.request.Object.Raw) + len(s.request.OldObject.Raw)
	if len(s.patch) > 0 {
		bytes += len(s.patch) + len(s.request.Object.Raw)
	}
	return bytes
}

func (s *shadow) drop() { s.chain.stepMetrics[0].decided(s.request, decisionDropped, 0, nil) }

// shadowsOf returns the runs for after the answer.
func (c *chain) shadowsOf(ctx context.Context, req *admissionv1.AdmissionRequest, o outcome) (all []shadow) {
	for _, i := range o.postponed {
		s := shadow{chain: c.shadows[i], request: req, trace: trace.SpanContextFromContext(ctx)}
		if o.response != nil {
			s.patch = o.response.Patch
		}
		all = append(all, s)
	}
	return all
}

// shadowOf returns a chain of one step, whose results are only logged and counted.
func (c *chain) shadowOf(i int) *chain {
	s := c.Steps[i]
	s.Ignore, s.Mode, s.Choose, s.Timeout = true, ModeShadow, nil, cmp.Or(s.Timeout, defaultTimeout)
	return &chain{
		Chain: Chain{Steps: []Step{s}, Validating: c.Validating}, webhook: c.webhook, name: s.Name, allIgnore: true, answered: true,
		types: c.types[i : i+1], sameObjects: []int{0}, zeroResponses: make([]sync.Once, 1), perform: c.perform[i : i+1],
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
	turn    sync.Mutex // held while the library works for a shadow, so that shadows use one core at most
	workers sync.WaitGroup

	mu      sync.Mutex
	bytes   int // of the runs that wait or are at work
	stopped bool
}

func newShadows() *shadows {
	s := &shadows{objects: newObjectBudget(decodedShadows)}
	s.ctx, s.stop = context.WithCancelCause(context.Background())
	return s
}

// add adds runs, and drops those for which there is no room. It never waits. A queue can take no more bytes than are left
// for the others, so that a step that hangs does not keep them out.
func (a *shadows) add(h *Handler, all []shadow) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, s := range all {
		q, size := &s.chain.left[0].shadows, s.size()
		if a.stopped || len(q.waiting) == mostShadows || q.bytes+size > mostShadowBytes-a.bytes {
			s.drop()
			continue
		}
		q.waiting, q.bytes, a.bytes = append(q.waiting, s), q.bytes+size, a.bytes+size
		if !q.working {
			q.working = true
			a.workers.Go(func() { a.work(h, q) })
		}
	}
}

// work runs what waits, in order, until nothing does.
func (a *shadows) work(h *Handler, q *shadowQueue) {
	for ended := 0; ; {
		s, ok := a.next(q, ended)
		if !ok {
			return
		}
		if ended = s.size(); a.ctx.Err() != nil {
			s.drop()
		} else {
			h.runShadow(&s)
		}
	}
}

// next gives back the bytes of the run that has ended, and returns the next one.
func (a *shadows) next(q *shadowQueue, ended int) (s shadow, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	q.bytes, a.bytes = q.bytes-ended, a.bytes-ended
	if len(q.waiting) == 0 {
		q.waiting, q.working = nil, false
		return s, false
	}
	s, q.waiting[0] = q.waiting[0], shadow{}
	q.waiting = q.waiting[1:]
	return s, true
}

// Stop ends the shadows: the contexts of those that run end, and those that wait are dropped. It returns when no worker
// is left.
func (h *Handler) Stop() {
	h.prepare()
	h.shadows.mu.Lock()
	h.shadows.stopped = true
	h.shadows.mu.Unlock()
	h.shadows.stop(errStopped)
	h.shadows.workers.Wait()
}

// runShadow runs a step on the object as the call has left it. What the step returns is logged and counted. Memory for
// the object, and the work before and after the step, have a time of their own.
func (h *Handler) runShadow(s *shadow) {
	step := &s.chain.Steps[0]
	ctx, cancel := context.WithTimeout(trace.ContextWithSpanContext(h.shadows.ctx, s.trace), step.Timeout+defaultTimeout)
	defer cancel()
	log, req := s.chain.logger(h.logOf(ctx), s.request), *s.request
	h.shadows.turn.Lock()
	defer h.shadows.turn.Unlock()
	var err error
	if len(s.patch) > 0 {
		req.Object.Raw, _, err = patch.Apply(req.Object.Raw, s.patch)
	}
	if err == nil && !step.Matcher.matchesObjects(req.Object.Raw, req.OldObject.Raw) {
		s.chain.stepMetrics[0].decided(&req, decisionSkipped, 0, nil)
		return
	}
	r := h.traceRun(newRun(logf.IntoContext(ctx, log), log, s.chain, &req, []want{wantKind | wantObject}, h.shadows.objects))
	r.turn = &h.shadows.turn
	defer r.release()
	if err == nil {
		err = recovered(func() error { r.outcome(); return nil }) // a panic outside of the step
	}
	if err != nil {
		_ = r.failed(0, err, 0)
	}
}
