package admit

// This file makes a span for each call, which continues the trace of the API server. Without a Tracer it costs nothing.

import (
	"context"
	"net/http"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"code.cloudfoundry.org/eirinix/internal/chain"
)

// These are attributes of spans. Their names are like those of the chain.
const (
	keyRecorded = attribute.Key("eirinix.recorded")
	keyStatus   = attribute.Key("http.response.status_code")
)

// recorder is a ResponseWriter that records the call. The record gets the ID of the trace.
type recorder interface{ Trace(id string) }

// traced starts the span of a call. Its parent is the span in the request's headers, if any. ended ends it, with the
// HTTP status of the answer.
func (h *Handler) traced(w http.ResponseWriter, r *http.Request, name string) (_ *http.Request, ended func(status int)) {
	if h.Tracer == nil {
		return r, untraced
	}
	parent := propagation.TraceContext{}.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
	ctx, span := h.Tracer.Start(parent, name, trace.WithSpanKind(trace.SpanKindServer))
	if records, ok := w.(recorder); ok && span.SpanContext().HasTraceID() {
		records.Trace(span.SpanContext().TraceID().String())
		span.SetAttributes(keyRecorded.Bool(true))
	}
	return r.WithContext(ctx), func(status int) {
		span.SetAttributes(keyStatus.Int(status))
		span.End()
	}
}

func untraced(int) {}

// refusedSpan adds to the span of a call why it was refused.
func (h *Handler) refusedSpan(ctx context.Context, status int, err error) {
	if h.Tracer != nil && status >= http.StatusInternalServerError {
		chain.FailSpan(trace.SpanFromContext(ctx), err)
	}
}
