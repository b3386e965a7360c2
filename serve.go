package eirinix

// This file serves the steps, and what package conversion defines: it opens the port, keeps them registered, and drains on
// the way out.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"code.cloudfoundry.org/eirinix/internal/admit"
	"code.cloudfoundry.org/eirinix/internal/chain"
	"code.cloudfoundry.org/eirinix/internal/cluster"
	"code.cloudfoundry.org/eirinix/internal/controller"
	"code.cloudfoundry.org/eirinix/internal/diagnose"
	"code.cloudfoundry.org/eirinix/internal/list"
	"code.cloudfoundry.org/eirinix/internal/policyreport"
	"code.cloudfoundry.org/eirinix/internal/rollout"
	"code.cloudfoundry.org/eirinix/internal/seam"
	"code.cloudfoundry.org/eirinix/internal/serving"
	"code.cloudfoundry.org/eirinix/internal/wait"
	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

const (
	// startTimeout bounds the opening of the port.
	startTimeout = 30 * time.Second

	// leaveTimeout bounds the request that records a stopping replica for other versions.
	leaveTimeout = 3 * time.Second
)

// serve opens the port and registers the steps. The returned function drains and then closes the port. After an error
// it does nothing.
func (r *run) serve(ctx context.Context) (drain func() error, err error) {
	nothing := func() error { return nil }
	p, err := r.obtain(ctx)
	if err != nil {
		return nothing, stoppedOr(ctx, err)
	}
	if err := r.followReads(p); err != nil {
		return nothing, stoppedOr(ctx, err)
	}
	if err := r.resolve(ctx, p); err != nil {
		return nothing, stoppedOr(ctx, err)
	}
	server, handler, err := r.open(ctx, p)
	if err != nil {
		return nothing, stoppedOr(ctx, err)
	}
	if err = r.awaitReads(ctx, p); err == nil {
		err = r.register(ctx, p, server, handler)
	}
	if err != nil {
		defer handler.Stop()
		return nothing, errors.Join(stoppedOr(ctx, err), server.Shutdown(context.WithoutCancel(ctx)))
	}
	return func() error { //nolint:contextcheck // ctx has ended by then
		defer handler.Stop()
		return r.drain(server)
	}, nil
}

// resolve resolves the steps as the cluster, and what they read, are now.
func (r *run) resolve(ctx context.Context, p *program) error {
	return wait.Retry(ctx, r.log, "the kinds that the cluster serves", func(context.Context) error {
		steps, err := r.m.given().resolveAll(p.modes, p.holdingBack())
		if err == nil {
			p.resolved.Store(&steps)
		}
		return err
	})
}

// obtain starts following the objects of the program, and returns once there is a serving certificate.
func (r *run) obtain(ctx context.Context) (*program, error) {
	p, err := r.m.newProgram(r.rights, r.log)
	if err != nil {
		return nil, err
	}
	r.m.readiness.Lack(fmt.Errorf("waiting for certificates: %s", p.certificates))
	r.tasks.Go(func() { p.objects.Run(r.background) })
	if issued, ok := p.certificates.(*controller.Issued); ok {
		issued.Wake = p.objects.Wake
	}
	r.tasks.Go(func() { p.certificates.Run(r.background) })
	if err := p.objects.Seen(ctx); err != nil {
		return nil, err
	}
	if err := wait.Retry(ctx, r.log, "the modes of the steps", p.firstModes); err != nil {
		return nil, err
	}
	r.followModes(p)
	// Only a serving half waits for objects that another process makes. A process that registers makes them itself, or
	// fails with an error.
	o := r.m.GetManagerOptions()
	await := !*o.RegisterWebHook || !*o.SetupCertificate
	if err := p.obtainKeys(ctx, *o.RegisterWebHook); err != nil {
		return nil, err
	}
	return p, wait.Retry(ctx, r.log, "the certificates", func(ctx context.Context) error {
		found, err := controller.Observe(ctx, p.cache, p.configurations)
		if err != nil {
			return err
		}
		return p.certificates.Obtain(ctx, found, await)
	})
}

