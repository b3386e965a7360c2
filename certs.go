package eirinix

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"code.cloudfoundry.org/eirinix/internal/ca"
	"code.cloudfoundry.org/eirinix/internal/certsecret"
	"code.cloudfoundry.org/eirinix/internal/serving"
)

const (
	// pollSecret is how often a Secret that somebody else must make is looked for.
	pollSecret = time.Second

	// remindEvery is how often a wait without progress is logged again.
	remindEvery = 30 * time.Second
)

// certifier is where this process's certificate comes from, and what must be trusted for it.
type certifier interface {
	trust
	// obtain returns when there is a certificate to serve. With mayWait it waits, and says for what, where others make
	// what it comes from.
	obtain(ctx context.Context, mayWait bool) error
	// obtainTrust returns when it is known what must be trusted, for a program that serves nothing.
	obtainTrust(ctx context.Context) error
	// run keeps the certificate up to date until ctx ends. It may be called before obtain.
	run(ctx context.Context)
	GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error)
	// upkeep makes what looks after the certificate and what is registered.
	upkeep(m *ExtensionManager, reg *registration, log logr.Logger) upkeep
}

// newCertifier is called after the connection is made.
func (m *ExtensionManager) newCertifier(log logr.Logger) (certifier, error) {
	if source := m.certificateSource(); source != nil {
		return m.newExternal(source, log)
	}
	return m.newCertificates(log)
}

// certificateSource is where certificates come from; nil for a CA of our own.
func (m *ExtensionManager) certificateSource() CertificateSource {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.options.Certificates != nil:
		return m.options.Certificates
	case m.host != nil:
		return hostFiles(m.hostOptions)
	}
	return nil
}

// certificates is what the Manager needs of the certificate Secret: the CA that all replicas share, and the
// serving certificate that this process signs with it. Its methods are called from one goroutine at a time.
type certificates struct {
	store *certsecret.Store
	leaf  *serving.Leaf
	setUp bool // may make and mend the Secret
	log   logr.Logger

	state  *certsecret.State // the last good one
	serves *ca.Authority     // what the leaf is signed with
}

func (m *ExtensionManager) newCertificates(log logr.Logger) (*certificates, error) {
	clients, err := m.clients()
	if err != nil {
		return nil, err
	}
	o, namespace := m.GetManagerOptions(), m.secretNamespace()
	leaf := serving.NewLeaf(o.servingHosts(), o.leafLifetime(), m.clock.Now)
	leaf.Key = ca.KeyAlgorithm(o.KeyAlgorithm)
	return &certificates{
		store: &certsecret.Store{
			Secrets:   clients.CoreV1().Secrets(namespace),
			Namespace: namespace,
			Name:      o.SetupCertificateName,
			Lifetime:  o.caLifetime(),
			Log:       log,
			Key:       ca.KeyAlgorithm(o.KeyAlgorithm),
			Now:       m.clock.Now,
		},
		leaf:  leaf,
		setUp: *o.SetupCertificate,
		log:   log,
	}, nil
}

// owner names the Secret as webhook configurations do.
func (c *certificates) owner() string { return c.store.Namespace + "/" + c.store.Name }

// String is what a user looks for.
func (c *certificates) String() string { return "Secret " + c.owner() }

// obtain adopts the CA from the Secret, or makes it, and signs this process's serving certificate. Where the
// Secret is for others to make (SetupCertificate false, or a serving half without the right to create it),
// it waits and says for what.
func (c *certificates) obtain(ctx context.Context, mayWait bool) error {
	said := reminder{log: c.log}
	for {
		state, err := c.read(ctx)
		if err == nil {
			return c.adopt(state)
		}
		notMadeYet := errors.Is(err, certsecret.ErrNotReady)
		lacksRights := c.setUp && apierrors.IsForbidden(err)
		if !mayWait || !notMadeYet && !lacksRights {
			return err
		}
		said.say("waiting for the certificate Secret; RegisterExtensions makes it", err)
		if err := pause(ctx, pollSecret); err != nil {
			return err
		}
		if lacksRights {
			c.setUp = false // reading is all that this half may do
		}
	}
}

