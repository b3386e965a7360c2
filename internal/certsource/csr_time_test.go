package certsource_test

// Months of a CSR's life, with a signer that answers at once. The bubbles of synctest need a *testing.T, so these are
// plain tests: their clock is time itself.

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"code.cloudfoundry.org/eirinix/internal/ca"
	"code.cloudfoundry.org/eirinix/internal/certsource"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
)

func requestOf(csr *certificatesv1.CertificateSigningRequest) *x509.CertificateRequest {
	GinkgoHelper()
	block, _ := pem.Decode(csr.Spec.Request)
	return Must(x509.ParseCertificateRequest(block.Bytes))
}

// desk is an API server that holds requests. answer answers each before a client can read it.
type desk struct {
	answer func(*certificatesv1.CertificateSigningRequest)
	late   bool // its own copy of the requests is empty, and it cannot send that in a watch

	mu    sync.Mutex
	times []time.Time
	held  map[string]*certificatesv1.CertificateSigningRequest
}

func answering(answer func(*certificatesv1.CertificateSigningRequest)) *desk {
	return &desk{answer: answer, held: map[string]*certificatesv1.CertificateSigningRequest{}}
}

// asked is when requests were made.
func (d *desk) asked() []time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.times)
}

func (d *desk) RoundTrip(r *http.Request) (*http.Response, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	q := r.URL.Query()
	var body any
	switch {
	case r.Method == http.MethodPost:
		csr := &certificatesv1.CertificateSigningRequest{}
		if err := json.NewDecoder(r.Body).Decode(csr); err != nil {
			return nil, err
		}
		d.times = append(d.times, time.Now())
		csr.ResourceVersion = strconv.Itoa(10 + len(d.times))
		created := csr.DeepCopy()
		d.answer(csr)
		d.held[csr.Name], body = csr, created
	case r.Method == http.MethodDelete:
		panic("a request is deleted, for which there must be no right")
	case d.late && q.Get("sendInitialEvents") == "true":
		resp := answered(io.NopCloser(strings.NewReader(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Invalid","code":422}`)))
		resp.StatusCode = http.StatusUnprocessableEntity
		return resp, nil
	case d.late && r.Method == http.MethodGet && q.Get("watch") == "":
		list := certificatesv1.CertificateSigningRequestList{ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(10 + len(d.times))}}
		list.SetGroupVersionKind(certificatesv1.SchemeGroupVersion.WithKind("CertificateSigningRequestList"))
		if csr := d.held[strings.TrimPrefix(q.Get("fieldSelector"), "metadata.name=")]; csr != nil && !q.Has("resourceVersion") {
			list.Items = append(list.Items, *csr)
		}
		body = list
	case q.Get("watch") == "true" && (q.Get("sendInitialEvents") == "true" || d.late):
		var text strings.Builder
		end := &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{
			ResourceVersion: strconv.Itoa(10 + len(d.times)), Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"},
		}}
		reader, writer := io.Pipe()
		if csr := d.held[strings.TrimPrefix(q.Get("fieldSelector"), "metadata.name=")]; csr != nil {
			text.Write(Must(json.Marshal(map[string]any{"type": "ADDED", "object": typed(csr)})))
		}
		text.Write(Must(json.Marshal(map[string]any{"type": "BOOKMARK", "object": typed(end)})))
		context.AfterFunc(r.Context(), func() { _ = writer.Close() })
		return answered(struct {
			io.Reader
			io.Closer
		}{io.MultiReader(strings.NewReader(text.String()), reader), reader}), nil
	default:
		return nil, fmt.Errorf("no client was to send %s %s", r.Method, r.URL)
	}
	if csr, ok := body.(*certificatesv1.CertificateSigningRequest); ok {
		body = typed(csr)
	}
	return answered(io.NopCloser(bytes.NewReader(Must(json.Marshal(body))))), nil
}

// typed is a request as it goes over the wire.
func typed(csr *certificatesv1.CertificateSigningRequest) *certificatesv1.CertificateSigningRequest {
	csr = csr.DeepCopy()
	csr.SetGroupVersionKind(certificatesv1.SchemeGroupVersion.WithKind("CertificateSigningRequest"))
	return csr
}

func answered(body io.ReadCloser) *http.Response {
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: body}
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

func source(d *desk, authority *ca.Authority) *certsource.CSR {
	return &certsource.CSR{
		Config:     &rest.Config{Host: "https://api.example.org", Transport: d, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json"}},
		SignerName: "example.org/webhook-serving", Hosts: hosts, TrustPEM: authority.CertificatePEM, Now: time.Now,
	}
}

func TestCSRRenewsForMonths(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, authority := plain(t), newAuthority()
		desk := answering(issuing(authority, 0, 7*day))
		c := source(desk, authority)
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
		Expect(desk.asked()).To(HaveLen(r.deliveries()))
		Expect(r.deliveries()).To(BeNumerically("~", 20, 4), "once every 4.7 days, give or take")
		Expect(r.faults()).To(BeEmpty())
	})
}

