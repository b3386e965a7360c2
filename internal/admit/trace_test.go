package admit_test

// This file specifies the traces of a call: its spans, all else that names its trace, and the lines of the log.

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	goruntime "runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"code.cloudfoundry.org/eirinix/internal/admit"
	"code.cloudfoundry.org/eirinix/internal/chain"
)

const (
	traceID = "4bf92f3577b34da6a3ce929d0e0e4736"
	spanID  = "00f067aa0ba902b7"
)

// tracer keeps the spans that it has started. It numbers them from 1.
type tracer struct {
	noop.Tracer
	mu  sync.Mutex
	all []*span
}

type span struct {
	noop.Span
	tracer     *tracer
	at, parent trace.SpanContext
	name       string
	kind       trace.SpanKind
	attributes map[string]any
	status     codes.Code
	text       string
	started    time.Time
	ended      []time.Time
}

func (t *tracer) Start(ctx context.Context, name string, opts ...trace.SpanStartOption) (context.Context, trace.Span) {
	t.mu.Lock()
	defer t.mu.Unlock()
	config, parent := trace.NewSpanStartConfig(opts...), trace.SpanContextFromContext(ctx)
	s := &span{
		tracer: t, parent: parent, name: name, kind: config.SpanKind(), attributes: map[string]any{}, started: time.Now(),
		at: parent.WithSpanID(trace.SpanID{7: byte(len(t.all) + 1)}).WithRemote(false),
	}
	t.all = append(t.all, s)
	return trace.ContextWithSpan(ctx, s), s
}

func (s *span) SpanContext() trace.SpanContext { return s.at }
func (s *span) IsRecording() bool              { return true }

func (s *span) SetStatus(status codes.Code, text string) {
	s.tracer.mu.Lock()
	defer s.tracer.mu.Unlock()
	s.status, s.text = status, text
}

func (s *span) SetAttributes(all ...attribute.KeyValue) {
	s.tracer.mu.Lock()
	defer s.tracer.mu.Unlock()
	for _, a := range all {
		s.attributes[string(a.Key)] = a.Value.AsInterface()
	}
}

func (s *span) End(opts ...trace.SpanEndOption) {
	s.tracer.mu.Lock()
	defer s.tracer.mu.Unlock()
	config := trace.NewSpanEndConfig(opts...)
	at := config.Timestamp()
	if at.IsZero() {
		at = time.Now()
	}
	s.ended = append(s.ended, at)
}

// ended returns copies of the spans, by name, once all have ended. A span that ends twice fails the spec.
func (t *tracer) ended() map[string]span {
	GinkgoHelper()
	found := map[string]span{}
	Eventually(func(g Gomega) {
		t.mu.Lock()
		defer t.mu.Unlock()
		clear(found)
		for _, s := range t.all {
			g.Expect(s.ended).To(HaveLen(1), s.name)
			copied := *s
			copied.attributes = maps.Clone(s.attributes)
			found[s.name] = copied
		}
	}).Should(Succeed())
	return found
}

// sampled and unsampled are the parents that an API server gives a call.
const (
	sampled   = "00-" + traceID + "-" + spanID + "-01"
	unsampled = "00-" + traceID + "-" + spanID + "-00"
)

// traced sends the review of a pod as an API server does that samples it.
func (h *hook) traced(query string) reply {
	GinkgoHelper()
	return h.from(query, sampled)
}

// from sends the review of a pod with this parent.
func (h *hook) from(query, parent string) reply {
	GinkgoHelper()
	req := posted(h.URL+volumes+query, body("v1", request()))
	req.Header.Set("Traceparent", parent)
	return h.do(req)
}

