package world

// This file is the signer of requests for certificates, for versions that ask for them through the API.

import (
	"context"
	cryptorand "crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"net/http"
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/internal/ca"
)

const (
	signerName = "example.com/webhooks"
	asksFor    = "certificatesigningrequests"

	// mostPending is how long the signer takes at most.
	mostPending = 20 * time.Second
)

// bySecret reports whether a version takes its certificates from the Secret of the issuer.
func (r release) bySecret() bool { return r.issued && !r.signed }

// signed is the source of certificates of versions that ask the signer.
func (w *World) signed() eirinix.CertificateSource {
	trust := w.authorities.signer.CertificatePEM
	if w.plan.Seed%4 == 0 {
		return eirinix.FromCSR(signerName, eirinix.SignerOptions{TrustPEM: trust})
	}
	return eirinix.FromCSR(signerName, eirinix.SignerOptions{Trust: func(context.Context) ([]byte, error) {
		w.authorities.reads.Add(1)
		return trust, nil
	}})
}

// setSigner makes the CA of the signer, which stays.
func (w *World) setSigner() (err error) {
	if w.plan.Signed {
		w.authorities.heard = map[string]bool{}
		w.authorities.signer, err = ca.New("signer", 30*day, w.began)
	}
	return err
}

// hearsRequest looks for requests after a write.
func (w *World) hearsRequest(path string) {
	if !w.plan.Signed || !strings.HasSuffix(path, "/"+asksFor) {
		return
	}
	for _, o := range w.api.Objects() {
		if o.GetKind() != "CertificateSigningRequest" {
			continue
		}
		w.mu.Lock()
		heard := w.authorities.heard[o.GetName()]
		w.authorities.heard[o.GetName()] = true
		w.mu.Unlock()
		if !heard {
			w.asked(o.GetName())
		}
	}
}

// asked has the signer answer a request after a while. Nothing else writes the object meanwhile.
func (w *World) asked(name string) {
	rng := w.stream("signer "+name, 0)
	w.tasks.Go(func() {
		if !w.wait(time.Duration(rng.Int64N(int64(mostPending)))) {
			return
		}
		found := w.find("CertificateSigningRequest", "", name)
		if found == nil {
			return // it was lost
		}
		r := &certificatesv1.CertificateSigningRequest{}
		err := runtime.DefaultUnstructuredConverter.FromUnstructured(found.Object, r)
		if err == nil && !isAnswered(found) && w.refuses(rng, r) {
			return
		}
		if err == nil && !isAnswered(found) {
			err = w.grant(r, nil)
		}
		if err != nil {
			w.violate("a certificate cannot be signed: %v", err)
		}
	})
}

// grant answers a request with a certificate, which change changes before it is signed, if it is not nil.
func (w *World) grant(r *certificatesv1.CertificateSigningRequest, change func(*x509.Certificate)) (err error) {
	if r.Status.Certificate, err = w.answers(r.Spec.Request, change); err != nil {
		return err
	}
	now := metav1.Now()
	r.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "TheWorldSaysSo", LastUpdateTime: now, LastTransitionTime: now}}
	r.SetResourceVersion("")
	return w.api.Put(r)
}

// answers makes the certificate that a request is for.
func (w *World) answers(request []byte, change func(*x509.Certificate)) ([]byte, error) {
	block, _ := pem.Decode(request)
	asked, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, err
	}
	by, now := w.authorities.signer, time.Now()
	before := issuedFor / 10
	if w.plan.Seed%3 == 0 { // most of its life is over
		before = 3 * issuedFor
	}
	made := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), Subject: asked.Subject, DNSNames: asked.DNSNames, NotBefore: now.Add(-before), NotAfter: now.Add(issuedFor),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		PublicKey: asked.PublicKey,
	}
	if change != nil {
		change(made)
	}
	signed, err := x509.CreateCertificate(cryptorand.Reader, made, by.Certificate, made.PublicKey, by.PrivateKey)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: signed}), err
}

// readsTrust sees that replicas read the CAs of the signer every minute, or so often within a time.
func (w *World) readsTrust(within time.Duration, n int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	asks := int64(0)
	for _, p := range w.processes {
		if p.release.signed && time.Since(p.readySince) > within {
			asks++
		}
	}
	if w.plan.Seed%4 != 0 && n < asks*int64(within/time.Minute)*3/4 {
		w.breaks("%d replicas have read the CAs of the signer %d times within %s", asks, n, within)
	}
}

// isPending reports whether a request for a certificate waits for its answer, or is younger than this.
func (w *World) isPending(age time.Duration) bool {
	return slices.ContainsFunc(w.api.Objects(), func(o *unstructured.Unstructured) bool {
		return o.GetKind() == "CertificateSigningRequest" && (!isAnswered(o) || time.Since(o.GetCreationTimestamp().Time) < age)
	})
}

// askedEnough sees that a replica at rest watches no request for a certificate that is answered.
func (w *World) askedEnough(p *process) {
	if w.isPending(0) {
		return // for this replica, or for another one
	}
	p.wire.mu.Lock()
	n := 0
	for s := range p.wire.open {
		if s.asks && s.ReadCloser != nil {
			n++
		}
	}
	p.wire.mu.Unlock()
	if n > 0 {
		w.violate("at rest, %s has its certificate, and watches %d requests for one", p, n)
	}
}

// mostAsked is the number of requests for certificates of a process in a minute, where the signer refuses none.
const mostAsked = 3

// asks looks at a request of a process for a certificate. The next one comes when the last one is answered, or lost. It reports
// whether the answer of the API server is lost.
func (c *wire) asks(r *http.Request) (loses bool) {
	if r.Method != http.MethodPost || !strings.HasSuffix(r.URL.Path, "/"+asksFor) || r.GetBody == nil {
		return false
	}
	var sent metav1.PartialObjectMetadata
	body, err := r.GetBody()
	if err != nil || json.NewDecoder(body).Decode(&sent) != nil {
		return false
	}
	c.mu.Lock()
	last := c.request
	again := last == sent.Name
	if c.request = sent.Name; !again {
		c.requests.add(time.Now())
	}
	n := len(c.requests.recent)
	c.mu.Unlock()
	if n > mostAsked {
		c.w.violate("%s has asked for %d certificates in a minute", c.host.name, n)
	}
	if found := c.w.find("CertificateSigningRequest", "", last); found != nil && !again && !isAnswered(found) {
		c.w.violate("%s asks for another certificate, and its request %s waits", c.host.name, last)
	}
	return !again && c.w.stream("lost "+sent.Name, 0).IntN(4) == 0
}

// isAsking reports whether a request of a process is a watch of its request for a certificate.
func isAsking(path, query string) bool {
	return strings.HasSuffix(path, "/"+asksFor) && strings.Contains(query, "watch=true")
}
