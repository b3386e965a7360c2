package eirinix

// This file makes the Manager a part of the program's own controller-runtime manager, ManagerOptions.KubeManager.

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"code.cloudfoundry.org/eirinix/internal/serving"
)

// join adds the Manager to the KubeManager of the options, so that starting the KubeManager starts the Manager too. The
// caller holds mu, or m is not shared yet.
func (m *ExtensionManager) join() {
	mgr := m.options.KubeManager
	if mgr == nil || m.joined == mgr {
		return
	}
	m.joined, m.host = mgr, nil
	// Once the KubeManager has started, checks can no longer be added and its webhook server can no longer be
	// configured. A runnable added to it starts at once, before any extension has been added here. In that case the
	// program calls Start or Run.
	name := "eirinix-" + m.options.OperatorFingerprint
	m.hosted = mgr.AddReadyzCheck(name, func(*http.Request) error { return m.checkReady() }) != nil
	if !m.hosted {
		if m.host = hostOf(mgr, m.log()); m.host != nil {
			m.hostOptions = m.host.Options // a copy: the server sets defaults in its own Options when it starts
		}
	}
	if err := mgr.Add(joined{m: m, mgr: mgr, late: m.hosted}); err != nil {
		m.addErrors = append(m.addErrors, fmt.Errorf("eirinix: ManagerOptions.KubeManager cannot run the Manager: %w", err))
	}
}

// joined is a Manager as a runnable of a controller-runtime manager. Every replica serves, whether it is the leader or
// not.
type joined struct {
	m    *ExtensionManager
	mgr  manager.Manager
	late bool // the KubeManager was already running
}

func (joined) NeedLeaderElection() bool { return false }

// early is a joined that a KubeManager starts before its caches, as it starts webhook servers. A cache can hold objects
// that only this program converts.
type early struct{ joined }

var _ webhook.Server = early{}

// Register does nothing: the KubeManager hands out its own webhook server.
func (early) Register(string, http.Handler) {}

// WebhookMux returns nil, as a server does on which nothing was registered.
func (early) WebhookMux() *http.ServeMux { return nil }

// StartedChecker reports whether the Manager is ready.
func (e early) StartedChecker() healthz.Checker {
	return func(*http.Request) error { return e.m.checkReady() }
}

// startEarly makes the KubeManager start this Manager before its caches. The caller holds mu.
func (m *ExtensionManager) startEarly() error {
	if m.joined == nil || m.hosted {
		return nil
	}
	if err := m.joined.Add(early{joined{m: m, mgr: m.joined}}); err != nil {
		return fmt.Errorf("eirinix: ManagerOptions.KubeManager cannot run the Manager: %w", err)
	}
	return nil
}

// Start runs the Manager until ctx ends. It only waits for the end of ctx if the program has called Start, Run or
// RegisterExtensions itself, or if the KubeManager was already running. It then stops a Manager that was started on
// this KubeManager.
func (j joined) Start(ctx context.Context) error {
	j.m.mu.Lock()
	waits := j.late || j.m.entered || j.m.started || j.m.onlyRegisters || j.m.options.KubeManager != j.mgr
	if !waits {
		j.m.entered, j.m.hosted = true, true
	}
	j.m.mu.Unlock()
	if !waits {
		return j.m.Run(ctx)
	}
	<-ctx.Done()
	j.m.mu.Lock()
	ours := j.m.options.KubeManager == j.mgr && j.m.started
	j.m.mu.Unlock()
	if ours {
		j.m.Stop() // it uses the cache of this KubeManager, and perhaps its server
	}
	return nil
}

// hostOf returns the KubeManager's own webhook server if it has certificates. A server without certificates on which
// the program has registered nothing is switched off. Asking for the server has added it to the KubeManager, and
// without certificates it would keep the KubeManager from starting.
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
			log.Info("the KubeManager's own webhook server has no certificates and is switched off; the Manager runs a server of its own. To use that one, set its CertDir, or register a handler on it before NewManager")
			return nil
		}
	}
	return server
}

// declaredPort returns the port that is registered while no server listens yet.
func (m *ExtensionManager) declaredPort() int32 {
	m.mu.Lock()
	defer m.mu.Unlock()
	o := m.options
	if m.host != nil && o.Port == 0 && !o.serviceMode() {
		return int32(cmp.Or(m.hostOptions.Port, webhook.DefaultPort))
	}
	return o.port()
}

// validateHosted returns an error for each option that conflicts with the KubeManager or its webhook server.
func (m *ExtensionManager) validateHosted() error {
	o := m.options
	if o.KubeManager == nil {
		return nil
	}
	var errs []error
	badIf := func(wrong bool, format string, args ...any) {
		if wrong {
			errs = append(errs, fmt.Errorf("eirinix: ManagerOptions."+format, args...))
		}
	}
	badIf(o.RestConfig != nil || o.KubeConfig != "",
		"KubeManager is set, and RestConfig or KubeConfig too; leave them out, the KubeManager has a connection")
	badIf(o.MetricsBindAddress != "" || o.HealthProbeBindAddress != "",
		"KubeManager is set, and MetricsBindAddress or HealthProbeBindAddress too; set them on the KubeManager, which serves metrics and probes for all its parts")
	if m.host == nil {
		return errors.Join(errs...)
	}
	badIf(!o.ClientCA.isZero(),
		"ClientCA is set, but the KubeManager's webhook server, which has certificates of its own, is the one that serves; set ClientCAName on that")
	badIf(o.ListenAddress != "",
		"ListenAddress is %q, but the KubeManager's webhook server, which has certificates of its own, is the one that listens; set its Host and Port", o.ListenAddress)
	badIf(o.Certificates == nil && hasCertificates(m.hostOptions),
		"KubeManager has a webhook server whose TLSOpts provide a certificate without its CA; set Certificates to the source of both")
	return errors.Join(errs...)
}

// hasCertificates reports whether the TLS options of a server provide a certificate.
func hasCertificates(o webhook.Options) bool {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	for _, change := range o.TLSOpts {
		change(config)
	}
	return config.GetCertificate != nil || len(config.Certificates) > 0
}

var (
	_ server = (*serving.Server)(nil)
	_ server = (*serving.Hosted)(nil)
)

// pathPrefix returns the prefix of the registered paths. On a server that the program also uses itself, it is the
// fingerprint.
func (m *ExtensionManager) pathPrefix() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.host == nil {
		return ""
	}
	return "/" + m.options.OperatorFingerprint
}