// open makes the server, serves the steps on it and opens its port.
func (r *run) open(ctx context.Context, p *program) (serving.Receiver, *admit.Handler, error) {
	server, handler, err := r.newServer(p.certificates)
	if err != nil {
		return nil, nil, err
	}
	callers, err := p.newCallers()
	if err != nil {
		return nil, nil, err
	}
	if callers != nil {
		callers.Follow(r.background, r.tasks.Go) //nolint:contextcheck // it outlives ctx
		if err := wait.Retry(ctx, r.log, "the client CAs", callers.Read); err != nil {
			return nil, nil, err
		}
		own := server.(*serving.Server) // with ClientCA, Validate allows no other
		own.Clients, own.Refused = callers.Clients, handler.Counts().Refused
	}
	// API servers can call as soon as the port is open, because another version can be registered already.
	p.reports = p.report(r.background, *r.m.GetManagerOptions().RegisterWebHook && r.rights.Events()) //nolint:contextcheck // it outlives ctx
	if err := p.serveSteps(handler, *p.resolved.Load(), p.routes(ctx)); err != nil {
		return nil, nil, err
	}
	starting, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("not open after %s", startTimeout))
	defer cancel()
	if err := server.Start(starting); err != nil {
		return nil, nil, err
	}
	r.m.mu.Lock()
	r.m.serving = server
	r.m.mu.Unlock()
	r.tasks.Go(func() {
		select {
		case <-server.Done():
			if !server.Draining() {
				r.failed <- fmt.Errorf("eirinix: the webhook server ended: %w", errors.Join(server.Err(), errors.New("unexpectedly")))
			}
		case <-r.background.Done():
		}
	})
	return server, handler, nil
}

// register keeps the steps registered until the Manager has drained. Steps that wait follow once they no longer do. A
// step that enters or leaves ModeShadow is registered anew. The controller owns what is registered at the moment.
func (r *run) register(ctx context.Context, p *program, server serving.Receiver, handler *admit.Handler) error {
	m, o := r.m, r.m.GetManagerOptions()
	registers := *o.RegisterWebHook
	if registers {
		m.warnOfOwnPod(ctx, r.log)
	}
	steps, options := *p.resolved.Load(), o.webhookOptions(o.registeredPort(server))
	registration, err := m.registration(steps, options, p.modes)
	if err != nil {
		return err
	}
	ready := make(chan struct{})
	loop := p.newController(steps, registration, func(c *controller.Config) { //nolint:contextcheck // the loop outlives ctx
		c.Registers, c.Serving, c.Report, c.Ready = registers, registers, p.reports, m.readiness.Report(r.log, ready, r.failed)
		c.Serve = func(routes map[string]rollout.Route) error {
			return p.serveSteps(handler, *p.resolved.Load(), routes)
		}
		if registers {
			c.Owner = p.owningNamespace
		}
	})
	m.readiness.Lack(errors.New("not registered yet"))
	m.program.Store(p)
	p.describeSteps(options)
	r.tasks.Go(func() { loop.Run(r.background, p.objects) })
	r.tasks.Go(func() {
		r.awaitChanges(ctx, p, func(steps resolved) error {
			next, err := m.registration(steps, options, p.modes)
			if err != nil {
				return err
			}
			if err := loop.Replace(ctx, next, o.single(), func(routes map[string]rollout.Route) error {
				err := p.serveSteps(handler, steps, routes)
				if err == nil {
					p.resolved.Store(&steps)
				}
				return err
			}); err != nil {
				return err
			}
			p.describeSteps(options)
			p.objects.Wake()
			return nil
		})
	})
	r.tasks.Go(func() { r.awaitReady(ctx, p, ready, options.Target) })
	return nil
}

// awaitReady makes the Manager ready once it is registered, and then watches whether API servers reach it.
func (r *run) awaitReady(ctx context.Context, p *program, ready <-chan struct{}, target webhookconf.Target) {
	select {
	case <-ready:
	case <-ctx.Done():
		return
	}
	r.m.readiness.Begin()
	address := r.m.Addr().String()
	r.log.Info("ready", "address", address, "registered", target.String(), "note", "a diagnosis now checks whether API servers reach it")
	diagnose.Watch(ctx, func() diagnose.Config { return p.diagnosis(address) }, r.log)
}

