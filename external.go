package eirinix

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"

	"code.cloudfoundry.org/eirinix/internal/ca"
	"code.cloudfoundry.org/eirinix/internal/certsource"
)

// reserve is the part of a certificate's life, one tenth, at whose beginning the next one is served even where nobody
// can tell whether the API server trusts it.
const reserve = 10

var errNothingServed = errors.New("no serving certificate yet")

// external is a certifier whose certificates come from elsewhere. What is delivered while one is served waits until the
// follower has seen to it that the API server trusts it. It is safe for concurrent use.
type external struct {
	from            certsource.Source
	namespace, name string // of the Secret that a CA of our own would be in: they name the deployment
	hosts           []string
	now             func() time.Time
	log             logr.Logger

	atOnce bool // another server serves, and does not wait for us

	served  atomic.Pointer[certsource.Material]
	arrived chan struct{} // closed with the first one
	changed chan struct{}

	mu      sync.Mutex
	next    *certsource.Material // delivered, and not served yet
	waiting error                // why the newest one cannot be used
}

func (m *ExtensionManager) newExternal(source CertificateSource, log logr.Logger) (*external, error) {
	clients, err := m.clients()
	if err != nil {
		return nil, err
	}
	o := m.GetManagerOptions()
	site := certificateSite{
		clients: clients, namespace: m.secretNamespace(), fingerprint: o.OperatorFingerprint,
		hosts: o.calledHosts(), log: log, now: m.clock.Now,
	}
	return &external{
		from: source.source(site), namespace: site.namespace, name: o.SetupCertificateName,
		hosts: site.hosts, now: site.now, log: log, atOnce: m.host != nil,
		arrived: make(chan struct{}), changed: make(chan struct{}, 1),
	}, nil
}

// String is what a user looks for.
func (f *external) String() string { return f.from.String() }

// owner is the same as with a CA of our own, so that a program may change from one to the other.
func (f *external) owner() string { return f.namespace + "/" + f.name }

// run follows the source until ctx ends.
func (f *external) run(ctx context.Context) {
	err := f.from.Run(ctx, f.deliver, func(why error) {
		f.mu.Lock()
		f.waiting = why
		f.mu.Unlock()
		f.log.Info("waiting for a serving certificate"+f.lastGood(), "because", why.Error())
		poke(f.changed)
	})
	if err != nil { // Validate has seen the same
		f.log.Error(err, "the certificate source cannot be used")
	}
}

// lastGood says what goes on meanwhile.
func (f *external) lastGood() string {
	if m := f.served.Load(); m != nil {
		return "; the last good one is served on, until " + m.Certificate.Leaf.NotAfter.UTC().Format(time.RFC3339)
	}
	return ""
}

// deliver takes what the source found. The first one is served at once: nothing calls yet.
func (f *external) deliver(m certsource.Material) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.waiting = nil
	if f.served.Load() == nil {
		f.served.Store(&m)
		f.log.Info("serving", "certificate", m, "from", f.from.String())
		close(f.arrived)
		return
	}
	f.next = &m
	if f.atOnce {
		f.served.Store(&m)
		f.next = nil
	}
	poke(f.changed)
}

func (f *external) obtain(ctx context.Context, _ bool) error {
	select {
	case <-f.arrived:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// obtainTrust shows that what must be trusted can be read.
func (f *external) obtainTrust(ctx context.Context) error {
	_, err := f.from.Bundle(ctx)
	return err
}

// GetCertificate is for tls.Config.
func (f *external) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	m := f.served.Load()
	if m == nil {
		return nil, errNothingServed
	}
	return m.Certificate, nil
}

// Verify implements trust.
func (f *external) Verify(bundle []byte) error {
	m := f.served.Load()
	if m == nil {
		return errNothingServed
	}
	return trusts(*m, bundle, f.hosts, f.now())
}

// trusts tells whether a client with this bundle accepts the certificate.
func trusts(m certsource.Material, bundle []byte, hosts []string, now time.Time) error {
	return certsource.Material{Certificate: m.Certificate, Bundle: bundle}.Verify(hosts, now)
}

// wants is what must be trusted: for what is served, and for what is to be.
func (f *external) wants(ctx context.Context) ([]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	served := f.served.Load()
	switch {
	case served == nil:
		return f.from.Bundle(ctx)
	case f.next == nil:
		return served.Bundle, nil
	}
	return ca.Bundle(served.Bundle, f.next.Bundle), nil
}

// bundle implements trust.
func (f *external) bundle(ctx context.Context, live [][]byte, keep func([]byte) []byte) ([]byte, error) {
	bundle, err := f.wants(ctx)
	if err != nil {
		return nil, err
	}
	for _, l := range live {
		bundle = ca.Bundle(bundle, keep(l))
	}
	return bundle, nil
}

// record does nothing: there is no place for word that every half may read.
func (f *external) record(context.Context, []byte) error { return nil }

// recorded takes RegisterExtensions at its word: it registers what the same source tells it.
func (f *external) recorded(context.Context) ([]byte, error) {
	m := f.served.Load()
	if m == nil {
		return nil, errNothingServed
	}
	return m.Bundle, nil
}

// leaf is what is served; nil before.
func (f *external) leaf() *x509.Certificate {
	if m := f.served.Load(); m != nil {
		return m.Certificate.Leaf
	}
	return nil
}

// pending is what waits to be served, and why the newest certificate cannot be used; both may be nil.
func (f *external) pending() (next *certsource.Material, waiting error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.next, f.waiting
}

// swap serves what waited, unless something newer has come.
func (f *external) swap(next *certsource.Material, because string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.next != next {
		return
	}
	f.served.Store(next)
	f.next = nil
	f.log.Info("serving another certificate from now on", "certificate", *next, "because", because)
}

// spent tells from when on what is served is so near its end that another one is better, whatever is known of it.
func (f *external) spent() time.Time {
	leaf := f.leaf()
	return leaf.NotAfter.Add(-leaf.NotAfter.Sub(leaf.NotBefore) / reserve)
}

// trustedLike tells why what is trusted may not do for a certificate; nil when every caBundle verifies it.
func (f *external) trustedLike(m *certsource.Material, live []ca.Registered) error {
	for _, l := range live {
		if err := trusts(*m, l.Bundle, f.hosts, f.now()); err != nil {
			return fmt.Errorf("%s: %w", l.Name, err)
		}
	}
	return nil
}
