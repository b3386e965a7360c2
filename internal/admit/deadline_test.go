package admit_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"code.cloudfoundry.org/eirinix/internal/chain"
	"code.cloudfoundry.org/eirinix/internal/spectest"
)

var _ = Describe("The context of a step", func() {
	DescribeTable("ends shortly before the API server gives up, with",
		func(query string, expected time.Duration) {
			deadlines := make(chan time.Time, 1)
			h := newHook(func(ctx context.Context, _ admission.Request) admission.Response {
				deadline, _ := ctx.Deadline()
				deadlines <- deadline
				return admission.Allowed("")
			})
			before := time.Now()
			h.post(volumes+query, body("v1", request())).review("v1")
			after := time.Now()
			Expect(<-deadlines).To(And(BeTemporally(">=", before.Add(expected)), BeTemporally("<=", after.Add(expected))))
		},
		Entry("10 s", "?timeout=10s", 9500*time.Millisecond),
		Entry("1 s", "?timeout=1s", 950*time.Millisecond),
		Entry("a number of seconds alone", "?timeout=4", 3800*time.Millisecond),
		Entry("more than the API allows", "?timeout=2h", 29500*time.Millisecond),
		Entry("the API's default where none is given", "", 9500*time.Millisecond),
		Entry("the API's default for less than nothing", "?timeout=-1s", 9500*time.Millisecond),
	)

	It("is not waited for by a step that ignores it: the answer comes in time, and the step works on its own copy", func() {
		release, ended := make(chan struct{}), make(chan struct{})
		h := newHook(func(ctx context.Context, req admission.Request) admission.Response {
			defer close(ended)
			<-ctx.Done()
			// Beside the handler, which now writes answer and log line: the race detector watches.
			req.UID, req.Name, req.UserInfo.Username = "overwritten", "overwritten", "overwritten"
			for i := range req.Object.Raw {
				req.Object.Raw[i] = 'x'
			}
			<-release
			return admission.Denied("too late")
		})
		got := h.post(volumes+"?timeout=100ms", body("v1", request()))
		Expect(got.Status).To(Equal(http.StatusInternalServerError))
		Expect(got.Header).NotTo(HaveKey("Retry-After"))
		Expect(got.Body).To(And(
			HavePrefix(`step "volumes" failed: no answer before the deadline (timeoutSeconds of the webhook): `),
			HaveSuffix("?timeout=100ms: context deadline exceeded\n"),
		))
		Expect(h.logs.with("failurePolicy decides")).To(ConsistOf(And(HaveKeyWithValue("user", "alice"), HaveKeyWithValue("name", "web-0"))))
		Expect(spectest.Shown(h.registry, "eirinix_admission_step_duration_seconds")).To(
			MatchRegexp(`_sum\{step="volumes",webhook="volumes"\} 0\.\d`), "an alert on slow steps sees the late one")
		close(release)
		Eventually(ended).Should(BeClosed())
	})

	It("lives on when that of the request ends, because the server stops or the client goes away: the API server may still carry out the request", func(spec SpecContext) {
		h := newHook(allow)
		served, end := context.WithCancel(spec)
		var during error
		h.Handle("volumes", func(ctx context.Context, _ admission.Request) admission.Response {
			end()
			during = ctx.Err()
			return admission.Allowed("")
		})
		w := httptest.NewRecorder()
		h.ServeHTTP(w, posted(volumes, body("v1", request())).WithContext(served))
		Expect(during).NotTo(HaveOccurred())
		Expect(w.Code).To(Equal(http.StatusOK))
	})
})

var _ = Describe("A step that ignores its deadline", func() {
	const most = 100 // runs that are left behind
	var h *hanging
	BeforeEach(func() { h = newHanging() })

	DescribeTable("is begun no more when many of its runs still hang, and counted", func(ignore bool) {
		h.Handler.Serve(volumes, chain.Config{Steps: []chain.Step{h.step(chain.ModeDeny, ignore, true, time.Millisecond), label("other", nil)}})
		for h.left() < most {
			h.ask()
		}
		Eventually(h.begun.Load).Should(BeEquivalentTo(most))
		for range 3 {
			got := h.ask()
			if ignore {
				Expect(got.review("v1").Patch).To(ContainSubstring("other"), "it is skipped, and the others are not")
				Expect(h.logs.with("100 of its runs still hang")).NotTo(BeEmpty())
				continue
			}
			Expect(got.Status).To(Equal(http.StatusInternalServerError))
			Expect(got.Body).To(And(HavePrefix(`step "hangs" failed: 100 of its runs still hang`), ContainSubstring("return when its context ends")))
		}
		Expect(h.begun.Load()).To(BeEquivalentTo(most))
		h.Handler.ServeAll(map[string]chain.Config{volumes: {Steps: []chain.Step{label("other", nil), h.step(chain.ModeDeny, ignore, true, time.Millisecond)}}})
		h.ask()
		Expect(h.begun.Load()).To(BeEquivalentTo(most), "they count on when other steps are served")
		h.release()
		Eventually(h.left).Should(BeZero())
		h.ask()
		Expect(h.begun.Load()).To(BeEquivalentTo(most + 1))
	},
		Entry("under Fail", false),
		Entry("under Ignore", true),
	)

	It("is counted, too, when it was given all of the call's time", func() {
		h.Handler.Serve(volumes, chain.Config{Steps: []chain.Step{h.step(chain.ModeDeny, false, true, 0)}})
		for h.left() < 3 {
			Expect(h.post(volumes+"?timeout=40ms", body("v1", request())).Status).To(Equal(http.StatusInternalServerError))
		}
		h.release()
		Eventually(h.left).Should(BeZero())
	})
})

// stubborn is a pod that takes its time to be decoded.
type stubborn struct {
	corev1.Pod
	wait chan struct{}
}

func (s *stubborn) UnmarshalJSON([]byte) error {
	<-s.wait
	return nil
}

func (s *stubborn) DeepCopyObject() runtime.Object { return s }

var _ = It("A call is answered at its deadline while the object is still being decoded", func() {
	t, wait, h := &tracer{}, make(chan struct{}), newHook(allow)
	step := label("a", nil)
	step.New = func() runtime.Object { return &stubborn{wait: wait} }
	h.Handler.Serve(volumes, chain.Config{Steps: []chain.Step{step}})
	h.Tracer = t
	got := h.post(volumes+"?timeout=100ms", body("v1", request()))
	Expect(got.Status).To(Equal(http.StatusInternalServerError))
	Expect(got.Body).To(And(HavePrefix(`step "a" failed: no answer before the deadline`), ContainSubstring("decoding")))
	close(wait)
	Eventually(t.ended).Should(HaveKey("a"), "the step did not begin any more, and its span has ended")
})
