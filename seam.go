package eirinix

// This file shows the packages beside the root what a Manager holds.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"path"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"code.cloudfoundry.org/eirinix/internal/diagnose"
	"code.cloudfoundry.org/eirinix/internal/list"
	"code.cloudfoundry.org/eirinix/internal/resources"
	"code.cloudfoundry.org/eirinix/internal/seam"
	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

func init() { seam.Of = seamOf }

func seamOf(manager any) (seam.Program, error) {
	m, ok := manager.(*ExtensionManager)
	if !ok || m == nil {
		return seam.Program{}, errors.New("eirinix: there is no Manager; make one with NewManager")
	}
	s := m.given()
	return seam.Program{
		Fingerprint: s.options.OperatorFingerprint, Log: m.logr(),
		Names:    append(list.Of(s.steps, func(d definition) string { return d.name }), crdsOf(s.conversions)...),
		Validate: func() error { return s.validate(false, nil) },
		Config:   m.GetKubeConnection, Resolve: m.resolveBeside, Tap: m.tapCalls, Deployment: m.deployment,
	}, nil
}

// resolveBeside is seam.Program.Resolve.
func (m *ExtensionManager) resolveBeside(ctx context.Context, asks func(string) bool, running *sync.WaitGroup) (r seam.Resolved, err error) {
	defer func() {
		if err != nil {
			err = prefixed(err)
		}
	}()
	from, err := m.readsBeside(ctx, asks, running)
	if err != nil {
		return r, err
	}
	p := m.program.Load()
	if p == nil {
		if p, err = m.newProgram(nil, m.logr()); err != nil {
			return r, err
		}
		if err := p.modesBeside(ctx); err != nil {
			r.Notes = append(r.Notes, err.Error())
		}
	}
	all, err := m.resolveAll(p.modes, from)
	if err != nil {
		return r, err
	}
	r.Config, r.Discovery, r.Dynamic, r.Modes, r.Owner = p.config, p.clients.Discovery(), p.dynamic, p.modes, p.owningNamespace
	r.Steps, err = m.stepsBeside(all, asks, from)
	return r, err
}

// readsBeside returns what the steps read: what a running Manager follows, or else a Set that follows it in running until
// ctx ends.
func (m *ExtensionManager) readsBeside(ctx context.Context, asks func(string) bool, running *sync.WaitGroup) (reading, error) {
	s := m.given()
	if p := m.program.Load(); p != nil && p.reads != nil {
		return p.reads, nil
	}
	definitions := slices.DeleteFunc(slices.Clone(s.steps), func(d definition) bool { return !asks(d.name) })
	resolver := newResolver(s.options, resources.Cluster{})
	set, err := resolver.newReads(definitions, m.logr(), nil)
	if err != nil || set.Empty() {
		return nil, err
	}
	c, err := m.readsClient(set)
	if err != nil {
		return nil, err
	}
	running.Go(func() { set.Run(ctx, c) })
	set.Settled(ctx) // steps without their objects are gaps then
	return set, ctx.Err()
}

// modesBeside puts the modes of the ConfigMap in force. Without the right to read it, the program's own are.
func (p *program) modesBeside(ctx context.Context) error {
	from := p.m.GetManagerOptions().modesOf(p.namespace)
	if from == nil {
		return nil
	}
	if err := p.setModes(from, p.cache.Get(ctx, from)); err != nil {
		return fmt.Errorf("the modes are the program's own, because those in force cannot be read; grant get on it: %w", err)
	}
	return nil
}

// stepsBeside returns the steps and the Conversions. The steps read from there.
func (m *ExtensionManager) stepsBeside(all resolved, asks func(string) bool, from reading) (steps []seam.Step, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, w := range all.waiting {
		if asks(w.name) {
			steps = append(steps, seam.Step{Name: w.name, Waits: w.why})
		}
	}
	options := m.options.offlineWebhooks()
	for _, s := range all.steps {
		if !asks(s.definition.name) {
			continue
		}
		step := seam.Step{Name: s.definition.name, Registered: s.registered, Webhook: options.Alone(s.registered)}
		if step.Served, err = m.servedStep(s.definition, s.registered, from); err != nil {
			return nil, err
		}
		steps = append(steps, step)
	}
	for _, c := range m.conversions {
		if asks(c.crd) {
			steps = append(steps, seam.Step{Name: c.crd, Converts: c.kind})
		}
	}
	return steps, nil
}

// deployment is seam.Program.Deployment.
func (m *ExtensionManager) deployment() (seam.Deployment, error) {
	s := m.given()
	s.options.Certificates = m.certificateSource()
	o, namespace := s.options, cmp.Or(s.options.WebhookNamespace, s.options.Namespace)
	d := seam.Deployment{
		Namespace: namespace, ServicePort: o.port(), Listen: o.listen,
		Serves: s.serves(), Registers: *o.RegisterWebHook, Reconciles: len(s.reconcilers) > 0,
		MaxRequestBytes: cmp.Or(o.MaxRequestBytes, defaultMaxRequestBytes), DrainDelay: o.drainDelay(), UnregisterTimeout: unregisterTimeout,
		Rights: s.rights(namespace), Webhooks: o.webhookOptions(o.port()),
		Mapper: s.offlineMapper(newResolver(o, resources.Cluster{}).scheme, nil), Steps: s.offlineSteps,
	}
	if namespace == o.ownNamespace { // that of this process, which may be one that only prints
		d.Namespace = ""
	}
	if d.Serves {
		d.Service = o.ServiceName
	}
	var err error
	d.Rights.Reads, err = o.readRights(s.steps, d.Mapper)
	return d, err
}

// offlineSteps is seam.Deployment.Steps.
func (s setup) offlineSteps(mapper meta.RESTMapper) (steps []webhookconf.Step, _ error) {
	plain, r := newResolver(s.options, resources.Cluster{}), newResolver(s.options, resources.Cluster{Mapper: mapper})
	for _, d := range s.steps {
		step, err := r.resolve(d)
		if _, absent := errors.AsType[*resources.NotServedError](err); absent && len(d.settings.Rules) > 0 {
			step, err = plain.resolve(d) // its Rules name the resources
		}
		if err != nil {
			return nil, prefixed(err)
		}
		steps = append(steps, step)
	}
	return steps, nil
}

// tapTimeout bounds the end of a Tap when Run ends.
const tapTimeout = 5 * time.Second

// tapCalls is seam.Program.Tap.
func (m *ExtensionManager) tapCalls(open func(release func()) (seam.Tap, error)) error {
	if !m.isTapped.CompareAndSwap(false, true) {
		return errors.New("eirinix: another recording is in progress; stop it first")
	}
	t, err := open(func() {
		m.tap.Store(nil)
		m.isTapped.Store(false)
	})
	if err != nil {
		m.isTapped.Store(false)
		return err
	}
	m.tap.Store(&t)
	return nil
}

// endTap ends a Tap that the program has not released itself.
func (m *ExtensionManager) endTap() {
	t := m.tap.Load()
	if t == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), tapTimeout)
	defer cancel()
	if err := t.End(ctx); err != nil {
		m.logr().Error(err, "the recording is not whole")
	}
}

// tapped gives the calls of a handler to a Tap, except those of a diagnosis.
func (m *ExtensionManager) tapped(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if t := m.tap.Load(); t != nil && path.Base(r.URL.Path) != diagnose.CanaryName {
			t.Wrap(handler).ServeHTTP(w, r)
			return
		}
		handler.ServeHTTP(w, r)
	})
}
