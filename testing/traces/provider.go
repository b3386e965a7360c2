package traces

// This file makes a provider as programs need it.

import (
	"context"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
)

// NewProvider returns a provider that sends the spans of sampled traces to a collector, host:port without TLS. It begins
// no traces itself. Of the traces that API servers have sampled it keeps the part from 0 to 1.
func NewProvider(ctx context.Context, collector, service string, part float64) (*trace.TracerProvider, error) {
	exporter, err := otlptracegrpc.New(ctx, otlptracegrpc.WithEndpoint(collector), otlptracegrpc.WithInsecure())
	if err != nil {
		return nil, err
	}

	return trace.NewTracerProvider(
		trace.WithBatcher(exporter),
		trace.WithResource(resource.NewSchemaless(semconv.ServiceName(service))),
		trace.WithSampler(trace.ParentBased(trace.NeverSample(),
			trace.WithRemoteParentSampled(trace.TraceIDRatioBased(part)))),
	), nil
}
