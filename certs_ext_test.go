package eirinix_test

// This file specifies the certificates of a program: those of its Secret, those from elsewhere, and those of its callers.

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
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
		GinkgoHelper()
		return Must(clients().CoreV1().Secrets(namespace).Get(ctx, namespace+"-setupcertificate", metav1.GetOptions{}))
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
		first.Stop()
		Eventually(done).WithTimeout(patience).Should(Receive(BeNil()))
		Expect(first.RotateCA(ctx, eirinix.RotateOptions{})).To(Succeed(), "as if it had never run")
		before := secret(ctx)

		run(ctx) // at 127.0.0.1: EiriniX reused the old certificate here, and every call failed
		Expect(createPod(ctx, namespace, NewPod("pod", nil))).To(beMutated())
		Expect(secret(ctx).Data["tls.crt"]).To(Equal(before.Data["tls.crt"]))
	}, SpecTimeout(3*patience))

	It("is migrated where it is EiriniX's, whose CA goes on, and keeps the data of others", func(ctx SpecContext) {
		private := Must(rsa.GenerateKey(rand.Reader, 2048))
		data := map[string][]byte{"certificate": []byte("leaf"), "private_key": []byte("leaf key"), "ca_certificate": ForeignCA(private, time.Now()), "ca_private_key": PKCS1(private)}
		Must(clients().CoreV1().Secrets(namespace).Create(ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: namespace + "-setupcertificate"}, Data: data,
		}, metav1.CreateOptions{}))
		m := run(ctx)
		Expect(createPod(ctx, namespace, NewPod("pod", nil))).To(beMutated())
		for _, key := range []string{"certificate", "private_key", "ca_private_key"} {
			Expect(secret(ctx).Data).To(HaveKeyWithValue(key, data[key]))
		}
		Expect(string(configuration(ctx, m).Webhooks[0].ClientConfig.CABundle)).To(ContainSubstring(string(data["ca_certificate"])))
	}, SpecTimeout(2*patience))

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

	It("is not rotated by a program that may not, which leaves an Event", func(ctx SpecContext) {
		o := urlOptions(namespace)
		o.Port = 8443
		registering := addEnvManager(o)
		Expect(registering.RegisterExtensions()).To(Succeed())
		DeferCleanup(registering.Unregister)
		o.SetupCertificate = new(false) // the rotation is for another program
		runManager(ctx, addEnvManager(o))
		_, err := clients().CoreV1().Secrets(namespace).Patch(ctx, namespace+"-setupcertificate", types.MergePatchType,
			[]byte(`{"metadata":{"annotations":{"eirinix.cloudfoundry.org/rotate-ca":"now"}}}`), metav1.PatchOptions{})
		Expect(err).NotTo(HaveOccurred())
		Eventually(func() ([]corev1.Event, error) {
			all, err := clients().CoreV1().Events(namespace).List(ctx, metav1.ListOptions{FieldSelector: "reason=CARotationBlocked"})
			return all.Items, err
		}).WithContext(ctx).WithTimeout(patience).ShouldNot(BeEmpty())
	}, SpecTimeout(2*patience))
})

