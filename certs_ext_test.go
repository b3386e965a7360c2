package eirinix_test

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/internal/ca"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
	eirinixtest "code.cloudfoundry.org/eirinix/testing"
)

var _ = Describe("The certificate Secret", Label("api-server"), func() {
	var namespace string
	BeforeEach(func(ctx SpecContext) { namespace = newNamespace(ctx) })

	secret := func(ctx SpecContext) *corev1.Secret {
		s, err := clients().CoreV1().Secrets(namespace).Get(ctx, namespace+"-setupcertificate", metav1.GetOptions{})
		ExpectWithOffset(1, err).NotTo(HaveOccurred())
		return s
	}
	run := func(ctx SpecContext) *eirinix.ExtensionManager {
		m := addEnvManager(urlOptions(namespace))
		runManager(ctx, m)
		return m
	}

	It("is one for several Managers that start at once", func(ctx SpecContext) {
		const replicas = 5
		var managers []*eirinix.ExtensionManager
		for range replicas {
			o := urlOptions(namespace)
			o.Port = 8443 // the configuration must not depend on the order of the writes
			m := addEnvManager(o)
			managers = append(managers, m)
		}
		for _, m := range managers {
			startManager(ctx, m)
		}
		for _, m := range managers {
			Eventually(m.Ready()).WithContext(ctx).WithTimeout(patience).Should(BeClosed())
		}
		shared := secret(ctx).Data["ca.crt"]
		for _, m := range managers {
			Expect(configuration(ctx, m).Webhooks[0].ClientConfig.CABundle).To(Equal(shared))
		}
	}, SpecTimeout(3*patience))

	It("keeps its CA over a restart, and the address may change", func(ctx SpecContext) {
		o := urlOptions(namespace)
		o.Host, o.ListenAddress = "localhost", ":0"
		first := addEnvManager(o)
		done := startManager(ctx, first)
		Eventually(first.Ready()).WithTimeout(patience).Should(BeClosed())
		before := secret(ctx)
		first.Stop()
		Eventually(done).WithTimeout(patience).Should(Receive(BeNil()))

		run(ctx) // at 127.0.0.1: EiriniX reused the old certificate here, and every call failed
		Expect(createPod(ctx, namespace, NewPod("pod", nil))).To(beMutated())
		Expect(secret(ctx).Data["tls.crt"]).To(Equal(before.Data["tls.crt"]))
	}, SpecTimeout(3*patience))

	DescribeTable("is mended when it is unusable",
		func(ctx SpecContext, data func() map[string][]byte) {
			_, err := clients().CoreV1().Secrets(namespace).Create(ctx, &corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Name: namespace + "-setupcertificate"}, Data: data(),
			}, metav1.CreateOptions{})
			Expect(err).NotTo(HaveOccurred())
			run(ctx)
			Expect(createPod(ctx, namespace, NewPod("pod", nil))).To(beMutated())
			for key, value := range data() {
				if key == "certificate" || key == "foreign" {
					Expect(secret(ctx).Data).To(HaveKeyWithValue(key, value), "the data of others are kept")
				}
			}
		},
		Entry("empty", func() map[string][]byte { return nil }, SpecTimeout(2*patience)),
		Entry("garbage", func() map[string][]byte {
			return map[string][]byte{"ca.crt": []byte("x"), "tls.crt": []byte("y"), "tls.key": {0xff}, "foreign": []byte("z")}
		}, SpecTimeout(2*patience)),
		Entry("truncated", func() map[string][]byte {
			crt, key := newCA(time.Now().Add(time.Hour))
			return map[string][]byte{"ca.crt": crt, "tls.crt": crt, "tls.key": key[:len(key)/2]}
		}, SpecTimeout(2*patience)),
		Entry("expired", func() map[string][]byte {
			crt, key := newCA(time.Now().Add(-time.Hour))
			return map[string][]byte{"ca.crt": crt, "tls.crt": crt, "tls.key": key}
		}, SpecTimeout(2*patience)),
		Entry("mismatched", func() map[string][]byte {
			crt, _ := newCA(time.Now().Add(time.Hour))
			_, key := newCA(time.Now().Add(time.Hour))
			return map[string][]byte{"ca.crt": crt, "tls.crt": crt, "tls.key": key}
		}, SpecTimeout(2*patience)),
	)

	It("of EiriniX is migrated, with its CA and its own keys kept", func(ctx SpecContext) {
		private := Must(rsa.GenerateKey(rand.Reader, 2048))
		crt, key := ForeignCA(private, time.Now()), PKCS1(private)
		_, err := clients().CoreV1().Secrets(namespace).Create(ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: namespace + "-setupcertificate"},
			Data: map[string][]byte{
				"certificate": []byte("leaf"), "private_key": []byte("leaf key"),
				"ca_certificate": crt, "ca_private_key": key,
			},
		}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		m := run(ctx)
		Expect(createPod(ctx, namespace, NewPod("pod", nil))).To(beMutated())
		Expect(string(configuration(ctx, m).Webhooks[0].ClientConfig.CABundle)).To(ContainSubstring(string(crt)))
		Expect(secret(ctx).Data).To(HaveKeyWithValue("ca_private_key", key))
		Expect(secret(ctx).Data).To(HaveKeyWithValue("certificate", []byte("leaf")))
	}, SpecTimeout(2*patience))

	It("has its CA rotated on demand, and logs it", func(ctx SpecContext) {
		m := run(ctx)
		before := secret(ctx).Data["ca.crt"]
		Expect(m.RotateCA(ctx, eirinix.RotateOptions{})).To(Succeed())
		after := secret(ctx).Data["ca.crt"]
		Expect(after).NotTo(Equal(before))
		Expect(createPod(ctx, namespace, NewPod("pod", nil))).To(beMutated())
		bundle := configuration(ctx, m).Webhooks[0].ClientConfig.CABundle
		Expect(string(bundle)).To(And(ContainSubstring(string(before)), ContainSubstring(string(after))), "certificates of the old CA are good for a while")

		Eventually(func(g Gomega) {
			events, err := clients().CoreV1().Events(namespace).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.kind=Secret"})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(events.Items).To(ContainElements(HaveField("Reason", "CAstage"), HaveField("Reason", "CAactivate")))
		}).WithTimeout(patience).Should(Succeed())
		Eventually(func() map[string]float64 { return certificateMetrics(namespace) }).WithTimeout(patience).Should(And(
			HaveKeyWithValue("eirinix_certificate_generation", 2.), HaveKeyWithValue("eirinix_certificate_phase retaining", 1.),
			HaveKeyWithValue("eirinix_certificate_bundle_in_sync", 1.), HaveKeyWithValue("eirinix_certificate_failing", 0.),
			HaveKeyWithValue("eirinix_registration_versions", 1.), HaveKeyWithValue("eirinix_registration_waiting version", 0.),
			HaveKeyWithValue("eirinix_certificate_expiration_timestamp_seconds serving", BeNumerically("~", time.Now().Unix()+7*24*3600, 3600)),
			HaveKeyWithValue("eirinix_certificate_expiration_timestamp_seconds ca", BeNumerically("~", time.Now().Unix()+10*365*24*3600, 3600)),
		))
	}, SpecTimeout(2*patience))

	It("takes away no CA that another replica may serve, until it had time to go", func(ctx SpecContext) {
		named := func(name string) []byte {
			authority, err := ca.New(name, time.Hour, time.Now())
			Expect(err).NotTo(HaveOccurred())
			return authority.CertificatePEM
		}
		sibling, foreign := named(namespace+"-setupcertificate"), named("another")
		registering := addEnvManager(func() eirinix.ManagerOptions { o := urlOptions(namespace); o.Port = 8443; return o }())
		Expect(registering.RegisterExtensions()).To(Succeed())
		c := configuration(ctx, registering)
		c.Webhooks[0].ClientConfig.CABundle = append(slices.Clone(sibling), foreign...)
		_, err := clients().AdmissionregistrationV1().MutatingWebhookConfigurations().Update(ctx, c, metav1.UpdateOptions{})
		Expect(err).NotTo(HaveOccurred())

		o := urlOptions(namespace)
		o.Port = 8443
		m := addEnvManager(o)
		eirinixtest.SetLifetimes(m, eirinixtest.Lifetimes{Retain: 6 * time.Second})
		runManager(ctx, m)
		trusted := func() string { return string(configuration(ctx, m).Webhooks[0].ClientConfig.CABundle) }
		own := string(secret(ctx).Data["ca.crt"])
		Expect(trusted()).To(And(
			ContainSubstring(string(sibling)), // it may have started while the Secret was lost
			ContainSubstring(string(foreign)), // and this may be of a replica that does not make its certificates itself
			ContainSubstring(own)))
		Consistently(trusted, "2s").Should(And(ContainSubstring(string(sibling)), ContainSubstring(string(foreign))), "longer than a replica hesitates")
		Eventually(trusted).WithTimeout(patience).Should(Equal(own))

		By("not a CA that replaces its own")
		c = configuration(ctx, m)
		c.Webhooks[0].ClientConfig.CABundle = foreign
		_, err = clients().AdmissionregistrationV1().MutatingWebhookConfigurations().Update(ctx, c, metav1.UpdateOptions{})
		Expect(err).NotTo(HaveOccurred())
		Eventually(trusted).WithTimeout(3 * time.Second).Should(Equal(own))
	}, SpecTimeout(2*patience))

	It("has its CA rotated when an annotation asks for it", func(ctx SpecContext) {
		run(ctx)
		before := secret(ctx)
		before.Annotations = map[string]string{"eirinix.cloudfoundry.org/rotate-ca": "now"}
		_, err := clients().CoreV1().Secrets(namespace).Update(ctx, before, metav1.UpdateOptions{})
		Expect(err).NotTo(HaveOccurred())
		Eventually(func() []byte { return secret(ctx).Data["ca.crt"] }).WithTimeout(patience).ShouldNot(Equal(before.Data["ca.crt"]))
		Expect(createPod(ctx, namespace, NewPod("pod", nil))).To(beMutated())
	}, SpecTimeout(2*patience))

	It("never holds a serving certificate", func(ctx SpecContext) {
		run(ctx)
		for key, value := range secret(ctx).Data {
			for block, rest := pem.Decode(value); block != nil; block, rest = pem.Decode(rest) {
				if block.Type == "CERTIFICATE" {
					c, err := x509.ParseCertificate(block.Bytes)
					Expect(err).NotTo(HaveOccurred())
					Expect(c.IsCA).To(BeTrue(), key)
				}
			}
		}
	}, SpecTimeout(2*patience))
})

// newCA returns a CA as other programs make it.
func newCA(notAfter time.Time) (certificate, key []byte) {
	GinkgoHelper()
	private := NewKey()
	return ForeignCA(private, notAfter.AddDate(-1, 0, 0), func(c *x509.Certificate) { c.NotAfter = notAfter }), PKCS8(private)
}

// certificateMetrics returns the metrics of one Secret, by name and role or phase.
func certificateMetrics(namespace string) map[string]float64 {
	GinkgoHelper()
	families, err := ctrlmetrics.Registry.Gather()
	Expect(err).NotTo(HaveOccurred())
	found := map[string]float64{}
	for _, f := range families {
		for _, metric := range f.GetMetric() {
			name, ours := f.GetName(), false
			for _, l := range metric.GetLabel() {
				switch l.GetName() {
				case "secret":
					ours = strings.HasPrefix(l.GetValue(), namespace+"/")
				default:
					name += " " + l.GetValue()
				}
			}
			if ours {
				found[name] = metric.GetGauge().GetValue()
			}
		}
	}
	return found
}
