package certsource_test

// This file is about certificates that a signer issues by CertificateSigningRequests: months of a CSR's life before an API
// server of a few lines.

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"code.cloudfoundry.org/eirinix/internal/ca"
	"code.cloudfoundry.org/eirinix/internal/certsource"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
)

type csr = certificatesv1.CertificateSigningRequest

func requestOf(c *csr) *x509.CertificateRequest {
	GinkgoHelper()
	block, _ := pem.Decode(c.Spec.Request)
	return Must(x509.ParseCertificateRequest(block.Bytes))
}

// decided adds a decision to a request.
func decided(c *csr, decision certificatesv1.RequestConditionType, reason, message string) *csr {
	c.Status.Conditions = append(c.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{Type: decision, Status: "True", Reason: reason, Message: message})
	return c
}

// issued puts a certificate into an approved request, by default one for its key.
func (s *signer) issued(c *csr, edit ...func(*x509.Certificate)) {
	GinkgoHelper()
	decided(c, certificatesv1.CertificateApproved, "Spec", "").Status.Certificate = sign(s.Authority, requestOf(c).PublicKey, edit...)
}

// lasts is for certificates that began before now and end after it.
func lasts(before, life time.Duration) func(*x509.Certificate) {
	return func(c *x509.Certificate) { c.NotBefore, c.NotAfter = time.Now().Add(-before), time.Now().Add(life) }
}

// signer is a CA that answers requests.
type signer struct{ *ca.Authority }

func newSigner() *signer { return &signer{newAuthority()} }

// desk is an API server that holds requests, which may be read and not watched. answer answers each before a client can
// read it.
type desk struct {
	answer func(n int, c *csr)
	lose   int // answers to requests that are created

	mu    sync.Mutex
	times []time.Time
	held  map[string]*csr
}

func answering(answer func(n int, c *csr)) *desk {
	return &desk{answer: answer, held: map[string]*csr{}}
}

// asked is when requests were made.
func (d *desk) asked() []time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.times)
}

// requests returns those that are held, in the order of their making.
func (d *desk) requests() []*csr {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.SortedFunc(maps.Values(d.held), func(a, b *csr) int { return strings.Compare(a.ResourceVersion, b.ResourceVersion) })
}

func (d *desk) RoundTrip(r *http.Request) (*http.Response, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	send := func(object any) (*http.Response, error) {
		return answered(http.StatusOK, bytes.NewReader(Must(json.Marshal(object)))), nil
	}
	switch {
	case r.Method == http.MethodPost:
		c := &csr{}
		if err := json.NewDecoder(r.Body).Decode(c); err != nil {
			return nil, err
		}
		if d.held[c.Name] != nil {
			return failed(http.StatusConflict, metav1.StatusReasonAlreadyExists), nil
		}
		d.times = append(d.times, time.Now())
		c.ResourceVersion = strconv.Itoa(100 + len(d.times))
		c.SetGroupVersionKind(certificatesv1.SchemeGroupVersion.WithKind("CertificateSigningRequest"))
		created := c.DeepCopy()
		d.held[c.Name] = c
		d.answer(len(d.times), c)
		if d.lose > 0 {
			d.lose--
			return nil, fmt.Errorf("the connection is gone: %w", io.ErrUnexpectedEOF)
		}
		return send(created)
	case r.Method != http.MethodGet:
		panic("a request is deleted or changed, for which there must be no right")
	case r.URL.Query().Get("fieldSelector") == "":
		if c := d.held[path.Base(r.URL.Path)]; c != nil {
			return send(c)
		}
		return failed(http.StatusNotFound, metav1.StatusReasonNotFound), nil
	}
	return failed(http.StatusForbidden, metav1.StatusReasonForbidden), nil
}

// source returns a CSR that asks at a desk.
func (s *signer) source(d *desk) *certsource.CSR {
	return &certsource.CSR{Config: at(d), SignerName: "example.org/webhook-serving", Hosts: hosts, TrustPEM: s.CertificatePEM, Now: time.Now}
}

