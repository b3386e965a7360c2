package controlplane

// This file holds the flags of the control plane's servers, starts the servers and probes them.

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// The grace periods bound the time between SIGTERM and SIGKILL. The API server's own limit is a minute, which only
// requests in flight would use up.
const (
	etcdGrace              = 3 * time.Second
	apiServerGrace         = 5 * time.Second
	controllerManagerGrace = 3 * time.Second
)

// controllers are the controllers that need neither nodes nor volumes nor a cloud.
var controllers = []string{
	"certificatesigningrequest-approving-controller",
	"certificatesigningrequest-cleaner-controller",
	"certificatesigningrequest-signing-controller",
	"clusterrole-aggregation-controller",
	"cronjob-controller",
	"daemonset-controller",
	"deployment-controller",
	"disruption-controller",
	"endpoints-controller",
	"endpointslice-controller",
	"endpointslice-mirroring-controller",
	"garbage-collector-controller",
	"job-controller",
	"namespace-controller",
	"replicaset-controller",
	"replicationcontroller-controller",
	"resourcequota-controller",
	"root-ca-certificate-publisher-controller",
	"serviceaccount-controller",
	"serviceaccount-token-controller",
	"statefulset-controller",
	"storage-version-migrator-controller",
	"ttl-after-finished-controller",
	"validatingadmissionpolicy-status-controller",
}

// startTimeout bounds the start of one server if the caller's context has no deadline. An API server needs about 3 s
// on an idle machine. The rest is for machines that are busy compiling.
const startTimeout = 2 * time.Minute

func (c *Plane) startEtcd(ctx context.Context) error {
	p, _, err := c.startOnFreePort(ctx, "etcd", func(port string) []string {
		c.etcdURL = "https://" + net.JoinHostPort("127.0.0.1", port)
		c.etcdArgs = []string{
			"--name=eirinix",
			"--data-dir=" + c.etcdData(),
			"--listen-client-urls=" + c.etcdURL,
			"--advertise-client-urls=" + c.etcdURL,
			// A single member never dials itself, so any free port works and no client needs to know it.
			"--listen-peer-urls=https://127.0.0.1:0",
			"--cert-file=" + c.keys.certFile("etcd-server"),
			"--key-file=" + c.keys.keyFile("etcd-server"),
			"--client-cert-auth",
			"--trusted-ca-file=" + c.keys.certFile("etcd-ca"),
			"--peer-cert-file=" + c.keys.certFile("etcd-server"),
			"--peer-key-file=" + c.keys.keyFile("etcd-server"),
			"--peer-client-cert-auth",
			"--peer-trusted-ca-file=" + c.keys.certFile("etcd-ca"),
			"--unsafe-no-fsync",
			"--log-level=warn",
		}
		return c.etcdArgs
	}, func(ctx context.Context, _ string) error { return c.etcdReady(ctx) })
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.etcd = p
	return nil
}

func (c *Plane) etcdData() string { return filepath.Join(c.dir.path, "etcd") }

func (c *Plane) etcdReady(ctx context.Context) error {
	return getOK(ctx, c.keys.etcdTLS, c.etcdURL+"/health")
}

func (c *Plane) apiServerArgs(port string, extra []string) []string {
	args := []string{
		"--advertise-address=127.0.0.1",
		"--allow-privileged=true",
		"--authorization-mode=RBAC",
		"--bind-address=127.0.0.1",
		"--client-ca-file=" + c.keys.certFile("ca"),
		"--disable-admission-plugins=ServiceAccount",
		// Endpoints cannot hold loopback addresses, so there is nothing to reconcile.
		"--endpoint-reconciler-type=none",
		"--etcd-cafile=" + c.keys.certFile("etcd-ca"),
		"--etcd-certfile=" + c.keys.certFile("etcd-client"),
		"--etcd-keyfile=" + c.keys.keyFile("etcd-client"),
		"--etcd-servers=" + c.etcdURL,
		"--secure-port=" + port,
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + c.keys.serviceAccountFile,
		"--service-account-signing-key-file=" + c.keys.serviceAccountFile,
		"--service-cluster-ip-range=" + serviceCIDR,
		"--shutdown-delay-duration=0s",
		"--tls-cert-file=" + c.keys.certFile("server"),
		"--tls-private-key-file=" + c.keys.keyFile("server"),
	}
	return append(append(args, c.opts.APIServerArgs...), extra...)
}

