package chain

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"go.opentelemetry.io/otel/trace"
	admissionv1 "k8s.io/api/admission/v1"

	"code.cloudfoundry.org/eirinix/internal/hang"
)

var _ = Describe("Without a Tracer", func() {
	It("a run takes no memory for traces, although its call carries one", func() {
		x := &Runner{}
		carried := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{1}, TraceFlags: trace.FlagsSampled})
		ctx := trace.ContextWithRemoteSpanContext(context.Background(), carried)
		c := New("volumes", Config{Steps: []Step{{Name: "volumes"}}}, unexposed(), nil)
		x.Objects = NewBudget()
		r := x.newRun(ctx, c, &admissionv1.AdmissionRequest{Name: "web-0"}, nil)
		o := Outcome{Response: &admissionv1.AdmissionResponse{Allowed: true}}
		Expect(testing.AllocsPerRun(100, func() {
			x.Logger(ctx)
			r.beginSpan(0)
			r.endSpan(0, result{decision: decisionFailed, err: hang.ErrNoAnswer})
			x.describe(ctx, r.request, o)
			x.exemplar(ctx)
			x.Report(ctx, c, r.request, o, time.Second)
		})).To(BeZero())
		Expect(r.spans).To(BeNil())
	})
})
