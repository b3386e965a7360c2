package controlplane

// This file defines APIServer, one kube-apiserver of a control plane.

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"code.cloudfoundry.org/eirinix/internal/wait"
)

// APIServer is one kube-apiserver of a control plane.
type APIServer struct {
	plane  *Plane
	name   string
	config *rest.Config

	mu      sync.Mutex // guards the fields below; held for a whole start or stop
	args    []string
	process *process // nil: stopped
}

// AddAPIServer starts another kube-apiserver on the control plane's etcd and returns once it is ready.
func (c *Plane) AddAPIServer(ctx context.Context, extraArgs ...string) (*APIServer, error) {
	s := &APIServer{plane: c, name: "kube-apiserver"}

	// The server is added to the list before it runs, with s.mu held, so that a concurrent Stop waits for it and stops
	// it.
	s.mu.Lock()
	defer s.mu.Unlock()

	c.mu.Lock()
	if c.stopped {
		c.mu.Unlock()
		return nil, errStopped
	}
	if n := len(c.apiServers); n > 0 {
		s.name = fmt.Sprintf("kube-apiserver-%d", n+1)
	}
	c.apiServers = append(c.apiServers, s)
	c.mu.Unlock()

	p, port, err := c.startOnFreePort(ctx, s.name, func(port string) []string {
		s.args = c.apiServerArgs(port, extraArgs)
		return s.args
	}, c.apiServerReady)
	if err != nil {
		return nil, err
	}
	s.process = p
	s.config, err = c.keys.clientConfig("https://"+net.JoinHostPort("127.0.0.1", port), adminUser, []string{adminGroup})
	return s, err
}

// apiServerReady returns nil once the server is ready and the objects that it creates itself exist. /readyz covers the
// bootstrap roles and priority classes, but not the namespaces.
func (c *Plane) apiServerReady(ctx context.Context, port string) error {
	for _, path := range []string{"/readyz", "/api/v1/namespaces/default", "/api/v1/namespaces/kube-system"} {
		if err := getOK(ctx, c.keys.adminTLS, "https://"+net.JoinHostPort("127.0.0.1", port)+path); err != nil {
			return err
		}
	}
	return nil
}

// Config returns a new copy of the administrator's configuration for this API server.
func (s *APIServer) Config() *rest.Config { return rest.CopyConfig(s.config) }

// Pause freezes the API server.
func (s *APIServer) Pause() error { return s.signal("pause", (*process).pause) }

// Resume lets a paused API server continue.
func (s *APIServer) Resume() error { return s.signal("resume", (*process).resume) }

func (s *APIServer) signal(verb string, send func(*process) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process == nil {
		return fmt.Errorf("call Restart first: cannot %s %s, which is stopped", verb, s.name)
	}
	if err := send(s.process); err != nil {
		return fmt.Errorf("%s %s: %w", verb, s.name, err)
	}
	return nil
}

// Stop stops only this API server, also if it is paused, and waits until it is gone.
func (s *APIServer) Stop() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process == nil {
		return nil
	}
	p := s.process
	s.process = nil
	return p.stop(apiServerGrace)
}

// Restart starts the API server again on the same port with the same flags, and returns once it is ready.
func (s *APIServer) Restart(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.plane.isStopped() {
		return errStopped
	}
	if s.args == nil {
		return errors.New("restart one of AddAPIServer: other processes use this one too")
	}
	if s.process != nil {
		// An earlier exit of the server can be the very reason for the restart.
		_ = s.process.stop(apiServerGrace)
		s.process = nil
	}
	_, port, err := net.SplitHostPort(s.config.Host[len("https://"):])
	if err != nil {
		return err
	}
	for {
		p, err := s.plane.startServer(ctx, s.name, s.args, func(ctx context.Context) error {
			return s.plane.apiServerReady(ctx, port)
		})
		if err == nil {
			s.process = p
			return nil
		}
		// A client that dials the port while nothing listens can be given this very port for its own end.
		if !errors.Is(err, errPortTaken) || wait.Sleep(ctx, portPause) != nil {
			return err
		}
	}
}

// portPause is the time between two attempts to listen on a port that is taken.
const portPause = 200 * time.Millisecond

var errStopped = errors.New("start a new control plane: this one is stopped")

func (c *Plane) isStopped() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stopped
}
