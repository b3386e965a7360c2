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

// Logger returns the logger of a call: with the ID of its trace, if that is sampled. No other can be looked up.
func (x *Runner) Logger(ctx context.Context) logr.Logger {
	if x.Tracer == nil {
		return x.Log
	}
	at := trace.SpanContextFromContext(ctx)
	if !at.IsSampled() || !at.HasTraceID() {
		return x.Log
	}
	return lazily(x.Log, func() []any { return []any{"trace_id", at.TraceID().String()} })
}

// exemplar returns the labels that lead from a duration to the trace in ctx. They are nil unless the trace is sampled.
func (x *Runner) exemplar(ctx context.Context) prometheus.Labels {
	if x.Tracer == nil {
		return nil
	}
	at := trace.SpanContextFromContext(ctx)
	if !at.IsSampled() || !at.HasTraceID() {
		return nil
	}
	return prometheus.Labels{"trace_id": at.TraceID().String()}
}

// describe adds to the span of a call the request and its outcome.
func (x *Runner) describe(ctx context.Context, req *admissionv1.AdmissionRequest, o Outcome) {
	if x.Tracer == nil {
		return
	}
	span := trace.SpanFromContext(ctx)
	if !span.IsRecording() {
		return
	}
	span.SetAttributes(aboutRequest(req)...)
	switch {
	case o.Err != nil:
		span.SetAttributes(keyDecision.String(decisionLabels[decisionFailed]))
		FailSpan(span, o.Err)
	case !o.Response.Allowed:
		span.SetAttributes(keyDecision.String(decisionLabels[decisionDenied]), keyReason.String(brief(o.Response.Result.Message)))
	case len(o.Response.Patch) > 0:
		span.SetAttributes(keyDecision.String(decisionLabels[decisionPatched]),
			keyPatchBytes.Int(len(o.Response.Patch)), keyOperations.Int(o.operations))
	default:
		span.SetAttributes(keyDecision.String(decisionLabels[decisionAllowed]))
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
	if _, ok := errors.AsType[*panicError](err); ok {
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
	ended      time.Time
}

// startSpan starts the span of a step, and returns the context of the step.
func (r *run) startSpan(i int) context.Context {
	if r.spans == nil {
		return r.ctx
	}
	ctx, span := r.tracer.Start(r.ctx, r.Steps[i].Name)
	if span.IsRecording() {
		span.SetAttributes(aboutRequest(r.request)...)
	}
	r.spans[i] = stepSpan{Span: span}
	return ctx
}

// span returns the span of the step that runs, or has run; nil if there is none.
func (r *run) span(i int) *stepSpan {
	if r.spans == nil || r.spans[i].Span == nil {
		return nil
	}
	return &r.spans[i]
}

// describeSpan adds attributes to the span of a step.
func (r *run) describeSpan(i int, about ...attribute.KeyValue) {
	if s := r.span(i); s != nil {
		s.SetAttributes(about...)
	}
}

// failSpan adds to the span of a step why it failed.
func (r *run) failSpan(i int, err error) {
	if s := r.span(i); s != nil {
		FailSpan(s, err)
	}
}

// endSpan ends the span of a step with its decision, at the time at which the step had ended.
func (r *run) endSpan(i int, d decision) {
	s := r.span(i)
	if s == nil {
		return
	}
	s.SetAttributes(keyDecision.String(decisionLabels[d]))
	if s.ended.IsZero() {
		s.End()
	} else {
		s.End(trace.WithTimestamp(s.ended))
	}
	*s = stepSpan{}
}