// certificateMetrics returns the metrics of one Secret, by name and role or phase.
func certificateMetrics(namespace string) map[string]float64 {
	GinkgoHelper()
	families := Must(ctrlmetrics.Registry.Gather())
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

// issuer is a CA outside of the program.
type issuer struct{ *ca.Authority }

func newIssuer() issuer {
	GinkgoHelper()
	return issuer{NewCA(time.Hour, time.Now())}
}

// issue returns the data of the Secret that cert-manager would write.
func (i issuer) issue() map[string][]byte {
	GinkgoHelper()
	certificate, key := Issue(i.Authority, ForServer("127.0.0.1"))
	return map[string][]byte{"tls.crt": certificate, "tls.key": key, "ca.crt": i.CertificatePEM}
}

func write(dir string, files map[string][]byte) {
	GinkgoHelper()
	for name, text := range files {
		Expect(os.WriteFile(filepath.Join(dir, name), text, 0o600)).To(Succeed())
	}
}

// servedBy returns the issuer of the certificate that a Manager serves.
func servedBy(m *eirinix.ExtensionManager) func() ([]byte, error) {
	return func() ([]byte, error) { return IssuerAt(m.Addr()) }
}

var _ = Describe("Certificates from elsewhere", Label("api-server"), func() {
	var (
		namespace, dir string
		first, second  issuer
		options        eirinix.ManagerOptions
	)
	put := func(i issuer) {
		issued := i.issue()
		write(dir, map[string][]byte{"server.pem": issued["tls.crt"], "tls.key": issued["tls.key"], "ca.crt": issued["ca.crt"]})
	}
	BeforeEach(func(ctx SpecContext) {
		namespace, dir, first, second = newNamespace(ctx), GinkgoT().TempDir(), newIssuer(), newIssuer()
		put(first)
		options = urlOptions(namespace)
		options.Certificates = eirinix.FromFiles(dir, "server.pem", "", "")
	})
	manager := func() *eirinix.ExtensionManager {
		m := addEnvManager(options)
		eirinixtest.SetLifetimes(m, eirinixtest.Lifetimes{Retain: 5 * time.Second})
		return m
	}
	trusted := func(ctx context.Context, m *eirinix.ExtensionManager) func() string {
		return func() string { return string(configuration(ctx, m).Webhooks[0].ClientConfig.CABundle) }
	}

	It("in files are served, and replaced without a gap", func(ctx SpecContext) {
		m := manager()
		runManager(ctx, m)
		Expect(createPod(ctx, namespace, NewPod("first", nil))).To(beMutated())
		Expect(trusted(ctx, m)()).To(Equal(string(first.CertificatePEM)))
		Eventually(func() map[string]float64 { return certificateMetrics(namespace) }).WithTimeout(patience).Should(And(
			HaveKeyWithValue("eirinix_certificate_expiration_timestamp_seconds serving", BeNumerically("~", time.Now().Unix()+3600, 100)),
			HaveKeyWithValue("eirinix_certificate_bundle_in_sync", 1.), HaveKeyWithValue("eirinix_certificate_failing", 0.)))

		put(second)
		Eventually(trusted(ctx, m)).WithTimeout(patience).Should(ContainSubstring(string(second.CertificatePEM)))
		Eventually(servedBy(m)).WithTimeout(patience).Should(Equal(second.Certificate.SubjectKeyId))
		Expect(trusted(ctx, m)()).To(And(ContainSubstring(string(first.CertificatePEM)), ContainSubstring(string(second.CertificatePEM))),
			"another replica may still serve a certificate of the first one")
		Expect(createPod(ctx, namespace, NewPod("second", nil))).To(beMutated())
	}, SpecTimeout(5*patience))

	It("of another CA are served by a half that may read no configuration as soon as RegisterExtensions has registered that CA", func(ctx SpecContext) {
		logger, logs := Observed()
		options.Port, options.ListenAddress = FreePort(), ""
		registering := manager()
		Expect(registering.RegisterExtensions()).To(Succeed())
		DeferCleanup(registering.Unregister)
		options.Logger, options.RegisterWebHook = logger, new(false)
		options.RestConfig = userWith(ctx, namespace, []rbacv1.PolicyRule{{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"get", "list", "watch"}}}, nil)
		m := manager()
		runManager(ctx, m)
		put(second)
		Eventually(logs.FilterMessage).WithArguments("a new certificate waits until the API server trusts it").WithTimeout(patience).Should(HaveField("Len()", 1))
		Expect(servedBy(m)()).To(Equal(first.Certificate.SubjectKeyId))
		Expect(registering.RegisterExtensions()).To(Succeed())
		Eventually(servedBy(m)).WithTimeout(patience).Should(Equal(second.Certificate.SubjectKeyId))
		Expect(createPod(ctx, namespace, NewPod("pod", nil))).To(beMutated())
	}, SpecTimeout(5*patience))
})

var _ = Describe("A Manager with ClientCA", Label("api-server"), func() {
	It("answers only the API server that presents a certificate", func(ctx SpecContext) {
		const name = "kube-apiserver"
		authority := NewCA(time.Hour, time.Now())
		namespace, port := newNamespace(ctx), FreePort()
		Must(clients().CoreV1().ConfigMaps(namespace).Create(ctx, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: "callers"}, Data: map[string]string{"ca.crt": string(authority.CertificatePEM)},
		}, metav1.CreateOptions{}))
		o := urlOptions(namespace)
		o.Port, o.ListenAddress = port, ""
		o.ClientCA = eirinix.ClientCA{ConfigMap: namespace + "/callers", Names: []string{name}}
		m := addEnvManager(o)
		runManager(ctx, m)

		_, err := createPod(ctx, namespace, NewPod("anonymous", nil))
		Expect(err).To(MatchError(ContainSubstring("failed calling webhook")))

		configured := kubernetesWithWebhookCredentials(ctx, authority, name, port)
		Expect(configured.CoreV1().Pods(namespace).Create(ctx, NewPod("known", nil), metav1.CreateOptions{})).To(beMutated())

		probe := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}, Timeout: patience}
		DeferCleanup(probe.CloseIdleConnections)
		resp := Must(probe.Get(fmt.Sprintf("https://127.0.0.1:%d/readyz", port)))
		Expect(resp.Body.Close()).To(Succeed())
		Expect(resp.StatusCode).To(Equal(http.StatusOK), "the kubelet shows none")
	}, SpecTimeout(4*patience))
})

// kubernetesWithWebhookCredentials starts an API server that shows a client certificate to the webhook on a port.
func kubernetesWithWebhookCredentials(ctx SpecContext, authority *ca.Authority, name string, port int32) kubernetes.Interface {
	GinkgoHelper()
	dir := GinkgoT().TempDir()
	written := func(file string, content any) string {
		write(dir, map[string][]byte{file: Must(json.Marshal(content))})
		return filepath.Join(dir, file)
	}
	certificate, key := Issue(authority, ForClient(name))
	credentials := written("kubeconfig", map[string]any{"apiVersion": "v1", "kind": "Config", "users": []any{map[string]any{
		"name": net.JoinHostPort("127.0.0.1", fmt.Sprint(port)),
		"user": map[string]any{"client-certificate-data": certificate, "client-key-data": key},
	}}})
	webhooks := map[string]any{"apiVersion": "apiserver.config.k8s.io/v1", "kind": "WebhookAdmissionConfiguration", "kubeConfigFile": credentials}
	config := written("admission.json", map[string]any{
		"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration",
		"plugins": []any{map[string]any{"name": "MutatingAdmissionWebhook", "configuration": webhooks}, map[string]any{"name": "ValidatingAdmissionWebhook", "configuration": webhooks}},
	})
	server := Must(controlPlane().AddAPIServer(ctx, "--admission-control-config-file="+config))
	return Clients(server.Config())
}