// StartControllerManager starts the controller manager, unless it has been started. Its binary may have to be built first.
func (c *Plane) StartControllerManager(ctx context.Context) error {
	c.starting.Lock()
	defer c.starting.Unlock()
	c.mu.Lock()
	started, stopped := c.controllerManager != nil, c.stopped
	c.mu.Unlock()
	if stopped {
		return errStopped
	} else if started {
		return nil
	}
	opts := c.opts
	opts.ControllerManager = true
	var err error
	if c.managerAssets, err = findAssets(ctx, opts, c.progress); err != nil {
		return err
	}
	return c.startControllerManager(ctx)
}

// startControllerManager starts it with an account for each controller, as installers of clusters do, because webhooks
// tell controllers by their accounts.
func (c *Plane) startControllerManager(ctx context.Context) error {
	account, err := c.User("system:kube-controller-manager")
	if err != nil {
		return err
	}
	kubeconfig := filepath.Join(c.dir.path, "controller-manager.kubeconfig")
	if err := writeKubeconfig(kubeconfig, account); err != nil {
		return err
	}
	p, _, err := c.startOnFreePort(ctx, "kube-controller-manager", func(port string) []string {
		return []string{
			"--bind-address=127.0.0.1",
			"--cluster-signing-cert-file=" + c.keys.certFile("ca"),
			"--cluster-signing-key-file=" + c.keys.keyFile("ca"),
			"--controllers=" + strings.Join(controllers, ","),
			"--kube-api-burst=400",
			"--kube-api-qps=200",
			"--kubeconfig=" + kubeconfig,
			"--leader-elect=false",
			"--root-ca-file=" + c.keys.certFile("ca"),
			"--secure-port=" + port,
			"--service-account-private-key-file=" + c.keys.serviceAccountFile,
			"--tls-cert-file=" + c.keys.certFile("server"),
			"--tls-private-key-file=" + c.keys.keyFile("server"),
			"--use-service-account-credentials=true",
		}
	}, func(ctx context.Context, port string) error {
		return getOK(ctx, c.keys.adminTLS, "https://127.0.0.1:"+port+"/healthz")
	})
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.controllerManager = p
	return nil
}

// startOnFreePort starts a server on a free port and waits until ready returns nil. Another process can take the port
// before the server listens on it, so startOnFreePort makes up to five attempts.
func (c *Plane) startOnFreePort(
	ctx context.Context, name string, args func(port string) []string, ready func(context.Context, string) error,
) (*process, string, error) {
	var failure error
	for range 5 {
		port, err := freePort()
		if err != nil {
			return nil, "", err
		}
		p, err := c.startServer(ctx, name, args(port), func(ctx context.Context) error { return ready(ctx, port) })
		if err == nil {
			return p, port, nil
		}
		failure = err
		if !errors.Is(err, errPortTaken) {
			break
		}
	}
	return nil, "", failure
}

// startServer starts a server and waits until ready returns nil. If that fails, the server is killed. A name can have
// a number after the binary's name: kube-apiserver-2 is the second kube-apiserver.
func (c *Plane) startServer(
	ctx context.Context, name string, args []string, ready func(context.Context) error,
) (*process, error) {
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, startTimeout)
		defer cancel()
	}
	started := time.Now()

	assets := c.assets
	if name == allBinaries[2] {
		assets = c.managerAssets
	}
	p, err := c.launcher.start(assets, c.dir.path, c.logDir, name, args)
	if err != nil {
		return nil, err
	}
	if err := p.waitReady(ctx, ready); err != nil {
		p.kill()
		return nil, err
	}
	c.progress.printf("%s is ready after %s", name, time.Since(started).Round(10*time.Millisecond))
	return p, nil
}

// getOK returns nil if the URL answers 200. Each call makes its own connection, so that a probe leaves none open and
// also tests that new connections are accepted.
func getOK(ctx context.Context, config *tls.Config, url string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()

	transport := &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}
	defer transport.CloseIdleConnections()

	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()

	body, err := io.ReadAll(io.LimitReader(response.Body, 64<<10))
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s: %s", url, response.Status, strings.TrimSpace(string(body)))
	}
	return nil
}

func freePort() (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("the control plane needs a free port on 127.0.0.1: %w", err)
	}
	port := listener.Addr().(*net.TCPAddr).Port
	return strconv.Itoa(port), listener.Close()
}
