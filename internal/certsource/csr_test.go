package certsource_test

import (
	"context"
	"crypto/x509"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	certificatesv1client "k8s.io/client-go/kubernetes/typed/certificates/v1"

	"code.cloudfoundry.org/eirinix/internal/ca"
	"code.cloudfoundry.org/eirinix/internal/certsource"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
)

// signer approves and signs the requests for one signer name.
type signer struct {
	*ca.Authority
	name string
}

var signers atomic.Int64

func newSigner() *signer {
	return &signer{Authority: newAuthority(), name: fmt.Sprintf("example.org/webhook-serving-%d", signers.Add(1))}
}

func requests() certificatesv1client.CertificateSigningRequestInterface {
	GinkgoHelper()
	return admin().CertificatesV1().CertificateSigningRequests()
}

// all are the requests for this signer.
func (s *signer) all(ctx context.Context) []certificatesv1.CertificateSigningRequest {
	GinkgoHelper()
	return Must(requests().List(ctx, metav1.ListOptions{FieldSelector: "spec.signerName=" + s.name})).Items
}

// next waits for a request that is neither approved nor denied.
func (s *signer) next(ctx context.Context) *certificatesv1.CertificateSigningRequest {
	GinkgoHelper()
	var found *certificatesv1.CertificateSigningRequest
	Eventually(func() bool {
		for _, csr := range s.all(ctx) {
			if len(csr.Status.Conditions) == 0 {
				found = &csr
			}
		}
		return found != nil
	}).Should(BeTrue(), "a new request")
	return found
}

func (s *signer) decide(ctx context.Context, csr *certificatesv1.CertificateSigningRequest, decision certificatesv1.RequestConditionType, reason, message string) *certificatesv1.CertificateSigningRequest {
	GinkgoHelper()
	csr.Status.Conditions = append(csr.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{Type: decision, Status: "True", Reason: reason, Message: message})
	if decision == certificatesv1.CertificateFailed {
		return Must(requests().UpdateStatus(ctx, csr, metav1.UpdateOptions{}))
	}
	return Must(requests().UpdateApproval(ctx, csr.Name, csr, metav1.UpdateOptions{}))
}

func (s *signer) approve(ctx context.Context, csr *certificatesv1.CertificateSigningRequest) *certificatesv1.CertificateSigningRequest {
	GinkgoHelper()
	return s.decide(ctx, csr, certificatesv1.CertificateApproved, "Spec", "")
}

// issue puts a certificate into an approved request, by default one for its key.
func (s *signer) issue(ctx context.Context, csr *certificatesv1.CertificateSigningRequest, edit ...func(*x509.Certificate)) (serial string) {
	GinkgoHelper()
	return s.put(ctx, csr, sign(s.Authority, requestOf(csr).PublicKey, edit...))
}

func (s *signer) put(ctx context.Context, csr *certificatesv1.CertificateSigningRequest, certificate []byte) (serial string) {
	GinkgoHelper()
	csr.Status.Certificate = certificate
	Must(requests().UpdateStatus(ctx, csr, metav1.UpdateOptions{}))
	return leafOf(certificate).SerialNumber.String()
}

