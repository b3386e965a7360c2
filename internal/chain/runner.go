package chain

// This file runs chains on requests, and reports the outcomes.

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel/trace"
	admissionv1 "k8s.io/api/admission/v1"
)

// A Runner runs chains. Set its fields before use; it is then safe for concurrent use.
type Runner struct {
	Log     logr.Logger  // the zero Logger discards
	Tracer  trace.Tracer // nil traces nothing
	Objects *Budget      // of the objects of all runs
}

// Run runs the steps that want a request, and returns their outcome, or an error when ctx ends before. The objects of the
// request must not change afterwards, because a step that ignores its deadline can still read them.
func (x *Runner) Run(ctx context.Context, c *Chain, req *admissionv1.AdmissionRequest, wants Selection) Outcome {
	return x.newRun(ctx, c, req, wants).wait()
}

// Report logs, counts and traces the outcome of a call, whose answer took so long.
func (x *Runner) Report(ctx context.Context, c *Chain, req *admissionv1.AdmissionRequest, o Outcome, took time.Duration) {
	x.describe(ctx, req, o)
	if o.Err != nil {
		c.metrics.answered(took, 0, 0, x.exemplar(ctx))
		c.logFailure(c.logger(x.Logger(ctx), req), o.Err, "step failed; failurePolicy decides",
			"user", brief(req.UserInfo.Username), "took", took.String())
		return
	}
	resp := o.Response
	c.metrics.answered(took, o.operations, len(resp.Patch), x.exemplar(ctx))
	if !resp.Allowed {
		c.sampled(c.blaming(c.logger(x.Logger(ctx), req), o.deniedBy), o.deniedBy, resp.Result.Message).Info("denied",
			"user", brief(req.UserInfo.Username), "code", resp.Result.Code, "reason", resp.Result.Message, "took", took.String())
	} else if x.Log.V(1).Enabled() {
		c.logger(x.Logger(ctx), req).V(1).Info("allowed", "patchBytes", len(resp.Patch), "took", took.String())
	}
}

// Unanswerable returns the outcome of a call whose response cannot be sent.
func (c *Chain) Unanswerable(err error) Outcome {
	return Outcome{Err: &stepError{step: c.Name, err: fmt.Errorf("its answer cannot be encoded: %w", err)}}
}
