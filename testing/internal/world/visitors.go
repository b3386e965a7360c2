package world

// This file is clients whose certificates end while they call: they are served until then, and no longer.

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	cryptorand "crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admission/v1"

	"code.cloudfoundry.org/eirinix/internal/ca"
)

// visitEvery is the mean time between the visits of clients with short certificates.
const visitEvery = 25 * time.Minute

// visits has clients call whose certificates are over soon.
func (w *World) visits() {
	rng := w.stream("visits", 0)
	for n := 0; w.wait(time.Duration((0.5 + rng.Float64()) * float64(visitEvery))); n++ {
		w.visit(w.stream("visit", n), n)
	}
}

// visit has a client call over one connection and over new ones, before the end of its certificate and after it. Half of the
// certificates are good for longer than the CA between them and that of the callers.
func (w *World) visit(rng *rand.Rand, n int) {
	w.mu.Lock()
	root := w.authorities.callers
	w.mu.Unlock()
	began := time.Now()
	end := began.Add(time.Minute + time.Duration(rng.Int64N(int64(5*time.Minute)))).Truncate(time.Second)
	between, from := rng.IntN(2) == 0, began.Add(-time.Hour)
	if rng.IntN(3) == 0 { // it is made by a clock that is ahead
		from = began.Add(time.Duration(rng.Int64N(int64(30 * time.Second)))).Truncate(time.Second)
		end = end.Add(2 * time.Minute)
	}
	certificate, err := visitor(root, from, end, between)
	if err != nil {
		w.violate("there is no certificate of a visitor: %v", err)
		return
	}
	name := fmt.Sprintf("visitor %d", n+1)
	client := func(shown tls.Certificate) *apiServer {
		s := &apiServer{w: w, name: name, ahead: w.servers[0].ahead, identity: func() *tls.Certificate { return &shown }}
		s.reset()
		return s
	}
	stays := client(certificate)
	defer stays.reset()
	w.tell(named(name), "has a certificate that is good for %s (a CA in between: %t)", time.Until(end), between)
	if from.After(began) {
		w.visited(stays, rng, root, from, end)
		if !w.wait(time.Until(from) + refusedFor) {
			return
		}
	}
	for range 3 {
		w.visited(stays, rng, root, from, end)
		fresh := client(certificate)
		w.visited(fresh, rng, root, from, end)
		fresh.reset()
		if between { // without the CA in between, nothing leads to that of the callers
			alone := client(tls.Certificate{Certificate: certificate.Certificate[:1], PrivateKey: certificate.PrivateKey})
			alone.name += " without the CA in between"
			w.visited(alone, rng, root, began, began)
			alone.reset()
		}
		if !w.wait(time.Until(end) / 4) {
			return
		}
	}
	for wait := time.Until(end) + time.Second; w.wait(wait); wait = time.Duration(rng.Int64N(int64(20 * time.Second))) {
		if time.Since(end) > time.Minute {
			return
		}
		w.visited(stays, rng, root, from, end)
		fresh := client(certificate)
		w.visited(fresh, rng, root, from, end)
		fresh.reset()
	}
}

// refusedFor is how long a refusal may be kept.
const refusedFor = 11 * time.Second

// visited has a client call whose certificate is good from then to then, and looks at whether it is served.
func (w *World) visited(s *apiServer, rng *rand.Rand, root *ca.Authority, from, end time.Time) {
	all := w.servers[rng.IntN(len(w.servers))].entries(configurations[0])
	all = slices.DeleteFunc(slices.Clone(all), func(h hook) bool {
		return !slices.Contains(plain, strings.TrimSuffix(strings.Split(h.Name, ".")[0], "-sets")) && !strings.HasPrefix(h.Name, "pods-")
	})
	if len(all) == 0 {
		return
	}
	ctx, cancel := w.ctx()
	defer cancel()
	ctx, cancelTimeout := context.WithTimeout(ctx, requestTime)
	defer cancelTimeout()
	called := time.Now()
	_, err := s.call(ctx, all[rng.IntN(len(all))], ask{operation: admissionv1.Create, resource: podResource, kind: podKind, object: podIn("shop", "visitor")})
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case err == nil && called.After(end):
		w.breaks("%s is served %s after the end of what certifies it", s.name, called.Sub(end).Round(time.Millisecond))
	case err == nil && time.Now().Before(from):
		w.breaks("%s is served %s before its certificate is good", s.name, time.Until(from).Round(time.Millisecond))
	case err != nil && called.After(from.Add(refusedFor-time.Second)) && strings.Contains(err.Error(), "403") && time.Now().Before(end) && w.authorities.callers == root && w.settledSince(called.Add(-settling)):
		w.breaks("%s is refused %s before the end of its certificate: %v", s.name, time.Until(end).Round(time.Millisecond), err)
	}
}

// visitor makes the certificate of a client, and if asked for, that of a CA in between, one of which ends then.
func visitor(root *ca.Authority, from, end time.Time, between bool) (tls.Certificate, error) {
	sign := func(template, parent *x509.Certificate, by any) ([]byte, *ecdsa.PrivateKey, error) {
		key, err := ecdsa.GenerateKey(elliptic.P256(), cryptorand.Reader)
		if err != nil {
			return nil, nil, err
		}
		template.SerialNumber = big.NewInt(time.Now().UnixNano())
		made, err := x509.CreateCertificate(cryptorand.Reader, template, parent, key.Public(), by)
		return made, key, err
	}
	leaf := &x509.Certificate{
		NotBefore: from,
		Subject:   pkix.Name{CommonName: callerName}, NotAfter: end, KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	if !between {
		made, key, err := sign(leaf, root.Certificate, root.PrivateKey)
		return tls.Certificate{Certificate: [][]byte{made}, PrivateKey: key}, err
	}
	middle, middleKey, err := sign(&x509.Certificate{
		NotBefore: from,
		Subject:   pkix.Name{CommonName: "between"}, NotAfter: end, KeyUsage: x509.KeyUsageCertSign, IsCA: true, BasicConstraintsValid: true,
	}, root.Certificate, root.PrivateKey)
	if err != nil {
		return tls.Certificate{}, err
	}
	parent, err := x509.ParseCertificate(middle)
	if err != nil {
		return tls.Certificate{}, err
	}
	leaf.NotAfter = end.Add(day)
	made, key, err := sign(leaf, parent, middleKey)
	return tls.Certificate{Certificate: [][]byte{made, middle}, PrivateKey: key}, err
}
