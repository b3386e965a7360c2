package certsource_test

// Months of a CSR's life, with a signer that answers at once. The bubbles of synctest need a *testing.T, so these are
// plain tests: their clock is time itself.

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"code.cloudfoundry.org/eirinix/internal/ca"
	"code.cloudfoundry.org/eirinix/internal/certsource"
)

func requestOf(csr *certificatesv1.CertificateSigningRequest) *x509.CertificateRequest {
	GinkgoHelper()
	block, _ := pem.Decode(csr.Spec.Request)
	return must(x509.ParseCertificateRequest(block.Bytes))
}

// answering is a client whose requests are answered by the function before anybody can read them.
func answering(answer func(*certificatesv1.CertificateSigningRequest)) (client *fake.Clientset, asked func() []time.Time) {
	var mu sync.Mutex
	var times []time.Time
	client = fake.NewClientset()
	client.PrependReactor("create", "certificatesigningrequests", func(a clienttesting.Action) (bool, runtime.Object, error) {
		mu.Lock()
		defer mu.Unlock()
		times = append(times, time.Now())
		answer(a.(clienttesting.CreateAction).GetObject().(*certificatesv1.CertificateSigningRequest))
		return false, nil, nil
	})
	return client, func() []time.Time {
		mu.Lock()
		defer mu.Unlock()
		return append([]time.Time(nil), times...)
	}
}

func issuing(authority *ca.Authority, before, life time.Duration) func(*certificatesv1.CertificateSigningRequest) {
	return func(csr *certificatesv1.CertificateSigningRequest) {
		csr.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateApproved, Status: "True"}}
		csr.Status.Certificate = sign(authority, requestOf(csr).PublicKey, func(c *x509.Certificate) {
			c.NotBefore = time.Now().Add(-before)
			c.NotAfter = time.Now().Add(life)
		})
	}
}

func source(client kubernetes.Interface, authority *ca.Authority) *certsource.CSR {
	return &certsource.CSR{
		Requests: client.CertificatesV1().CertificateSigningRequests(), SignerName: "example.org/webhook-serving",
		Hosts: hosts, TrustPEM: authority.CertificatePEM,
	}
}

func TestCSRRenewsForMonths(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, authority := plain(t), newAuthority()
		client, asked := answering(issuing(authority, 0, 7*day))
		c := source(client, authority)
		c.Poll = 10 * time.Minute // fewer looks: this is about renewals
		go func() { _ = c.Run(t.Context(), r.deliver, r.wait) }()
		for range 90 {
			time.Sleep(day)
			synctest.Wait()
			r.mu.Lock()
			last := r.delivered[len(r.delivered)-1]
			r.mu.Unlock()
			Expect(last.Verify(hosts, time.Now())).To(Succeed())
			Expect(time.Until(last.Certificate.Leaf.NotAfter)).To(BeNumerically(">", day), "renewed well before its end")
		}
		Expect(asked()).To(HaveLen(r.deliveries()))
		Expect(r.deliveries()).To(BeNumerically("~", 20, 4), "once every 4.7 days, give or take")
		left := must(client.CertificatesV1().CertificateSigningRequests().List(context.Background(), metav1.ListOptions{}))
		Expect(left.Items).To(BeEmpty(), "finished requests are deleted")
		Expect(r.faults()).To(BeEmpty())
	})
}