func TestCSRWaitsForApprovalAndThenForTheSigner(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s, r := newSigner(), newRecorder()
		d := answering(func(int, *csr) {})
		source := s.source(d)
		source.Lifetime, source.NamePrefix, source.Log = 3*time.Hour, "cf-webhook", r.log()
		source.Poll = time.Hour // it looks when its copy of the request changes
		background(t, source, r)
		passes(time.Minute)
		c := d.requests()[0]
		Expect(c.Name).To(HavePrefix("cf-webhook-"))
		Expect(c.Spec.Usages).To(ConsistOf(certificatesv1.UsageDigitalSignature, certificatesv1.UsageServerAuth))
		Expect(c.Spec.ExpirationSeconds).To(HaveValue(BeEquivalentTo(3 * 60 * 60)))
		asked := requestOf(c)
		Expect(asked.CheckSignature()).To(Succeed())
		Expect(asked.DNSNames).To(Equal([]string{"webhook.cf.svc"}))
		Expect(asked.IPAddresses).To(HaveLen(1))
		Expect(r.reason()).To(Equal(fmt.Sprintf("signer %s: request %q waits for approval; approve it with: kubectl certificate approve %s", source.SignerName, c.Name, c.Name)))

		// becomes changes the request.
		becomes := func(change func()) {
			d.mu.Lock()
			change()
			c.ResourceVersion += "0"
			d.mu.Unlock()
			passes(time.Minute)
		}
		becomes(func() { decided(c, certificatesv1.CertificateApproved, "Spec", "") })
		Expect(r.reason()).To(ContainSubstring("is approved, and the signer has not issued"))
		Expect(r.deliveries()).To(BeZero())
		becomes(func() { c.Status.Certificate = sign(s.Authority, asked.PublicKey) })
		Expect(r.serial()).To(Equal(leafOf(c.Status.Certificate).SerialNumber.String()))
		Expect(r.reason()).To(BeEmpty())
		Expect(r.bundle()).To(Equal(string(s.CertificatePEM)))
		Expect(count(r.logged(), "may not be watched", c.Name)).To(Equal(1), "%q", r.logged())
	})
}

func TestCSRSaysWhyItCannotAsk(t *testing.T) {
	for remedy, answer := range map[string]*http.Response{
		"grant create, list and watch on certificatesigningrequests": failed(http.StatusForbidden, metav1.StatusReasonForbidden),
		"the API server refuses the request; check SignerName":       failed(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid),
	} {
		bubble(t, func(t *testing.T) {
			source, r := newSigner().source(nil), newRecorder()
			source.Config = at(RoundTrip(func(*http.Request) (*http.Response, error) { return answer, nil }))
			background(t, source, r)
			Expect(r.reason()).To(ContainSubstring(remedy))
		})
	}
}