var _ = Describe("CSR", Label("api-server"), func() {
	var (
		s      *signer
		r      *recorder
		clock  *hand
		source *certsource.CSR
	)

	BeforeEach(func() {
		s, r, clock = newSigner(), newRecorder(), &hand{}
		r.now = clock.now
		source = &certsource.CSR{
			Config: started.Config(), SignerName: s.name, Hosts: hosts, TrustPEM: s.CertificatePEM,
			Poll: never, Retry: 20 * time.Millisecond, Log: r.log(), Now: clock.now,
		}
	})

	It("waits for approval, then for the signer, and takes the certificate, from a watch", func(ctx SpecContext) {
		source.Lifetime, source.NamePrefix = 3*time.Hour, "cf-webhook"
		run(source, r)
		csr := s.next(ctx)
		Expect(csr.Name).To(HavePrefix("cf-webhook-"))
		Expect(csr.Spec.Usages).To(ConsistOf(certificatesv1.UsageDigitalSignature, certificatesv1.UsageServerAuth))
		Expect(csr.Spec.ExpirationSeconds).To(HaveValue(BeEquivalentTo(3 * 60 * 60)))
		asked := requestOf(csr)
		Expect(asked.CheckSignature()).To(Succeed())
		Expect(asked.DNSNames).To(Equal([]string{"webhook.cf.svc"}))
		Expect(asked.IPAddresses).To(HaveLen(1))
		Expect(asked.PublicKeyAlgorithm).To(Equal(x509.ECDSA))

		Eventually(r.reason).Should(Equal(fmt.Sprintf("signer %s: request %q waits for approval; approve it with: kubectl certificate approve %s", s.name, csr.Name, csr.Name)))
		csr = s.approve(ctx, csr)
		Eventually(r.reason).Should(ContainSubstring("is approved, and the signer has not issued"))
		Expect(r.deliveries()).To(BeZero())
		serial := s.issue(ctx, csr)
		Eventually(r.serial).Should(Equal(serial))
		Expect(r.reason()).To(BeEmpty())
		Expect(r.bundle()).To(Equal(string(s.CertificatePEM)))
	})

	It("leaves the lifetime to the signer, and sends on its intermediate certificates", func(ctx SpecContext) {
		root := newAuthority()
		cross := Must(root.CrossSign(s.Certificate, time.Now()))
		source.TrustPEM = root.CertificatePEM
		run(source, r)
		csr := s.approve(ctx, s.next(ctx))
		Expect(csr.Spec.ExpirationSeconds).To(BeNil())
		serial := s.put(ctx, csr, join(sign(s.Authority, requestOf(csr).PublicKey), ca.EncodeCertificate(cross)))
		Eventually(r.serial).Should(Equal(serial))
	})

	It("reports the reason of a denial, and asks again", func(ctx SpecContext) {
		source.Retry = 300 * time.Millisecond
		source.Poll = 10 * time.Millisecond
		run(source, r)
		denied := s.decide(ctx, s.next(ctx), certificatesv1.CertificateDenied, "UnknownHost", "webhook.cf.svc is not yours")
		Eventually(r.allReasons).Should(ContainElement(And(
			ContainSubstring(fmt.Sprintf("request %q was denied (UnknownHost: webhook.cf.svc is not yours)", denied.Name)),
			ContainSubstring("the next request follows in about"))))
		second := s.next(ctx)
		Expect(second.Name).NotTo(Equal(denied.Name))
		Expect(requestOf(second).PublicKey).NotTo(Equal(requestOf(denied).PublicKey))
		serial := s.issue(ctx, s.approve(ctx, second))
		Eventually(r.serial).Should(Equal(serial))
	})

	It("reports the reason of the signer's failure, and asks again", func(ctx SpecContext) {
		source.Poll = 10 * time.Millisecond
		run(source, r)
		failed := s.decide(ctx, s.approve(ctx, s.next(ctx)), certificatesv1.CertificateFailed, "SigningError", "")
		Eventually(r.allReasons).Should(ContainElement(ContainSubstring(fmt.Sprintf("failed to issue a certificate for request %q (SigningError)", failed.Name))))
		serial := s.issue(ctx, s.approve(ctx, s.next(ctx)))
		Eventually(r.serial).Should(Equal(serial))
	})

	It("renews with another key at two thirds of the life, and serves on until the approval", func(ctx SpecContext) {
		source.Poll = 10 * time.Millisecond
		run(source, r)
		csr := s.approve(ctx, s.next(ctx))
		first := s.issue(ctx, csr, lasts(clock, 30*day))
		Eventually(r.serial).Should(Equal(first))
		clock.advance(17 * day)
		Consistently(func() int { return len(s.all(ctx)) }, "200ms").Should(Equal(1), "long before its time")
		clock.advance(6 * day)
		renewal := s.next(ctx)
		Expect(requestOf(renewal).PublicKey).NotTo(Equal(requestOf(csr).PublicKey))
		Eventually(r.reason).Should(And(ContainSubstring("waits for approval"), ContainSubstring("(the certificate in use is valid until ")))
		Expect(r.serial()).To(Equal(first))
		second := s.issue(ctx, s.approve(ctx, renewal), lasts(clock, 30*day))
		Eventually(r.serial).Should(Equal(second))
		Expect(r.reason()).To(BeEmpty())
	})

	DescribeTable("refuses a certificate that does not match the request", func(ctx SpecContext, reason string, certificate func(*signer, *certificatesv1.CertificateSigningRequest) []byte) {
		source.Poll = 10 * time.Millisecond
		run(source, r)
		csr := s.approve(ctx, s.next(ctx))
		s.put(ctx, csr, certificate(s, csr))
		Eventually(r.allReasons).Should(ContainElement(And(
			ContainSubstring(fmt.Sprintf("the certificate in request %q is refused", csr.Name)), ContainSubstring(reason))))
		Expect(r.deliveries()).To(BeZero())
		serial := s.issue(ctx, s.approve(ctx, s.next(ctx)))
		Eventually(r.serial).Should(Equal(serial))
	},
		Entry("for another key", "it is for another key", func(s *signer, _ *certificatesv1.CertificateSigningRequest) []byte {
			return sign(s.Authority, NewKey().Public())
		}),
		Entry("for another host", `is not for host "webhook.cf.svc"`, func(s *signer, csr *certificatesv1.CertificateSigningRequest) []byte {
			return sign(s.Authority, requestOf(csr).PublicKey, func(c *x509.Certificate) { c.DNSNames = []string{"other.cf.svc"} })
		}),
		Entry("for clients", `"server auth"`, func(s *signer, csr *certificatesv1.CertificateSigningRequest) []byte {
			return sign(s.Authority, requestOf(csr).PublicKey, func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth} })
		}),
		Entry("expired", "it ended at", func(s *signer, csr *certificatesv1.CertificateSigningRequest) []byte {
			return sign(s.Authority, requestOf(csr).PublicKey, func(c *x509.Certificate) {
				c.NotBefore, c.NotAfter = time.Now().Add(-2*time.Hour), time.Now().Add(-time.Hour)
			})
		}),
	)

	It("asks again when a request is deleted, before and after its approval", func(ctx SpecContext) {
		source.Poll = 10 * time.Millisecond
		run(source, r)
		first := s.next(ctx)
		Expect(requests().Delete(ctx, first.Name, metav1.DeleteOptions{})).To(Succeed())
		Eventually(r.allReasons).Should(ContainElement(ContainSubstring(fmt.Sprintf("request %q was deleted before", first.Name))))
		second := s.approve(ctx, s.next(ctx))
		Expect(second.Name).NotTo(Equal(first.Name))
		Expect(requests().Delete(ctx, second.Name, metav1.DeleteOptions{})).To(Succeed())
		serial := s.issue(ctx, s.approve(ctx, s.next(ctx)))
		Eventually(r.serial).Should(Equal(serial))
	})

	It("keeps a certificate whose CA arrives late, and follows the CA's changes", func(ctx SpecContext) {
		var trust atomic.Value
		trust.Store([]byte(nil))
		source.TrustPEM, source.Poll = nil, 10*time.Millisecond
		source.Trust = func(context.Context) ([]byte, error) {
			if text := trust.Load().([]byte); text != nil {
				return text, nil
			}
			return nil, fmt.Errorf("no ConfigMap yet")
		}
		run(source, r)
		serial := s.issue(ctx, s.approve(ctx, s.next(ctx)))
		Eventually(r.reason).Should(ContainSubstring("the CA certificates of the signer cannot be read: no ConfigMap yet"))
		trust.Store(newAuthority().CertificatePEM)
		Eventually(r.reason).Should(ContainSubstring("the signer has issued, but: the CA bundle does not verify the certificate"))
		trust.Store(s.CertificatePEM)
		Eventually(r.serial).Should(Equal(serial))
		Expect(s.all(ctx)).To(HaveLen(1), "no second request")

		both := join(newAuthority().CertificatePEM, s.CertificatePEM)
		trust.Store(both)
		clock.advance(2 * time.Minute)
		Eventually(r.bundle).Should(Equal(string(both)))
		Expect(r.serial()).To(Equal(serial))
	})

	It("follows the CA's changes also while a renewal waits", func(ctx SpecContext) {
		var trust atomic.Value
		trust.Store(s.CertificatePEM)
		source.TrustPEM, source.Poll = nil, 10*time.Millisecond
		source.Trust = func(context.Context) ([]byte, error) { return trust.Load().([]byte), nil }
		run(source, r)
		first := s.issue(ctx, s.approve(ctx, s.next(ctx)), lasts(clock, 30*day))
		Eventually(r.serial).Should(Equal(first))
		clock.advance(23 * day)
		s.next(ctx)
		Eventually(r.reason).Should(ContainSubstring("waits for approval"))
		both := join(newAuthority().CertificatePEM, s.CertificatePEM)
		trust.Store(both)
		clock.advance(2 * time.Minute)
		Eventually(r.bundle).Should(Equal(string(both)))
		Expect(r.serial()).To(Equal(first))
	})

	It("names the right that it needs, and goes on when it has it", func(ctx SpecContext) {
		user, config := newUser()
		source.Config, source.Poll = config, 10*time.Millisecond
		stop := run(source, r)
		Eventually(r.reason).Should(ContainSubstring("grant create, get, list and watch on certificatesigningrequests"))
		grant(ctx, user, "certificates.k8s.io", "certificatesigningrequests", "", "create", "get")
		csr := s.approve(ctx, s.next(ctx))
		serial := s.issue(ctx, csr)
		Eventually(r.serial).Should(Equal(serial), "create and get are enough")
		clock.advance(20 * time.Hour)
		Eventually(func() int { return len(s.all(ctx)) }).Should(Equal(2))
		Eventually(r.logged).Should(ContainElement(ContainSubstring("may not be watched")))
		stop()
		Expect(count(r.logged(), "may not be watched", csr.Name)).To(Equal(1), "%q", r.logged())
	})

	It("makes one request when the answer to it is lost", func(ctx SpecContext) {
		var lost atomic.Int64
		wire := &transport{lose: func(r *http.Request) bool { return r.Method == http.MethodPost && lost.Add(1) <= 3 }}
		user, config := newUser()
		grant(ctx, user, "certificates.k8s.io", "certificatesigningrequests", "", "create", "get")
		source.Config = through(config, wire)
		source.Poll = 10 * time.Millisecond
		run(source, r)
		Eventually(r.reason).Should(ContainSubstring("waits for approval"))
		Expect(lost.Load()).To(BeNumerically(">=", 3))
		Expect(count(r.allReasons(), "the API server did not take the request")).To(BeNumerically(">", 0))
		Expect(s.all(ctx)).To(HaveLen(1))
	})

	It("reports the API server's refusal", func() {
		source.SignerName = "example.org/not a signer"
		run(source, r)
		Eventually(r.reason).Should(And(ContainSubstring("the API server refuses the request; check SignerName"), ContainSubstring("spec.signerName")))
	})
})

// lasts is for certificates of a certain life from now on, by the spec's clock.
func lasts(clock *hand, life time.Duration) func(*x509.Certificate) {
	return func(c *x509.Certificate) {
		c.NotBefore = clock.now()
		c.NotAfter = c.NotBefore.Add(life)
	}
}