var _ = Describe("The spans of a call", func() {
	var (
		t *tracer
		h *hook
	)
	serve := func(c chain.Config) {
		t, h = &tracer{}, newHook(allow)
		h.Tracer = t
		h.Serve(volumes, c)
	}
	label := func(name string) chain.Step {
		return onPod(name, func(p *corev1.Pod) error { p.Labels = map[string]string{"by": name}; return nil })
	}
	deny := check("deny", newPod, func(_, _ runtime.Object) error {
		return apierrors.NewForbidden(corev1.Resource("pods"), "web-0", errors.New("no root"))
	})

	It("are one for a step whose Rule judges both objects of an update", func() {
		serve(chain.Config{Validating: true, Steps: []chain.Step{{Name: "rule", New: newPod, Rule: func(context.Context, *chain.Call, runtime.Object) error {
			return apierrors.NewForbidden(corev1.Resource("pods"), "web-0", errors.New("no root"))
		}}}})
		Expect(h.ask(func(r *admissionv1.AdmissionRequest) {
			r.Operation, r.OldObject.Raw = admissionv1.Update, bytes.Replace(r.Object.Raw, []byte(`"spec"`), []byte(`"status":{},"spec"`), 1)
		}).Status).To(Equal(http.StatusOK))
		Expect(t.ended()["rule"].attributes).To(HaveKeyWithValue("eirinix.decision", "allowed"))
	})

	It("continue the API server's trace, with a child for each step that ran", func() {
		var inStep trace.SpanContext
		serve(chain.Config{Steps: []chain.Step{
			label("first"),
			{Name: "second", New: newPod, Mutates: true, Run: func(ctx context.Context, _ *chain.Call, _, _ runtime.Object) error {
				inStep = trace.SpanContextFromContext(ctx)
				logf.FromContext(ctx).Info("the step's own line")
				return nil
			}},
		}})
		Expect(h.traced("?timeout=10s").Status).To(Equal(http.StatusOK))
		spans := t.ended()
		Expect(slices.Sorted(maps.Keys(spans))).To(Equal([]string{"first", "second", "volumes"}))
		call := spans["volumes"]
		Expect(call.kind).To(Equal(trace.SpanKindServer))
		Expect(call.parent.TraceID().String()).To(Equal(traceID))
		Expect(call.parent.SpanID().String()).To(Equal(spanID))
		Expect(call.attributes).To(And(
			HaveKeyWithValue("k8s.resource", "pods"), HaveKeyWithValue("k8s.namespace.name", "cf"),
			HaveKeyWithValue("k8s.object.name", "web-0"), HaveKeyWithValue("k8s.admission.uid", uid),
			HaveKeyWithValue("k8s.admission.operation", "CREATE"), HaveKeyWithValue("k8s.admission.dry_run", false),
			HaveKeyWithValue("eirinix.decision", "patched"), HaveKeyWithValue("eirinix.patch.operations", BeEquivalentTo(1)),
			HaveKeyWithValue("eirinix.patch.bytes", BeNumerically(">", 10)), HaveKeyWithValue("http.response.status_code", BeEquivalentTo(200)),
		))
		for _, step := range []string{"first", "second"} {
			Expect(spans[step].parent.SpanID()).To(Equal(call.at.SpanID()))
			Expect(spans[step].attributes).To(And(HaveKeyWithValue("eirinix.decision", "patched"), HaveKeyWithValue("k8s.object.name", "web-0")))
			Expect(spans[step].status).To(Equal(codes.Unset))
		}
		Expect(inStep).To(Equal(spans["second"].at), "what the step asks for is below its span")
		Expect(h.logs.with("the step's own line")).To(ConsistOf(HaveKeyWithValue("trace_id", traceID)))
		Expect(spans["first"].ended[0]).NotTo(BeTemporally(">", spans["second"].started), "although its decision is known later")
	})

	It("show a denial with its reason, which is no error, and the trace in each line of the log if it is sampled", func() {
		serve(chain.Config{Steps: []chain.Step{deny}, Validating: true})
		h.from("?timeout=10s", unsampled)
		h.from("?timeout=never", unsampled)
		Expect(h.logs.with("denied")).To(HaveLen(2))
		Expect(h.logs.all()).NotTo(ContainElement(ContainSubstring(traceID)), "it leads nowhere")
		t.all = nil
		h.traced("?timeout=10s")
		spans := t.ended()
		for _, name := range []string{"volumes", "deny"} {
			Expect(spans[name].attributes).To(And(HaveKeyWithValue("eirinix.decision", "denied"), HaveKeyWithValue("eirinix.reason", HaveSuffix("no root"))))
			Expect(spans[name].status).To(Equal(codes.Unset))
		}
		Expect(h.logs.with(traceID)).To(ConsistOf(HaveKeyWithValue("msg", ContainSubstring("denied"))))
	})

	DescribeTable("show a failure", func(fail func(context.Context) error, query, kind, text string) {
		serve(chain.Config{Steps: []chain.Step{mutation("sick", newPod, func(ctx context.Context, _ *chain.Call, _ *corev1.Pod) error {
			return fail(ctx)
		})}})
		Expect(h.traced(query).Status).To(Equal(http.StatusInternalServerError))
		spans := t.ended()
		for _, name := range []string{"volumes", "sick"} {
			Expect(spans[name].status).To(Equal(codes.Error))
			Expect(spans[name].text).To(ContainSubstring(text))
			Expect(spans[name].attributes).To(And(HaveKeyWithValue("error.type", kind), HaveKeyWithValue("eirinix.decision", "failed")))
		}
		Expect(h.logs.with("step failed")).To(ConsistOf(HaveKeyWithValue("trace_id", traceID)))
	},
		Entry("with its text", func(context.Context) error { return errors.New("no quota") }, "?timeout=10s", "_OTHER", "no quota"),
		Entry("that is a panic", func(context.Context) error { panic("out of range") }, "?timeout=10s", "panic", "out of range"),
		Entry("that ends its goroutine", func(context.Context) error { goruntime.Goexit(); return nil }, "?timeout=10s", "_OTHER", "ended its goroutine"),
		Entry("that came too late", func(ctx context.Context) error { <-ctx.Done(); <-time.After(time.Millisecond); return nil }, "?timeout=100ms", "timeout", "deadline"),
	)

	It("show a failure that is ignored, and what steps that watch would have done, in Shadow after the answer in the same trace", func() {
		warn, shadow := deny, label("shadowed")
		warn.Mode, shadow.Mode = chain.ModeWarn, chain.ModeShadow
		sick := ignoring(onPod("sick", func(*corev1.Pod) error { return errors.New("no quota") }))
		serve(chain.Config{Steps: []chain.Step{sick, warn, shadow}})
		h.traced("?timeout=10s")
		Eventually(func() []map[string]any { return h.logs.with("would change") }).Should(ConsistOf(HaveKeyWithValue("trace_id", traceID)))
		spans := t.ended()
		Expect(spans["sick"].attributes).To(HaveKeyWithValue("eirinix.decision", "ignored"))
		Expect(spans["sick"].status).To(Equal(codes.Error))
		Expect(spans["volumes"].status).To(Equal(codes.Unset))
		Expect(spans["deny"].attributes).To(And(HaveKeyWithValue("eirinix.mode", "Warn"),
			HaveKeyWithValue("eirinix.decision", "would_deny"), HaveKeyWithValue("eirinix.reason", HaveSuffix("no root"))))
		Expect(spans["shadowed"].attributes).To(And(HaveKeyWithValue("eirinix.mode", "Shadow"),
			HaveKeyWithValue("eirinix.decision", "would_patch"), HaveKeyWithValue("eirinix.reason", "/metadata/labels")))
		Expect(spans["shadowed"].parent.SpanID()).To(Equal(spans["volumes"].at.SpanID()))
		Expect(spans["volumes"].attributes).To(HaveKeyWithValue("eirinix.decision", "allowed"))
	})

	DescribeTable("show a request that", func(query, text string, status codes.Code, code int, reason string) {
		serve(chain.Config{Steps: []chain.Step{deny}})
		req := posted(h.URL+volumes+query, text)
		req.Header.Set("Traceparent", sampled)
		h.do(req)
		call := t.ended()["volumes"]
		Expect(call.attributes).To(HaveKeyWithValue("http.response.status_code", BeEquivalentTo(code)))
		Expect(call.status).To(Equal(status))
		Expect(call.text).To(ContainSubstring(reason))
		Expect(h.logs.with("refused a request")).To(ConsistOf(HaveKeyWithValue("trace_id", traceID)))
	},
		Entry("is no review, which is the client's mistake", "", "{", codes.Unset, 400, ""),
		Entry("gets no slot", "?timeout=1ns", body("v1", request()), codes.Error, 500, "no slot"),
	)

	It("show a conversion", func() {
		serve(chain.Config{})
		var broken error
		h.Convert(map[string]admit.Conversion{"/convert/volumes": {Name: "volumes.example.com", Answer: func(ctx context.Context, _ []byte, _ admit.Room) ([]byte, error) {
			return []byte(trace.SpanContextFromContext(ctx).SpanID().String()), broken
		}}})
		answered := h.post("/convert/volumes", "{}")
		call := t.ended()["volumes.example.com"]
		Expect(call.attributes).To(HaveKeyWithValue("http.response.status_code", BeEquivalentTo(200)))
		Expect(answered.Body).To(Equal(call.at.SpanID().String()))
		t.all, broken = nil, errors.New("no shop")
		h.post("/convert/volumes", "{}")
		call = t.ended()["volumes.example.com"]
		Expect(call.status).To(Equal(codes.Error))
		Expect(call.text).To(Equal("no shop"))
		Expect(call.attributes).To(HaveKeyWithValue("http.response.status_code", BeEquivalentTo(500)))
	})

	It("are the exemplars of the durations, if the trace is sampled", func() {
		for _, fail := range []error{nil, errStep} {
			serve(chain.Config{Steps: []chain.Step{onPod("first", func(*corev1.Pod) error { return fail })}})
			h.ask()
			h.from("?timeout=10s", unsampled)
			Expect(h.exemplars()).To(BeEmpty())
			h.traced("?timeout=10s")
			Expect(h.exemplars()).To(ConsistOf("eirinix_admission_duration_seconds "+traceID, "eirinix_admission_step_duration_seconds "+traceID))
		}
	})

	It("are told to a recording, and tell of it", func() {
		serve(chain.Config{Steps: []chain.Step{deny}})
		ask := func(w http.ResponseWriter) any {
			t.all = nil
			asked := posted(volumes, body("v1", request()))
			asked.Header.Set("Traceparent", sampled)
			h.Handler.ServeHTTP(w, asked)
			return t.ended()["volumes"].attributes["eirinix.recorded"]
		}
		w := &recording{ResponseRecorder: httptest.NewRecorder()}
		Expect(ask(w)).To(BeTrue())
		Expect(w.trace).To(Equal(traceID))
		Expect(ask(httptest.NewRecorder())).To(BeNil())
	})
})

