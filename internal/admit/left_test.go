package admit_test

import (
	"context"
	"net/http"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime"

	"code.cloudfoundry.org/eirinix/internal/admit"
)

var _ = Describe("A step that hangs", func() {
	DescribeTable("is left behind a hundred times, and then fails at once until some of its runs have ended:", func(ignore bool, timeout time.Duration, query string) {
		registry := prometheus.NewRegistry()
		metrics, err := admit.NewMetrics(registry)
		Expect(err).NotTo(HaveOccurred())
		left := func() float64 {
			families, err := registry.Gather()
			Expect(err).NotTo(HaveOccurred())
			for _, family := range families {
				if family.GetName() == "eirinix_admission_left_behind_runs" {
					return family.GetMetric()[0].GetGauge().GetValue()
				}
			}
			return -1
		}
		hanging, begun := make(chan struct{}), make(chan struct{}, 200)
		h := newHook(allow)
		h.Handler.Metrics = metrics
		h.Handler.Serve(volumes, admit.Chain{Steps: []admit.Step{{
			Name: "hangs", Ignore: ignore, Timeout: timeout, New: newPod,
			Mutate: func(context.Context, *admit.Exchange, runtime.Object) error {
				begun <- struct{}{}
				<-hanging
				return nil
			},
		}}})
		for len(begun) < 100 { // on a busy machine the deadline may pass before the step begins
			Expect(h.post(volumes+query, body("v1", request())).Status).To(Equal(http.StatusInternalServerError))
		}
		Expect(left()).To(BeEquivalentTo(100))
		r := h.post(volumes+"?timeout=30s", body("v1", request()))
		Expect(r.Status).To(Equal(http.StatusInternalServerError))
		Expect(r.Body).To(HavePrefix(`extension "hangs" failed: 100 runs of it still go on after their deadlines; make it heed its context`))
		Expect(begun).To(HaveLen(100), "another one has begun")

		close(hanging)
		Eventually(left).Should(BeZero())
		Expect(h.post(volumes+"?timeout=30s", body("v1", request())).review("v1").Allowed).To(BeTrue())
	},
		Entry("with the call's deadline", false, time.Duration(0), "?timeout=20ms"),
		Entry("with one of its own", false, 5*time.Millisecond, "?timeout=10s"),
		Entry("under Ignore", true, time.Duration(0), "?timeout=20ms"),
	)
})
