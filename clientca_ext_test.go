package eirinix_test

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/internal/ca"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
)

var _ = Describe("A Manager with ClientCA", Label("api-server"), func() {
	It("answers only the API server that presents a certificate", func(ctx SpecContext) {
		const name = "kube-apiserver"
		authority := NewCA(time.Hour, time.Now())
		namespace, port := newNamespace(ctx), FreePort()
		_, err := clients().CoreV1().ConfigMaps(namespace).Create(ctx, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: "callers"}, Data: map[string]string{"ca.crt": string(authority.CertificatePEM)},
		}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		o := urlOptions(namespace)
		o.Port, o.ListenAddress = port, ""
		o.ClientCA = eirinix.ClientCA{ConfigMap: namespace + "/callers", Names: []string{name}}
		m := addEnvManager(o)
		runManager(ctx, m)

		_, err = createPod(ctx, namespace, NewPod("anonymous", nil))
		Expect(err).To(MatchError(ContainSubstring("failed calling webhook")))

		configured := kubernetesWithWebhookCredentials(ctx, authority, name, port)
		Expect(configured.CoreV1().Pods(namespace).Create(ctx, NewPod("known", nil), metav1.CreateOptions{})).To(beMutated())

		probe := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}, Timeout: patience}
		DeferCleanup(probe.CloseIdleConnections)
		resp, err := probe.Get(fmt.Sprintf("https://127.0.0.1:%d/readyz", port))
		Expect(err).NotTo(HaveOccurred())
		Expect(resp.Body.Close()).To(Succeed())
		Expect(resp.StatusCode).To(Equal(http.StatusOK), "the kubelet shows none")
	}, SpecTimeout(4*patience))

	It("does not start without the CA", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		for source, remedy := range map[*eirinix.ClientCA]string{
			{ConfigMap: namespace + "/none"}:   "ManagerOptions.ClientCA.ConfigMap",
			{File: "/nowhere/ca.crt"}:          "ManagerOptions.ClientCA.File",
			{PEM: []byte("no PEM, and no CA")}: "ManagerOptions.ClientCA.PEM",
		} {
			o := urlOptions(namespace)
			o.ClientCA = *source
			m := addEnvManager(o)
			Eventually(startManager(ctx, m)).WithTimeout(patience).Should(Receive(MatchError(ContainSubstring(remedy))))
		}
	}, SpecTimeout(2*patience))
})

// kubernetesWithWebhookCredentials starts an API server that shows a client certificate to the webhook on a port.
func kubernetesWithWebhookCredentials(ctx SpecContext, authority *ca.Authority, name string, port int32) kubernetes.Interface {
	GinkgoHelper()
	dir := GinkgoT().TempDir()
	write := func(file string, content any) string {
		text, err := json.Marshal(content)
		Expect(err).NotTo(HaveOccurred())
		path := filepath.Join(dir, file)
		Expect(os.WriteFile(path, text, 0o600)).To(Succeed())
		return path
	}
	certificate, key := Issue(authority, ForClient(name))
	credentials := write("kubeconfig", map[string]any{"apiVersion": "v1", "kind": "Config", "users": []any{map[string]any{
		"name": net.JoinHostPort("127.0.0.1", fmt.Sprint(port)),
		"user": map[string]any{"client-certificate-data": certificate, "client-key-data": key},
	}}})
	webhooks := map[string]any{"apiVersion": "apiserver.config.k8s.io/v1", "kind": "WebhookAdmissionConfiguration", "kubeConfigFile": credentials}
	config := write("admission.json", map[string]any{
		"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration",
		"plugins": []any{
			map[string]any{"name": "MutatingAdmissionWebhook", "configuration": webhooks},
			map[string]any{"name": "ValidatingAdmissionWebhook", "configuration": webhooks},
		},
	})
	server, err := controlPlane().AddAPIServer(ctx, "--admission-control-config-file="+config)
	Expect(err).NotTo(HaveOccurred())
	return Clients(server.Config())
}
