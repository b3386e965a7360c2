package eirinix

// This file shows the packages beside the root what a Manager holds.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"

	"code.cloudfoundry.org/eirinix/internal/diagnose"
	"code.cloudfoundry.org/eirinix/internal/list"
	"code.cloudfoundry.org/eirinix/internal/resources"
	"code.cloudfoundry.org/eirinix/internal/seam"
	"code.cloudfoundry.org/eirinix/internal/serving"
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
		Fingerprint: s.options.OperatorFingerprint, Log: m.given().log(),
		Names:    append(list.Of(s.steps, func(d definition) string { return d.name }), crdsOf(s.conversions)...),
		Validate: func() error { return s.validate(false, nil) },
		Config:   m.GetKubeConnection, Resolve: m.resolveBeside, Tap: m.taps.Start, Deployment: m.deployment, Offline: m.offline,
		SetLifetimes: m.setLifetimes, SetNetwork: func(n serving.Network, resync time.Duration) { m.network, m.resync = n, resync },
	}, nil
}

// resolveBeside is seam.Program.Resolve.
func (m *ExtensionManager) resolveBeside(ctx context.Context, asks func(string) bool, running *sync.WaitGroup) (r seam.Resolved, err error) {
	defer func() { err = prefixed(err) }()
	from, err := m.readsBeside(ctx, asks, running)
	if err != nil {
		return r, err
	}
	p := m.program.Load()
	if p == nil {
		if p, err = m.newProgram(nil, m.given().log()); err != nil {
			return r, err
		}
		if err := p.modesBeside(ctx); err != nil {
			r.Notes = append(r.Notes, err.Error())
		}
	}
	all, err := m.given().resolveAll(p.modes, from)
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
	set, err := resolver.newReads(definitions, m.given().log(), nil)
	if err != nil || set.Empty() {
		return nil, err
	}
	c, err := s.readsClient(set)
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
		step := seam.Step{Name: s.definition.name, Registered: s.registered, Webhook: options.Webhook(webhookconf.Group([]webhookconf.Step{s.registered})[0])}
		if step.Served, err = m.servedStep(s.definition, s.registered, from); err != nil {
			return nil, err
		}
		steps = append(steps, step)
	}
	for _, c := range m.conversions {
		if asks(c.CRD) {
			steps = append(steps, seam.Step{Name: c.CRD, Converts: &c})
		}
	}
	return steps, nil
}

// deployment is seam.Program.Deployment.
func (m *ExtensionManager) deployment(newMapper seam.NewMapper) (seam.Deployment, error) {
	s := m.given()
	s.options.Certificates = m.certificateSource()
	o, namespace := s.options, cmp.Or(s.options.WebhookNamespace, s.options.Namespace)
	d := seam.Deployment{
		Namespace: namespace, ServicePort: o.port(), Listen: o.listen,
		Serves: s.serves(), Registers: *o.RegisterWebHook, Reconciles: len(s.reconcilers) > 0,
		MaxRequestBytes: cmp.Or(o.MaxRequestBytes, defaultMaxRequestBytes), DrainDelay: o.drainDelay(), UnregisterTimeout: unregisterTimeout,
		Rights: s.rights(namespace), Webhooks: o.webhookOptions(o.port()),
		Mapper: s.offlineMapper(newMapper, newResolver(o, resources.Cluster{}).scheme, nil), Steps: s.offlineSteps,
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

// setLifetimes is seam.Program.SetLifetimes.
func (m *ExtensionManager) setLifetimes(l seam.Lifetimes) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.options.lifetimes = l
}

// offline is seam.Program.Offline.
func (m *ExtensionManager) offline(w seam.World) (made seam.Offline, err error) {
	s := m.given()
	if err := s.validate(false, nil); err != nil {
		return made, err
	}
	r := newResolver(s.options, resources.Cluster{})
	r.cluster.Mapper = s.offlineMapper(w.NewMapper, r.scheme, w.Resources)
	if w.Modes != nil && s.options.ModesConfigMap != "" {
		r.modes = s.newModes(w.Modes.Namespace, logr.Discard())
		r.modes.Labels = w.Labels
		r.modes.Set(w.Modes)
		if _, problems := r.modes.Describe(); len(problems) > 0 {
			return made, fmt.Errorf("eirinix: ConfigMap %s of ManagerOptions.ModesConfigMap: %s", r.modes.ConfigMap, strings.Join(problems, "; "))
		}
	}
	all, err := r.all(s.steps)
	if err == nil && len(all.waiting) > 0 {
		w := all.waiting[0]
		err = fmt.Errorf("eirinix: step %q: %w; without a cluster, name the kind in offline.Options.Resources", w.name, w.why)
	}
	if err != nil {
		return made, err
	}
	declared, err := r.newReads(s.steps, logr.Discard(), nil)
	if err != nil {
		return made, err
	}
	if made.Chains, err = m.chains(all, nil, r.modes, w.Reads(declared, r.scheme)); err != nil {
		return made, prefixed(err)
	}
	made.Reads = map[string]any{}
	for _, d := range s.steps {
		if len(d.settings.Reads) > 0 {
			made.Reads[d.name] = d.settings.Reads
		}
	}
	made.Entries, made.Webhooks, made.Conversions = all.entries, s.options.offlineWebhooks(), s.conversions
	made.Scheme, made.Mapper = r.scheme, r.cluster.Mapper
	made.MaxRequestBytes, made.Others, made.Tapped = cmp.Or(s.options.MaxRequestBytes, defaultMaxRequestBytes), m.hooks, m.tapped
	return made, nil
}

// offlineHost replaces a missing Host in the URLs of webhooks. It cannot be resolved.
const offlineHost = "webhook.invalid"

// offlineWebhooks returns the options of the configurations. A Host is not required.
func (o ManagerOptions) offlineWebhooks() webhookconf.Options {
	options := o.webhookOptions(o.port())
	if !o.serviceMode() {
		options.Target.Host = cmp.Or(options.Target.Host, offlineHost)
	}
	return options
}

// offlineMapper returns a RESTMapper of the kinds of the scheme, of those that are given, and of the conversions. It
// needs no cluster.
func (s setup) offlineMapper(newMapper seam.NewMapper, scheme *runtime.Scheme, given []resources.Resource) meta.RESTMapper {
	for _, c := range s.conversions {
		given = append(given, c.Resources(given, scheme)...)
	}
	return newMapper(scheme, given)
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

// tapped gives the calls of a handler to a Tap, too, except those of a diagnosis.
func (m *ExtensionManager) tapped(handler http.Handler) http.Handler {
	return m.taps.Wrap(handler, diagnose.CanaryName)
}
