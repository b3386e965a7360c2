package serving

// This file manages the serving certificate of one process.

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
	"code.cloudfoundry.org/eirinix/internal/lograte"
	"code.cloudfoundry.org/eirinix/internal/wait"
)

const (
	// maxPoll limits how long Run sleeps. Timers stop while a machine is suspended and ignore changes of the wall
	// clock, but clients judge by wall clocks. A check consists of a few comparisons and costs nothing else.
	maxPoll = 2 * time.Second

	// minPoll prevents a busy loop in Run when a certificate is due at once.
	minPoll = 100 * time.Millisecond

	// maxRetry limits how long Run waits after a failed renewal. Creating a key can be expensive.
	maxRetry = time.Minute
)

// ErrNoCertificate is returned until the first successful Use.
var ErrNoCertificate = errors.New("no serving certificate yet: the CA has not been read")

// Leaf holds the serving certificate of this process. It is signed in memory, renewed at two thirds of its lifetime
// (plus or minus a tenth) and never stored. Its methods are safe for concurrent use.
type Leaf struct {
	// Key is the algorithm of the certificate's key, ECDSA-P256 if empty. Set it before the first Use, which fails on
	// an unknown one.
	Key ca.KeyAlgorithm

	// ServerTime returns the API server's time as last observed, or the zero time while it is unknown, as that of NewLeaf
	// always does. Certificates are valid by both clocks. Set it before the first Use.
	ServerTime func() time.Time

	hosts    []string
	lifetime time.Duration
	now      func() time.Time

	current atomic.Pointer[signed]
	proof   atomic.Pointer[proof] // of the last Verify that succeeded
	writing sync.Mutex            // one Use at a time
	changed chan struct{}         // wakes Run
}

// signed is a certificate with its CA and schedule. It is immutable once it is stored.
type signed struct {
	certificate tls.Certificate
	authority   *ca.Authority
	at          time.Time // when it was signed, by the local wall clock; so is renewAt
	renewAt     time.Time
}

// NewLeaf returns a Leaf for these hosts (see ca.ParseHosts). It holds no certificate until Use.
func NewLeaf(hosts []string, lifetime time.Duration, now func() time.Time) *Leaf {
	return &Leaf{
		hosts: slices.Clone(hosts), lifetime: lifetime, now: now, changed: make(chan struct{}, 1),
		ServerTime: func() time.Time { return time.Time{} },
	}
}

// Use signs a certificate with this CA and serves it from the next handshake on. It does nothing if the served
// certificate comes from this CA (and cross-signed chain), is already valid and is not due. After an error the last
// good certificate stays.
func (l *Leaf) Use(a *ca.Authority) error {
	l.writing.Lock()
	defer l.writing.Unlock()
	before := l.current.Load()
	if err := l.use(a); err != nil {
		return err
	}
	if l.current.Load() != before {
		wait.Signal(l.changed) // if Run has not yet handled the last change, it will observe this one too
	}
	return nil
}

func (l *Leaf) use(a *ca.Authority) error {
	if a == nil {
		return errors.New("no CA to sign a serving certificate with")
	}
	now := l.wall()
	last := l.current.Load()
	if last != nil && last.authority.Equal(a) && !l.due(last, now) {
		return nil
	}
	clock := ca.ServerTime(l.ServerTime())
	certificate, err := a.SignServing(l.hosts, l.lifetime, now, ca.WithKey(l.Key), clock)
	if err != nil {
		return fmt.Errorf("serving certificate for %v: %w", l.hosts, err)
	}
	leaf := certificate.Leaf
	left := leaf.NotAfter.Sub(ca.Moment(leaf, now, clock))
	s := &signed{certificate: *certificate, authority: a, at: now}
	if leaf.NotAfter.Before(a.Certificate.NotAfter) {
		s.renewAt = now.Add(ca.RenewIn(min(left, l.lifetime), rand.Float64()*2-1))
	} else {
		// It expires together with its CA. A renewal cannot extend it, only another CA can.
		s.renewAt = now.Add(left)
	}
	l.current.Store(s)
	return nil
}

// due reports whether a certificate must be signed again.
func (l *Leaf) due(s *signed, now time.Time) bool {
	return !now.Before(s.renewAt) || l.early(s, now)
}

// early reports whether one of the clocks was set back behind the one that the certificate was created by. The
// certificate is then not valid yet, or its renewal time is meaningless. Signing again repairs both, so it happens
// once. A certificate that starts together with its CA cannot start earlier.
func (l *Leaf) early(s *signed, now time.Time) bool {
	if now.Before(s.at.Add(-min(time.Hour, l.lifetime/10))) {
		return true
	}
	first := now
	if server := l.ServerTime(); !server.IsZero() && server.Before(first) {
		first = server
	}
	leaf := s.certificate.Leaf
	return first.Before(leaf.NotBefore) && leaf.NotBefore.After(s.authority.Certificate.NotBefore)
}

