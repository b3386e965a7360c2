package eirinix

import (
	"context"
	"errors"
	"fmt"
	"sync"
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

	// resyncSecret is how often the Secret is compared with what this process holds in memory.
	resyncSecret = time.Minute

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

	state *certsecret.State // the last good one
}

// newCertificates is called after the connection is made.
func (m *ExtensionManager) newCertificates(log logr.Logger) (*certificates, error) {
	clients, err := m.clients()
	if err != nil {
		return nil, err
	}
	o, namespace := m.GetManagerOptions(), m.secretNamespace()
	return &certificates{
		store: &certsecret.Store{
			Secrets:   clients.CoreV1().Secrets(namespace),
			Namespace: namespace,
			Name:      o.SetupCertificateName,
			Lifetime:  o.caLifetime(),
			Log:       log,
		},
		leaf:  serving.NewLeaf(o.servingHosts(), o.leafLifetime(), nil),
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
	c.state = state
	return nil
}

// keep renews the serving certificate and follows the Secret until ctx ends. When the CA has become another,
// publish must first make sure that the API server trusts the new one; only then is a certificate signed with
// it. The other way round every call in between would fail.
func (c *certificates) keep(ctx context.Context, every time.Duration, publish func(context.Context, *certsecret.State) error) {
	var renewal sync.WaitGroup
	renewal.Go(func() { c.leaf.Run(ctx, c.log) })
	defer renewal.Wait()

	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := c.follow(ctx, publish); err != nil && ctx.Err() == nil {
			c.log.Error(err, "the certificate Secret could not be followed; what is served stays as it was", "retryIn", every.String())
		}
	}
}

func (c *certificates) follow(ctx context.Context, publish func(context.Context, *certsecret.State) error) error {
	state, err := c.reread(ctx)
	if err != nil {
		return err
	}
	if !ca.EqualBundles(c.state.Bundle(), state.Bundle()) {
		c.log.Info("the certificate Secret holds another CA", "secret", c.owner())
		if err := publish(ctx, state); err != nil {
			return err
		}
	}
	return c.adopt(state)
}

// reread reads the Secret again. One that is gone or unusable gets back the CA that this process holds, so
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

func (r *reminder) say(what string, why error) {
	if why.Error() == r.last && time.Since(r.at) < remindEvery {
		return
	}
	r.last, r.at = why.Error(), time.Now()
	r.log.Info(what, "because", why.Error())
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
