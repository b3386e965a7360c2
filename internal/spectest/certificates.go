package spectest

// This file holds the certificates of specs, also as other tools write them.

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/fips140"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"time"

	. "github.com/onsi/ginkgo/v2"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"code.cloudfoundry.org/eirinix/internal/ca"
	"code.cloudfoundry.org/eirinix/internal/certsecret"
)

// NewCA returns a CA that this library makes.
func NewCA(lifetime time.Duration, at time.Time) *ca.Authority {
	GinkgoHelper()
	return Must(ca.New("spec", lifetime, at))
}

// DecodeState reads the state from the data of a certificate Secret whose CA is valid at that time.
func DecodeState(data map[string][]byte, at time.Time) (*certsecret.State, error) {
	store := certsecret.Store{
		Now:    func() time.Time { return at },
		Cached: func(context.Context) (*corev1.Secret, error) { return &corev1.Secret{Data: data}, nil },
	}
	return store.Peek(context.Background())
}

// ForeignCA self-signs a CA as cfssl and openssl do, changed by edit.
func ForeignCA(key crypto.Signer, at time.Time, edit ...func(*x509.Certificate)) []byte {
	GinkgoHelper()
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(7),
		Subject:               pkix.Name{CommonName: "SCF CA"},
		NotBefore:             at.Add(-24 * time.Hour),
		NotAfter:              at.Add(365 * 24 * time.Hour),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	for _, e := range edit {
		e(template)
	}
	var der []byte
	fips140.WithoutEnforcement(func() { // CAs of others can be weak
		der = Must(x509.CreateCertificate(rand.Reader, template, template, key.Public(), key))
	})
	return PEM("CERTIFICATE", der)
}

// NewKey returns a key of the algorithm that this library uses by default.
func NewKey() *ecdsa.PrivateKey {
	GinkgoHelper()
	return Must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
}

// Sign returns a certificate for a key, valid for an hour and changed by edit.
func Sign(authority *ca.Authority, key crypto.PublicKey, edit ...func(*x509.Certificate)) []byte {
	GinkgoHelper()
	template := &x509.Certificate{
		SerialNumber: new(big.Int).SetBytes([]byte(rand.Text())),
		NotBefore:    time.Now().Add(-time.Minute),
		NotAfter:     time.Now().Add(time.Hour),
		KeyUsage:     x509.KeyUsageDigitalSignature,
	}
	for _, e := range edit {
		e(template)
	}
	der := Must(x509.CreateCertificate(rand.Reader, template, authority.Certificate, key, authority.PrivateKey))
	return PEM("CERTIFICATE", der)
}

// Issue returns a new key and its certificate by Sign.
func Issue(authority *ca.Authority, edit ...func(*x509.Certificate)) (certificate, key []byte) {
	GinkgoHelper()
	private := NewKey()
	return Sign(authority, private.Public(), edit...), PKCS8(private)
}

// ForServer makes a certificate one of a server at these hosts.
func ForServer(hosts ...string) func(*x509.Certificate) {
	GinkgoHelper()
	names := Must(ca.ParseHosts(hosts))
	return func(c *x509.Certificate) {
		c.DNSNames, c.IPAddresses = names.DNS, names.IPs
		c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	}
}

// ForClient makes a certificate one of a client with this name.
func ForClient(name string) func(*x509.Certificate) {
	return func(c *x509.Certificate) {
		c.Subject.CommonName, c.ExtKeyUsage = name, []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	}
}

// PEM encodes one block.
func PEM(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// PKCS1 encodes an RSA key as openssl did before 3.0.
func PKCS1(key *rsa.PrivateKey) []byte {
	return PEM("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(key))
}

// PKCS8 encodes a key of any algorithm.
func PKCS8(key crypto.PrivateKey) []byte {
	GinkgoHelper()
	return PEM("PRIVATE KEY", Must(x509.MarshalPKCS8PrivateKey(key)))
}

// SignRequests approves and signs what a signer is asked for, in place of people and controllers. What fails is left to
// the next call.
func SignRequests(ctx context.Context, clients kubernetes.Interface, authority *ca.Authority, signer string) {
	requests := clients.CertificatesV1().CertificateSigningRequests()
	list, err := requests.List(ctx, metav1.ListOptions{FieldSelector: "spec.signerName=" + signer})
	if err != nil {
		return
	}
	for _, csr := range list.Items {
		if len(csr.Status.Certificate) > 0 {
			continue
		}
		csr.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{
			Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "Spec",
		}}
		approved, err := requests.UpdateApproval(ctx, csr.Name, &csr, metav1.UpdateOptions{})
		if err != nil {
			continue
		}
		block, _ := pem.Decode(approved.Spec.Request)
		if asked, err := x509.ParseCertificateRequest(block.Bytes); err == nil {
			approved.Status.Certificate = Sign(authority, asked.PublicKey, ForServer("127.0.0.1"))
			_, _ = requests.UpdateStatus(ctx, approved, metav1.UpdateOptions{})
		}
	}
}

// IssuerAt returns the key identifier of the CA whose certificate a TLS server presents.
func IssuerAt(address net.Addr) ([]byte, error) {
	conn, err := (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}).Dial("tcp", address.String())
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	return conn.(*tls.Conn).ConnectionState().PeerCertificates[0].AuthorityKeyId, nil
}