// serveSteps serves the steps, including those on the paths of other versions, and the canary on both of its paths.
func (p *program) serveSteps(handler *admit.Handler, steps resolved, routes map[string]rollout.Route) error {
	own := map[string]rollout.Route{}
	for path, route := range routes {
		if path = strings.TrimPrefix(path, p.m.pathPrefix()); !strings.HasPrefix(path, admit.ConvertPrefix) {
			own[path] = route
		}
	}
	chains, err := p.m.chains(steps, own, p.modes, p.reading())
	if err != nil {
		return err
	}
	canary := []chain.Step{{Name: diagnose.CanaryName, Ignore: true, Handle: p.answerCanary}}
	mutating, validating := admit.MutatePrefix+diagnose.CanaryName, admit.ValidatePrefix+diagnose.CanaryName
	chains[mutating], chains[validating] = chain.Config{Steps: canary}, chain.Config{Steps: canary, Validating: true}
	handler.ServeAll(chains, mutating, validating)
	p.serveConversions(handler, steps.conversions, routes)
	return nil
}

// awaitChanges resolves the steps again until ctx ends: while steps wait, and after steps have entered or left ModeShadow.
// begin serves and registers the steps as they are then.
func (r *run) awaitChanges(ctx context.Context, p *program, begin func(resolved) error) {
	known, failed := *p.resolved.Load(), false
	attempts := cluster.NewAttempts(p.config, r.log, r.tasks.Go)
	p.objects.Notify(attempts.Hint)
	for on := true; ; {
		p.reports.Waits(controller.ForKind, on && len(known.unserved) > 0)
		p.reports.Waits(controller.ForReads, on && len(known.unread) > 0)
		if !on {
			return
		}
		if on = attempts.Await(ctx, len(known.waiting) > 0 || failed, len(known.unserved) > 0, p.modes.Changed(), p.reads.Changed()); !on {
			continue // a program that ends waits for nothing
		}
		found, err := r.m.given().resolveAll(p.modes, p.holdingBack())
		if err == nil && ctx.Err() == nil && found.changes(known) {
			if err = begin(found); err == nil {
				known = found
			}
		}
		if failed = err != nil; failed && ctx.Err() == nil {
			r.log.Info("could not resolve the steps again; retrying", "reason", err.Error())
		}
	}
}

// registeredPort returns the port that is registered for the API server.
func (o ManagerOptions) registeredPort(server serving.Receiver) int32 {
	_, port, _ := o.listen()
	if _, hosted := server.(*serving.Hosted); (port == 0 || hosted) && o.Port == 0 && !o.serviceMode() {
		return int32(server.Port())
	}
	return o.port()
}

func (r *run) newServer(certs controller.Certificates) (serving.Receiver, *admit.Handler, error) {
	m, log := r.m, r.log
	o := m.GetManagerOptions()
	handler := &admit.Handler{
		MaxBytes: cmp.Or(o.MaxRequestBytes, defaultMaxRequestBytes),
		Log:      log, Others: m.hooks, Metrics: newMetrics(admit.NewMetrics, "metrics", log),
	}
	if o.TracerProvider != nil {
		handler.Tracer = o.TracerProvider.Tracer("code.cloudfoundry.org/eirinix")
	}
	m.mu.Lock()
	hosting, inherited := m.host, m.hostOptions.TLSOpts
	m.mu.Unlock()
	if hosting != nil {
		server := serving.NewHosted(hosting, m.tapped(handler), m.pathPrefix(), log)
		handler.Draining = server.Draining
		return server, handler, nil
	}
	host, port, err := o.listen()
	if err != nil {
		return nil, nil, err
	}
	server := &serving.Server{
		Host: host, WantPort: port,
		GetCertificate: certs.GetCertificate,
		Ready:          m.readiness.Check,
		Handler:        m.tapped(handler),
		Log:            log,
		TLS:            append(slices.Clip(inherited), o.TLS),
		Network:        m.network,
	}
	handler.Draining = server.Draining
	return server, handler, nil
}

// drain stops serving without losing a call.
func (r *run) drain(server serving.Receiver) error {
	o, log := r.m.GetManagerOptions(), r.log
	r.m.readiness.Lack(errStopped)
	server.Drain()
	errs := []error{r.m.program.Load().announceStop(o, log)}
	if d := o.drainDelay(); d > 0 {
		log.Info("stopping: not ready any more, still serving", "for", d.String())
		_ = wait.Sleep(context.Background(), d)
	}
	if err := server.Shutdown(context.Background()); err != nil {
		errs = append(errs, fmt.Errorf("eirinix: the webhook server did not stop cleanly: %w", err))
	}
	log.Info("stopped serving")
	return errors.Join(errs...)
}

