package eirinixtest

// This file defines ControlPlane, a real Kubernetes control plane for tests, and its options.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"k8s.io/client-go/rest"
)

// ControlPlaneOptions configures NewControlPlane. The zero value is an etcd and a kube-apiserver with RBAC, built from
// Go modules if no binaries are found.
type ControlPlaneOptions struct {
	// Assets is the folder with the binaries etcd, kube-apiserver and, for ControllerManager, kube-controller-manager.
	// The default is the first of these that exists: KUBEBUILDER_ASSETS; the binaries that the program in
	// testing/controlplane has built for this version of the module; the newest release in the cache of setup-envtest,
	// from Kubernetes 1.28 on (it has no kube-controller-manager). If none exists, that program builds the binaries
	// from the Go module proxy. This takes minutes, but happens only once. Progress reports the source.
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

// ControlPlane is a real Kubernetes control plane on loopback: etcd, one or more kube-apiservers and, optionally, a
// kube-controller-manager. RBAC is on. The ServiceAccount admission plugin is off, so that pods need no token. It has
// no scheduler and no kubelet, so pods stay pending.
//
// Create one with NewControlPlane or StartControlPlane and end it with Stop. Its methods are safe for concurrent use.
// If the process that started it is killed, Linux kills the servers at once. On other systems, the next
// NewControlPlane of the same user kills them. It also removes the files that remain on any system.
type ControlPlane struct {
	opts     ControlPlaneOptions
	assets   string
	dir      *runDir
	logDir   string
	launcher *launcher
	certs    *controlPlaneCerts
	etcdURL  string
	progress *progressWriter
	shared   bool // with other tests, so that no single test can stop it

	mu                sync.Mutex // guards the fields below, up to stopped
	etcd              *process
	controllerManager *process
	apiServers        []*APIServer
	stopped           bool

	stopOnce sync.Once
	stopErr  error
}

// startTimeout bounds the start of one server if the caller's context has no deadline. An API server needs about 3 s
// on an idle machine. The rest is for machines that are busy compiling.
const startTimeout = 2 * time.Minute

// NewControlPlane starts a control plane and returns once it is usable: /readyz answers, and the namespaces default
// and kube-system, the bootstrap RBAC roles and the system priority classes exist.
//
// ctx governs only the start, including the building of missing binaries. If ctx ends before the start does,
// everything is stopped and removed. If ctx has no deadline, each server has two minutes to start. The error for a
// server that did not start contains the last lines of its log.
func NewControlPlane(ctx context.Context, opts ControlPlaneOptions) (*ControlPlane, error) {
	c, err := startControlPlane(ctx, opts)
	if err != nil {
		return nil, fmt.Errorf("eirinixtest: %w", err)
	}

	return c, nil
}

func startControlPlane(ctx context.Context, opts ControlPlaneOptions) (c *ControlPlane, err error) {
	c = &ControlPlane{opts: opts, progress: &progressWriter{w: opts.Progress}}

	if c.assets, err = controlPlaneAssets(ctx, opts, c.progress); err != nil {
		return nil, err
	}

	if c.dir, err = newRunDir(); err != nil {
		return nil, err
	}

	c.launcher = newLauncher()

	defer func() {
		if err != nil {
			err = errors.Join(err, c.stop())
			c = nil
		}
	}()

	c.logDir = c.dir.path
	if opts.LogDir != "" {
		// Servers are started with absolute paths, because they must not depend on the caller's folder.
		if c.logDir, err = filepath.Abs(opts.LogDir); err != nil {
			return c, fmt.Errorf("set ControlPlaneOptions.LogDir to another folder: %w", err)
		}

		if err = os.MkdirAll(c.logDir, 0o700); err != nil {
			return c, fmt.Errorf("set ControlPlaneOptions.LogDir to a writable folder: %w", err)
		}
	}

	if c.certs, err = writeControlPlaneCerts(c.dir.path); err != nil {
		return c, err
	}

	c.progress.printf("logs in %s", c.logDir)

	if err = c.startEtcd(ctx); err != nil {
		return c, err
	}

	first, err := c.addAPIServer(ctx, nil)
	if err != nil {
		return c, err
	}

	if err = writeKubeconfig(c.Kubeconfig(), first.config); err != nil {
		return c, err
	}

	if opts.ControllerManager {
		if err = c.startControllerManager(ctx); err != nil {
			return c, err
		}
	}

	return c, nil
}

// Config returns a new copy of the administrator's configuration for the first API server. Its client certificate is
// in the group system:masters. Its client-side rate limits are too high for a spec to notice.
func (c *ControlPlane) Config() *rest.Config {
	return c.APIServer().Config()
}

// Kubeconfig returns the path of a kubeconfig file (mode 0600) for the same user and server as Config. Stop removes
// the file.
func (c *ControlPlane) Kubeconfig() string {
	return filepath.Join(c.dir.path, "kubeconfig")
}

// LogDir returns the folder with one log file per server, for example kube-apiserver.log.
func (c *ControlPlane) LogDir() string {
	return c.logDir
}

// APIServer returns the first API server, to which Config and Kubeconfig connect.
func (c *ControlPlane) APIServer() *APIServer {
	c.mu.Lock()
	defer c.mu.Unlock()

	return c.apiServers[0]
}

// User returns the configuration of another user on the first API server, with a client certificate for this name and
// these groups. The user has no rights until RBAC grants them. The group system:masters bypasses RBAC.
func (c *ControlPlane) User(name string, groups ...string) (*rest.Config, error) {
	if name == "" {
		return nil, errors.New("eirinixtest: give User a name: an empty one is anonymous")
	}

	config, err := c.certs.clientConfig(c.APIServer().config.Host, name, groups)
	if err != nil {
		return nil, fmt.Errorf("eirinixtest: client certificate of user %q: %w", name, err)
	}

	return config, nil
}

// Stop stops all servers in order (controller manager, API servers, etcd), waits for them and removes the private
// folder. Later calls return the result of the first. The error names the servers that had already exited by
// themselves, and the files that could not be removed. A control plane that is Shared can only be stopped by Main, so
// Stop returns an error for it.
func (c *ControlPlane) Stop() error {
	if c.shared {
		return fmt.Errorf("eirinixtest: %w", errShared)
	}

	if err := c.stop(); err != nil {
		return fmt.Errorf("eirinixtest: %w", err)
	}

	return nil
}

func (c *ControlPlane) stop() error {
	c.stopOnce.Do(func() {
		c.mu.Lock()
		c.stopped = true
		manager, etcd := c.controllerManager, c.etcd
		servers := append([]*APIServer(nil), c.apiServers...)
		c.mu.Unlock()

		var errs []error
		if manager != nil {
			errs = append(errs, manager.stop(controllerManagerGrace))
		}

		results := make(chan error)
		for _, server := range servers {
			go func() { results <- server.stop() }()
		}

		for range servers {
			errs = append(errs, <-results)
		}

		if etcd != nil {
			errs = append(errs, etcd.stop(etcdGrace))
		}

		// The launcher's thread must not end earlier, because its children die with it.
		c.launcher.close()
		errs = append(errs, c.dir.remove())
		c.stopErr = errors.Join(errs...)
	})

	return c.stopErr
}

// progressWriter serializes the lines of the library and of the builder. If w is nil, it discards them.
type progressWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (p *progressWriter) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()

	if p.w == nil {
		return len(b), nil
	}

	return p.w.Write(b)
}

func (p *progressWriter) printf(format string, args ...any) {
	// Progress is optional, so a failing writer must not fail the control plane.
	_, _ = fmt.Fprintf(p, "eirinixtest: "+format+"\n", args...)
}
