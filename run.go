package eirinix

// This file runs a Manager: Start, Run and Stop.

import (
	"context"
	"errors"
	"fmt"
	"os/signal"
	"syscall"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"code.cloudfoundry.org/eirinix/internal/cluster"
	"code.cloudfoundry.org/eirinix/internal/rights"
	"code.cloudfoundry.org/eirinix/internal/wait"
)

// Start is Run until SIGINT or SIGTERM. On the first signal it drains and returns nil. On a second signal it returns an
// error at once, even with calls in flight. It does not log the error that it returns.
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

// Run serves the extensions, and runs watchers and reconcilers, until ctx ends, Stop is called or a permanent error
// occurs. It returns nil after a stop. If the API server is not available yet, Run waits for it and logs every attempt
// that fails. Missing rights, a port that is in use and an unusable kubeconfig are errors.
//
// When it stops, the Manager reports itself not ready, continues to serve for DrainDelay and finishes the calls in
// flight. The webhook configuration stays in place, unless UnregisterOnStop is set.
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

// begin makes sure that the Manager runs only once. The context that it returns ends when a stop is requested. The
// context of GetContext ends only after everything has been drained, because handlers in flight can use it.
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
		cancel(errStopped) // AfterFunc runs in its own goroutine, perhaps only after the caller checks ctx
	}
	running, stopRunning := context.WithCancel(context.WithoutCancel(parent))
	m.running = logf.IntoContext(running, m.log())
	return ctx, func() {
		unlink()
		cancel(errStopped)
		stopRunning()
		m.Stop()             // ends a concurrent Watch too
		m.program.Store(nil) // an operation from now on is that of a Manager that never ran
		m.taps.End(m.given().log())
		m.readiness.Lack(errStopped)
	}, nil
}

// Stop makes Start, Run and Watch return after they have drained. It can be called more than once, from any goroutine
// and from a handler. If it is called before Start, Start returns at once.
func (m *ExtensionManager) Stop() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stop()
}

// run starts everything in order and stops it in reverse order. Its error is errStopped after a stop.
func (m *ExtensionManager) run(ctx context.Context) error {
	log := m.given().log()
	if err := m.awaitAPIServer(ctx, log); err != nil {
		return err
	}
	given, half := m.given(), rights.Whole
	if !*given.options.RegisterWebHook {
		half = rights.Serving
	}
	preflight := m.preflight(ctx, half, log)
	cluster.SetProcessLogger(log)
	for _, r := range given.reconcilers {
		if err := r.Register(m); err != nil {
			return fmt.Errorf("eirinix: reconciler %T cannot be registered: %w", r, err)
		}
	}

	// Background tasks end after the server has been drained, because handlers of calls in flight use the caches.
	background, stopBackground := context.WithCancel(context.WithoutCancel(ctx))
	r := run{m: m, background: background, failed: make(chan error, 4), rights: preflight, log: log}
	defer r.tasks.Wait()
	defer stopBackground()
	starting, stopStarting := context.WithCancel(ctx) // also ends after a failed start
	defer stopStarting()
	err := r.startKubeManager(given)
	if err != nil {
		return err
	}
	defer given.startNoKubeManager()
	if len(given.watchers) > 0 {
		r.tasks.Go(func() { r.failed <- m.watchPods(starting) })
	}
	drain := func() error { return nil }
	if given.serves() {
		drain, err = r.serve(starting)
	} else {
		log.Info("no extension was added; nothing is served or registered")
		m.readiness.Begin()
	}
	if err == nil {
		select {
		case <-ctx.Done():
			err = errStopped
		case err = <-r.failed:
		}
	}
	err = preflight.WithGrants(err)
	if drainErr := drain(); drainErr != nil {
		if errors.Is(err, errStopped) {
			return preflight.WithGrants(drainErr)
		}
		return errors.Join(err, drainErr)
	}
	return err
}

// awaitAPIServer waits until the API server responds, be it with Forbidden.
func (m *ExtensionManager) awaitAPIServer(ctx context.Context, log logr.Logger) error {
	config, clients, err := m.given().own()
	if err != nil {
		return err
	}
	m.readiness.Lack(errors.New("waiting for the API server"))
	err = wait.Retry(ctx, log, "the API server", func(ctx context.Context) error {
		err := clients.Discovery().RESTClient().Get().AbsPath("/version").Do(ctx).Error()
		if apierrors.IsForbidden(err) {
			return nil // it does respond
		}
		return err
	})
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return errStopped
	}
	return fmt.Errorf("eirinix: the API server at %s refuses the connection's credentials or cannot be trusted; check the kubeconfig: %w", config.Host, err)
}

// startKubeManager starts the controller-runtime manager, unless it is the one that runs this Manager.
func (r *run) startKubeManager(given setup) error {
	r.m.mu.Lock()
	hosted := r.m.hosted
	r.m.mu.Unlock()
	if hosted {
		return nil
	}
	return given.startKubeManager(func(mgr manager.Manager) <-chan struct{} {
		ended := make(chan struct{})
		r.tasks.Go(func() {
			defer close(ended)
			err := errStopped
			if failed := mgr.Start(r.background); failed != nil {
				err = fmt.Errorf("eirinix: the controller-runtime manager failed: %w", failed)
			}
			r.failed <- err
		})
		return ended
	})
}
