package eirinix

// This file implements readiness: Ready and /readyz.

import (
	"errors"
	"fmt"
	"net"
	"sync/atomic"

	"code.cloudfoundry.org/eirinix/internal/cluster"
	"code.cloudfoundry.org/eirinix/internal/controller"
	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

// Ready returns a channel that is closed once the extensions are served and registered, and the serving certificate
// verifies against the caBundle in the API server. For a Manager without extensions it is closed once the Manager runs.
// It stays open if Start returns an error.
//
// Each API server takes some more milliseconds to apply a new configuration, and does not report when it has.
func (m *ExtensionManager) Ready() <-chan struct{} { return m.ready }

// Addr returns the address that the Manager listens on, with the port that was picked if ListenAddress requested a free
// one. It is nil until the port is open.
func (m *ExtensionManager) Addr() net.Addr {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.serving == nil {
		return nil
	}
	return m.serving.Addr()
}

// setReady makes the Manager ready for the first time. It must be called only once.
func (m *ExtensionManager) setReady() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.unready = nil
	close(m.ready)
}

// trusted records whether API servers trust the serving certificate: doubt is nil if they do, else the reason. It has
// no effect before the Manager was first ready, nor once it stops.
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

// setUnready records the reason why the Manager is not ready. Before it is first ready, this is the condition that it
// waits for.
func (m *ExtensionManager) setUnready(why error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.unready = why
}

// checkReady returns nil if the Manager is ready, else the reason why it is not.
func (m *ExtensionManager) checkReady() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.unready
}

// becomeReady returns a function with which the controller reports whether API servers can call this process: nil if
// they can, else the reason why not. ready is closed the first time that they can. A final error before that is sent to
// failed.
func (m *ExtensionManager) becomeReady(p *program, ready chan<- struct{}, failed chan<- error) func(error) {
	var was atomic.Bool
	waits := cluster.Limit{}
	return func(err error) {
		switch {
		case was.Load():
			m.trusted(err)
		case err == nil:
			was.Store(true)
			close(ready)
		case isFinal(err):
			was.Store(true)
			failed <- fmt.Errorf("eirinix: %w", err)
		default:
			m.setUnready(err)
			if waits.Due(err.Error()) {
				p.log.Info("not ready: serving, but not registered", "reason", err.Error())
			}
		}
	}
}

// isFinal reports whether an error ends the program: another program uses its fingerprint, or it lacks a right that it
// must have.
func isFinal(err error) bool {
	_, owned := errors.AsType[*webhookconf.OwnedElsewhereError](err)
	_, other := errors.AsType[*controller.AnotherProgramError](err)
	_, refused := errors.AsType[*cluster.RefusedError](err)
	return owned || other || refused
}
