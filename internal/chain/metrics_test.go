package chain

// This file specifies what is counted and told of steps, what that costs in a run, and the patches that they make.

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
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

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
		Expect(shown("eirinix_admission_decisions_total")).To(Equal(`# HELP eirinix_admission_decisions_total Decisions of steps on admission requests; skipped requests did not match the step's rules or selectors, or left nothing to judge, and those of skipped_owned are of objects that a controller keeps as they are.
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
		page := Must(os.ReadFile("../../docs/reference/metrics.md"))
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
			volumes.decided(r.request, decisionPatched, time.Millisecond, nil)
		})).To(BeZero())
		Expect(r.spans).To(BeNil())
	})

	It("count as patched what the span of a call says to be patched", func() {
		for text, want := range map[string]decision{"": decisionAllowed, "[]": decisionPatched} {
			span, o := &told{}, Outcome{Response: &admissionv1.AdmissionResponse{Allowed: true, Patch: []byte(text)}}
			ctx := trace.ContextWithSpan(context.Background(), span)
			(&Runner{Tracer: noop.Tracer{}}).describe(ctx, op(admissionv1.Create), o)
			Expect(span.all).To(ContainElement(keyDecision.String(decisionLabels[want])))
		}
	})
})

// told is a span that keeps what it is told.
type told struct {
	noop.Span
	all []attribute.KeyValue
}

func (*told) IsRecording() bool                         { return true }
func (s *told) SetAttributes(all ...attribute.KeyValue) { s.all = append(s.all, all...) }

var _ = It("A step that watches keeps what it says, but shows the user no warnings in Audit", func(ctx SpecContext) {
	speak := func(name string, mode Mode) Step {
		return Step{Name: name, Mode: mode, Run: func(_ context.Context, c *Call, _, _ runtime.Object) error {
			c.Warn(name + " warns")
			c.Annotate(name, "noted")
			return nil
		}}
	}
	c := New("pods", Config{Steps: []Step{speak("a", ModeWarn), speak("b", ModeAudit)}}, unexposed(), nil)
	all := Selection{wantKind | wantObject, wantKind | wantObject}
	said := (&Runner{Objects: NewBudget()}).Run(ctx, c, op(admissionv1.Create), all).Response
	Expect(said.Warnings).To(Equal([]string{"a warns"}))
	Expect(said.AuditAnnotations).To(Equal(map[string]string{"a": "noted", "b": "noted"}))
})

var _ = Describe("A patch of a step's own", func() {
	DescribeTable("changes the object, and fails where there is none:", func(text string, changes, fails bool) {
		o := &object{raw: []byte(`{}`)}
		Expect(o.apply([]byte(text)) == nil && o.touched()).To(Equal(changes))
		own := admission.Response{AdmissionResponse: admissionv1.AdmissionResponse{Patch: []byte(text)}}
		err := (&run{request: op(admissionv1.Delete)}).applyPatch(nil, own)
		Expect(err != nil).To(Equal(fails))
	},
		Entry("but not with no operation", `[]`, false, false),
		Entry("with an operation", `[{"op":"add","path":"/x","value":1}]`, true, true),
		Entry("but fails as no JSON patch in both", `{}`, false, true),
	)

	It("is known for that of Pods until the step changes its response", func(ctx SpecContext) {
		pods, asked := &Pods{}, &admissionv1.AdmissionRequest{Object: runtime.RawExtension{Raw: []byte(web)}}
		c := New("pods", Config{Steps: []Step{{Name: "a", Pods: pods}}}, unexposed(), nil)
		r := (&Runner{Objects: NewBudget()}).newRun(ctx, c, asked, Selection{wantKind | wantObject})
		req := admission.Request{AdmissionRequest: r.requestWith(asked.Object.Raw)}
		onPod, pod := Must(pods.begin(r, 0, &req)), Must(pods.Pod(req))
		pod.Name = "b"
		resp := pods.Patch(req, pod)
		made := func() bool { _, _, ok := onPod.isAnswered(resp); return ok }
		Expect(made()).To(BeTrue())
		for _, change := range []func(){
			func() { resp.Patch = []byte("[]") },
			func() { resp.Patch, resp.PatchType = nil, nil },
			func() { resp.PatchType = new(admissionv1.PatchType("Other")) },
			func() { resp.PatchType, resp.Patches = new(admissionv1.PatchTypeJSONPatch), nil },
		} {
			change()
			Expect(made()).To(BeFalse())
		}
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
