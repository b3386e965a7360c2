package eirinix_test

// This file specifies the certificate Secret of a program, and who may change the CAs that API servers trust.

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"fmt"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
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

	It("is one for several Managers that start at once", func(ctx SpecContext) {
		var managers []*eirinix.ExtensionManager
		for range 3 {
			m := addEnvManager(urlOptionsAt(namespace, 8443)) // the configuration must not depend on the order of the writes
			managers = append(managers, m)
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

	DescribeTable("is mended or migrated, and keeps the data of others",
		func(ctx SpecContext, data map[string][]byte, kept ...string) {
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
		Entry("where it is garbage", map[string][]byte{"ca.crt": []byte("x"), "tls.crt": []byte("y"), "tls.key": {0xff}, "foreign": []byte("z")}, "foreign", SpecTimeout(2*patience)),
		Entry("where it is EiriniX's, whose CA goes on", secretOfEiriniX(), "certificate", "private_key", "ca_private_key", SpecTimeout(2*patience)),
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

})

var _ = Describe("The client that may change the trusted CAs", Label("api-server"), func() {
	var namespace string
	BeforeEach(func(ctx SpecContext) { namespace = newNamespace(ctx) })

	manager := func() *eirinix.ExtensionManager { return addEnvManager(urlOptions(namespace)) }
	secret := func(ctx context.Context, namespace string) *corev1.Secret {
		GinkgoHelper()
		s, err := clients().CoreV1().Secrets(namespace).Get(ctx, namespace+"-setupcertificate", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		return s
	}
	// foreign holds a CA of another program: bare, and with every key that a Secret of ours has.
	foreign := func(ctx context.Context) []map[string][]byte {
		GinkgoHelper()
		private := NewKey()
		certificate, key := ForeignCA(private, time.Now()), PKCS8(private)
		other := newNamespace(ctx)
		theirs := addEnvManager(urlOptionsAt(other, 8443))
		Expect(theirs.RegisterExtensions()).To(Succeed())
		Expect(theirs.Unregister(ctx)).To(Succeed())
		return []map[string][]byte{{"ca.crt": certificate, "tls.crt": certificate, "tls.key": key}, secret(ctx, other).Data}
	}
	// blindly replaces the Secret as a client does that may write it, and not read it.
	blindly := func(ctx context.Context, data map[string][]byte) {
		GinkgoHelper()
		config := userWith(ctx, namespace, []rbacv1.PolicyRule{{
			APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"update"}, ResourceNames: []string{namespace + "-setupcertificate"},
		}}, nil)
		Eventually(func() error {
			_, err := Clients(config).CoreV1().Secrets(namespace).Update(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: namespace + "-setupcertificate"}, Data: data}, metav1.UpdateOptions{})
			return err
		}).WithTimeout(patience).Should(Succeed())
	}
	// published collects every caBundle that is registered from now on.
	published := func(ctx context.Context) func() string {
		GinkgoHelper()
		w, err := clients().AdmissionregistrationV1().MutatingWebhookConfigurations().Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + namespace + "-mutating-hook"})
		Expect(err).NotTo(HaveOccurred())
		var mu sync.Mutex
		var all strings.Builder
		go func() {
			for event := range w.ResultChan() {
				if c, ok := event.Object.(*admissionregistrationv1.MutatingWebhookConfiguration); ok {
					mu.Lock()
					for _, hook := range c.Webhooks {
						all.Write(hook.ClientConfig.CABundle)
					}
					mu.Unlock()
				}
			}
		}()
		DeferCleanup(w.Stop)
		return func() string {
			mu.Lock()
			defer mu.Unlock()
			return all.String()
		}
	}

	It("is not a client that may write the Secret alone, neither before the program starts nor while it runs", func(ctx SpecContext) {
		first := manager()
		done := startManager(ctx, first)
		Eventually(first.Ready()).WithTimeout(patience).Should(BeClosed())
		first.Stop()
		Eventually(done).WithTimeout(patience).Should(Receive(BeNil()))
		bundles, all := published(ctx), foreign(ctx)
		blindly(ctx, all[0])
		m := manager()
		runManager(ctx, m)
		own := secret(ctx, namespace).Data["ca.crt"]
		blindly(ctx, all[1])
		Eventually(func() []byte { return secret(ctx, namespace).Data["ca.crt"] }).WithTimeout(patience).Should(Equal(own))
		Expect(m.RotateCA(ctx, eirinix.RotateOptions{})).To(Succeed())
		// A bundle with the next CA is published after every reaction to those writes.
		Eventually(bundles).WithTimeout(patience).Should(ContainSubstring(string(secret(ctx, namespace).Data["ca.crt"])))
		for _, data := range all {
			Expect(bundles()).NotTo(ContainSubstring(string(data["ca.crt"])))
		}
		Expect(createPod(ctx, namespace, NewPod("pod", nil))).To(beMutated())
	}, SpecTimeout(4*patience))

	It("is RotateCA of a program without steps, with Distrust: it rotates once, and the old CA leaves all entries at once", func(ctx SpecContext) {
		m := manager()
		runManager(ctx, m)
		before := configuration(ctx, m)
		Expect(eirinix.NewManager(urlOptionsAt(namespace, 8443)).RotateCA(ctx, eirinix.RotateOptions{Distrust: true})).To(Succeed())
		Eventually(func(g Gomega) {
			s := secret(ctx, namespace)
			g.Expect(s.Annotations).To(HaveKeyWithValue("eirinix.cloudfoundry.org/distrust", "1"), "which any replica obeys")
			g.Expect(s.Data["state.json"]).To(And(ContainSubstring(`"phase": "steady"`), ContainSubstring(`"current": 2,`)))
			for _, hook := range configuration(ctx, m).Webhooks {
				g.Expect(hook.ClientConfig.CABundle).To(Equal(s.Data["ca.crt"]))
			}
		}).WithTimeout(patience).Should(Succeed())
		after := configuration(ctx, m)
		for i := range after.Webhooks {
			after.Webhooks[i].ClientConfig.CABundle = before.Webhooks[i].ClientConfig.CABundle
		}
		Expect(after.Webhooks).To(Equal(before.Webhooks), "it changes nothing else")
		Expect(createPod(ctx, namespace, NewPod("pod", nil))).To(beMutated())
	}, SpecTimeout(2*patience))

	It("is an annotation for the program that owns the Secret: another one leaves a single Event", func(ctx SpecContext) {
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
