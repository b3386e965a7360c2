package eirinix

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"code.cloudfoundry.org/eirinix/internal/admit"
	"code.cloudfoundry.org/eirinix/internal/manifest"
	"code.cloudfoundry.org/eirinix/internal/serving"
	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

// startTimeout bounds the opening of the port.
const startTimeout = 30 * time.Second

// errStopped is the cause of a stop that was asked for.
var errStopped = errors.New("the Manager was stopped")

// Start is Run until SIGINT or SIGTERM. On the first signal it drains and returns nil; on a second one it
// returns at once with an error, whatever is still in flight.
func (m *ExtensionManager) Start() error {
	ctx, release := signal.NotifyContext(m.GetContext(), syscall.SIGINT, syscall.SIGTERM)
	defer release()
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	second, releaseSecond := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer releaseSecond()
	select {
	case err := <-done:
		return err
	case <-second.Done():
		return errors.New("eirinix: stopped at once by a second signal; calls in flight were cut off")
	}
}

// Run serves the extensions, and runs watchers and reconcilers, until ctx ends, Stop is called or something
// fails for good. It returns nil after a stop. An API server that is not there yet is waited for, with a
// message each time; missing rights, a port that is taken and a kubeconfig that cannot be used are errors.
//
// On the way out the Manager declares itself not ready, goes on serving for DrainDelay, finishes the calls
// in flight and leaves the webhook configuration in place, unless UnregisterOnStop says otherwise.
func (m *ExtensionManager) Run(ctx context.Context) error {
	if err := m.Validate(); err != nil {
		return err
	}
	ctx, end, err := m.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	if ctx.Err() != nil { // stopped before it began
		return nil
	}
	if err := m.run(ctx); err != nil && !errors.Is(err, errStopped) {
		return err
	}
	return nil
}

// begin makes the Manager run once. The context that it returns asks for the stop; the one that GetContext
// gives lives on until everything has been drained, because handlers in flight may use it.
func (m *ExtensionManager) begin(parent context.Context) (context.Context, func(), error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.started {
		return nil, nil, errors.New("eirinix: the Manager was started before; a Manager runs once, make a new one")
	}
	m.started = true
	ctx, cancel := context.WithCancelCause(parent)
	unlink := context.AfterFunc(m.root, func() { cancel(errStopped) })
	if m.root.Err() != nil {
		cancel(errStopped) // AfterFunc runs in a goroutine of its own, perhaps later than our first look
	}
	running, stopRunning := context.WithCancel(context.WithoutCancel(parent))
	m.running = logf.IntoContext(running, m.log())
	return ctx, func() {
		unlink()
		cancel(errStopped)
		stopRunning()
		m.Stop() // a Watch that runs beside ends too
		m.setUnready(errStopped)
	}, nil
}

// Stop makes Start, Run and Watch return after they have drained. It may be called more than once, from any
// goroutine and from a handler, and before Start, which then returns at once.
func (m *ExtensionManager) Stop() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stop()
}

// logr is the logger of the options as a logr.Logger.
func (m *ExtensionManager) logr() logr.Logger {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.log()
}

