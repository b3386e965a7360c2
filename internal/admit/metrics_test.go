package admit

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	. "code.cloudfoundry.org/eirinix/internal/spectest"
)

// These specs are about the metrics of requests, and about what metrics and traces cost a call.

var _ = Describe("Metrics", func() {
	var (
		registry *prometheus.Registry
		m        *Metrics
	)
	BeforeEach(func() {
		registry = prometheus.NewPedanticRegistry()
		m = Must(NewMetrics(registry))
	})
	shown := func(names ...string) string { GinkgoHelper(); return Shown(registry, names...) }

	It("count refusals and requests in flight", func() {
		m.refusedWith(413)
		m.refusedWith(503)
		m.refusedWith(503)
		m.inFlight.Inc()
		m.inFlight.Inc()
		m.inFlight.Dec()
		Expect(shown("eirinix_admission_slots", "eirinix_admission_in_flight_limit")).To(And(
			ContainSubstring("\neirinix_admission_slots 100\n"), ContainSubstring("\neirinix_admission_in_flight_limit 500\n")))
		Expect(shown("eirinix_admission_in_flight_requests", "eirinix_admission_refused_requests_total")).To(Equal(`# HELP eirinix_admission_in_flight_requests Admission requests in flight, including those that wait for a slot.
# TYPE eirinix_admission_in_flight_requests gauge
eirinix_admission_in_flight_requests 1
# HELP eirinix_admission_refused_requests_total Requests that no webhook saw, by the HTTP status of the answer.
# TYPE eirinix_admission_refused_requests_total counter
eirinix_admission_refused_requests_total{code="413"} 1
eirinix_admission_refused_requests_total{code="503"} 2
`))
	})

	It("are shared by the Managers of a program", func() {
		Must(NewMetrics(registry)).inFlight.Inc()
		m.inFlight.Inc()
		Expect(shown()).To(ContainSubstring("eirinix_admission_in_flight_requests 2"))
	})

	It("return an error when the same name and help belong to a collector of another type", func() {
		taken := prometheus.NewRegistry()
		taken.MustRegister(prometheus.NewCounter(prometheus.CounterOpts{
			Name: "eirinix_admission_in_flight_requests", Help: "Admission requests in flight, including those that wait for a slot.",
		}))
		_, err := NewMetrics(taken)
		Expect(err).To(HaveOccurred())
	})

	It("work unregistered, those of a Handler without any as well", func() {
		before := shown()
		h, other := &Handler{}, &Handler{}
		for _, m := range []*Metrics{other.Counts(), h.Counts()} {
			m.inFlight.Inc()
			m.requestBytes.Observe(1)
			m.refusedWith(400)
		}
		Expect(shown()).To(Equal(before), "nothing of it is in a registry")
		Expect(h.Counts()).To(BeIdenticalTo(h.Counts()))
		Expect(h.Counts()).NotTo(BeIdenticalTo(other.Counts()), "two Handlers share no counter")
	})

	It("cost no memory once they have been counted", func() {
		Expect(testing.AllocsPerRun(100, func() {
			m.inFlight.Inc()
			m.requestBytes.Observe(22 << 10)
			m.inFlight.Dec()
		})).To(BeZero())
	})

	It("and traces cost a call no memory without a Tracer, although it carries a trace", func() {
		h := &Handler{}
		asked := httptest.NewRequest(http.MethodPost, "/mutate/volumes", http.NoBody)
		asked.Header.Set("Traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
		w := httptest.NewRecorder()
		h.prepare()
		Expect(testing.AllocsPerRun(100, func() {
			same, ended := h.traced(w, asked, "volumes")
			h.runner.Logger(same.Context())
			h.refusedSpan(same.Context(), http.StatusServiceUnavailable, nil)
			ended(http.StatusOK)
		})).To(BeZero())
	})

	It("keep to the conventions of Prometheus", func() {
		m.refusedWith(400)
		Expect(promlint.New(strings.NewReader(shown())).Lint()).To(BeEmpty())
	})
})
