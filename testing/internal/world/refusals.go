package world

// This file is a signer that refuses requests for certificates, loses them, or answers with a wrong certificate. Each is repeated after a while.

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"math/rand/v2"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const (
	// repeatedWithin is how long it takes at most until the second refused request is repeated. The pause after the first is ten
	// seconds, and doubles.
	repeatedWithin = 45 * time.Second

	// inARow is the number of requests of a process in a row that are refused.
	inARow = 2
)

// isAnswered reports whether a request has come to its end.
func isAnswered(request *unstructured.Unstructured) bool {
	if answer, _, _ := unstructured.NestedString(request.Object, "status", "certificate"); answer != "" {
		return true
	}
	all, _, _ := unstructured.NestedSlice(request.Object, "status", "conditions")
	for _, one := range all {
		condition, _ := one.(map[string]any)
		if kind := condition["type"]; kind == string(certificatesv1.CertificateDenied) || kind == string(certificatesv1.CertificateFailed) {
			return true
		}
	}
	return false
}

// refuses has the signer refuse some requests. It reports whether it did.
func (w *World) refuses(rng *rand.Rand, r *certificatesv1.CertificateSigningRequest) bool {
	if w.plan.Seed%4 != 0 || rng.IntN(2) > 0 {
		return false
	}
	var by *process
	w.mu.Lock()
	for _, p := range w.processes {
		if p.wire.requested() == r.Name && !p.leaving {
			by = p
		}
	}
	most := by == nil || w.watch.refused[by] >= inARow
	if w.watch.refused == nil {
		w.watch.refused = map[*process]int{}
	}
	if by != nil && most {
		w.watch.refused[by] = 0
	} else if by != nil {
		w.watch.refused[by]++
	}
	w.mu.Unlock()
	if most {
		return false
	}
	w.excuse(unissued, 2*repeatedWithin)
	condition := certificatesv1.CertificateSigningRequestCondition{Status: corev1.ConditionTrue, Reason: "TheWorldSaysSo", LastUpdateTime: metav1.Now(), LastTransitionTime: metav1.Now()}
	deed := ""
	switch rng.IntN(4) {
	case 3:
		w.tell(named("the signer"), "answers the request %s of %s with a certificate that cannot be used", r.Name, by)
		w.missigns(by, rng, r)
		return true
	case 0:
		deed, condition.Type = "denies", certificatesv1.CertificateDenied
	case 1:
		deed, condition.Type = "fails", certificatesv1.CertificateFailed
	default:
		w.tell(named("the signer"), "loses the request %s of %s", r.Name, by)
		w.mu.Lock()
		delete(w.authorities.heard, r.Name) // a process that does not know that it has come through sends it again
		w.mu.Unlock()
		w.api.Remove(schema.GroupResource{Group: certificatesv1.GroupName, Resource: asksFor}, "", r.Name)
	}
	if deed != "" {
		w.tell(named("the signer"), "%s the request %s of %s", deed, r.Name, by)
		r.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{condition}
		r.SetResourceVersion("")
		if err := w.api.Put(r); err != nil {
			w.violate("a request cannot be refused: %v", err)
		}
	}
	w.tasks.Go(func() { w.repeats(by, r.Name, deed == "") })
	return true
}

// missigns has the signer answer with a certificate that has ended, or is for another name, use or key. The replica never serves it, and asks
// again.
func (w *World) missigns(by *process, rng *rand.Rand, r *certificatesv1.CertificateSigningRequest) {
	was := rng.IntN(4)
	err := w.grant(r, func(made *x509.Certificate) {
		switch was {
		case 0:
			made.NotBefore, made.NotAfter = made.NotBefore.Add(-issuedFor-time.Minute), time.Now().Add(-time.Minute)
		case 1:
			made.DNSNames = []string{"elsewhere.example.com"}
		case 2:
			made.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
		default:
			made.PublicKey = w.authorities.signer.Certificate.PublicKey
		}
	})
	block, _ := pem.Decode(r.Status.Certificate)
	if err != nil || block == nil {
		w.violate("a wrong certificate cannot be made: %v", err)
		return
	}
	w.tasks.Go(func() { w.repeats(by, r.Name, false) })
	w.tasks.Go(func() {
		for range 5 {
			if w.wait(time.Second) && bytes.Equal(w.serves(by), block.Bytes) {
				w.violate("%s serves a certificate that cannot be used (%d)", by, was)
			}
		}
	})
}

// requested returns the name of the last request for a certificate.
func (c *wire) requested() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.request
}

// repeats sees that a process asks again whose request was refused or lost.
func (w *World) repeats(p *process, request string, lost bool) {
	began := time.Now()
	if !w.wait(repeatedWithin) {
		return
	}
	again := lost && w.find("CertificateSigningRequest", "", request) != nil
	w.mu.Lock()
	defer w.mu.Unlock()
	if p.wire.requested() == request && !again && !p.leaving && !w.troubledSince(began, rough, slow, apart) {
		select {
		case <-p.ended:
		default:
			w.breaks("%s has not asked again for a certificate, %s after its request was refused or lost", p, repeatedWithin)
		}
	}
}