func TestCSRAsksAgainForACertificateThatItDoesNotGet(t *testing.T) {
	for reason, answer := range map[string]func(s *signer, d *desk, c *csr){
		"was denied (UnknownHost: not yours); ask who approves": func(_ *signer, _ *desk, c *csr) {
			decided(c, certificatesv1.CertificateDenied, "UnknownHost", "not yours")
		},
		"failed to issue a certificate for request": func(_ *signer, _ *desk, c *csr) {
			decided(decided(c, certificatesv1.CertificateApproved, "", ""), certificatesv1.CertificateFailed, "SigningError", "")
		},
		"was deleted before a certificate was issued": func(_ *signer, d *desk, c *csr) { delete(d.held, c.Name) },
		"it is for another key": func(s *signer, _ *desk, c *csr) {
			s.issued(c)
			c.Status.Certificate = sign(s.Authority, NewKey().Public())
		},
		`is not for host "webhook.cf.svc"`: func(s *signer, _ *desk, c *csr) {
			s.issued(c, func(c *x509.Certificate) { c.DNSNames = []string{"other.cf.svc"} })
		},
	} {
		t.Run(reason, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s, r := newSigner(), newRecorder()
				var names []string
				var d *desk
				d = answering(func(n int, c *csr) {
					if names = append(names, c.Name); n == 1 {
						answer(s, d, c)
					} else {
						s.issued(c, lasts(0, 7*day))
					}
				})
				background(t, s.source(d), r)
				passes(8 * time.Second)
				Expect(r.deliveries()).To(BeZero())
				passes(time.Minute)
				Expect(r.allReasons()).To(ContainElement(And(ContainSubstring(fmt.Sprintf("request %q", names[0])), ContainSubstring(reason), ContainSubstring("the next request follows in about"))))
				Expect(names).To(HaveLen(2))
				Expect(names[1]).NotTo(Equal(names[0]))
				Expect(r.deliveries()).To(Equal(1))
				Expect(r.faults()).To(BeEmpty())
			})
		})
	}
}

func TestCSRServesOnWhileARenewalWaits(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s, r := newSigner(), newRecorder()
		var trust shared[[]byte]
		trust.set(s.CertificatePEM)
		d := answering(func(n int, c *csr) {
			if n == 1 {
				s.issued(c, lasts(0, 30*day))
			}
		})
		source := s.source(d)
		source.TrustPEM, source.Poll = nil, time.Hour
		source.Trust = func(context.Context) ([]byte, error) { return trust.get(), nil }
		background(t, source, r)
		passes(17 * day)
		Expect(d.asked()).To(HaveLen(1), "long before two thirds of its life")
		first := r.serial()
		passes(6 * day)
		Expect(r.reason()).To(And(ContainSubstring("waits for approval"), ContainSubstring("(the certificate in use is valid until ")))
		all := d.requests()
		Expect(all).To(HaveLen(2))
		Expect(requestOf(all[1]).PublicKey).NotTo(Equal(requestOf(all[0]).PublicKey))

		trust.set(join(newAuthority().CertificatePEM, s.CertificatePEM))
		passes(2 * time.Hour)
		Expect(r.bundle()).To(Equal(string(trust.get())), "the CA's changes are followed meanwhile")
		Expect(r.serial()).To(Equal(first))

		d.mu.Lock()
		s.issued(all[1], lasts(0, 30*day))
		d.mu.Unlock()
		passes(2 * time.Hour)
		Expect(r.serial()).NotTo(Equal(first))
		Expect(r.reason()).To(BeEmpty())
		Expect(r.faults()).To(BeEmpty())
	})
}

func TestCSRKeepsACertificateWhoseCAArrivesLate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s, r := newSigner(), newRecorder()
		root := newAuthority()
		cross := ca.EncodeCertificate(Must(root.CrossSign(s.Certificate, time.Now())))
		d := answering(func(_ int, c *csr) {
			s.issued(c, lasts(0, 30*day))
			c.Status.Certificate = join(c.Status.Certificate, cross) // its intermediate certificates are sent on
		})
		source := s.source(d)
		var trust shared[[]byte] // none: the ConfigMap is not there yet
		source.TrustPEM, source.Trust = nil, func(context.Context) ([]byte, error) {
			if trust.get() == nil {
				return nil, errors.New("no ConfigMap yet")
			}
			return trust.get(), nil
		}
		background(t, source, r)
		passes(time.Minute)
		Expect(r.reason()).To(ContainSubstring("the CA certificates of the signer cannot be read: no ConfigMap yet"))
		trust.set(newAuthority().CertificatePEM)
		passes(time.Minute)
		Expect(r.reason()).To(ContainSubstring("the signer has issued, but: the CA bundle does not verify the certificate"))
		trust.set(root.CertificatePEM)
		passes(time.Minute)
		Expect(r.deliveries()).To(Equal(1))
		trust.set(join(newAuthority().CertificatePEM, root.CertificatePEM))
		passes(2 * time.Minute)
		Expect(r.bundle()).To(Equal(string(trust.get())))
		Expect(d.asked()).To(HaveLen(1), "no second request")
		Expect(d.requests()[0].Spec.ExpirationSeconds).To(BeNil(), "the lifetime is left to the signer")
		Expect(r.faults()).To(BeEmpty())
	})
}

