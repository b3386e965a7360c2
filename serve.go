package eirinix

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"code.cloudfoundry.org/eirinix/internal/admit"
	"code.cloudfoundry.org/eirinix/internal/serving"
	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

// startTimeout bounds the opening of the port.
const startTimeout = 30 * time.Second

// serve opens the port and registers the steps. The function that it returns undoes what was done, also
// after an error: it drains, then closes the port.
func (m *ExtensionManager) serve(ctx, background context.Context, tasks *sync.WaitGroup, failed chan<- error, log logr.Logger) (func() error, error) {
	nothing := func() error { return nil }
	o := m.GetManagerOptions()
	certs, err := m.newCertifier(log)
	if err != nil {
		return nothing, err
	}
	m.setUnready(fmt.Errorf("waiting for certificates: %s", certs))
	tasks.Go(func() { certs.run(background) })
	// Only a serving half waits for what others make; whoever registers makes it, or fails and says why.
	mayWait := !*o.RegisterWebHook || !*o.SetupCertificate
	if err := retryTransient(ctx, log, "the certificates", func(ctx context.Context) error { return certs.obtain(ctx, mayWait) }); err != nil {
		return nothing, stoppedOr(ctx, err)
	}

	var steps []webhookconf.Step
	if err := retryTransient(ctx, log, "the kinds that the cluster serves", func(context.Context) (err error) {
		steps, err = m.resolveAll()
		return err
	}); err != nil {
		return nothing, stoppedOr(ctx, err)
	}
	server, handler, err := m.newServer(certs, steps, log)
	if err != nil {
		return nothing, err
	}
	callers, err := m.newCallers(log)
	if err != nil {
		return nothing, err
	}
	if callers != nil {
		if err := retryTransient(ctx, log, "the client CAs", callers.read); err != nil {
			return nothing, stoppedOr(ctx, err)
		}
		server.(*serving.Server).Clients = callers.clients // Validate has seen to it that it is ours
		tasks.Go(func() { callers.follow(background) })
	}
	starting, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("not open after %s", startTimeout))
	defer cancel()
	if err := server.Start(starting); err != nil {
		return nothing, stoppedOr(ctx, err)
	}
	m.mu.Lock()
	m.serving = server
	m.mu.Unlock()
	tasks.Go(func() {
		select {
		case <-server.Done():
			if !server.Draining() {
				failed <- fmt.Errorf("eirinix: the webhook server ended: %w", errors.Join(server.Err(), errors.New("unexpectedly")))
			}
		case <-background.Done():
		}
	})

	var owner *metav1.OwnerReference
	if *o.RegisterWebHook {
		owner = m.owningNamespace(ctx, log)
		m.warnOfOwnPod(ctx, log)
	}
	reg, err := m.newRegistration(certs, steps, m.registeredPort(o, server), log, ownedBy(owner))
	stop := func() error { return m.drain(o, server, reg, log) } //nolint:contextcheck // ctx has ended by then
	if err != nil {
		return stop, err
	}
	reg.pass = func(paths []string) {
		own := make([]string, 0, len(paths))
		for _, path := range paths {
			own = append(own, strings.TrimPrefix(path, m.pathPrefix()))
		}
		handler.Pass(own)
	}
	if *o.RegisterWebHook {
		m.setUnready(errors.New("not registered yet"))
		reg.giveWay(ctx, 2*o.drainDelay())
		if err := retryTransient(ctx, log, "the webhook configuration", func(ctx context.Context) error {
			_, err := reg.write(ctx, everything)
			return err
		}); err != nil {
			return stop, stoppedOr(ctx, err)
		}
	}
	upkeep := certs.upkeep(m, reg, log)
	m.mu.Lock()
	m.upkeep, m.registration = upkeep, reg
	m.mu.Unlock()
	spread := reg.spread // as the first write leaves it
	tasks.Go(func() { m.becomeReady(ctx, reg, spread, failed) })
	tasks.Go(func() { upkeep.run(background) })
	return stop, nil
}

