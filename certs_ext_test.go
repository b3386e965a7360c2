package eirinix_test

// This file specifies the certificate Secret of a program.

import (
	"crypto/rand"
	"crypto/rsa"
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"code.cloudfoundry.org/eirinix"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
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

	DescribeTable("is mended or migrated, and keeps the data of others",
		func(ctx SpecContext, made func() map[string][]byte, kept ...string) {
			data := made()
			_, err := clients().CoreV1().Secrets(namespace).Create(ctx, &corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Name: namespace + "-setupcertificate"}, Data: data,
			}, metav1.CreateOptions{})
			Expect(err).NotTo(HaveOccurred())
			m := run(ctx)
			Expect(createPod(ctx, namespace, NewPod("pod", nil))).To(beMutated())
			for _, key := range kept {
				Expect(secret(ctx).Data).To(HaveKeyWithValue(key, data[key]))
			}
			if crt, migrated := data["ca_certificate"]; migrated {
				Expect(string(configuration(ctx, m).Webhooks[0].ClientConfig.CABundle)).To(ContainSubstring(string(crt)))
			}
		},
		Entry("where it is garbage", func() map[string][]byte {
			return map[string][]byte{"ca.crt": []byte("x"), "tls.crt": []byte("y"), "tls.key": {0xff}, "foreign": []byte("z")}
		}, "foreign", SpecTimeout(2*patience)),
		Entry("where it is EiriniX's, whose CA goes on", secretOfEiriniX, "certificate", "private_key", "ca_private_key", SpecTimeout(2*patience)),
	)

	It("has its CA rotated on demand, with Events and metrics", func(ctx SpecContext) {
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

	It("is not rotated by a program that may not, which leaves a single Event", func(ctx SpecContext) {
		registering := addEnvManager(urlOptionsAt(namespace, 8443))
		Expect(registering.RegisterExtensions()).To(Succeed())
		DeferCleanup(registering.Unregister)
		o := urlOptionsAt(namespace, 8443)
		o.SetupCertificate = new(false) // the rotation is for another program
		runManager(ctx, addEnvManager(o))
		for n := range 3 { // and it is looked at again
			_, err := clients().CoreV1().Secrets(namespace).Patch(ctx, namespace+"-setupcertificate", types.MergePatchType,
				fmt.Appendf(nil, `{"metadata":{"annotations":{"eirinix.cloudfoundry.org/rotate-ca":"now","n":"%d"}}}`, n), metav1.PatchOptions{})
			Expect(err).NotTo(HaveOccurred())
			Eventually(func() ([]corev1.Event, error) {
				all, err := clients().CoreV1().Events(namespace).List(ctx, metav1.ListOptions{FieldSelector: "reason=CARotationBlocked"})
				return all.Items, err
			}).WithContext(ctx).WithTimeout(patience).Should(HaveLen(1))
		}
	}, SpecTimeout(2*patience))
})

// secretOfEiriniX returns the data of a Secret as EiriniX made it.
func secretOfEiriniX() map[string][]byte {
	private := Must(rsa.GenerateKey(rand.Reader, 2048))
	return map[string][]byte{
		"certificate": []byte("leaf"), "private_key": []byte("leaf key"),
		"ca_certificate": ForeignCA(private, time.Now()), "ca_private_key": PKCS1(private),
	}
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