// announceStop records for other versions that this replica stops, and removes the configurations if UnregisterOnStop is
// set.
func (p *program) announceStop(o ManagerOptions, log logr.Logger) error {
	leaving, cancel := context.WithTimeout(context.Background(), leaveTimeout)
	defer cancel()
	if err := p.controller.Leave(leaving, o.single()); err != nil {
		log.Info("could not record in the Lease that this replica stops; other versions notice within 20 s", "reason", err.Error())
	}
	if !o.UnregisterOnStop || !*o.RegisterWebHook {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), unregisterTimeout)
	defer cancel()
	p.controller.Stop(ctx) // otherwise it would write them again at once
	left, err := p.controller.Remove(ctx)
	if err != nil {
		return fmt.Errorf("eirinix: the webhook configuration could not be removed, remove it with kubectl delete %s: %w", p.configurations[0], err)
	}
	if !left { // else they are of the audits of another version
		policyreport.Remove(ctx, p.dynamic, o.OperatorFingerprint, p.log)
	}
	return nil
}

// single reports whether no other replica of this version is expected: the program removes its registration when it
// stops, or its port was picked and so belongs to a single process.
func (o ManagerOptions) single() bool {
	_, port, _ := o.listen()
	return o.UnregisterOnStop || port == 0 && o.Port == 0 && !o.serviceMode()
}

// obtainKeys makes or reads the keys of the conversions. A half that does not register only reads them.
func (p *program) obtainKeys(ctx context.Context, makes bool) error {
	s := p.m.given()
	if !s.keepsLosses() {
		return nil
	}
	p.keys = s.conversions[0].NewKeys(p.clients.CoreV1(), types.NamespacedName{Namespace: p.namespace, Name: s.options.conversionsName()}, makes, p.log)
	return p.keys.Obtain(ctx)
}

// serveConversions serves the conversions. routes are the paths of other versions of the program.
func (p *program) serveConversions(handler *admit.Handler, conversions []seam.Conversion, routes map[string]rollout.Route) {
	served := map[string]admit.Conversion{}
	for _, c := range conversions {
		path := conversionPath(c)
		served[path] = admit.Conversion{Name: c.CRD, Answer: c.Answer(seam.Serving{
			Keys: p.keys, Elsewhere: convertedElsewhere(c, routes[p.m.pathPrefix()+path]),
			Counts: handler.Counts().Conversion(c.CRD), Log: handler.Log.WithValues("customResourceDefinition", c.CRD),
		})}
	}
	handler.Convert(served)
}

// crdsOf returns the names of the definitions.
func crdsOf(conversions []seam.Conversion) []string {
	return list.Of(conversions, func(c seam.Conversion) string { return c.CRD })
}

// conversionPath returns the path of the conversion, without the prefix of a shared server.
func conversionPath(c seam.Conversion) string { return admit.ConvertPrefix + c.CRD }

// versionsOf returns the steps of the conversion's registration, which are its versions.
func versionsOf(c seam.Conversion) []webhookconf.Step {
	return list.Of(c.Versions, func(object runtime.Object) webhookconf.Step {
		return webhookconf.VersionStep(object.GetObjectKind().GroupVersionKind().Version, c.CRD)
	})
}

// conversionEntry returns the registration of the conversion.
func conversionEntry(c seam.Conversion) webhookconf.Entry {
	return webhookconf.Entry{Name: c.CRD, Path: conversionPath(c), Converts: c.CRD, Steps: versionsOf(c)}
}

// convertedElsewhere returns the versions that another live version of the program converts, and this one does not.
func convertedElsewhere(c seam.Conversion, route rollout.Route) (names []string) {
	own := versionsOf(c)
	for _, key := range route.Steps {
		if !slices.Contains(route.Removed, key) && !slices.ContainsFunc(own, func(s webhookconf.Step) bool { return s.Is(key) }) {
			names = append(names, webhookconf.VersionOf(key, c.CRD))
		}
	}
	return names
}

// conversionsName returns the name of the Secret that holds the keys of conversions.
func (o ManagerOptions) conversionsName() string { return o.OperatorFingerprint + "-conversions" }

// keepsLosses reports whether a conversion keeps what a version cannot hold.
func (s setup) keepsLosses() bool {
	return slices.ContainsFunc(s.conversions, func(c seam.Conversion) bool { return !c.Lossy })
}