// becomeReady closes Ready when the API server can call this process.
func (m *ExtensionManager) becomeReady(ctx context.Context, reg *registration, spread time.Time, failed chan<- error) {
	if err := reg.awaitRegistered(ctx, spread, m.setUnready); err != nil {
		if ctx.Err() == nil {
			failed <- fmt.Errorf("eirinix: %w", err)
		}
		return
	}
	m.setReady()
	reg.log.Info("ready", "address", m.Addr().String())
	reg.diagnoseStart(ctx, m.Addr().String())
}

// registeredPort is the port that the API server is told.
func (m *ExtensionManager) registeredPort(o ManagerOptions, server server) int32 {
	_, port, _ := o.listen()
	if _, hosted := server.(*hostedServer); (port == 0 || hosted) && o.Port == 0 && !o.serviceMode() {
		return int32(server.Port())
	}
	return o.port()
}

func (m *ExtensionManager) newServer(certs certifier, steps []webhookconf.Step, log logr.Logger) (server, *admit.Handler, error) {
	chains, err := m.chains(steps)
	if err != nil {
		return nil, nil, prefixed(err)
	}
	o := m.GetManagerOptions()
	metrics, err := admit.NewMetrics(ctrlmetrics.Registry)
	if err != nil { // a program has metrics of its own by our names; it still is a webhook
		log.Error(err, "metrics cannot be registered; there will be none")
		metrics = nil
	}
	canary := m.newCanary(steps)
	handler := &admit.Handler{
		MaxBytes: orElse(o.MaxRequestBytes, defaultMaxRequestBytes),
		Log:      log, Others: m.hooks, Metrics: metrics,
	}
	for path, chain := range chains {
		handler.Serve(path, chain)
	}
	serveCanary(handler, canary)
	m.mu.Lock()
	hosting := m.host
	m.mu.Unlock()
	if hosting != nil {
		server := newHostedServer(hosting, m.recorded(handler), m.pathPrefix(), log)
		handler.Draining = server.Draining
		return server, handler, nil
	}
	host, port, _ := o.listen() // Validate has seen it
	server := &serving.Server{
		Host: host, WantPort: port,
		GetCertificate: certs.GetCertificate,
		Ready:          m.checkReady,
		HTTP2:          o.EnableHTTP2,
		Handler:        m.recorded(handler),
		Log:            log,
	}
	handler.Draining = server.Draining
	return server, handler, nil
}

// classic adapts an Extension to the request path.
func (m *ExtensionManager) classic(e Extension) admit.HandleFunc {
	return func(ctx context.Context, req admission.Request) admission.Response {
		pod, err := decodePod(req)
		if err != nil {
			return admission.Errored(http.StatusInternalServerError, err)
		}
		return e.Handle(ctx, m, pod, req)
	}
}

// drain stops serving without losing a call.
func (m *ExtensionManager) drain(o ManagerOptions, server server, reg *registration, log logr.Logger) error {
	m.setUnready(errStopped)
	server.Drain()
	var errs []error
	if o.UnregisterOnStop && *o.RegisterWebHook && reg != nil {
		ctx, cancel := context.WithTimeout(context.Background(), unregisterTimeout)
		defer cancel()
		reg.end(ctx) // or it would be written again at once
		if err := reg.remove(ctx); err != nil {
			errs = append(errs, fmt.Errorf("eirinix: the webhook configuration could not be removed, remove it with kubectl delete %s: %w", reg.current()[0], err))
		}
	}
	if d := o.drainDelay(); d > 0 {
		log.Info("stopping: not ready any more, still serving", "for", d.String())
		_ = pause(context.Background(), d)
	}
	if err := server.Shutdown(context.Background()); err != nil {
		errs = append(errs, fmt.Errorf("eirinix: the webhook server did not stop cleanly: %w", err))
	}
	log.Info("stopped serving")
	return errors.Join(errs...)
}