// run brings everything up in order and down again in reverse. Its error is errStopped after a stop.
func (m *ExtensionManager) run(ctx context.Context) error {
	log := m.logr()
	if err := m.awaitAPIServer(ctx, log); err != nil {
		return err
	}
	half := manifest.Whole
	if !*m.GetManagerOptions().RegisterWebHook {
		half = manifest.Serving
	}
	grants := m.preflight(ctx, half, log)
	m.mu.Lock()
	kubeManager, err := m.kubeManager()
	serves, watches := len(m.steps) > 0, len(m.watchers) > 0
	m.mu.Unlock()
	if err != nil {
		return err
	}
	// controller-runtime's packages log through one logger for the whole process, and complain with a stack
	// trace when nobody sets it. The first to set it wins, so a program's own choice stands.
	logf.SetLogger(log)
	for _, r := range m.ListReconcilers() {
		if err := r.Register(m); err != nil {
			return fmt.Errorf("eirinix: reconciler %T cannot be registered: %w", r, err)
		}
	}

	// What runs in the background ends after the server has been drained: caches serve the handlers of
	// calls in flight.
	background, stopBackground := context.WithCancel(context.WithoutCancel(ctx))
	var tasks sync.WaitGroup
	defer tasks.Wait()
	defer stopBackground()
	watching, stopWatching := context.WithCancel(ctx) // also after a start that failed
	defer stopWatching()
	failed := make(chan error, 4) // one place for each that may send
	if m.startsKubeManager() {
		tasks.Go(func() { failed <- m.runKubeManager(background, kubeManager) })
	}
	if watches {
		tasks.Go(func() { failed <- m.watchPods(watching) })
	}
	stopServing := func() error { return nil }
	if serves {
		stopServing, err = m.serve(ctx, background, &tasks, failed, log)
	} else {
		log.Info("no extension was added; nothing is served or registered")
		m.setReady()
	}
	if err == nil {
		select {
		case <-ctx.Done():
			err = errStopped
		case err = <-failed:
		}
	}
	err = withGrants(err, grants)
	if drainErr := stopServing(); drainErr != nil {
		if errors.Is(err, errStopped) {
			return withGrants(drainErr, grants)
		}
		return errors.Join(err, drainErr)
	}
	return err
}

// awaitAPIServer returns when the API server has given any answer at all.
func (m *ExtensionManager) awaitAPIServer(ctx context.Context, log logr.Logger) error {
	clients, err := m.clients()
	if err != nil {
		return err
	}
	m.setUnready(errors.New("waiting for the API server"))
	err = retryTransient(ctx, log, "the API server", func(context.Context) error {
		_, err := clients.Discovery().ServerVersion()
		return err
	})
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return errStopped
	}
	return fmt.Errorf("eirinix: the API server at %s refuses the connection's credentials or cannot be trusted; check the kubeconfig: %w", m.apiServer(), err)
}

func (m *ExtensionManager) apiServer() string {
	if cfg, err := m.GetKubeConnection(); err == nil {
		return cfg.Host
	}
	return "(unknown)"
}

// startsKubeManager tells whether the controller-runtime manager is ours to start.
func (m *ExtensionManager) startsKubeManager() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return !m.hosted
}

func (m *ExtensionManager) runKubeManager(ctx context.Context, mgr manager.Manager) error {
	err := mgr.Start(ctx)
	if err != nil {
		return fmt.Errorf("eirinix: the controller-runtime manager failed: %w", err)
	}
	return errStopped
}

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
		return newHostedServer(hosting, handler, m.pathPrefix(), log), handler, nil
	}
	host, port, _ := o.listen() // Validate has seen it
	server := &serving.Server{
		Host: host, WantPort: port,
		GetCertificate: certs.GetCertificate,
		Ready:          m.checkReady,
		HTTP2:          o.EnableHTTP2,
		Handler:        handler,
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

func (m *ExtensionManager) setReady() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.unready = nil
	close(m.ready)
}

// trusted is told by the keeper whether the API server trusts what is served here. It has no say before the first
// Ready, nor once the Manager stops.
func (m *ExtensionManager) trusted(doubt error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	select {
	case <-m.ready:
		if !errors.Is(m.unready, errStopped) {
			m.unready = doubt
		}
	default:
	}
}

// setUnready notes why the Manager is not ready; before the first Ready it is what it waits for.
func (m *ExtensionManager) setUnready(why error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.unready = why
}

// checkReady is nil when the Manager is ready, else why not.
func (m *ExtensionManager) checkReady() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.unready
}

// stoppedOr tells a stop from a failure: an operation that a stop has interrupted did not fail.
func stoppedOr(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return errStopped
	}
	return prefixed(err)
}
