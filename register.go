package eirinix

// This file holds the operations that need no running Manager: registering the webhooks, removing their registration and
// rotating the CA.

import (
	"context"
	"errors"
	"fmt"
	"time"

	"code.cloudfoundry.org/eirinix/internal/controller"
	"code.cloudfoundry.org/eirinix/internal/list"
	"code.cloudfoundry.org/eirinix/internal/policyreport"
	"code.cloudfoundry.org/eirinix/internal/rights"
	"code.cloudfoundry.org/eirinix/internal/wait"
	"code.cloudfoundry.org/eirinix/internal/webhookconf"
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
// A step is not added while the cluster does not serve its kind, or a kind that it reads. If it is registered already, it
// stays. The error names it; all other steps are registered.
//
// It is the registering half of a split deployment. The serving half runs with RegisterWebHook set to false and the
// same extensions, options and fingerprint. Roll out the serving half first, because it also answers the calls for the
// steps of the earlier version.
//
// A CA that is no longer needed is removed from the caBundles by a later call. That call must come at least
// 7.7 days after the first one that found the CA unneeded.
func (m *ExtensionManager) RegisterExtensions() error {
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
	log := m.given().log()
	p, err := m.newProgram(nil, log)
	if err != nil {
		return err // already has the prefix
	}
	preflight := m.preflight(ctx, rights.Registering, log)
	if err := wait.Retry(ctx, log, "the modes of the steps", p.firstModes); err != nil {
		return preflight.WithGrants(fmt.Errorf("eirinix: %w", err))
	}
	if err := p.obtainKeys(ctx, true); err != nil {
		return preflight.WithGrants(fmt.Errorf("eirinix: %w", err))
	}
	from, err := m.given().newUnfollowed()
	if err != nil {
		return prefixed(err)
	}
	steps, err := m.given().resolveAll(p.modes, from)
	if err != nil {
		return prefixed(err)
	}
	options := o.webhookOptions(m.declaredPort())
	r, err := m.registration(steps, options, p.modes)
	if err != nil {
		return prefixed(err)
	}
	loop := p.newController(steps, r, func(c *controller.Config) {
		c.Once, c.Report, c.Owner, c.Now = true, p.report(ctx, preflight.Events()), p.owningNamespace, m.api.Earlier
	})
	if err := loop.Register(ctx); err != nil {
		if ctx.Err() != nil {
			err = fmt.Errorf("%w; the last error: %w", context.Cause(ctx), err)
		}
		return preflight.WithGrants(fmt.Errorf("eirinix: %w", err))
	}
	p.describeSteps(options)
	return steps.held()
}

// held returns an error that names the steps that wait, or nil.
func (r resolved) held() error {
	return errors.Join(list.Of(r.waiting, func(w waitingStep) error {
		return fmt.Errorf("eirinix: step %q is not added to the registration, all others are registered; call RegisterExtensions again afterwards: %w", w.name, w.why)
	})...)
}

// Unregister removes the webhook configurations, so that the API server no longer calls this program, and the reports of
// its audits. The certificate Secret stays, and the next start adopts it. A missing configuration is not an error.
//
// A running Manager continues to serve, and does not restore the removed configurations. Other replicas do restore
// them, so stop those first.
func (m *ExtensionManager) Unregister(ctx context.Context) error {
	p, err := m.newProgram(nil, m.given().log())
	if err != nil {
		return err
	}
	s := m.given()
	loop := p.newController(resolved{}, webhookconf.Registration{
		Options: m.GetManagerOptions().webhookOptions(0), Conversions: list.Of(s.conversions, conversionEntry),
		Steps: list.Of(s.steps, func(d definition) webhookconf.Step { return webhookconf.Step{Name: d.name, Validating: d.validating} }), // they say which rights are needed
	}, func(c *controller.Config) { c.Lease = nil })
	running := m.program.Load()
	if running != nil {
		running.controller.Stop(ctx) // otherwise it would write them again at once
	}
	if _, err := loop.Remove(ctx); err != nil {
		if running != nil {
			running.controller.Resume() // the remaining configurations are reconciled again
		}
		return fmt.Errorf("eirinix: %w", err)
	}
	policyreport.Remove(ctx, p.dynamic, m.GetManagerOptions().OperatorFingerprint, p.log)
	return nil
}

// RotateOptions configures RotateCA. The zero value is right unless a key may have leaked.
type RotateOptions struct {
	// Distrust drops the old CA quickly, for a key that may have leaked. The old CA stays trusted only for the seconds in
	// which the replicas switch to the new one, and not for 7.7 days. RotateCA then returns once API servers no
	// longer trust the old CA.
	//
	// Replicas that have the right to get but not to watch the Secret check it every 30 seconds. Calls that reach such a
	// replica can fail until then. In a split deployment, call RegisterExtensions afterwards to publish the new CA.
	Distrust bool
}

// RotateCA replaces the CA with a new one, without failing a single call, and returns once the new CA signs. The old CA
// stays trusted for 7.7 days, the lifetime of a serving certificate and a tenth of it, and is then dropped. A further RotateCA waits until then.
//
// RotateCA works alongside running replicas or without any. If it is interrupted, any replica finishes the rotation.
// When ctx ends, RotateCA stops waiting, but the rotation goes on. A program that does not serve changes only the
// Secret and the caBundles.
//
// The annotation eirinix.cloudfoundry.org/rotate-ca on the certificate Secret requests the same. Each new value
// triggers one rotation.
func (m *ExtensionManager) RotateCA(ctx context.Context, o RotateOptions) error {
	if source := m.certificateSource(); source != nil {
		return fmt.Errorf("eirinix: RotateCA: the certificates come from %s; rotate the CA where they are issued, and it is taken over from there", source)
	}
	loop, err := m.rotator(ctx)
	if err != nil {
		return prefixed(err)
	}
	if err := loop.Rotate(ctx, o.Distrust); err != nil {
		return fmt.Errorf("eirinix: RotateCA: %w", err)
	}
	return nil
}

// rotator returns the running controller, or a new one that writes only caBundles.
func (m *ExtensionManager) rotator(ctx context.Context) (*controller.Controller, error) {
	if p := m.program.Load(); p != nil {
		return p.controller, nil
	}
	if err := m.Validate(); err != nil {
		return nil, err
	}
	log := m.given().log()
	p, err := m.newProgram(nil, log)
	if err != nil {
		return nil, err
	}
	r := webhookconf.Registration{Options: m.GetManagerOptions().webhookOptions(0)}
	loop := p.newController(resolved{}, r, func(c *controller.Config) {
		c.Lease, c.OnlyTrust = nil, true
	})
	return loop, wait.Retry(ctx, log, "the certificate Secret", loop.Obtain)
}
