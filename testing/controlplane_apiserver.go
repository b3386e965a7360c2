package eirinixtest

// This file defines APIServer, one kube-apiserver of a control plane.

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"

	"k8s.io/client-go/rest"
)

// APIServer is one kube-apiserver of a ControlPlane. All API servers of a control plane share one etcd. Each has its
// own informers and caches, as in a production cluster with several control-plane nodes. Its methods are safe for
// concurrent use and wait for one another.
type APIServer struct {
	plane  *ControlPlane
	name   string
	config *rest.Config

	mu      sync.Mutex // guards the fields below; held for a whole start or stop
	args    []string
	process *process // nil: stopped
}

// AddAPIServer starts another kube-apiserver on the control plane's etcd and returns once it is ready. extraArgs
// follow ControlPlaneOptions.APIServerArgs. NewControlPlane's rules for ctx apply. ControlPlane.Stop stops this server
// too.
func (c *ControlPlane) AddAPIServer(ctx context.Context, extraArgs ...string) (*APIServer, error) {
	server, err := c.addAPIServer(ctx, extraArgs)
	if err != nil {
		return nil, fmt.Errorf("eirinixtest: %w", err)
	}

	return server, nil
}

func (c *ControlPlane) addAPIServer(ctx context.Context, extraArgs []string) (*APIServer, error) {
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
	s.config, err = c.certs.clientConfig("https://"+net.JoinHostPort("127.0.0.1", port), adminUser, []string{adminGroup})

	return s, err
}

// apiServerReady returns nil once the server is ready and the objects that it creates itself exist. /readyz covers the
// bootstrap roles and priority classes, but not the namespaces.
func (c *ControlPlane) apiServerReady(ctx context.Context, port string) error {
	for _, path := range []string{
		"/readyz", "/api/v1/namespaces/default", "/api/v1/namespaces/kube-system",
	} {
		if err := getOK(ctx, c.certs.adminTLS, "https://"+net.JoinHostPort("127.0.0.1", port)+path); err != nil {
			return err
		}
	}

	return nil
}

// Config returns a new copy of the administrator's configuration for this API server. It stays valid after Restart.
func (s *APIServer) Config() *rest.Config {
	return rest.CopyConfig(s.config)
}

// Pause freezes the API server (SIGSTOP). Connections stay open, but until Resume the server answers no request and
// receives no watch event.
func (s *APIServer) Pause() error {
	return s.signal("pause", (*process).pause)
}

// Resume lets a paused API server continue.
func (s *APIServer) Resume() error {
	return s.signal("resume", (*process).resume)
}

func (s *APIServer) signal(verb string, send func(*process) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.process == nil {
		return fmt.Errorf("eirinixtest: call Restart first: cannot %s %s, which is stopped", verb, s.name)
	}

	if err := send(s.process); err != nil {
		return fmt.Errorf("eirinixtest: %s %s: %w", verb, s.name, err)
	}

	return nil
}

// Stop stops only this API server, also if it is paused, and waits until it is gone, at most a few seconds. It is
// idempotent. It returns an error if the server had already exited by itself.
func (s *APIServer) Stop() error {
	if err := s.stop(); err != nil {
		return fmt.Errorf("eirinixtest: %w", err)
	}

	return nil
}

func (s *APIServer) stop() error {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.process == nil {
		return nil
	}

	p := s.process
	s.process = nil

	return p.stop(apiServerGrace)
}

// Restart stops the API server if it runs, starts it again on the same port with the same flags, and returns once it
// is ready. NewControlPlane's rules for ctx apply.
func (s *APIServer) Restart(ctx context.Context) error {
	if err := s.restart(ctx); err != nil {
		return fmt.Errorf("eirinixtest: %w", err)
	}

	return nil
}

func (s *APIServer) restart(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.plane.isStopped() {
		return errStopped
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

	p, err := s.plane.startServer(ctx, s.name, s.args, func(ctx context.Context) error {
		return s.plane.apiServerReady(ctx, port)
	})
	if err != nil {
		return err
	}

	s.process = p

	return nil
}

var errStopped = errors.New("start a new control plane: this one is stopped")

func (c *ControlPlane) isStopped() bool {
	c.mu.Lock()
	defer c.mu.Unlock()

	return c.stopped
}
