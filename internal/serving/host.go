package serving

// This file finds out how the program's own controller-runtime manager serves webhooks.

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
)

// HostOf returns the KubeManager's own webhook server if it has certificates, with a copy of its options. So it does if it
// has handlers, because with the first one it sets its CertDir. A server without certificates is switched off, and only the
// options are returned, for the server in its place. Asking for the server has added it to the KubeManager, and without
// certificates it would keep the KubeManager from starting.
func HostOf(mgr manager.Manager, log logr.Logger) (*webhook.DefaultServer, webhook.Options) {
	server, ok := mgr.GetWebhookServer().(*webhook.DefaultServer)
	switch {
	case !ok:
		return nil, webhook.Options{}
	case server.Options.Port < 0: // by the program, or by another Manager, which then has its address and its handlers
		return nil, webhook.Options{TLSOpts: server.Options.TLSOpts}
	}
	o := server.Options
	files := HostFiles(o)
	_, noCertificate := os.Stat(filepath.Join(files.Dir, files.Cert))
	_, noKey := os.Stat(filepath.Join(files.Dir, files.Key))
	if o.CertDir != "" || o.CertName != "" || o.KeyName != "" || errors.Join(noCertificate, noKey) == nil || HasCertificates(o) {
		return server, o
	}
	if o.WebhookMux == nil {
		o.WebhookMux = http.NewServeMux() // to see later what was registered
	}
	server.Options.Port, server.Options.WebhookMux = -1, o.WebhookMux
	log.Info("the KubeManager's own webhook server has no certificates and is switched off; the Manager runs a server of its own, with the TLSOpts of that one, and at its Host and Port if ListenAddress is empty. To use that one, set its CertDir, or register a handler on it, before NewManager")
	return nil, o
}

// Files are the paths of a certificate and its key.
type Files struct{ Dir, Cert, Key string }

// HostFiles returns the certificate files of a webhook server. The defaults are those of controller-runtime.
func HostFiles(o webhook.Options) Files {
	return Files{
		Dir:  cmp.Or(o.CertDir, filepath.Join(os.TempDir(), "k8s-webhook-server", "serving-certs")),
		Cert: cmp.Or(o.CertName, "tls.crt"), Key: cmp.Or(o.KeyName, "tls.key"),
	}
}

// HasCertificates reports whether the TLS options of a server provide a certificate.
func HasCertificates(o webhook.Options) bool {
	config := ChangedTLS(new(tls.Config), o.TLSOpts)
	return config.GetCertificate != nil || len(config.Certificates) > 0
}

// CheckReplaced returns an error for each option of a KubeManager's webhook server that a Server in its place cannot keep,
// and for each change of TLS that a Server cannot keep beside those.
func CheckReplaced(o webhook.Options, change func(*tls.Config)) error {
	errs := []error{CheckTLS("ManagerOptions.KubeManager has a webhook server whose TLSOpts", o.TLSOpts)}
	if errs[0] != nil {
		o.TLSOpts = nil // they are reported once
	}
	errs = append(errs, CheckTLS("ManagerOptions.TLS", append(slices.Clip(o.TLSOpts), change)))
	if o.ClientCAName != "" {
		errs = append(errs, fmt.Errorf("eirinix: ManagerOptions.KubeManager has a webhook server with ClientCAName, but without certificates, so that the Manager's server takes its place; set ClientCA.File to %q in place of it", filepath.Join(HostFiles(o).Dir, o.ClientCAName)))
	}
	if o.WebhookMux == nil {
		return errors.Join(errs...)
	}
	if paths := Registered(o.WebhookMux); len(paths) > 0 {
		errs = append(errs, fmt.Errorf("eirinix: ManagerOptions.KubeManager has a webhook server with handlers, but without certificates, so that the Manager's server takes its place and does not serve %s; add them with AddExtension, or register them before NewManager, so that the other server serves all", strings.Join(paths, ", ")))
	}
	return errors.Join(errs...)
}
