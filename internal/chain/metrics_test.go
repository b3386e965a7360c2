package chain

// This file specifies the metrics of steps, and the costs of metrics and traces in a run.

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	admissionv1 "k8s.io/api/admission/v1"

	"code.cloudfoundry.org/eirinix/internal/hang"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
)

var _ = Describe("Metrics of steps", func() {
	var (
		registry *prometheus.Registry
		m        *Metrics
		volumes  *stepMetrics
	)
	BeforeEach(func() {
		registry = prometheus.NewPedanticRegistry()
		m = Must(NewMetrics(registry))
		volumes = m.step("pods", "volumes")
	})
	shown := func(names ...string) string { GinkgoHelper(); return Shown(registry, names...) }

	It("count the decisions of a step by operation", func() {
		for d := range decision(decisions) {
			for range int(d) + 1 {
				volumes.decided(op(admissionv1.Create), d, time.Millisecond, nil)
			}
		}
		for _, dryRun := range []*bool{nil, new(false), new(true)} {
			volumes.decided(&admissionv1.AdmissionRequest{Operation: admissionv1.Delete, DryRun: dryRun}, decisionAllowed, time.Millisecond, nil)
		}
		Expect(shown("eirinix_admission_decisions_total")).To(Equal(`# HELP eirinix_admission_decisions_total Decisions of steps on admission requests; skipped requests did not match the step's rules or selectors, and those of skipped_owned are of objects that a controller keeps as they are.
# TYPE eirinix_admission_decisions_total counter
eirinix_admission_decisions_total{decision="allowed",dry_run="false",operation="CREATE",step="volumes",webhook="pods"} 1
eirinix_admission_decisions_total{decision="allowed",dry_run="false",operation="DELETE",step="volumes",webhook="pods"} 2
eirinix_admission_decisions_total{decision="allowed",dry_run="true",operation="DELETE",step="volumes",webhook="pods"} 1
eirinix_admission_decisions_total{decision="denied",dry_run="false",operation="CREATE",step="volumes",webhook="pods"} 3
eirinix_admission_decisions_total{decision="dropped",dry_run="false",operation="CREATE",step="volumes",webhook="pods"} 10
eirinix_admission_decisions_total{decision="failed",dry_run="false",operation="CREATE",step="volumes",webhook="pods"} 5
eirinix_admission_decisions_total{decision="ignored",dry_run="false",operation="CREATE",step="volumes",webhook="pods"} 6
eirinix_admission_decisions_total{decision="patched",dry_run="false",operation="CREATE",step="volumes",webhook="pods"} 2
eirinix_admission_decisions_total{decision="skipped",dry_run="false",operation="CREATE",step="volumes",webhook="pods"} 4
eirinix_admission_decisions_total{decision="skipped_owned",dry_run="false",operation="CREATE",step="volumes",webhook="pods"} 11
eirinix_admission_decisions_total{decision="would_deny",dry_run="false",operation="CREATE",step="volumes",webhook="pods"} 7
eirinix_admission_decisions_total{decision="would_fail",dry_run="false",operation="CREATE",step="volumes",webhook="pods"} 9
eirinix_admission_decisions_total{decision="would_patch",dry_run="false",operation="CREATE",step="volumes",webhook="pods"} 8
`))
	})

	It("have as many series for a step as the page about metrics says, whatever is requested", func() {
		for _, operation := range []admissionv1.Operation{"CREATE", "UPDATE", "DELETE", "CONNECT", "", "create", "PATCH"} {
			for d := range decision(decisions) {
				for _, dry := range []*bool{nil, new(false), new(true)} {
					volumes.decided(&admissionv1.AdmissionRequest{Operation: operation, DryRun: dry}, d, time.Millisecond, nil)
				}
			}
		}
		lines := func(name string) int { return strings.Count(shown(name), "\n"+name) }
		page, err := os.ReadFile("../../docs/reference/metrics.md")
		Expect(err).NotTo(HaveOccurred())
		Expect(strings.Join(strings.Fields(string(page)), " ")).To(ContainSubstring(fmt.Sprintf("at most %d of decisions and %d of its duration",
			lines("eirinix_admission_decisions_total"), lines("eirinix_admission_step_duration_seconds"))))
	})

	It("measure the time of calls and of steps, but not of steps that were skipped", func() {
		m.webhook("pods").answered(3*time.Millisecond, 0, 0, nil)
		volumes.decided(op(admissionv1.Create), decisionAllowed, 200*time.Microsecond, nil)
		volumes.decided(op(admissionv1.Create), decisionSkipped, 0, nil)
		calls, steps := `eirinix_admission_duration_seconds_%s{webhook="pods"%s} %s`, `eirinix_admission_step_duration_seconds_%s{step="volumes",webhook="pods"%s} %s`
		for _, line := range []string{
			fmt.Sprintf(calls, "bucket", `,le="0.0025"`, "0"), fmt.Sprintf(calls, "bucket", `,le="0.005"`, "1"), fmt.Sprintf(calls, "bucket", `,le="30"`, "1"),
			fmt.Sprintf(calls, "sum", "", "0.003"), fmt.Sprintf(calls, "count", "", "1"),
			fmt.Sprintf(steps, "bucket", `,le="0.00025"`, "1"), fmt.Sprintf(steps, "sum", "", "0.0002"), fmt.Sprintf(steps, "count", "", "1"),
		} {
			Expect(shown()).To(ContainSubstring("\n" + line + "\n"))
		}
	})

	It("count patches and panics", func() {
		pods := m.webhook("pods")
		pods.answered(time.Millisecond, 2, 150, nil)
		pods.answered(time.Millisecond, 1, 50, nil)
		volumes.panics.Inc()
		m.step("pods", "quiet")
		for _, line := range []string{
			`panics_total{step="quiet",webhook="pods"} 0`, `panics_total{step="volumes",webhook="pods"} 1`,
			`patch_bytes_total{webhook="pods"} 200`, `patch_operations_total{webhook="pods"} 3`,
		} {
			Expect(shown()).To(ContainSubstring("\neirinix_admission_" + line + "\n"))
		}
	})

	It("show the timeout of a step, its own or the one that it shares", func() {
		New("pods", Config{Steps: []Step{
			{Name: "volumes", Timeout: 1500 * time.Millisecond, Share: 5 * time.Second}, {Name: "owner", Share: 5 * time.Second}, {Name: "eirinix-canary"},
		}}, m, nil)
		New("pods", Config{Steps: []Step{{Name: "volumes", Timeout: time.Second}}}, unexposed(), nil) // counts for another Manager
		Expect(shown("eirinix_admission_step_timeout_seconds")).To(Equal(`# HELP eirinix_admission_step_timeout_seconds Time that a run of a step has, or shares with other steps of its call.
# TYPE eirinix_admission_step_timeout_seconds gauge
eirinix_admission_step_timeout_seconds{step="owner",webhook="pods"} 5
eirinix_admission_step_timeout_seconds{step="volumes",webhook="pods"} 1.5
`))
	})

	It("do not fight for a name that something else has", func() {
		taken := prometheus.NewRegistry()
		taken.MustRegister(prometheus.NewCounter(prometheus.CounterOpts{Name: "eirinix_admission_panics_total"}))
		_, err := NewMetrics(taken)
		Expect(err).To(MatchError(ContainSubstring("eirinix_admission_panics_total")))
	})

	It("cost no memory once they have been counted", func() {
		pods := m.webhook("pods")
		update := op(admissionv1.Update)
		Expect(testing.AllocsPerRun(100, func() {
			volumes.decided(update, decisionPatched, time.Millisecond, nil)
			pods.answered(time.Millisecond, 3, 200, nil)
		})).To(BeZero())
	})

	It("and traces cost a run no memory without a Tracer, although its call carries one", func() {
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

// unexposed returns metrics that are counted and not exposed.
func unexposed() *Metrics {
	m, err := NewMetrics(nil)
	if err != nil {
		panic(err) // a registry of its own takes all of them
	}
	return m
}

// op returns a request with an operation.
func op(operation admissionv1.Operation) *admissionv1.AdmissionRequest {
	return &admissionv1.AdmissionRequest{Operation: operation}
}
