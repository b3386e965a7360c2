package eirinix

import (
	"context"
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

// newCertificates is called after the connection is made.
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

// bundle is what must be trusted: what the Secret says, and what this process serves.
func (c *certificates) bundle(state *certsecret.State) []byte {
	if c.serves == nil {
		return state.Bundle()
	}
	return ca.Bundle(state.Bundle(), c.serves.CertificatePEM)
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
