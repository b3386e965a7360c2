package eirinix

// This file makes the Manager a part of the program's own controller-runtime manager, ManagerOptions.KubeManager.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"

	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"code.cloudfoundry.org/eirinix/internal/serving"
)

// join adds the Manager to the KubeManager of the options, so that starting the KubeManager starts the Manager too. The
// caller holds mu, or m is not shared yet.
func (m *ExtensionManager) join() {
	if mgr := m.options.KubeManager; mgr != nil && mgr != m.joined {
		m.joinAnother(mgr)
	}
	if h := m.hostOptions; m.host == nil && m.options.ListenAddress == "" && (h.Host != "" || h.Port > 0) {
		m.options.ListenAddress = net.JoinHostPort(h.Host, strconv.Itoa(cmp.Or(h.Port, webhook.DefaultPort)))
	}
}

func (m *ExtensionManager) joinAnother(mgr manager.Manager) {
	m.joined, m.host, m.hostOptions = mgr, nil, webhook.Options{}
	// Once the KubeManager has started, checks can no longer be added and its webhook server can no longer be
	// configured. A runnable added to it starts at once, before any extension has been added here. In that case the
	// program calls Start or Run.
	name := "eirinix-" + m.options.OperatorFingerprint
	m.hosted = mgr.AddReadyzCheck(name, func(*http.Request) error { return m.readiness.Check() }) != nil
	if m.hosted { // asking for the server could start it, without certificates
		m.log().Info("the KubeManager already runs, so TLSOpts, Host and Port of its webhook server do not apply to the Manager's; use ManagerOptions.TLS and ListenAddress")
	} else {
		m.host, m.hostOptions = serving.HostOf(mgr, m.log())
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
type early struct {
	serving.Placeholder // what makes it a webhook server; the KubeManager hands out its own, and only starts this one
	joined              joined
}

func (e early) Start(ctx context.Context) error { return e.joined.Start(ctx) }

// startEarly makes the KubeManager start this Manager before its caches. The caller holds mu.
func (m *ExtensionManager) startEarly() error {
	if m.joined == nil || m.hosted {
		return nil
	}
	if err := m.joined.Add(early{serving.Placeholder{Ready: m.readiness.Check}, joined{m: m, mgr: m.joined}}); err != nil {
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

// validateHosted returns an error for each option that conflicts with the KubeManager or its webhook server, and for each
// of that server's options which the server in its place cannot keep. It runs functions of the program, and so without mu.
func (m *ExtensionManager) validateHosted() error {
	m.mu.Lock()
	o, host, given := m.options, m.host, m.hostOptions
	m.mu.Unlock()
	var errs []error
	badIf := func(wrong bool, format string, args ...any) {
		if wrong {
			errs = append(errs, fmt.Errorf("eirinix: ManagerOptions."+format, args...))
		}
	}
	badIf(o.KubeManager != nil && (o.RestConfig != nil || o.KubeConfig != ""), "KubeManager is set, and RestConfig or KubeConfig too; leave them out, the KubeManager has a connection")
	badIf(o.KubeManager != nil && (o.MetricsBindAddress != "" || o.HealthProbeBindAddress != ""), "KubeManager is set, and MetricsBindAddress or HealthProbeBindAddress too; set them on the KubeManager, which serves metrics and probes for all its parts")
	if host == nil {
		errs = append(errs, serving.CheckReplaced(given, o.TLS))
		return errors.Join(errs...)
	}
	badIf(o.TLS != nil, "TLS is set, but the KubeManager's webhook server, which has certificates of its own, is the one that serves; set its TLSOpts")
	badIf(!o.ClientCA.isZero(), "ClientCA is set, but the KubeManager's webhook server, which has certificates of its own, is the one that serves; set ClientCAName on that")
	badIf(o.ListenAddress != "", "ListenAddress is %q, but the KubeManager's webhook server, which has certificates of its own, is the one that listens; set its Host and Port", o.ListenAddress)
	badIf(o.Certificates == nil && serving.HasCertificates(given), "KubeManager has a webhook server whose TLSOpts provide a certificate without its CA; set Certificates to the source of both")
	return errors.Join(errs...)
}

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
