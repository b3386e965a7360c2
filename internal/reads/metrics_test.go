package reads

import (
	"errors"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	networkingv1 "k8s.io/api/networking/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
)

var _ = Describe("The metrics of a source", func() {
	var (
		registry *prometheus.Registry
		src      *source
	)
	value := func(name string) float64 {
		GinkgoHelper()
		families, err := registry.Gather()
		Expect(err).NotTo(HaveOccurred())
		for _, f := range families {
			if f.GetName() == name {
				Expect(f.GetMetric()).To(HaveLen(1))
				Expect(f.GetMetric()[0].GetLabel()[0].GetValue()).To(Equal("Ingress.networking.k8s.io in namespace team-1"))
				return f.GetMetric()[0].GetGauge().GetValue()
			}
		}
		Fail(name + " is missing")
		return 0
	}
	BeforeEach(func() {
		registry = prometheus.NewRegistry()
		metrics, err := NewMetrics(registry)
		Expect(err).NotTo(HaveOccurred())
		set, err := New(clientgoscheme.Scheme, []Step{{"hosts", []Declaration{{
			Object: &networkingv1.Ingress{}, Kind: networkingv1.SchemeGroupVersion.WithKind("Ingress"), Namespaces: []string{"team-1", "team-2"},
		}}}}, logr.Discard(), metrics)
		Expect(err).NotTo(HaveOccurred())
		src = set.sources[0]
	})

	It("count its own objects", func() {
		listed(src, newIngress(1), newIngress(101))
		Expect(value("eirinix_read_objects")).To(BeEquivalentTo(2))
		src.update(newIngress(201))
		src.update(newIngress(201))
		Expect(value("eirinix_read_objects")).To(BeEquivalentTo(3))
		src.remove(newIngress(1))
		src.remove(newIngress(1))
		Expect(value("eirinix_read_objects")).To(BeEquivalentTo(2))
		listed(src, newIngress(1))
		Expect(value("eirinix_read_objects")).To(BeEquivalentTo(1))
	})

	It("have the time of an interruption, but not before the first list", func() {
		src.failed(time.Time{}, errors.New("refused"))
		Expect(value("eirinix_read_interruption_timestamp_seconds")).To(BeZero())
		listed(src)
		Expect(value("eirinix_read_interruption_timestamp_seconds")).To(BeZero())
		src.failed(time.Time{}, errors.New("refused"))
		Expect(value("eirinix_read_interruption_timestamp_seconds")).To(BeNumerically(">", 1e9))
		src.succeeded()
		Expect(value("eirinix_read_interruption_timestamp_seconds")).To(BeZero())
	})
})