// wall returns the local time without its monotonic clock reading, which ignores changes of the wall clock.
func (l *Leaf) wall() time.Time { return l.now().Round(0) }

// GetCertificate returns the served certificate. It is for tls.Config. It allocates nothing and takes no lock. It
// returns ErrNoCertificate before the first Use. A certificate that could not be renewed is still served, because the
// API server reports best why it is refused.
func (l *Leaf) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	s := l.current.Load()
	if s == nil {
		return nil, ErrNoCertificate
	}
	return &s.certificate, nil
}

// Certificate returns the served certificate, or nil before the first Use. It must not be changed.
func (l *Leaf) Certificate() *x509.Certificate {
	s := l.current.Load()
	if s == nil {
		return nil
	}
	return s.certificate.Leaf
}

// Run renews the certificate when it is due, with the last used CA, until ctx ends. It can start before the first Use.
// It reads the clocks at least every two seconds, so that a machine that was suspended, or whose clock was set, renews
// at once. A failure is logged when it appears, when it changes, and each day.
func (l *Leaf) Run(ctx context.Context, log logr.Logger) {
	failures := lograte.Limiter{Every: 24 * time.Hour}
	for {
		pause := l.pause()
		if s := l.current.Load(); s != nil && l.due(s, l.wall()) {
			renewed, err := l.renew()
			if err == nil {
				pause = l.pause()
				failures.Forget("")
				log.Info("serving certificate renewed", "expires", renewed.certificate.Leaf.NotAfter)
			} else {
				pause = max(minPoll, min(maxRetry, l.lifetime/20)) // a few times before the certificate expires
				if _, ok := failures.Allow("", err.Error()); ok {
					log.Error(err, "the serving certificate was not renewed; the last one is still served", "expires", s.certificate.Leaf.NotAfter)
				}
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-l.changed:
		case <-time.After(pause):
		}
	}
}

// renew signs again with the CA of the served certificate, unless a Use was faster.
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
	return max(minPoll, min(maxPoll, s.renewAt.Sub(l.wall())))
}

// Verify returns nil if a client that trusts this caBundle (PEM) accepts the served certificate now, for every host, by
// one of the two clocks. Otherwise the error states the reason.
func (l *Leaf) Verify(bundlePEM []byte) error {
	s := l.current.Load()
	if s == nil {
		return ErrNoCertificate
	}
	if len(bytes.TrimSpace(bundlePEM)) == 0 {
		return errors.New("the caBundle is empty")
	}
	moment := ca.Moment(s.certificate.Leaf, l.now(), ca.ServerTime(l.ServerTime()))
	if l.proof.Load().holds(s, bundlePEM, moment) {
		return nil
	}
	proof, roots := &proof{of: s, bundle: string(bundlePEM), until: s.certificate.Leaf.NotAfter}, x509.NewCertPool()
	if !roots.AppendCertsFromPEM(bundlePEM) { // the API server loads it the same way
		return errors.New("the caBundle holds no readable certificate")
	}
	hosts, err := ca.ParseHosts(l.hosts)
	if err != nil {
		return err
	}
	for _, host := range hosts.All() {
		chains, err := s.certificate.Leaf.Verify(x509.VerifyOptions{
			DNSName: host, Roots: roots, Intermediates: ca.Pool(s.authority.Chain...), CurrentTime: moment,
		})
		if err != nil {
			return s.explain(host, err)
		}
		for _, c := range chains[0] {
			if c.NotBefore.After(proof.from) {
				proof.from = c.NotBefore
			}
			if c.NotAfter.Before(proof.until) {
				proof.until = c.NotAfter
			}
		}
	}
	l.proof.Store(proof)
	return nil
}

// proof is a caBundle that a certificate has been verified against, and the time for which the result holds. A process at
// rest asks for it every minute.
type proof struct {
	of          *signed
	bundle      string
	from, until time.Time
}

func (p *proof) holds(of *signed, bundle []byte, at time.Time) bool {
	return p != nil && p.of == of && p.bundle == string(bundle) && !at.Before(p.from) && !at.After(p.until)
}

// explain describes, in terms of the caBundle, why a served certificate does not verify.
func (s *signed) explain(host string, err error) error {
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return fmt.Errorf("the caBundle does not hold the CA %q that signed the serving certificate: %w", s.certificate.Leaf.Issuer, err)
	}
	return fmt.Errorf("the serving certificate (valid until %s) does not verify for host %q: %w",
		s.certificate.Leaf.NotAfter.UTC().Format(time.RFC3339), host, err)
}
