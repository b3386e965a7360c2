package world

// This file is the CA that certifies API servers as clients, their certificates, how these change, and clients without a good one.

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	cryptorand "crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"math/rand/v2"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"code.cloudfoundry.org/eirinix/internal/ca"
)

func callersOf(bundle []byte) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: callersName}, Data: map[string]string{"ca.crt": string(bundle)}}
}

// certify makes the certificate of a client.
func certify(by *ca.Authority, name string, now time.Time) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), cryptorand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: name}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(day),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	leaf, err := x509.CreateCertificate(cryptorand.Reader, template, by.Certificate, key.Public(), by.PrivateKey)
	return &tls.Certificate{Certificate: [][]byte{leaf}, PrivateKey: key}, err
}

// identity is the certificate with which API servers call, if the program asks for one.
func (w *World) identity() *tls.Certificate {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.authorities.caller == nil {
		return &tls.Certificate{}
	}
	return w.authorities.caller
}

// changeCallers changes the CA of API servers: the program is told to trust both, they are given certificates of the new one, and it
// is told to trust that alone. Or the ConfigMap is lost for a while, in which the last good CAs stay in force.
func (w *World) changeCallers(f Fault, rng *rand.Rand) {
	if !w.authorities.busy.TryLock() {
		return
	}
	defer w.authorities.busy.Unlock()
	w.mu.Lock()
	old, certificate := w.authorities.callers, w.authorities.caller
	w.mu.Unlock()
	if rng.IntN(3) == 0 {
		w.excuse(unissued, f.For+settling)
		w.tell(fate, "deletes the ConfigMap of the callers' CA for %s", f.For.Round(time.Second))
		w.api.Remove(schema.GroupResource{Resource: "configmaps"}, namespace, callersName)
		w.wait(f.For)
		w.trustCallers(old.CertificatePEM)
		return
	}
	next, err := ca.New("callers", 30*day, time.Now())
	var renewed *tls.Certificate
	if err == nil {
		renewed, err = certify(next, callerName, time.Now())
	}
	if err != nil {
		w.violate("there is no CA of callers: %v", err)
		return
	}
	w.tell(fate, "has the program trust another CA of callers")
	w.trustCallers(inAnyOrder(w.stream("callers", int(f.At)), old.CertificatePEM, next.CertificatePEM))
	if !w.calm(callersFollowed) {
		return
	}
	w.mu.Lock()
	w.authorities.callers, w.authorities.caller, w.authorities.refused = next, renewed, nil
	w.mu.Unlock()
	for _, s := range w.servers {
		s.reset()
	}
	w.tell(fate, "gives the API servers certificates of that CA, and has the program trust no other")
	w.trustCallers(next.CertificatePEM)
	if w.calm(callersFollowed) {
		w.mu.Lock()
		w.authorities.refused = certificate
		w.mu.Unlock()
		w.intrude(rng)
	}
}

func (w *World) trustCallers(bundle []byte) {
	w.mu.Lock()
	w.authorities.trusted = bundle
	w.mu.Unlock()
	if err := w.api.Put(callersOf(bundle)); err != nil {
		w.violate("the CA of callers cannot be changed: %v", err)
	}
}

// intrude calls the program as API servers do, but with other certificates. It answers none of these calls.
func (w *World) intrude(rng *rand.Rand) {
	w.mu.Lock()
	callers, refused := w.authorities.callers, w.authorities.refused
	w.mu.Unlock()
	other, err := ca.New("callers", day, time.Now())
	if err != nil {
		w.violate("there is no other CA: %v", err)
		return
	}
	ofOther, err := certify(other, callerName, time.Now())
	if err != nil {
		w.violate("there is no other certificate: %v", err)
		return
	}
	namesake, err := certify(callers, "alice", time.Now())
	if err != nil {
		w.violate("there is no other certificate: %v", err)
		return
	}
	began, called := time.Now(), false
	for who, certificate := range map[string]*tls.Certificate{"no certificate": {}, "a certificate of another CA": ofOther, "a certificate of another name": namesake, "a certificate of the CA before": refused} {
		if certificate == nil {
			continue
		}
		s := &apiServer{w: w, name: "an intruder", ahead: w.servers[0].ahead, identity: func() *tls.Certificate { return certificate }}
		s.reset()
		ctx, cancel := w.ctx()
		for _, h := range w.servers[rng.IntN(len(w.servers))].entries(configurations[0]) {
			pod := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": "pod", "namespace": "shop"}}}
			called = true
			answer, err := s.call(ctx, h, ask{operation: admissionv1.Create, resource: podResource, kind: podKind, object: pod})
			if err == nil {
				w.violate("a call with %s is answered: %v", who, answer)
			} else if text := err.Error(); strings.HasPrefix(text, "401") != (len(certificate.Certificate) == 0) && strings.HasPrefix(text, "40") {
				w.violate("a call with %s is refused as if it had another one: %v", who, err)
			}
		}
		cancel()
		s.reset()
	}
	if called {
		w.tellsRefusals(began)
	}
}