// recording is the ResponseWriter of a call that is recorded.
type recording struct {
	*httptest.ResponseRecorder
	trace string
}

func (r *recording) Trace(id string) { r.trace = id }

// exemplars returns the histograms with an exemplar, and its trace.
func (h *hook) exemplars() (found []string) {
	GinkgoHelper()
	families, err := h.registry.Gather()
	Expect(err).NotTo(HaveOccurred())
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, b := range m.GetHistogram().GetBucket() {
				for _, l := range b.GetExemplar().GetLabel() {
					Expect(l.GetName()).To(Equal("trace_id"))
					found = append(found, f.GetName()+" "+l.GetValue())
				}
			}
		}
	}
	return found
}

var _ = Describe("The log", func() {
	It("names the user, the object, the step, the reason and the duration of a denial", func() {
		h := newHook(returning(admission.Denied("no root")))
		h.ask(func(r *admissionv1.AdmissionRequest) {
			r.Resource = metav1.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
			r.SubResource = "scale"
			r.Operation = admissionv1.Update
		})
		Expect(h.logs.all()).To(HaveLen(1))
		Expect(h.logs.with("denied")).To(ConsistOf(And(
			HaveKeyWithValue("user", "alice"),
			HaveKeyWithValue("operation", "UPDATE"),
			HaveKeyWithValue("resource", "deployments.apps/scale"),
			HaveKeyWithValue("step", "volumes"),
			HaveKeyWithValue("code", BeEquivalentTo(403)),
			HaveKeyWithValue("reason", "no root"),
			HaveKeyWithValue("took", aDuration()),
			HaveKeyWithValue("level", BeEquivalentTo(0)),
		)))
	})

	DescribeTable("samples lines for one reason, and says how many it withheld,", func(path, message, key string, counted []string, answer func(string) admission.Response) {
		reason, others := "no-root", 0 // reasons can share a hash with the first one
		h := newHook(func(context.Context, admission.Request) admission.Response { return answer(reason) })
		for range 30 {
			h.post(path+reason, body("v1", request()))
		}
		Expect(h.logs.with(message)).To(HaveLen(10))
		for ; len(h.logs.with(message)) == 10 && others < 20; others++ {
			reason = fmt.Sprintf("no-image-%d", others)
			h.post(path+reason, body("v1", request()))
		}
		Expect(h.logs.with(message)[10]).To(And(HaveKeyWithValue(key, ContainSubstring(reason)), HaveKeyWithValue("withheld", BeEquivalentTo(19+others))))
		Expect(h.count(counted[0], counted[1:]...)).To(BeEquivalentTo(30 + others))
	},
		Entry("of denials", volumes+"?", "denied", "reason", []string{"eirinix_admission_decisions_total", "volumes", "denied"}, admission.Denied),
		Entry("of failures", volumes+"?", "step failed", "error", []string{"eirinix_admission_decisions_total", "volumes", "failed"}, func(reason string) admission.Response { return admission.Errored(500, errors.New(reason)) }),
		Entry("of unknown paths", volumes+"-", "unknown path", "path", []string{"eirinix_admission_refused_requests_total", "503"}, admission.Denied),
	)

	It("reports an admission only at a higher verbosity", func() {
		h := newHook(withPatch(`[{"op":"add","path":"/spec/hostname","value":"`+secret+`"}]`, nil))
		h.ask().review("v1")
		Expect(h.logs.all()).To(HaveLen(1))
		Expect(h.logs.with("allowed")).To(ConsistOf(And(
			HaveKeyWithValue("level", BeEquivalentTo(1)),
			HaveKeyWithValue("step", "volumes"),
			HaveKeyWithValue("took", aDuration()),
			HaveKey("patchBytes"),
		)))
	})

	It("names the step where several share a webhook, and the webhook beside it", func() {
		verdict := func(name string, err error) chain.Step {
			return check(name, newPod, func(runtime.Object, runtime.Object) error { return err })
		}
		denial := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "web-0", errStep)
		h := newHook(allow)
		h.Handler.Serve("/validate/pods-1", chain.Config{Validating: true, Steps: []chain.Step{
			verdict("size", denial), verdict("broken", errStep), verdict("fine", nil), verdict("name", denial),
		}})
		h.post("/validate/pods-1", body("v1", request())).review("v1")
		Expect(h.logs.with("denied")).To(ConsistOf(And(HaveKeyWithValue("webhook", "pods-1"), HaveKeyWithValue("step", "size, name"))))
		Expect(h.logs.with("the denial of another one")).To(ConsistOf(And(
			HaveKeyWithValue("webhook", "pods-1"), HaveKeyWithValue("step", "broken"), HaveKeyWithValue("error", ContainSubstring(errStep.Error())))))
		Expect(h.logs.all()).To(HaveLen(2))

		h.Handler.Serve("/validate/pods-2", chain.Config{Validating: true, Steps: []chain.Step{verdict("broken", errStep), verdict("also", errStep)}})
		h.post("/validate/pods-2", body("v1", request()))
		Expect(h.logs.with("failurePolicy decides")).To(ConsistOf(And(HaveKeyWithValue("webhook", "pods-2"), HaveKeyWithValue("step", "broken"))))
		Expect(h.logs.with("the failure of an earlier one")).To(ConsistOf(HaveKeyWithValue("step", "also")))
	})

	DescribeTable("has the panic of a step that was left behind", func(ignore bool) {
		var begun atomic.Bool
		late := make(chan struct{})
		step := label("late", func(*chain.Call) error {
			begun.Store(true)
			<-late
			panic("too late")
		})
		step.Ignore = ignore
		h := newHook(allow)
		h.Handler.Serve(volumes, chain.Config{Steps: []chain.Step{step}})
		for !begun.Load() { // on a slow machine the time may be over before
			h.post(volumes+"?timeout=40ms", body("v1", request()))
		}
		close(late)
		Eventually(h.logs.with).WithArguments("panicked after its deadline").Should(ConsistOf(And(
			HaveKeyWithValue("step", "late"), HaveKeyWithValue("error", ContainSubstring("too late")), HaveKeyWithValue("stack", ContainSubstring("trace_test.go")))))
	},
		Entry("under Fail", false),
		Entry("under Ignore", true),
	)
})
