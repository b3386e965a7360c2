package examples_test

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"os"
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"code.cloudfoundry.org/eirinix/examples/internal/programs"
	"code.cloudfoundry.org/eirinix/internal/ca"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
)

// authority is a CA for certificates that the library does not make.
type authority struct{ *ca.Authority }

func newAuthority() authority {
	GinkgoHelper()
	return authority{NewCA(time.Hour, time.Now())}
}

// file writes the CA's certificate to a file.
func (a authority) file() string {
	GinkgoHelper()
	return writeFile(GinkgoT().TempDir(), "ca.crt", a.CertificatePEM)
}

// folder holds a serving certificate for 127.0.0.1 in files with these names.
func (a authority) folder(certificateFile, keyFile, caFile string) string {
	GinkgoHelper()
	dir := GinkgoT().TempDir()
	certificate, key := Issue(a.Authority, ForServer("127.0.0.1"))
	writeFile(dir, certificateFile, certificate)
	writeFile(dir, keyFile, key)
	writeFile(dir, caFile, a.CertificatePEM)
	return dir
}

// answer approves and signs the next request for a signer's certificate, in place of people and controllers.
func (a authority) answer(ctx context.Context, signer string) {
	GinkgoHelper()
	requests := client.CertificatesV1().CertificateSigningRequests()
	var asked *certificatesv1.CertificateSigningRequest
	Eventually(func(g Gomega) {
		list, err := requests.List(ctx, metav1.ListOptions{FieldSelector: "spec.signerName=" + signer})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(list.Items).To(HaveLen(1))
		asked = &list.Items[0]
	}, programs.Patience).Should(Succeed())
	asked.Status.Conditions = append(asked.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "ASpecSaysSo",
	})
	approved, err := requests.UpdateApproval(ctx, asked.Name, asked, metav1.UpdateOptions{})
	Expect(err).NotTo(HaveOccurred())
	block, _ := pem.Decode(approved.Spec.Request)
	request, err := x509.ParseCertificateRequest(block.Bytes)
	Expect(err).NotTo(HaveOccurred())
	approved.Status.Certificate = Sign(a.Authority, request.PublicKey, ForServer("127.0.0.1"))
	_, err = requests.UpdateStatus(ctx, approved, metav1.UpdateOptions{})
	Expect(err).NotTo(HaveOccurred())
}

// apiServer starts an API server that shows a client certificate for that name to the webhook at an address.
func (a authority) apiServer(ctx context.Context, name, address string) kubernetes.Interface {
	GinkgoHelper()
	dir := GinkgoT().TempDir()
	write := func(file string, content any) string {
		text, err := json.Marshal(content)
		Expect(err).NotTo(HaveOccurred())
		return writeFile(dir, file, text)
	}
	certificate, key := Issue(a.Authority, ForClient(name))
	credentials := write("kubeconfig", map[string]any{"apiVersion": "v1", "kind": "Config", "users": []any{
		map[string]any{"name": address, "user": map[string]any{"client-certificate-data": certificate, "client-key-data": key}},
	}})
	webhooks := map[string]any{"apiVersion": "apiserver.config.k8s.io/v1", "kind": "WebhookAdmissionConfiguration", "kubeConfigFile": credentials}
	config := write("admission.json", map[string]any{
		"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration", "plugins": []any{
			map[string]any{"name": "MutatingAdmissionWebhook", "configuration": webhooks},
			map[string]any{"name": "ValidatingAdmissionWebhook", "configuration": webhooks},
		},
	})
	server, err := plane.AddAPIServer(ctx, "--admission-control-config-file="+config)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(server.Stop)
	return kubernetes.NewForConfigOrDie(server.Config())
}

func writeFile(dir, name string, content []byte) string {
	GinkgoHelper()
	path := filepath.Join(dir, name)
	Expect(os.WriteFile(path, content, 0o600)).To(Succeed())
	return path
}
