// Package controlplane runs a real Kubernetes control plane for tests: etcd, kube-apiservers and, on request,
// kube-controller-manager. Package eirinixtest documents it for its users.
//
// A control plane needs binaries (assets.go, envtest.go, builder.go), a private folder (rundir.go) with keys (keys.go)
// and logs (log.go), and the processes (process.go) of its servers (servers.go, apiserver.go). Its state can be put back to an
// earlier one (backup.go), and other processes can use it (attach.go).
package controlplane

// This file starts and stops a whole control plane.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"

	"k8s.io/client-go/rest"
)

// Options are eirinixtest.ControlPlaneOptions.
type Options struct {
	Assets            string
	ControllerManager bool
	APIServerArgs     []string
	Progress          io.Writer
	LogDir            string
}

// Key returns the same string for options that request the same control plane.
func (o Options) Key() string {
	assets := o.Assets
	if assets == "" {
		assets = os.Getenv(assetsVariable) // tests can set it
	}
	return fmt.Sprintf("%q %t %q %q", assets, o.ControllerManager, o.APIServerArgs, o.LogDir)
}

// Plane is one control plane.
type Plane struct {
	opts     Options
	assets   string
	dir      *runDir
	logDir   string
	launcher *launcher
	keys     *keys
	etcdURL  string
	etcdArgs []string
	progress *progressWriter
	stop     func() error // stops everything once

	starting      sync.Mutex // held while the controller manager is started; guards the next field
	managerAssets string     // the folder with the controller manager

	mu                sync.Mutex // guards the fields below
	etcd              *process
	controllerManager *process
	apiServers        []*APIServer
	stopped           bool
}

// New starts a control plane and returns once it is usable. After an error, everything is stopped and removed.
func New(ctx context.Context, opts Options) (*Plane, error) {
	c := &Plane{opts: opts, progress: &progressWriter{w: opts.Progress}}
	var err error
	if c.assets, err = findAssets(ctx, opts, c.progress); err != nil {
		return nil, err
	}
	if c.dir, err = newRunDir(); err != nil {
		return nil, err
	}
	c.managerAssets = c.assets
	c.launcher, c.stop = newLauncher(), sync.OnceValue(c.stopAll)
	if err := c.start(ctx); err != nil {
		return nil, errors.Join(err, c.stop())
	}
	return c, nil
}

func (c *Plane) start(ctx context.Context) (err error) {
	c.logDir = c.dir.path
	if c.opts.LogDir != "" {
		// Servers are started with absolute paths, because they must not depend on the caller's folder.
		if c.logDir, err = filepath.Abs(c.opts.LogDir); err != nil {
			return fmt.Errorf("set ControlPlaneOptions.LogDir to another folder: %w", err)
		}
		if err := os.MkdirAll(c.logDir, 0o700); err != nil {
			return fmt.Errorf("set ControlPlaneOptions.LogDir to a writable folder: %w", err)
		}
	}
	if c.keys, err = writeKeys(c.dir.path); err != nil {
		return err
	}
	c.progress.printf("logs in %s", c.logDir)
	if err := c.startEtcd(ctx); err != nil {
		return err
	}
	first, err := c.AddAPIServer(ctx)
	if err != nil {
		return err
	}
	if err := writeKubeconfig(c.Kubeconfig(), first.config); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(c.dir.path, etcdURLFile), []byte(c.etcdURL), 0o600); err != nil {
		return err
	}
	if c.opts.ControllerManager {
		return c.startControllerManager(ctx)
	}
	return nil
}

// Kubeconfig returns the path of the administrator's kubeconfig for the first API server.
func (c *Plane) Kubeconfig() string { return filepath.Join(c.dir.path, "kubeconfig") }

// LogDir returns the folder with one log file per server.
func (c *Plane) LogDir() string { return c.logDir }

// APIServer returns the first API server.
func (c *Plane) APIServer() *APIServer {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.apiServers[0]
}

// User returns the configuration of another user on the first API server.
func (c *Plane) User(name string, groups ...string) (*rest.Config, error) {
	if name == "" {
		return nil, errors.New("give User a name: an empty one is anonymous")
	}
	config, err := c.keys.clientConfig(c.APIServer().config.Host, name, groups)
	if err != nil {
		return nil, fmt.Errorf("client certificate of user %q: %w", name, err)
	}
	return config, nil
}

// Running returns an error if etcd, the first API server or the controller manager no longer runs.
func (c *Plane) Running() error {
	c.mu.Lock()
	etcd, manager, first := c.etcd, c.controllerManager, c.apiServers[0]
	c.mu.Unlock()
	first.mu.Lock()
	apiServer := first.process
	first.mu.Unlock()
	for _, server := range []*process{etcd, apiServer, manager} {
		if server != nil && server.hasExited() {
			return server.endedByItself(server.name + " of the shared control plane")
		}
	}
	if apiServer == nil && !c.dir.borrowed {
		return fmt.Errorf("%s of the shared control plane was stopped", first.name)
	}
	return nil
}

// Stop stops all servers, waits for them and removes the private folder. Later calls return the result of the first.
func (c *Plane) Stop() error { return c.stop() }

func (c *Plane) stopAll() error {
	c.mu.Lock()
	c.stopped = true
	manager, etcd, servers := c.controllerManager, c.etcd, c.apiServers
	c.mu.Unlock()

	var errs []error
	if manager != nil {
		errs = append(errs, manager.stop(controllerManagerGrace))
	}
	results := make(chan error)
	for _, server := range servers {
		go func() { results <- server.Stop() }()
	}
	for range servers {
		errs = append(errs, <-results)
	}
	if etcd != nil {
		errs = append(errs, etcd.stop(etcdGrace))
	}
	// The launcher's thread must not end earlier, because its children die with it.
	c.launcher.close()
	return errors.Join(append(errs, c.dir.remove())...)
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