func TestCSRAsksLessAndLessOftenWhenDenied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, authority := plain(t), newAuthority()
		client, asked := answering(func(csr *certificatesv1.CertificateSigningRequest) {
			csr.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateDenied, Status: "True", Message: "no"}}
		})
		go func() { _ = source(client, authority).Run(t.Context(), r.deliver, r.wait) }()
		time.Sleep(day)
		synctest.Wait()
		times := asked()
		Expect(len(times)).To(BeNumerically("~", 33, 5), "doubling from ten seconds to an hour")
		for i := 1; i < len(times); i++ {
			Expect(times[i].Sub(times[i-1])).To(And(BeNumerically(">=", 8*time.Second), BeNumerically("<=", time.Hour+certsource.DefaultPoll)))
		}
		Expect(times[len(times)-1].Sub(times[len(times)-2])).To(BeNumerically(">", 47*time.Minute))
		Expect(r.deliveries()).To(BeZero())
		Expect(len(r.allReasons())).To(BeNumerically("~", 24*60, 100), "a reminder a minute")
		Expect(r.allReasons()[0]).To(ContainSubstring("was denied (no)"))
		left := must(client.CertificatesV1().CertificateSigningRequests().List(context.Background(), metav1.ListOptions{}))
		Expect(len(left.Items)).To(BeNumerically("<=", 1), "denied requests do not heap up")
	})
}

func TestCSRTakesALongRetryAtItsWord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, authority := plain(t), newAuthority()
		client, asked := answering(func(csr *certificatesv1.CertificateSigningRequest) {
			csr.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateDenied, Status: "True"}}
		})
		c := source(client, authority)
		c.Retry, c.Poll = 3*day, day
		go func() { _ = c.Run(t.Context(), r.deliver, r.wait) }()
		time.Sleep(50 * 365 * day)
		synctest.Wait()
		Expect(len(asked())).To(BeNumerically("~", 9+50*365/1080, 6), "doubling from three days to three years")
	})
}

// A signer that backdates so far, or whose CA is so near its end, that every certificate is due for renewal at once.
func TestCSRDoesNotSpinOnCertificatesThatAreDueAtOnce(t *testing.T) {
	for name, c := range map[string]struct {
		before, life time.Duration
		atMost       int
	}{
		"an hour is left":     {before: 30 * day, life: time.Hour, atMost: 40},
		"five seconds remain": {before: 30 * day, life: 5 * time.Second, atMost: 24 * 60 * 6},
		"due in two seconds":  {before: 0, life: 3 * time.Second, atMost: 24 * 60 * 6},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, authority := plain(t), newAuthority()
				client, asked := answering(issuing(authority, c.before, c.life))
				go func() { _ = source(client, authority).Run(t.Context(), r.deliver, r.wait) }()
				time.Sleep(day / 12)
				synctest.Wait()
				Expect(len(asked())).To(BeNumerically("<=", c.atMost/12+2))
				Expect(len(asked())).To(BeNumerically(">", 1))
			})
		})
	}
}

var _ = Describe("CSR without a cluster", func() {
	It("refuses to run without what it needs, and names all of it", func(ctx SpecContext) {
		r := newRecorder()
		Expect((&certsource.CSR{}).Run(ctx, r.deliver, r.wait)).To(MatchError(And(
			ContainSubstring("needs a client"), ContainSubstring(`SignerName is ""`), ContainSubstring("at least one host"), ContainSubstring("set TrustPEM or Trust"))))
		good := source(fake.NewClientset(), newAuthority())
		Expect(good.Validate()).To(Succeed())
		for message, change := range map[string]func(*certsource.CSR){
			"to a domain and a path":       func(c *certsource.CSR) { c.SignerName = "signer" },
			"use a signer of your own":     func(c *certsource.CSR) { c.SignerName = "kubernetes.io/kubelet-serving" },
			"TrustPEM holds no readable":   func(c *certsource.CSR) { c.TrustPEM = []byte("x") },
			"at least 10m0s":               func(c *certsource.CSR) { c.Lifetime = time.Minute },
			"less than 68 years":           func(c *certsource.CSR) { c.Lifetime = 100 * 365 * day },
			"Retry must not be negative":   func(c *certsource.CSR) { c.Retry = -1 },
			"Poll of a certificate source": func(c *certsource.CSR) { c.Poll = -1 },
		} {
			c := *good
			change(&c)
			Expect(c.Validate()).To(MatchError(ContainSubstring(message)), message)
		}
	})
})
