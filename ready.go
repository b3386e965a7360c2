package eirinix

// This file is about readiness: Ready, and /readyz.

import (
	"errors"
	"fmt"
	"net"
	"sync/atomic"

	"code.cloudfoundry.org/eirinix/internal/cluster"
	"code.cloudfoundry.org/eirinix/internal/controller"
	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

// Ready is closed once extensions are served and registered, and the certificate that is served verifies
// against the caBundle that the API server holds; for a Manager without extensions, once it runs. Each API
// server takes some milliseconds more to act on a new configuration, and tells nobody when it has. Ready
// stays open when Start returns an error.
func (m *ExtensionManager) Ready() <-chan struct{} { return m.ready }

// Addr is the address that the Manager listens on, with the port that was picked where ListenAddress asked
// for a free one. It is nil until the port is open.
func (m *ExtensionManager) Addr() net.Addr {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.serving == nil {
		return nil
	}
	return m.serving.Addr()
}

// setReady is called once.
func (m *ExtensionManager) setReady() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.unready = nil
	close(m.ready)
}

// trusted notes whether API servers trust what is served here. It has no effect before the first Ready, nor once the
// Manager stops.
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

// becomeReady returns a function for the controller, which reports after each pass whether API servers can call this
// process. ready is closed with the first time that they can.
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

// isFinal reports whether an error ends the program: its fingerprint is in use elsewhere, or it may not do what it must.
func isFinal(err error) bool {
	_, owned := errors.AsType[*webhookconf.OwnedElsewhereError](err)
	_, other := errors.AsType[*controller.AnotherProgramError](err)
	_, refused := errors.AsType[*cluster.RefusedError](err)
	return owned || other || refused
}
