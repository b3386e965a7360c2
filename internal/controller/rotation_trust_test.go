package controller_test

// This file computes which bundle verifies which chain, in the model of rotations. Verdicts are those of crypto/x509. They
// are kept until the next moment at which one of the certificates that they depend on begins or ends, so that a cached
// verdict is exact.

import (
	"crypto/x509"
	"slices"
	"strconv"
	"strings"
	"time"

	"code.cloudfoundry.org/eirinix/internal/ca"
)

// host is the host that every replica serves.
const host = "logger.cf.svc"

// bundle is a caBundle. Equal texts are the same bundle.
type bundle struct {
	pem          []byte
	certificates []*x509.Certificate
	roots        *x509.CertPool
	label        string
}

func (b *bundle) String() string { return b.label }

// chain is the certificate chain that a replica serves.
type chain struct {
	authority     *ca.Authority
	leaf          *x509.Certificate
	intermediates []*x509.Certificate
	label         string
}

func (c *chain) String() string { return c.label }

type verdict struct {
	err   error
	until time.Time
}

type trust struct {
	labels   map[string]string // subject to "1", "2", ...
	bundles  map[string]*bundle
	verdicts map[*chain]map[*bundle]verdict
}

func newTrust() *trust {
	return &trust{labels: map[string]string{}, bundles: map[string]*bundle{}, verdicts: map[*chain]map[*bundle]verdict{}}
}

// name numbers CAs in the order in which they appear. Each has a subject of its own.
func (t *trust) name(subject []byte) string {
	label, ok := t.labels[string(subject)]
	if !ok {
		label = strconv.Itoa(len(t.labels) + 1)
		t.labels[string(subject)] = label
	}
	return label
}

func (t *trust) bundle(text []byte) *bundle {
	if b := t.bundles[string(text)]; b != nil {
		return b
	}
	b := &bundle{pem: text, certificates: ca.SplitBundle(text), roots: x509.NewCertPool()}
	names := make([]string, 0, len(b.certificates))
	for _, certificate := range b.certificates {
		b.roots.AddCert(certificate)
		names = append(names, t.name(certificate.RawSubject))
	}
	b.label = "{" + strings.Join(names, ",") + "}"
	t.bundles[string(text)] = b
	return b
}

// describe names an authority and those that have signed it.
func (t *trust) describe(a *ca.Authority) string {
	label := "CA " + t.name(a.Certificate.RawSubject)
	for i, cross := range a.Chain {
		label += []string{" signed by ", " and "}[min(i, 1)] + t.name(cross.RawIssuer)
	}
	return label
}

// verify reports why a client that trusts b refuses c.
func (t *trust) verify(c *chain, b *bundle, now time.Time) error {
	of := t.verdicts[c]
	if v, ok := of[b]; ok && !now.After(v.until) {
		return v.err
	}
	if of == nil {
		of = map[*bundle]verdict{}
		t.verdicts[c] = of
	}
	err := verifies(c.leaf, c.intermediates, b.roots, now)
	v := verdict{err: err, until: now.AddDate(1000, 0, 0)}
	for _, certificate := range slices.Concat([]*x509.Certificate{c.leaf}, c.intermediates, b.certificates) {
		switch {
		case now.Before(certificate.NotBefore):
			v.until = earliest(v.until, certificate.NotBefore.Add(-1))
		case !now.After(certificate.NotAfter):
			v.until = earliest(v.until, certificate.NotAfter)
		}
	}
	of[b] = v
	return err
}

func verifies(leaf *x509.Certificate, intermediates []*x509.Certificate, roots *x509.CertPool, now time.Time) error {
	between := x509.NewCertPool()
	for _, certificate := range intermediates {
		between.AddCert(certificate)
	}
	_, err := leaf.Verify(x509.VerifyOptions{DNSName: host, Roots: roots, Intermediates: between, CurrentTime: now})
	return err
}

func earliest(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
