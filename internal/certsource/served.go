package certsource

// This file holds the served certificate, and the next one, which waits until API servers trust it.

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"

	"code.cloudfoundry.org/eirinix/internal/ca"
)

// ErrNothingServed is returned until the first certificate has been delivered.
var ErrNothingServed = errors.New("no serving certificate yet")

// Served holds the certificates of a source. It is safe for concurrent use. Its exported fields must not change.
type Served struct {
	From   Source
	Hosts  []string
	AtOnce bool // another server serves, and does not wait for this process
	Now    func() time.Time
	Log    logr.Logger
	Wake   func() // called after every delivery except the first, and when the newest certificate is unusable

	served  atomic.Pointer[Material]
	arrived chan struct{} // closed with the first delivery

	mu      sync.Mutex // guards the next two
	next    *Material  // delivered, but not served yet
	waiting error      // why the newest one is unusable
}

// NewServed returns a Served that follows a source. Set the other fields before use.
func NewServed(from Source) *Served {
	return &Served{From: from, arrived: make(chan struct{}), Now: time.Now, Wake: func() {}}
}

// Run follows the source until ctx ends.
func (s *Served) Run(ctx context.Context) {
	err := s.From.Run(ctx, s.deliver, func(why error) {
		s.mu.Lock()
		s.waiting = why
		s.mu.Unlock()
		meanwhile := ""
		if m := s.served.Load(); m != nil {
			meanwhile = "; the last good one is served, until " + stamp(m.Certificate.Leaf.NotAfter)
		}
		s.Log.Info("waiting for a serving certificate"+meanwhile, "reason", why.Error())
		s.Wake()
	})
	if err != nil { // of the connection
		s.Log.Error(err, "the certificate source cannot be used")
	}
}

// deliver accepts a certificate from the source. The first one is served at once, because no API server calls yet.
func (s *Served) deliver(m Material) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m.Bundle = s.roots(m)
	s.waiting = nil
	switch {
	case s.served.Load() == nil:
		s.served.Store(&m)
		s.Log.Info("serving", "certificate", m, "from", s.From.String())
		close(s.arrived)
		return
	case m.equal(*s.served.Load()): // a source delivers the last one again when a reason to wait is gone
		s.next = nil
	case s.next != nil && m.equal(*s.next):
	case s.AtOnce:
		s.served.Store(&m)
		s.next = nil
	default:
		s.next = &m
	}
	s.Wake()
}

// roots returns those CAs of a bundle that verify the certificate. A trust store can hold hundreds of others, and each
// would be in the caBundle of every webhook.
func (s *Served) roots(m Material) []byte {
	roots := ca.Select(m.Bundle, func(c *x509.Certificate) bool { return s.VerifyNext(&m, ca.EncodeCertificate(c)) == nil })
	if roots == nil {
		return m.Bundle
	}
	return roots
}

// Arrived returns a channel that is closed once a certificate was delivered.
func (s *Served) Arrived() <-chan struct{} { return s.arrived }

// Current returns the served certificate (nil before the first one), the next one (nil for none), and why the newest
// one is unusable.
func (s *Served) Current() (served, next *Material, waiting error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.served.Load(), s.next, s.waiting
}

// GetCertificate returns the served certificate. It is for tls.Config.
func (s *Served) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	m := s.served.Load()
	if m == nil {
		return nil, ErrNothingServed
	}
	return m.Certificate, nil
}

// Certificate returns the leaf of the served certificate, or nil before the first one.
func (s *Served) Certificate() *x509.Certificate {
	if m := s.served.Load(); m != nil {
		return m.Certificate.Leaf
	}
	return nil
}

// Verify returns the reason why a client with this bundle refuses the served certificate.
func (s *Served) Verify(bundle []byte) error {
	m := s.served.Load()
	if m == nil {
		return ErrNothingServed
	}
	return s.VerifyNext(m, bundle)
}

// VerifyNext is Verify for a certificate that is not served yet.
func (s *Served) VerifyNext(m *Material, bundle []byte) error {
	return Material{Certificate: m.Certificate, Bundle: bundle}.Verify(s.Hosts, s.Now())
}

// Need returns the CAs that must be trusted for the served certificate and the next one. Before the first delivery, it
// reads them from the source.
func (s *Served) Need(ctx context.Context) ([]byte, error) {
	served, next, _ := s.Current()
	switch {
	case served == nil:
		return s.From.Bundle(ctx)
	case next == nil:
		return served.Bundle, nil
	}
	return ca.Bundle(served.Bundle, next.Bundle), nil
}

// Swap serves the next certificate, unless a newer one has been delivered.
func (s *Served) Swap(next *Material, reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.next != next {
		return
	}
	s.served.Store(next)
	s.next = nil
	s.Log.Info("serving another certificate from now on", "certificate", *next, "reason", reason)
}