func TestCSRMakesOneRequestWhenTheAnswerToItIsLost(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s, r := newSigner(), newRecorder()
		d := answering(func(int, *csr) {})
		d.lose = 1
		source, refused := s.source(d), false
		source.Config = at(RoundTrip(func(request *http.Request) (*http.Response, error) {
			if again := len(d.asked()) == 1; again && !refused && request.Method == http.MethodPost { // the right is gone for a moment
				refused = true
				return failed(http.StatusForbidden, metav1.StatusReasonForbidden), nil
			}
			return d.RoundTrip(request)
		}))
		background(t, source, r)
		passes(10 * time.Minute)
		Expect(count(r.allReasons(), "the API server did not take the request")).To(BeNumerically(">", 0))
		Expect(r.reason()).To(ContainSubstring("waits for approval"))
		Expect(d.asked()).To(HaveLen(1))
	})
}

func TestCSRAsksLessAndLessOftenWhenDenied(t *testing.T) {
	for name, c := range map[string]struct {
		retry, poll, time, last time.Duration
		requests                int
	}{
		"doubling from ten seconds to an hour":    {0, 30 * time.Second, day, 47 * time.Minute, 33},
		"doubling from three days to three years": {3 * day, 2 * day, 20 * 365 * day, 700 * day, 15},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s, r := newSigner(), newRecorder()
				d := answering(func(_ int, c *csr) { decided(c, certificatesv1.CertificateDenied, "", "no") })
				source := s.source(d)
				source.Retry, source.Poll = c.retry, c.poll
				background(t, source, r)
				passes(c.time)
				times := d.asked()
				Expect(len(times)).To(BeNumerically("~", c.requests, 6))
				Expect(times[len(times)-1].Sub(times[len(times)-2])).To(BeNumerically(">", c.last))
				Expect(r.deliveries()).To(BeZero())
				if c.poll < time.Minute {
					Expect(len(r.allReasons())).To(BeNumerically("~", 24*60, 100), "a reminder a minute")
				}
			})
		})
	}
}

// A signer that backdates so far, or whose CA is so near its end, that every certificate is due for renewal at once.
func TestCSRDoesNotSpinOnCertificatesThatAreDueAtOnce(t *testing.T) {
	for name, c := range map[string]struct {
		before, life, within time.Duration
		atMost               int
	}{
		"an hour is left":     {30 * day, time.Hour, time.Hour, 3},
		"five seconds remain": {30 * day, 5 * time.Second, 10 * time.Minute, 60},
		"due in two seconds":  {0, 3 * time.Second, 10 * time.Minute, 60},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s, r := newSigner(), newRecorder()
				d := answering(func(_ int, request *csr) { s.issued(request, lasts(c.before, c.life)) })
				background(t, s.source(d), r)
				passes(c.within)
				Expect(len(d.asked())).To(And(BeNumerically(">", 1), BeNumerically("<=", c.atMost+2)))
			})
		})
	}
}

var _ = It("CSR without a cluster needs its required fields, and names all of them", func() {
	Expect((&certsource.CSR{}).Validate()).To(MatchError(And(
		ContainSubstring(`SignerName is ""`), ContainSubstring("at least one host"), ContainSubstring("set TrustPEM or Trust"))))
	good := newSigner().source(nil)
	for _, good.Lifetime = range []time.Duration{10 * time.Minute, (1<<31 - 1) * time.Second, 0} {
		Expect(good.Validate()).To(Succeed())
	}
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
