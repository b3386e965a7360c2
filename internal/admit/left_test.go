package admit_test

import (
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"code.cloudfoundry.org/eirinix/internal/admit"
)

var _ = Describe("A step that ignores its deadline", func() {
	const most = 100 // runs that are left behind
	var (
		h        *hook
		begun    atomic.Int64
		release  func()
		hang     chan struct{}
		registry *prometheus.Registry
	)
	BeforeEach(func() {
		begun.Store(0)
		hang = make(chan struct{})
		release = sync.OnceFunc(func() { close(hang) })
		DeferCleanup(release)
		registry = prometheus.NewRegistry()
		metrics, err := admit.NewMetrics(registry)
		Expect(err).NotTo(HaveOccurred())
		h = newHook(allow)
		h.Handler.Metrics = metrics
	})
	hangs := func(name string, timeout time.Duration, ignore bool) admit.Step {
		s := label(name, func(*admit.Call) error {
			begun.Add(1)
			<-hang
			return nil
		})
		s.Timeout, s.Ignore = timeout, ignore
		return s
	}
	left := func() (runs float64) {
		GinkgoHelper()
		families, err := registry.Gather()
		Expect(err).NotTo(HaveOccurred())
		for _, f := range families {
			for _, m := range f.GetMetric() {
				if f.GetName() == "eirinix_admission_left_behind_runs" && hasLabels(m, []string{"hangs"}) {
					runs += m.GetGauge().GetValue()
				}
			}
		}
		return runs
	}

	DescribeTable("is begun no more when many of its runs still hang, and counted", func(ignore bool) {
		h.Handler.Serve(volumes, admit.Chain{Steps: []admit.Step{hangs("hangs", time.Millisecond, ignore), label("other", nil)}})
		for left() < most {
			h.ask()
		}
		Eventually(begun.Load).Should(BeEquivalentTo(most))
		for range 3 {
			got := h.ask()
			if ignore {
				Expect(got.review("v1").Patch).To(ContainSubstring("other"), "it is skipped, and the others are not")
				Expect(h.logs.with("100 of its runs still hang")).NotTo(BeEmpty())
				continue
			}
			Expect(got.Status).To(Equal(http.StatusInternalServerError))
			Expect(got.Body).To(And(HavePrefix(`extension "hangs" failed: 100 of its runs still hang`), ContainSubstring("return when its context ends")))
		}
		Expect(begun.Load()).To(BeEquivalentTo(most))
		h.Handler.ServeAll(map[string]admit.Chain{volumes: {Steps: []admit.Step{label("other", nil), hangs("hangs", time.Millisecond, ignore)}}})
		h.ask()
		Expect(begun.Load()).To(BeEquivalentTo(most), "they count on when other steps are served")
		release()
		Eventually(left).Should(BeZero())
		h.ask()
		Expect(begun.Load()).To(BeEquivalentTo(most + 1))
	},
		Entry("under Fail", false),
		Entry("under Ignore", true),
	)

	It("is counted, too, when it was given all of the call's time", func() {
		h.Handler.Serve(volumes, admit.Chain{Steps: []admit.Step{hangs("hangs", 0, false)}})
		for left() < 3 {
			Expect(h.post(volumes+"?timeout=40ms", body("v1", request())).Status).To(Equal(http.StatusInternalServerError))
		}
		release()
		Eventually(left).Should(BeZero())
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

var _ = Describe("A call", func() {
	It("is answered at its deadline while the object is still being decoded", func() {
		wait := make(chan struct{})
		h := newHook(allow)
		step := label("a", nil)
		step.New = func() runtime.Object { return &stubborn{wait: wait} }
		h.Handler.Serve(volumes, admit.Chain{Steps: []admit.Step{step}})
		answered := make(chan reply, 1)
		go func() {
			defer GinkgoRecover()
			answered <- h.post(volumes+"?timeout=100ms", body("v1", request()))
		}()
		var got reply
		Eventually(answered).WithTimeout(20 * time.Second).Should(Receive(&got))
		Expect(got.Status).To(Equal(http.StatusInternalServerError))
		Expect(got.Body).To(And(HavePrefix(`extension "a" failed: no answer before the deadline`), ContainSubstring("decoding")))
		close(wait)
	})
})
