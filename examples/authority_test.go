package examples_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"code.cloudfoundry.org/eirinix/examples/internal/programs"
)

// authority is somebody's CA, for certificates that the library does not make.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	pem         []byte
}

func newAuthority() authority {
	GinkgoHelper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	Expect(err).NotTo(HaveOccurred())
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "somebody's CA"},
		NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	Expect(err).NotTo(HaveOccurred())
	certificate, err := x509.ParseCertificate(der)
	Expect(err).NotTo(HaveOccurred())
	return authority{certificate, key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
}

// sign gives a certificate for a public key and these addresses, as PEM.
func (a authority) sign(public any, name string, usage x509.ExtKeyUsage, addresses ...net.IP) []byte {
	GinkgoHelper()
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, IPAddresses: addresses,
		NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{usage},
	}, a.certificate, public, a.key)
	Expect(err).NotTo(HaveOccurred())
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// issue makes a key and its certificate, as PEM.
func (a authority) issue(name string, usage x509.ExtKeyUsage, addresses ...net.IP) (certificate, key []byte) {
	GinkgoHelper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	Expect(err).NotTo(HaveOccurred())
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	Expect(err).NotTo(HaveOccurred())
	return a.sign(private.Public(), name, usage, addresses...), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})
}

// file writes the CA's certificate to a file.
func (a authority) file() string {
	GinkgoHelper()
	return writeFile(GinkgoT().TempDir(), "ca.crt", a.pem)
}

// folder holds a serving certificate for 127.0.0.1 in files with these names.
func (a authority) folder(certificateFile, keyFile, caFile string) string {
	GinkgoHelper()
	dir := GinkgoT().TempDir()
	certificate, key := a.issue("webhook", x509.ExtKeyUsageServerAuth, net.IPv4(127, 0, 0, 1))
	writeFile(dir, certificateFile, certificate)
	writeFile(dir, keyFile, key)
	writeFile(dir, caFile, a.pem)
	return dir
}

// secret makes the Secret that cert-manager would, in the namespace webhooks.
func (a authority) secret(ctx context.Context) string {
	GinkgoHelper()
	certificate, key := a.issue("webhook", x509.ExtKeyUsageServerAuth, net.IPv4(127, 0, 0, 1))
	made, err := client.CoreV1().Secrets("webhooks").Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "issued-"}, Type: corev1.SecretTypeTLS,
		Data: map[string][]byte{"tls.crt": certificate, "tls.key": key, "ca.crt": a.pem},
	}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	return made.Name
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
	approved.Status.Certificate = a.sign(request.PublicKey, "webhook", x509.ExtKeyUsageServerAuth, request.IPAddresses...)
	_, err = requests.UpdateStatus(ctx, approved, metav1.UpdateOptions{})
	Expect(err).NotTo(HaveOccurred())
}

func writeFile(dir, name string, content []byte) string {
	GinkgoHelper()
	path := filepath.Join(dir, name)
	Expect(os.WriteFile(path, content, 0o600)).To(Succeed())
	return path
}
