package eirinix

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"code.cloudfoundry.org/eirinix/internal/serving"
)

// join makes the Manager part of the KubeManager of the options: whoever starts that one, starts this one. It is called
// under mu, or before m is shared.
func (m *ExtensionManager) join() {
	mgr := m.options.KubeManager
	if mgr == nil || m.joined == mgr {
		return
	}
	m.joined, m.host = mgr, nil
	// After the manager has started, checks cannot be added, its webhook server is what it is, and what is added to it
	// runs at once, before anything was added here: then the program calls Start or Run.
	name := "eirinix-" + m.options.OperatorFingerprint
	m.hosted = mgr.AddReadyzCheck(name, func(*http.Request) error { return m.checkReady() }) != nil
	if !m.hosted {
		if m.host = hostOf(mgr, m.log()); m.host != nil {
			m.hostOptions = m.host.Options // it fills in its defaults when it starts, which is not ours to watch
		}
	}
	if err := mgr.Add(joined{m: m, mgr: mgr, late: m.hosted}); err != nil {
		m.addErrors = append(m.addErrors, fmt.Errorf("eirinix: ManagerOptions.KubeManager cannot take in the Manager: %w", err))
	}
}

// joined is a Manager as a part of a controller-runtime manager. Every replica serves, the leader or not.
type joined struct {
	m    *ExtensionManager
	mgr  manager.Manager
	late bool // the manager ran already
}

func (joined) NeedLeaderElection() bool { return false }

// Start runs the Manager until ctx ends, unless Start, Run or RegisterExtensions was called: then the program has said
// what it wants.
func (j joined) Start(ctx context.Context) error {
	j.m.mu.Lock()
	waits := j.late || j.m.started || j.m.onlyRegisters || j.m.options.KubeManager != j.mgr
	j.m.mu.Unlock()
	if !waits {
		return j.m.runIn(ctx)
	}
	<-ctx.Done()
	j.m.mu.Lock()
	ours := j.m.options.KubeManager == j.mgr && j.m.started
	j.m.mu.Unlock()
	if ours {
		j.m.Stop() // it lives on this manager's cache, and perhaps its server
	}
	return nil
}

// runIn is Run within a manager that runs already.
func (m *ExtensionManager) runIn(ctx context.Context) error {
	m.mu.Lock()
	m.hosted = true
	m.mu.Unlock()
	return m.Run(ctx)
}

// hostOf gives the manager's own webhook server if it has certificates. One that has none, and that the program has put
// nothing on, is switched off: asking for it has made it a part of the manager, which it would keep from starting.
func hostOf(mgr manager.Manager, log logr.Logger) *webhook.DefaultServer {
	server, ok := mgr.GetWebhookServer().(*webhook.DefaultServer)
	if !ok || server.Options.Port < 0 {
		return nil
	}
	o := server.Options
	if o.CertDir != "" || o.CertName != "" || o.KeyName != "" || hasCertificates(o) {
		return server
	}
	files := hostFiles(o)
	for _, name := range []string{files.cert, files.key} {
		if _, err := os.Stat(filepath.Join(files.dir, name)); err != nil {
			server.Options.Port = -1
			log.Info("the KubeManager's own webhook server has no certificates and is switched off, a server of ours listens; if it is to serve, set its CertDir, or put something on it before NewManager")
			return nil
		}
	}
	return server
}

// hostFiles are the certificates of a manager's own webhook server, and the CA's where cert-manager puts it. The defaults are
// controller-runtime's.
func hostFiles(o webhook.Options) fromFiles {
	return fromFiles{
		dir:  cmp.Or(o.CertDir, filepath.Join(os.TempDir(), "k8s-webhook-server", "serving-certs")),
		cert: cmp.Or(o.CertName, "tls.crt"), key: cmp.Or(o.KeyName, "tls.key"), ca: "ca.crt",
	}
}

// declaredPort is the port that the API server is told, where nothing listens yet.
func (m *ExtensionManager) declaredPort() int32 {
	m.mu.Lock()
	defer m.mu.Unlock()
	o := m.options
	if m.host != nil && o.Port == 0 && !o.serviceMode() {
		return int32(cmp.Or(m.hostOptions.Port, webhook.DefaultPort))
	}
	return o.port()
}

// validateHosted tells which options the KubeManager's own servers leave no room for.
func (m *ExtensionManager) validateHosted() error {
	o := m.options
	if o.KubeManager == nil {
		return nil
	}
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("eirinix: ManagerOptions."+format, args...))
	}
	if o.RestConfig != nil || o.KubeConfig != "" {
		bad("KubeManager is set, and RestConfig or KubeConfig too; leave them out, the KubeManager has a connection")
	}
	if o.MetricsBindAddress != "" || o.HealthProbeBindAddress != "" {
		bad("KubeManager is set, and MetricsBindAddress or HealthProbeBindAddress too; set them on the KubeManager, which serves metrics and probes for all its parts")
	}
	if m.host == nil {
		return errors.Join(errs...)
	}
	if !o.ClientCA.isZero() {
		bad("ClientCA is set, but the KubeManager's webhook server, which has certificates of its own, is the one that serves; set ClientCAName on that")
	}
	if o.ListenAddress != "" {
		bad("ListenAddress is %q, but the KubeManager's webhook server, which has certificates of its own, is the one that listens; set its Host and Port", o.ListenAddress)
	}
	if o.Certificates == nil && hasCertificates(m.hostOptions) {
		bad("KubeManager has a webhook server whose TLSOpts give the certificate, which tells no CA; set Certificates to where they come from")
	}
	return errors.Join(errs...)
}

// hasCertificates tells whether the TLS options of a server give a certificate.
func hasCertificates(o webhook.Options) bool {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	for _, change := range o.TLSOpts {
		change(config)
	}
	return config.GetCertificate != nil || len(config.Certificates) > 0
}

// server is what the API server's calls arrive at.
type server interface {
	Start(ctx context.Context) error
	Done() <-chan struct{} // closed when it has ended
	Err() error
	Drain()
	Draining() bool
	Shutdown(ctx context.Context) error
	Addr() net.Addr
	Port() int
}

var (
	_ server = (*serving.Server)(nil)
	_ server = (*serving.Hosted)(nil)
)

// pathPrefix is what the paths begin with that are registered: on a server that others use too, the fingerprint.
func (m *ExtensionManager) pathPrefix() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.host == nil {
		return ""
	}
	return "/" + m.options.OperatorFingerprint
}
