package eirinix

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

	// registerTimeout bounds RegisterExtensions, which waits for no API server.
	registerTimeout = 15 * time.Second
)

// RegisterExtensions makes or adopts the certificate Secret and writes the webhook configurations, once, and a second call
// changes nothing. Its entries replace those of any other version at once: it is the order of a person. It does not serve,
// and does not wait for an API server: after some seconds without one it returns the error. It is the registering half of
// a split deployment; the serving half runs with RegisterWebHook set to false and the same extensions, options and
// fingerprint. Roll out the serving half first: it answers for the earlier version's steps, too.
//
// A CA that is not needed any more leaves the caBundles in a later call, Rotation.Retain after the first one that has
// found it so.
func (m *ExtensionManager) RegisterExtensions() error {
	return m.logged("RegisterExtensions", m.registerExtensions())
}

// logged logs the error that a method returns: programs drop it.
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
		return err // names itself
	}
	rights := m.preflight(ctx, manifest.Registering, log)
	steps, err := m.resolveAll()
	if err != nil {
		return prefixed(err)
	}
	loop := p.newController(steps, p.options(ctx, m.declaredPort(), true), func(c *controller.Config) {
		c.Once, c.Told = true, p.report(ctx, rights.Events())
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

// Unregister removes the webhook configurations, so that the API server calls this program no more. The
// certificate Secret stays: the next start adopts it. A configuration that is not there is no error. A Manager that runs
// goes on serving, without putting back what was removed; other replicas do put it back, so stop them first.
func (m *ExtensionManager) Unregister(ctx context.Context) error {
	p, err := m.newProgram(nil, m.logr())
	if err != nil {
		return err
	}
	loop := p.newController(resolved{}, p.options(ctx, 0, false), func(c *controller.Config) { c.Leases = nil })
	running := m.program.Load()
	if running != nil {
		running.controller.Stop(ctx) // or it would write them again at once
	}
	if err := loop.Remove(ctx); err != nil {
		if running != nil {
			running.controller.Resume() // the configurations that are left are looked after again
		}
		return fmt.Errorf("eirinix: %w", err)
	}
	return nil
}

// prefixed puts the package's name in front of an error that does not have it yet.
func prefixed(err error) error {
	if strings.HasPrefix(err.Error(), "eirinix: ") {
		return err
	}
	return fmt.Errorf("eirinix: %w", err)
}
