package admit

// This file runs steps in ModeShadow, after their requests have been answered.

import (
	"bytes"
	"cmp"
	"context"
	"sync"

	"go.opentelemetry.io/otel/trace"
	admissionv1 "k8s.io/api/admission/v1"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
)

// Bounds of the queue. They are for bursts: one goroutine takes the runs out, so that they use one core at most.
const (
	mostShadows     = 200
	mostShadowBytes = 32 << 20 // of objects
)

// shadow is a run that waits for its turn. It holds memory of its own.
type shadow struct {
	chain   *chain // of that step alone
	request admissionv1.AdmissionRequest
	trace   trace.SpanContext // of the call
}

func (s *shadow) size() int { return len(s.request.Object.Raw) + len(s.request.OldObject.Raw) }

// postpone keeps the request, with the object as the steps before have left it, for a run after the answer.
func (r *run) postpone(i int) error {
	if err := r.flush(); err != nil {
		return err
	}
	raw, err := r.object.json()
	if err != nil {
		return err
	}
	s := shadow{chain: r.shadows[i], request: *r.request, trace: trace.SpanContextFromContext(r.ctx)}
	s.request.Object.Raw = bytes.Clone(raw)
	r.postponed = append(r.postponed, s)
	return nil
}

// shadowOf returns a chain of one step, whose results are only logged and counted.
func (c *chain) shadowOf(i int) *chain {
	s := c.Steps[i]
	s.Ignore, s.Mode, s.Choose = true, ModeShadow, nil
	return &chain{
		Chain: Chain{Steps: []Step{s}, Validating: c.Validating}, webhook: c.webhook, name: s.Name, allIgnore: true, answered: true,
		types: c.types[i : i+1], sameObjects: []int{0}, zeroResponses: make([]sync.Once, 1), perform: c.perform[i : i+1],
		metrics: c.metrics, stepMetrics: c.stepMetrics[i : i+1], left: c.left[i : i+1],
	}
}

// shadowQueue holds the runs that wait. Its goroutine ends when none is left.
type shadowQueue struct {
	mu      sync.Mutex
	waiting []shadow
	bytes   int
	runs    bool
}

// shadow adds runs, and drops those for which there is no room. It never waits.
func (h *Handler) shadow(all []shadow) {
	q := &h.shadows
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, s := range all {
		if len(q.waiting) == mostShadows || q.bytes+s.size() > mostShadowBytes {
			s.chain.stepMetrics[0].decided(&s.request, decisionDropped, 0, nil)
			continue
		}
		q.waiting, q.bytes = append(q.waiting, s), q.bytes+s.size()
		if !q.runs {
			q.runs = true
			go h.runShadows()
		}
	}
}

// runShadows runs what waits, in order, until nothing does.
func (h *Handler) runShadows() {
	for {
		s, ok := h.shadows.next()
		if !ok {
			return
		}
		if h.Draining != nil && h.Draining() {
			s.chain.stepMetrics[0].decided(&s.request, decisionDropped, 0, nil)
			continue
		}
		h.runShadow(&s)
	}
}

func (q *shadowQueue) next() (s shadow, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) == 0 {
		q.waiting, q.runs = nil, false
		return s, false
	}
	s = q.waiting[0]
	q.waiting[0] = shadow{}
	q.waiting, q.bytes = q.waiting[1:], q.bytes-s.size()
	return s, true
}

// runShadow runs a step within its timeout. What it returns has been logged and counted.
func (h *Handler) runShadow(s *shadow) {
	ctx, cancel := context.WithTimeout(context.Background(), cmp.Or(s.chain.Steps[0].Timeout, defaultTimeout))
	defer cancel()
	ctx = trace.ContextWithSpanContext(ctx, s.trace)
	log := s.chain.logger(h.logOf(ctx), &s.request)
	h.traceRun(newRun(logf.IntoContext(ctx, log), log, s.chain, &s.request, []want{wantKind | wantObject}, h.objects)).wait()
}
