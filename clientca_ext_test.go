package eirinix_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
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
)

// clientAuthority certifies callers of webhooks.
type clientAuthority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	pem         []byte
}

func newClientAuthority() *clientAuthority {
	GinkgoHelper()
	certificate, key := newCA(time.Now().Add(time.Hour), false)
	block, _ := pem.Decode(certificate)
	parsed, err := x509.ParseCertificate(block.Bytes)
	Expect(err).NotTo(HaveOccurred())
	block, _ = pem.Decode(key)
	private, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	Expect(err).NotTo(HaveOccurred())
	return &clientAuthority{parsed, private.(*ecdsa.PrivateKey), certificate}
}

// certify makes a client certificate for a name, as PEM.
func (a *clientAuthority) certify(name string) (certificate, key []byte) {
	GinkgoHelper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	Expect(err).NotTo(HaveOccurred())
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, a.certificate, private.Public(), a.key)
	Expect(err).NotTo(HaveOccurred())
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	Expect(err).NotTo(HaveOccurred())
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})
}

var _ = Describe("A Manager with ClientCA", Label("api-server"), func() {
	It("answers the API server that shows a certificate, and nobody else", func(ctx SpecContext) {
		const name = "kube-apiserver"
		authority := newClientAuthority()
		namespace, port := newNamespace(ctx), freePort()
		_, err := clients().CoreV1().ConfigMaps(namespace).Create(ctx, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: "callers"}, Data: map[string]string{"ca.crt": string(authority.pem)},
		}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		o := urlOptions(namespace)
		o.Port, o.ListenAddress = port, ""
		o.ClientCA, o.ClientNames = eirinix.ClientCA{ConfigMap: namespace + "/callers"}, []string{name}
		m := eirinix.NewManager(o)
		Expect(m.AddExtension(addEnv{})).To(Succeed())
		runManager(ctx, m)

		_, err = createPod(ctx, namespace, newPod("anonymous", nil))
		Expect(err).To(MatchError(ContainSubstring("failed calling webhook")))

		configured := kubernetesWithWebhookCredentials(ctx, authority, name, port)
		Expect(configured.CoreV1().Pods(namespace).Create(ctx, newPod("known", nil), metav1.CreateOptions{})).To(beMutated())

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
			m := eirinix.NewManager(o)
			Expect(m.AddExtension(addEnv{})).To(Succeed())
			Eventually(startManager(ctx, m)).WithTimeout(patience).Should(Receive(MatchError(ContainSubstring(remedy))))
		}
	}, SpecTimeout(2*patience))
})

// kubernetesWithWebhookCredentials starts an API server that shows a client certificate to the webhook on a port.
func kubernetesWithWebhookCredentials(ctx SpecContext, authority *clientAuthority, name string, port int32) kubernetes.Interface {
	GinkgoHelper()
	dir := GinkgoT().TempDir()
	write := func(file string, content any) string {
		text, err := json.Marshal(content)
		Expect(err).NotTo(HaveOccurred())
		path := filepath.Join(dir, file)
		Expect(os.WriteFile(path, text, 0o600)).To(Succeed())
		return path
	}
	certificate, key := authority.certify(name)
	credentials := write("kubeconfig", map[string]any{"apiVersion": "v1", "kind": "Config", "users": []any{map[string]any{
		"name": net.JoinHostPort("127.0.0.1", itoa(port)),
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
	return clientsFor(server.Config())
}
