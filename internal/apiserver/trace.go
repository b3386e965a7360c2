package apiserver

// This file records the steps that run for one request.

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"code.cloudfoundry.org/eirinix/internal/list"
)

// Trace holds the step runs of one request. An abandoned step reports to it even after the request is over.
type Trace struct {
	mu   sync.Mutex
	runs []*TracedRun
}

// TracedRun is a run of a step, which can outlast the request.
type TracedRun struct {
	StepRun
	Context context.Context // of the step
	Done    chan struct{}   // closed when the step has ended
	began   time.Time
}

// callTrace is the trace of one call of one webhook. The request's context carries it to the steps.
type callTrace struct {
	trace   *Trace
	webhook string
	round   int
}

type traceKey struct{}

// StepEnd is the end of a step, with the fields of offline.StepEnd.
type StepEnd struct {
	Err      error
	Response *admission.Response
	Panic    any
	Stack    []byte
}

// Observe records the run of a step in the trace of its request. It is for offline.Options.Observe.
func Observe(ctx context.Context, step string) (ended func(StepEnd)) {
	c, ok := ctx.Value(traceKey{}).(*callTrace)
	if !ok { // the handler was called without a Server
		return func(StepEnd) {}
	}
	run := &TracedRun{StepRun: StepRun{Step: step, Webhook: c.webhook, Round: c.round, Running: true}, began: time.Now(), Context: ctx, Done: make(chan struct{})}
	c.trace.mu.Lock()
	defer c.trace.mu.Unlock()
	c.trace.runs = append(c.trace.runs, run)
	return func(end StepEnd) {
		c.trace.mu.Lock()
		defer c.trace.mu.Unlock()
		run.Took, run.Running, run.Err = time.Since(run.began), false, end.Err
		run.Panic, run.Stack = end.Panic, end.Stack
		// An empty Response decides nothing.
		if r := end.Response; r != nil && !r.Allowed && !reflect.DeepEqual(*r, admission.Response{}) {
			run.Err = &responseError{r.Result}
		}
		close(run.Done)
	}
}

func (t *Trace) snapshot() []StepRun {
	t.mu.Lock()
	defer t.mu.Unlock()
	return list.Of(t.runs, func(r *TracedRun) StepRun {
		run := r.StepRun
		if run.Running {
			run.Took = time.Since(r.began)
		}
		return run
	})
}

// Runs returns the runs themselves, so that a caller can wait for abandoned steps.
func (t *Trace) Runs() []*TracedRun {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.runs)
}

// responseError is the Response of an Extension that denies the request.
type responseError struct{ result *metav1.Status }

func (e *responseError) Error() string {
	if e.result == nil {
		return "not allowed, without explanation"
	}
	if e.result.Message != "" {
		return e.result.Message
	}
	return fmt.Sprintf("not allowed: %d %s", e.result.Code, e.result.Reason)
}
