package eirinix

import (
	"errors"
)

// This file is what /readyz and Ready tell.

// setReady is called once.
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