func TestCSRDoesNotTakeWhatIsReadLateForADeletion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, authority := plain(t), newAuthority()
		desk := answering(issuing(authority, 0, 7*day))
		desk.late = true
		go func() { _ = source(desk, authority).Run(t.Context(), r.deliver, r.wait) }()
		time.Sleep(500 * time.Millisecond)
		synctest.Wait()
		Expect(r.reason()).To(BeEmpty(), "the list asks for the latest state")
		Expect(r.deliveries()).To(Equal(1))
		Expect(desk.asked()).To(HaveLen(1))
	})
}

func TestCSRAsksLessAndLessOftenWhenDenied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, authority := plain(t), newAuthority()
		desk := answering(func(csr *certificatesv1.CertificateSigningRequest) {
			csr.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateDenied, Status: "True", Message: "no"}}
		})
		go func() { _ = source(desk, authority).Run(t.Context(), r.deliver, r.wait) }()
		time.Sleep(day)
		synctest.Wait()
		times := desk.asked()
		Expect(len(times)).To(BeNumerically("~", 33, 5), "doubling from ten seconds to an hour")
		for i := 1; i < len(times); i++ {
			Expect(times[i].Sub(times[i-1])).To(And(BeNumerically(">=", 8*time.Second), BeNumerically("<=", time.Hour+certsource.DefaultPoll)))
		}
		Expect(times[len(times)-1].Sub(times[len(times)-2])).To(BeNumerically(">", 47*time.Minute))
		Expect(r.deliveries()).To(BeZero())
		Expect(len(r.allReasons())).To(BeNumerically("~", 24*60, 100), "a reminder a minute")
		Expect(r.allReasons()[0]).To(ContainSubstring("was denied (no)"))
	})
}

func TestCSRTakesALongRetryAtItsWord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, authority := plain(t), newAuthority()
		desk := answering(func(csr *certificatesv1.CertificateSigningRequest) {
			csr.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateDenied, Status: "True"}}
		})
		c := source(desk, authority)
		c.Retry, c.Poll = 3*day, day
		go func() { _ = c.Run(t.Context(), r.deliver, r.wait) }()
		time.Sleep(50 * 365 * day)
		synctest.Wait()
		Expect(len(desk.asked())).To(BeNumerically("~", 9+50*365/1080, 6), "doubling from three days to three years")
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
				desk := answering(issuing(authority, c.before, c.life))
				go func() { _ = source(desk, authority).Run(t.Context(), r.deliver, r.wait) }()
				time.Sleep(day / 12)
				synctest.Wait()
				Expect(len(desk.asked())).To(BeNumerically("<=", c.atMost/12+2))
				Expect(len(desk.asked())).To(BeNumerically(">", 1))
			})
		})
	}
}

var _ = Describe("CSR without a cluster", func() {
	It("needs its required fields, and names all of them", func() {
		Expect((&certsource.CSR{}).Validate()).To(MatchError(And(
			ContainSubstring(`SignerName is ""`), ContainSubstring("at least one host"), ContainSubstring("set TrustPEM or Trust"))))
		good := source(answering(nil), newAuthority())
		Expect(good.Validate()).To(Succeed())
		for message, change := range map[string]func(*certsource.CSR){
			"to a domain and a path":     func(c *certsource.CSR) { c.SignerName = "signer" },
			"use a signer of your own":   func(c *certsource.CSR) { c.SignerName = "kubernetes.io/kubelet-serving" },
			"TrustPEM holds no readable": func(c *certsource.CSR) { c.TrustPEM = []byte("x") },
			"at least 10m0s":             func(c *certsource.CSR) { c.Lifetime = time.Minute },
			"less than 68 years":         func(c *certsource.CSR) { c.Lifetime = 100 * 365 * day },
		} {
			c := *good
			change(&c)
			Expect(c.Validate()).To(MatchError(ContainSubstring(message)), message)
		}
	})
})