func (c *certificates) obtainTrust(ctx context.Context) error { return c.obtain(ctx, false) }

func (c *certificates) run(ctx context.Context) { c.leaf.Run(ctx, c.log) }

// GetCertificate is for tls.Config.
func (c *certificates) GetCertificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	return c.leaf.GetCertificate(hello)
}

// Verify implements trust.
func (c *certificates) Verify(bundle []byte) error { return c.leaf.Verify(bundle) }

func (c *certificates) read(ctx context.Context) (*certsecret.State, error) {
	if !c.setUp {
		return c.store.Load(ctx)
	}
	state, _, err := c.store.Ensure(ctx) // says itself what it did
	return state, err
}

func (c *certificates) adopt(state *certsecret.State) error {
	authority, err := state.Current()
	if err != nil {
		return fmt.Errorf("certificate Secret %s: %w", c.owner(), err)
	}
	if err := c.leaf.Use(authority); err != nil {
		return fmt.Errorf("cannot sign the serving certificate: %w", err)
	}
	c.state, c.serves = state, authority
	return nil
}

// adoptIfTrusted takes over a state. Its CA signs from then on, but only if the API server trusts what it signs as much
// as what is served now: the other way round every call in between would fail.
func (c *certificates) adoptIfTrusted(state *certsecret.State, live []ca.Registered, now time.Time) error {
	authority, err := state.Current()
	if err != nil {
		return fmt.Errorf("certificate Secret %s: %w", c.owner(), err)
	}
	c.state = state
	if c.serves != nil && !c.serves.Equal(authority) && c.serves.Usable(now) == nil {
		for _, l := range live {
			if c.serves.TrustedBy(l.Bundle, now) && !authority.TrustedBy(l.Bundle, now) {
				return nil
			}
		}
	}
	return c.adopt(state)
}

// bundle is what the Secret says, and what this process serves. While a rotation is staged, what is trusted only grows.
func (c *certificates) bundle(ctx context.Context, live [][]byte, keep func([]byte) []byte) ([]byte, error) {
	state, err := c.store.Load(ctx)
	if err != nil {
		return nil, err
	}
	bundle := state.Bundle()
	if c.serves != nil {
		bundle = ca.Bundle(bundle, c.serves.CertificatePEM)
	}
	for _, l := range live {
		bundle = ca.Bundle(bundle, keep(l))
		if state.Phase == ca.Staged {
			bundle = ca.Bundle(bundle, ca.OfName(l, c.store.Name))
		}
	}
	return bundle, nil
}

func (c *certificates) record(ctx context.Context, bundle []byte) error {
	return c.store.RecordRegistered(ctx, bundle)
}

func (c *certificates) recorded(ctx context.Context) ([]byte, error) {
	state, err := c.store.Load(ctx)
	if err != nil {
		return nil, err
	}
	if len(state.RegisteredBundle) == 0 {
		return nil, fmt.Errorf("the Secret %s tells of no registration yet, and webhook configurations may not be read here; call RegisterExtensions", c.owner())
	}
	return state.RegisteredBundle, nil
}

// reread reads the Secret again: this is not adoption. One that is gone or unusable gets back the CA that this process holds, so
// that the certificates of all replicas stay good.
func (c *certificates) reread(ctx context.Context) (*certsecret.State, error) {
	if !c.setUp {
		return c.store.Load(ctx)
	}
	state, _, err := c.store.Restore(ctx, c.state)
	return state, err
}

// reminder logs why something waits: at once, when the reason changes, and now and then.
type reminder struct {
	log  logr.Logger
	last string
	at   time.Time
}

// say tells whether it said anything.
func (r *reminder) say(what string, why error) bool {
	if why.Error() == r.last && time.Since(r.at) < remindEvery {
		return false
	}
	r.last, r.at = why.Error(), time.Now()
	r.log.Info(what, "because", why.Error())
	return true
}

// pause waits for d or for the end of ctx, whose cause it returns then.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}
