package serving

// This file decides who may call: clients whose certificate bears an allowed name and comes from a CA that is
// trusted with clients.

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"code.cloudfoundry.org/eirinix/internal/ca"
)

// Why a client may not call, and why a bundle of client CAs is not taken. Check and SetCAs wrap one of these.
var (
	ErrNoClientCertificate = errors.New("no client certificate")
	ErrClientRefused       = errors.New("the client certificate is not accepted")
	ErrNoClientCA          = errors.New("no readable CA certificate")
)

// Clients says who may call, by client certificate. Until the first SetCAs nobody may.
//
// Set the fields before the first use; the methods are safe for concurrent use.
type Clients struct {
	// Names are those that may call: one of them must equal the certificate's common name or one of its DNS
	// names, letter by letter. Empty means any name that the CAs have certified.
	Names []string

	Now func() time.Time // nil means time.Now

	setting sync.Mutex // one SetCAs at a time
	current atomic.Pointer[trust]
}

// trust is one generation of CAs with the verdicts that were reached under it, so that a change of CAs is a
// change of every verdict.
type trust struct {
	bundle []byte // as it was given
	roots  *x509.CertPool
	seen   verdicts
}

// SetCAs makes the CA certificates of a bundle (PEM) the ones that clients are judged by, from the next
// request on, those on open connections included. A bundle without a readable CA certificate is an error that
// wraps ErrNoClientCA, and one that ends within a block (a file that is being written) is an error too; the
// last good bundle stays. Certificates that are no CA's are left out: to trust a CA's clients by name, use
// Names. It copies the bundle, and does nothing when it is given the same again.
func (c *Clients) SetCAs(bundle []byte) error {
	c.setting.Lock()
	defer c.setting.Unlock()
	if last := c.current.Load(); last != nil && bytes.Equal(last.bundle, bundle) {
		return nil
	}
	if cutOff(bundle) {
		return errors.New("the bundle of client CAs ends within a PEM block; is it complete?")
	}
	next := &trust{bundle: bytes.Clone(bundle), roots: x509.NewCertPool()}
	found := 0
	for _, certificate := range ca.SplitBundle(bundle) {
		if certificate.BasicConstraintsValid && certificate.IsCA {
			next.roots.AddCert(certificate)
			found++
		}
	}
	if found == 0 {
		return fmt.Errorf("%w in the bundle of client CAs", ErrNoClientCA)
	}
	c.current.Store(next)
	return nil
}

// cutOff tells whether the last block of a PEM text has no end.
func cutOff(text []byte) bool {
	begin := bytes.LastIndex(text, []byte("-----BEGIN "))
	return begin >= 0 && !bytes.Contains(text[begin:], []byte("-----END "))
}

// Check returns nil if the client of this connection may call now, and else an error that wraps
// ErrNoClientCertificate or ErrClientRefused. It verifies a chain of certificates once, and again when the
// CAs change or a certificate of the chain ends; in between it takes no lock and allocates nothing.
func (c *Clients) Check(connection *tls.ConnectionState) error {
	if connection == nil || len(connection.PeerCertificates) == 0 {
		return ErrNoClientCertificate
	}
	t := c.current.Load()
	if t == nil {
		return errNoClientCAsYet
	}
	now := c.now()
	key := keyOf(connection.PeerCertificates)
	if known := t.seen.get(key, now); known != nil {
		return known.err
	}
	reached := t.judge(connection.PeerCertificates, c.Names, now)
	t.seen.put(key, reached)
	return reached.err
}

var errNoClientCAsYet = fmt.Errorf("%w: the client CAs have not been read yet", ErrClientRefused)

// Expected says in words what a client needs to be accepted.
func (c *Clients) Expected() string {
	const one = "a certificate for client authentication, issued by a CA in ManagerOptions.ClientCA, for "
	if len(c.Names) == 0 {
		return one + "any name"
	}
	return one + fmt.Sprintf("one of the names %q", c.Names)
}

func (c *Clients) now() time.Time {
	if c.Now == nil {
		return time.Now()
	}
	return c.Now()
}

// judge verifies a client's chain; its first certificate is the client's own.
func (t *trust) judge(chain []*x509.Certificate, names []string, now time.Time) *verdict {
	client := chain[0]
	intermediates := x509.NewCertPool()
	for _, certificate := range chain[1:] {
		intermediates.AddCert(certificate)
	}
	chains, err := client.Verify(x509.VerifyOptions{
		Roots: t.roots, Intermediates: intermediates, CurrentTime: now,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return refused(now, "%.200q, issued by %.200q: %v", client.Subject, client.Issuer, err)
	}
	if !allowed(client, names) {
		return refused(now, "%.200q with DNS names %.200q is not a name that may call", client.Subject, fmt.Sprint(client.DNSNames))
	}
	return &verdict{from: now.Round(0), until: longest(chains)}
}

func allowed(client *x509.Certificate, names []string) bool {
	return len(names) == 0 || slices.Contains(names, client.Subject.CommonName) ||
		slices.ContainsFunc(client.DNSNames, func(name string) bool { return slices.Contains(names, name) })
}

// longest is when the chain that is valid for longest ends: with the first of its certificates.
func longest(chains [][]*x509.Certificate) time.Time {
	var last time.Time
	for _, chain := range chains {
		end := chain[0].NotAfter
		for _, certificate := range chain[1:] {
			if certificate.NotAfter.Before(end) {
				end = certificate.NotAfter
			}
		}
		if end.After(last) {
			last = end
		}
	}
	return last
}
