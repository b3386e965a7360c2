package eirinixtest

// This file defines ControlPlane, a real Kubernetes control plane for tests. The package internal/controlplane runs it.

import (
	"context"
	"errors"
	"fmt"
	"io"

	"k8s.io/client-go/rest"

	"code.cloudfoundry.org/eirinix/testing/internal/controlplane"
)

// ControlPlaneOptions configures NewControlPlane. The zero value is an etcd and a kube-apiserver with RBAC, downloaded
// or built from Go modules if no binaries are found.
type ControlPlaneOptions struct {
	// Assets is the folder with the binaries etcd, kube-apiserver and, for ControllerManager, kube-controller-manager.
	// The default is the first of these that exists: KUBEBUILDER_ASSETS; the binaries that the program in
	// testing/controlplane has built for this version of the module; the newest release in the cache of setup-envtest,
	// from Kubernetes 1.28 on (it has no kube-controller-manager). If none exists, that program downloads
	// kube-apiserver and etcd from setup-envtest's index (EIRINIX_ENVTEST_INDEX names another one, or is off), and builds
	// the rest, or all where that fails, from the Go module proxy. A build takes minutes, but happens only once. Progress
	// reports the source.
	Assets string

	// ControllerManager also starts kube-controller-manager. Then Deployments get Pods, owned objects are
	// garbage-collected, and deleted namespaces disappear. The Pods stay pending, because the control plane has no
	// scheduler.
	ControllerManager bool

	// APIServerArgs are appended to the flags of every kube-apiserver, for example
	// --admission-control-config-file=/path/to/file. A repeated flag overrides the default.
	APIServerArgs []string

	// Progress receives a line for each step and, while binaries are built, the builder's progress. Writes to it are
	// serialized. The default is to write nothing.
	Progress io.Writer

	// LogDir is the folder for the servers' logs. It is created if missing and kept after Stop. The default is the
	// control plane's private folder, which Stop removes.
	LogDir string

	shared bool // for StartControlPlane, see Shared
}

func (o ControlPlaneOptions) internal() controlplane.Options {
	return controlplane.Options{
		Assets: o.Assets, ControllerManager: o.ControllerManager, APIServerArgs: o.APIServerArgs,
		Progress: o.Progress, LogDir: o.LogDir,
	}
}

// ControlPlane is a real Kubernetes control plane on loopback: etcd, one or more kube-apiservers and, optionally, a
// kube-controller-manager. RBAC is on. The ServiceAccount admission plugin is off, so that pods need no token. It has
// no scheduler and no kubelet, so pods stay pending.
//
// Create one with NewControlPlane or StartControlPlane and end it with Stop. Its methods are safe for concurrent use.
// If the process that started it is killed, Linux kills the servers at once. On other systems, the next
// NewControlPlane of the same user kills them. It also removes the files that remain on any system.
type ControlPlane struct {
	plane  *controlplane.Plane
	first  *APIServer
	shared bool // with other tests, so that no single test can stop it
}

// NewControlPlane starts a control plane and returns once it is usable: /readyz answers, and the namespaces default
// and kube-system, the bootstrap RBAC roles and the system priority classes exist.
//
// ctx governs only the start, including the building of missing binaries. If ctx ends before the start does,
// everything is stopped and removed. If ctx has no deadline, each server has two minutes to start. The error for a
// server that did not start contains the last lines of its log.
func NewControlPlane(ctx context.Context, opts ControlPlaneOptions) (*ControlPlane, error) {
	plane, err := controlplane.New(ctx, opts.internal())
	if err != nil {
		return nil, prefixed(err)
	}
	return &ControlPlane{plane: plane, first: &APIServer{plane.APIServer()}}, nil
}

// Config returns a new copy of the administrator's configuration for the first API server. Its client certificate is
// in the group system:masters. Its client-side rate limits are too high for a spec to notice.
func (c *ControlPlane) Config() *rest.Config { return c.first.Config() }

// Kubeconfig returns the path of a kubeconfig file (mode 0600) for the same user and server as Config. Stop removes
// the file.
func (c *ControlPlane) Kubeconfig() string { return c.plane.Kubeconfig() }

// LogDir returns the folder with one log file per server, for example kube-apiserver.log.
func (c *ControlPlane) LogDir() string { return c.plane.LogDir() }

// APIServer returns the first API server, to which Config and Kubeconfig connect.
func (c *ControlPlane) APIServer() *APIServer { return c.first }

// AddAPIServer starts another kube-apiserver on the control plane's etcd and returns once it is ready. extraArgs
// follow ControlPlaneOptions.APIServerArgs. NewControlPlane's rules for ctx apply. ControlPlane.Stop stops this server
// too.
func (c *ControlPlane) AddAPIServer(ctx context.Context, extraArgs ...string) (*APIServer, error) {
	server, err := c.plane.AddAPIServer(ctx, extraArgs...)
	if err != nil {
		return nil, prefixed(err)
	}
	return &APIServer{server}, nil
}

// StartControllerManager starts kube-controller-manager, as ControlPlaneOptions.ControllerManager does at once, unless it
// runs already. So a program can begin while there is no binary of it yet: this one may have to be built, which takes
// minutes the first time. NewControlPlane's rules for ctx apply. For a control plane that is Shared, it returns an error.
func (c *ControlPlane) StartControllerManager(ctx context.Context) error {
	if c.shared {
		return prefixed(errors.New("a shared control plane gets no controller manager later; set ControlPlaneOptions.ControllerManager"))
	}
	return prefixed(c.plane.StartControllerManager(ctx))
}

// User returns the configuration of another user on the first API server, with a client certificate for this name and
// these groups. The user has no rights until RBAC grants them. The group system:masters bypasses RBAC.
func (c *ControlPlane) User(name string, groups ...string) (*rest.Config, error) {
	config, err := c.plane.User(name, groups...)
	return config, prefixed(err)
}

// Stop stops all servers in order (controller manager, API servers, etcd), waits for them and removes the private
// folder. Later calls return the result of the first. The error names the servers that had already exited by
// themselves, and the files that could not be removed. A control plane that is Shared can only be stopped by Main, so
// Stop returns an error for it.
func (c *ControlPlane) Stop() error {
	if c.shared {
		return prefixed(errShared)
	}
	return prefixed(c.plane.Stop())
}

// APIServer is one kube-apiserver of a ControlPlane. All API servers of a control plane share one etcd. Each has its
// own informers and caches, as in a production cluster with several control-plane nodes. Its methods are safe for
// concurrent use and wait for one another.
type APIServer struct {
	server *controlplane.APIServer
}

// Config returns a new copy of the administrator's configuration for this API server. It stays valid after Restart.
func (s *APIServer) Config() *rest.Config { return s.server.Config() }

// Pause freezes the API server (SIGSTOP). Connections stay open, but until Resume the server answers no request and
// receives no watch event.
func (s *APIServer) Pause() error { return prefixed(s.server.Pause()) }

// Resume lets a paused API server continue.
func (s *APIServer) Resume() error { return prefixed(s.server.Resume()) }

// Stop stops only this API server, also if it is paused, and waits until it is gone, at most a few seconds. It is
// idempotent. It returns an error if the server had already exited by itself.
func (s *APIServer) Stop() error { return prefixed(s.server.Stop()) }

// Restart stops the API server if it runs, starts it again on the same port with the same flags, and returns once it
// is ready. NewControlPlane's rules for ctx apply.
func (s *APIServer) Restart(ctx context.Context) error { return prefixed(s.server.Restart(ctx)) }

// prefixed returns the error with the name of this package before it, or nil.
func prefixed(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("eirinixtest: %w", err)
}
