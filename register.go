package eirinix

// This file registers the webhooks without serving them, and removes their registration.

import (
	"context"
	"fmt"
	"strings"
	"time"

	"code.cloudfoundry.org/eirinix/internal/controller"
	"code.cloudfoundry.org/eirinix/internal/manifest"
)

const (
	// unregisterTimeout bounds the removal of the configurations when a Manager stops.
	unregisterTimeout = 10 * time.Second

	// registerTimeout bounds RegisterExtensions, which does not wait for an API server that is not available yet.
	registerTimeout = 15 * time.Second
)

// RegisterExtensions creates or adopts the certificate Secret and writes the webhook configurations, once. A second
// call changes nothing. Its entries replace those of every other version at once, because an operator requests them. It
// does not serve. If the API server is not available, it returns the error after some seconds.
//
// It is the registering half of a split deployment. The serving half runs with RegisterWebHook set to false and the
// same extensions, options and fingerprint. Roll out the serving half first, because it also answers the calls for the
// steps of the earlier version.
//
// A CA that is no longer needed is removed from the caBundles by a later call. That call must come at least
// Rotation.Retain after the first one that found the CA unneeded.
func (m *ExtensionManager) RegisterExtensions() error {
	return m.logged("RegisterExtensions", m.registerExtensions())
}

// logged logs the error that a method returns, because programs tend to ignore it.
func (m *ExtensionManager) logged(method string, err error) error {
	if err != nil {
		m.logr().Error(err, method+" failed")
	}
	return err
}

func (m *ExtensionManager) registerExtensions() error {
	if err := m.Validate(); err != nil {
		return err
	}
	m.mu.Lock()
	m.onlyRegisters = true
	m.mu.Unlock()
	o := m.GetManagerOptions()
	if _, port, _ := o.listen(); port == 0 && o.Port == 0 && !o.serviceMode() {
		return fmt.Errorf("eirinix: ManagerOptions.ListenAddress is %q, so the port is only known when the Manager serves; set Port to register without serving", o.ListenAddress)
	}
	ctx, cancel := context.WithTimeoutCause(m.GetContext(), registerTimeout, fmt.Errorf("not done within %s", registerTimeout))
	defer cancel()
	log := m.logr()
	p, err := m.newProgram(nil, log)
	if err != nil {
		return err // already has the prefix
	}
	rights := m.preflight(ctx, manifest.Registering, log)
	steps, err := m.resolveAll()
	if err != nil {
		return prefixed(err)
	}
	loop := p.newController(steps, p.options(ctx, m.declaredPort(), true), func(c *controller.Config) {
		c.Once, c.Report = true, p.report(ctx, rights.Events())
	})
	if err := loop.Register(ctx); err != nil {
		if ctx.Err() != nil {
			err = fmt.Errorf("%w; the last error: %w", context.Cause(ctx), err)
		}
		return rights.WithGrants(fmt.Errorf("eirinix: %w", err))
	}
	p.describeSteps()
	return nil
}

// Unregister removes the webhook configurations, so that the API server no longer calls this program. The certificate
// Secret stays, and the next start adopts it. A missing configuration is not an error.
//
// A running Manager continues to serve, and does not restore the removed configurations. Other replicas do restore
// them, so stop those first.
func (m *ExtensionManager) Unregister(ctx context.Context) error {
	p, err := m.newProgram(nil, m.logr())
	if err != nil {
		return err
	}
	loop := p.newController(resolved{}, p.options(ctx, 0, false), func(c *controller.Config) { c.Leases = nil })
	running := m.program.Load()
	if running != nil {
		running.controller.Stop(ctx) // otherwise it would write them again at once
	}
	if err := loop.Remove(ctx); err != nil {
		if running != nil {
			running.controller.Resume() // the remaining configurations are reconciled again
		}
		return fmt.Errorf("eirinix: %w", err)
	}
	return nil
}

// prefixed adds the package's name to an error that does not have that prefix yet.
func prefixed(err error) error {
	if strings.HasPrefix(err.Error(), "eirinix: ") {
		return err
	}
	return fmt.Errorf("eirinix: %w", err)
}
