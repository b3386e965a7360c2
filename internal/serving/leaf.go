package serving

// This file is the serving certificate of one process.

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"

	"code.cloudfoundry.org/eirinix/internal/ca"
)

const (
	// DefaultLeafLifetime is short because nothing stores a serving certificate: losing one costs nothing.
	DefaultLeafLifetime = 7 * 24 * time.Hour

	// maxPoll bounds how long Run sleeps. Timers stand still while a machine is suspended, the wall clock
	// by which clients judge does not.
	maxPoll = time.Minute

	// minPoll keeps Run from spinning when a certificate is due and cannot be signed.
	minPoll = 100 * time.Millisecond
)

// ErrNoCertificate is returned before the first successful Use.
var ErrNoCertificate = errors.New("no serving certificate yet: the CA has not been read")

// Leaf holds the serving certificate of this process: signed in memory, renewed at two thirds of its
// life (give or take a tenth), never stored. Its methods are safe for concurrent use.
type Leaf struct {
	// Key is the kind of the certificate's key, ECDSA-P256 if empty. Set it before the first Use, which fails
	// on one that does not exist.
	Key ca.KeyAlgorithm

	hosts    []string
	lifetime time.Duration
	now      func() time.Time

	current atomic.Pointer[signed]
	writing sync.Mutex    // one Use at a time
	changed chan struct{} // wakes Run
}

// signed is immutable once it is stored.
type signed struct {
	certificate tls.Certificate
	authority   *ca.Authority
	renewAt     time.Time
}

// NewLeaf returns a Leaf for these hosts (see ca.ParseHosts). Lifetime 0 means seven days; now nil means
// time.Now. It holds no certificate until Use.
func NewLeaf(hosts []string, lifetime time.Duration, now func() time.Time) *Leaf {
	if lifetime == 0 {
		lifetime = DefaultLeafLifetime
	}
	if now == nil {
		now = time.Now
	}
	return &Leaf{hosts: slices.Clone(hosts), lifetime: lifetime, now: now, changed: make(chan struct{}, 1)}
}

// Use signs a certificate with this CA and serves it from the next handshake on. It does nothing if the
// certificate that is served comes from this CA (and cross-signed chain) and is not due. On an error the
// last good certificate stays.
func (l *Leaf) Use(a *ca.Authority) error {
	l.writing.Lock()
	defer l.writing.Unlock()
	before := l.current.Load()
	if err := l.use(a); err != nil {
		return err
	}
	if l.current.Load() != before {
		select {
		case l.changed <- struct{}{}:
		default: // Run has not yet taken notice of the last change: it will see this one too
		}
	}
	return nil
}

func (l *Leaf) use(a *ca.Authority) error {
	if a == nil {
		return errors.New("no CA to sign a serving certificate with")
	}
	now := l.now()
	last := l.current.Load()
	if last != nil && last.authority.Equal(a) && now.Before(last.renewAt) {
		return nil
	}
	certificate, err := a.SignServing(l.hosts, l.lifetime, now, ca.WithKey(l.Key))
	if err != nil {
		return fmt.Errorf("serving certificate for %v: %w", l.hosts, err)
	}
	s := &signed{certificate: *certificate, authority: a, renewAt: ca.RenewAt(certificate.Leaf, rand.Float64()*2-1)}
	if !certificate.Leaf.NotAfter.Before(a.Certificate.NotAfter) {
		// It ends with its CA: no renewal can give more, only another CA can.
		s.renewAt = certificate.Leaf.NotAfter
	}
	l.current.Store(s)
	return nil
}

// GetCertificate is for tls.Config. It allocates nothing and takes no lock. It returns ErrNoCertificate
// before the first Use. A certificate that could not be renewed is served on: the API server says best
// what is wrong with it.
func (l *Leaf) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	s := l.current.Load()
	if s == nil {
		return nil, ErrNoCertificate
	}
	return &s.certificate, nil
}

// Certificate returns the certificate that is served, nil before the first Use. It must not be changed.
func (l *Leaf) Certificate() *x509.Certificate {
	s := l.current.Load()
	if s == nil {
		return nil
	}
	return s.certificate.Leaf
}

// Run renews the certificate when it is due, with the CA that was used last, until ctx ends. It may be
// started before the first Use. It looks at the wall clock at least every minute, so that a machine that
// was suspended renews at once. A failure is logged when it appears and when it changes.
func (l *Leaf) Run(ctx context.Context, log logr.Logger) {
	var lastError string
	for {
		if s := l.current.Load(); s != nil && !l.now().Before(s.renewAt) {
			renewed, err := l.renew()
			switch {
			case err != nil && err.Error() != lastError:
				lastError = err.Error()
				log.Error(err, "the serving certificate was not renewed; the last one is served on", "expires", s.certificate.Leaf.NotAfter)
			case err == nil:
				lastError = ""
				log.Info("serving certificate renewed", "expires", renewed.certificate.Leaf.NotAfter)
			}
		}
		timer := time.NewTimer(l.pause())
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-l.changed:
			timer.Stop()
		case <-timer.C:
		}
	}
}

// renew signs again with the CA of the certificate that is served, unless a Use was faster.
func (l *Leaf) renew() (*signed, error) {
	l.writing.Lock()
	defer l.writing.Unlock()
	if err := l.use(l.current.Load().authority); err != nil {
		return nil, err
	}
	return l.current.Load(), nil
}

func (l *Leaf) pause() time.Duration {
	s := l.current.Load()
	if s == nil {
		return maxPoll
	}
	due := s.renewAt.Sub(l.now())
	if due <= 0 { // a renewal just failed or gained nothing: try again a few times before the certificate ends
		due = l.lifetime / 20
	}
	return max(minPoll, min(maxPoll, due))
}

// Verify tells whether a client that trusts this caBundle (PEM) would accept what is served now, for
// every host. The error says what stands in the way.
func (l *Leaf) Verify(bundlePEM []byte) error {
	s := l.current.Load()
	if s == nil {
		return ErrNoCertificate
	}
	if len(bytes.TrimSpace(bundlePEM)) == 0 {
		return errors.New("the caBundle is empty")
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(bundlePEM) { // the API server loads it the same way
		return errors.New("the caBundle holds no readable certificate")
	}
	intermediates := x509.NewCertPool()
	for _, der := range s.certificate.Certificate[1:] {
		certificate, err := x509.ParseCertificate(der)
		if err != nil {
			return fmt.Errorf("the served chain holds an unreadable certificate: %w", err)
		}
		intermediates.AddCert(certificate)
	}
	hosts, err := ca.ParseHosts(l.hosts)
	if err != nil {
		return err
	}
	for _, host := range hosts.All() {
		_, err := s.certificate.Leaf.Verify(x509.VerifyOptions{
			DNSName: host, Roots: roots, Intermediates: intermediates, CurrentTime: l.now(),
		})
		if err != nil {
			return s.explain(host, err)
		}
	}
	return nil
}

// explain says in terms of the caBundle why a served certificate does not verify.
func (s *signed) explain(host string, err error) error {
	var unknown x509.UnknownAuthorityError
	if errors.As(err, &unknown) {
		return fmt.Errorf("the caBundle does not hold the CA %q that signed the serving certificate: %w", s.certificate.Leaf.Issuer, err)
	}
	return fmt.Errorf("the serving certificate (valid until %s) does not verify for host %q: %w",
		s.certificate.Leaf.NotAfter.UTC().Format(time.RFC3339), host, err)
}
