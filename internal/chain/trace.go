package chain

// This file describes the span of a call, and makes one for each run of a step. Without a Tracer it costs nothing.

import (
	"context"
	"errors"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	admissionv1 "k8s.io/api/admission/v1"

	"code.cloudfoundry.org/eirinix/internal/hang"
)

// These are the attributes of spans. Names that OpenTelemetry's semantic conventions define are taken from there:
// k8s.namespace.name and error.type.
const (
	keyResource   = attribute.Key("k8s.resource") // such as deployments.apps/scale
	keyNamespace  = attribute.Key("k8s.namespace.name")
	keyObject     = attribute.Key("k8s.object.name")
	keyUID        = attribute.Key("k8s.admission.uid")
	keyOperation  = attribute.Key("k8s.admission.operation")
	keyDryRun     = attribute.Key("k8s.admission.dry_run")
	keyDecision   = attribute.Key("eirinix.decision") // as in the metrics
	keyReason     = attribute.Key("eirinix.reason")   // of a denial
	keyMode       = attribute.Key("eirinix.mode")     // of a step that watches
	keyPatchBytes = attribute.Key("eirinix.patch.bytes")
	keyOperations = attribute.Key("eirinix.patch.operations")
	keyErrorType  = attribute.Key("error.type")
)

// sampled returns the ID of a call's trace, if that is sampled. No other can be looked up.
func (x *Runner) sampled(ctx context.Context) (id trace.TraceID) {
	if x.Tracer != nil {
		if at := trace.SpanContextFromContext(ctx); at.IsSampled() {
			return at.TraceID()
		}
	}
	return id
}

// Logger returns the logger of a call: with the ID of its trace, if that is sampled.
func (x *Runner) Logger(ctx context.Context) logr.Logger {
	id := x.sampled(ctx)
	if !id.IsValid() {
		return x.Log
	}
	return lazily(x.Log, func() []any { return []any{"trace_id", id.String()} })
}

// exemplar returns the labels that lead from a duration to the trace of a call. They are nil unless the trace is sampled.
func (x *Runner) exemplar(ctx context.Context) prometheus.Labels {
	if id := x.sampled(ctx); id.IsValid() {
		return prometheus.Labels{"trace_id": id.String()}
	}
	return nil
}

// describe adds to the span of a call the request and its outcome.
func (x *Runner) describe(ctx context.Context, req *admissionv1.AdmissionRequest, o Outcome) {
	if x.Tracer == nil {
		return
	}
	span, of := trace.SpanFromContext(ctx), result{decision: decisionAllowed, err: o.Err}
	if !span.IsRecording() {
		return
	}
	span.SetAttributes(aboutRequest(req)...)
	switch {
	case o.Err != nil:
		of.decision = decisionFailed
	case !o.Response.Allowed:
		of.decision, of.reason = decisionDenied, o.Response.Result.Message
	case len(o.Response.Patch) > 0:
		of.decision = decisionPatched
		span.SetAttributes(keyPatchBytes.Int(len(o.Response.Patch)), keyOperations.Int(o.operations))
	}
	of.describe(span)
}

// describe adds a result to a span.
func (of result) describe(span trace.Span) {
	span.SetAttributes(keyDecision.String(decisionLabels[of.decision]))
	if of.mode != ModeDeny {
		span.SetAttributes(keyMode.String(of.mode.String()))
	}
	if of.reason != "" {
		span.SetAttributes(keyReason.String(brief(of.reason)))
	}
	if of.err != nil {
		FailSpan(span, of.err)
	}
}

// aboutRequest returns the attributes of a request. What a request does not have is left out.
func aboutRequest(req *admissionv1.AdmissionRequest) []attribute.KeyValue {
	about := []attribute.KeyValue{
		keyResource.String(brief(resourceOf(req))),
		keyUID.String(brief(string(req.UID))),
		keyOperation.String(string(operationLabels[operationIndex(req.Operation)])),
		keyDryRun.Bool(req.DryRun != nil && *req.DryRun),
	}
	if req.Namespace != "" {
		about = append(about, keyNamespace.String(brief(req.Namespace)))
	}
	if req.Name != "" {
		about = append(about, keyObject.String(brief(req.Name)))
	}
	return about
}

// FailSpan marks a span as failed. The text is that of the log and of the answer.
func FailSpan(span trace.Span, err error) {
	kind := "_OTHER" // as OpenTelemetry calls it
	if _, ok := errors.AsType[*hang.PanicError](err); ok {
		kind = "panic"
	} else if errors.Is(err, context.DeadlineExceeded) {
		kind = "timeout"
	}
	span.SetAttributes(keyErrorType.String(kind))
	span.SetStatus(codes.Error, brief(err.Error()))
}

// stepSpan is the span of a run of a step. Its end can be known before its decision is.
type stepSpan struct {
	trace.Span // nil if no run has begun, or its decision is known
	returned   time.Time
}

// beginSpan starts the span of a step, and returns the context of the step. A step that goes on keeps its span.
func (r *run) beginSpan(i int) context.Context {
	if r.tracer == nil {
		return r.ctx
	} else if begun := r.spans[i].Span; begun != nil {
		return trace.ContextWithSpan(r.ctx, begun)
	}
	ctx, span := r.tracer.Start(r.ctx, r.steps[i].Name)
	if span.IsRecording() {
		span.SetAttributes(aboutRequest(r.request)...)
	}
	r.spans[i] = stepSpan{Span: span}
	return ctx
}

// endSpan ends the span of a step with its result, at the time at which the step has returned. A step that has not begun,
// or has ended, has no span.
func (r *run) endSpan(i int, of result) {
	if r.tracer == nil || r.spans[i].Span == nil {
		return
	}
	span := r.spans[i]
	r.spans[i] = stepSpan{}
	of.describe(span)
	if span.returned.IsZero() {
		span.End()
	} else {
		span.End(trace.WithTimestamp(span.returned))
	}
}
