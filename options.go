package eirinix

// This file declares the options of a Manager, with their defaults, and validates them and everything that was added.

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"code.cloudfoundry.org/eirinix/internal/ca"
	"code.cloudfoundry.org/eirinix/internal/seam"
	"code.cloudfoundry.org/eirinix/internal/serving"
	"code.cloudfoundry.org/eirinix/internal/slogcore"
	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

// The defaults of options. The values of EiriniX are kept, because programs rely on them.
const (
	defaultFingerprint     = "eirini-x"
	defaultPort            = 443
	defaultMaxRequestBytes = 32 << 20 // 3 MiB request, escaped six-fold, + 1.5 MiB stored, escaped six-fold, + envelope
	defaultCALifetime      = 10 * 365 * 24 * time.Hour
	defaultLeafLifetime    = 7 * 24 * time.Hour // short, because a serving certificate is never stored: losing one costs nothing
	defaultServiceDrain    = 5 * time.Second
)

// ManagerOptions configures where the extensions are served, for which pods, and how the Manager connects to the
// cluster. The zero value of each field is a sensible default, except that URL mode needs Host, and Service mode needs
// ServiceName and, outside of a pod, WebhookNamespace. Validate reports all errors at once.
type ManagerOptions struct {
	// Namespace is the namespace of the pods that are sent to the extensions, and that watchers and reconcilers see.
	// Empty means all namespaces except the cluster's own (kube-system, kube-node-lease, kube-public) and, in Service
	// mode, the webhook's.
	Namespace string

	// Host, in URL mode, is the host name or IP address (IPv4 or IPv6) at which the API server calls this program. It
	// becomes part of the webhook's URL and of the serving certificate. In Service mode it is the address to listen on,
	// and empty means all addresses.
	Host string

	// Port is the port in the webhook's URL, or the port of the Service. It is also the port to listen on, unless
	// ListenAddress sets another one. 0 means 443, or in URL mode the port of ListenAddress if that has one.
	Port int32

	// KubeConfig is the path of a kubeconfig file. Empty means the service account of the pod, else $KUBECONFIG, else
	// ~/.kube/config.
	KubeConfig string

	// RestConfig is used as the connection instead of a kubeconfig.
	RestConfig *rest.Config

	// OperatorFingerprint is the prefix of the names of the Manager's objects in the cluster: the Secret
	// <fingerprint>-setupcertificate and the configurations <fingerprint>-mutating-hook and
	// <fingerprint>-validating-hook. Two programs in one cluster need different fingerprints. Default "eirini-x".
	OperatorFingerprint string

	// Domain is the suffix of webhook names, <step or group>.<fingerprint>.<domain>, which users see in denials.
	// Default "eirinix.cloudfoundry.org".
	Domain string

	// SetupCertificateName is the name of the certificate Secret. Default <fingerprint>-setupcertificate.
	SetupCertificateName string

	// SetupCertificate set to false makes the Manager never create or repair the certificate Secret. It then waits
	// until another process has created it, such as RegisterExtensions in a split deployment. RotateCA changes the
	// Secret all the same. Default true.
	SetupCertificate *bool

	// RegisterWebHook set to false makes the Manager serve without writing the webhook configuration. It is for the
	// serving half of a split deployment, whose other half calls RegisterExtensions. Default true.
	RegisterWebHook *bool

	// ServiceName selects Service mode: the API server calls this Service in WebhookNamespace.
	ServiceName string

	// WebhookNamespace is the namespace of the Service and of the certificate Secret. With ServiceName it defaults to the
	// pod's own namespace; outside of a pod, and for package manifests, it is required then. If it is empty, the Secret is in
	// Namespace, else in the pod's own namespace, else in the namespace of the kubeconfig's context, else in "default".
	WebhookNamespace string
	ownNamespace     string         // that WebhookNamespace has by default
	lifetimes        seam.Lifetimes // of tests

	// ListenAddress ("host:port") is the address to listen on if it differs from the registered one, for example behind
	// a load balancer or with a container port. If it is empty, Service mode listens on Host:Port. URL mode listens on
	// Port, at Host if that is an IP address, else at all addresses. Where the Manager's server takes the place of a
	// KubeManager's, the default is Host and Port of that one (empty: all addresses, 0: 9443) if either of them is set.
	//
	// Port 0 in ListenAddress picks a free port, which Addr returns. In URL mode, if the option Port is 0 too, the URL
	// contains the picked port.
	ListenAddress string

	// FailurePolicy decides about a pod whose call fails: Fail (default) refuses it, Ignore admits it unchanged.
	FailurePolicy *admissionregistrationv1.FailurePolicyType

	// ModesConfigMap is the name of a ConfigMap that changes the modes of steps while the program runs. It is in the namespace of
	// the certificate Secret, and need not exist. Its keys are the names of steps. A value has one line for each mode:
	// the mode, for part of the objects a percentage, and for part of the namespaces "where" with a selector of labels.
	// The first line that fits applies, else Settings.Mode:
	//
	//	Deny where team in (a, b)
	//	Warn 10%
	//	Audit
	//
	// An object draws one number, by its name or generateName, so that it stays in its percentage. An entry that cannot
	// be used is logged, and the last good one stays in force.
	ModesConfigMap string

	// FilterEiriniApps limits extensions and watchers to Cloud Foundry applications, which are the pods with the label
	// LabelSourceType=APP. Default false (EiriniX: true).
	FilterEiriniApps *bool

	// WatcherStartRV is the resourceVersion after which watchers receive events. Empty means from now on.
	WatcherStartRV string

	// Context is the parent of the context that GetContext returns and of the contexts of handlers. When it ends, the
	// Manager stops. Default context.Background.
	Context *context.Context

	// Logger receives all log lines. The default is zap's production logger on standard error: readable lines if that is a
	// terminal, else JSON with times in RFC 3339.
	Logger *zap.SugaredLogger

	// Logr is a logger of go-logr to use instead of Logger. It needs a sink. GetLogger and GetManagerOptions return it as a
	// Logger that writes to it. logr.FromSlogHandler makes one of a handler of log/slog.
	Logr logr.Logger

	// KubeManager is the program's own controller-runtime manager. The Manager becomes a part of it, and uses its
	// connection, scheme, cache, leader election and metrics. Starting the KubeManager starts the Manager too. Either
	// the program starts it, or Start or Run does, but not both. If the KubeManager is already running when NewManager
	// is called, call Start or Run.
	//
	// If the KubeManager's webhook server has certificates of its own, that server serves the extensions. The
	// certificates are in CertDir, or in the files in which controller-runtime looks for them by default, with the CA's
	// in ca.crt. It also serves them if a handler was registered on it before NewManager. Otherwise a server of the Manager's
	// own takes its place, with its TLSOpts and, in the first Manager, at its Host and Port. Validate and Start then return
	// an error that names the handlers registered later, which would not be served. The webhook server of a KubeManager that
	// is already running is left alone. Several Managers, each with its own fingerprint, can share a KubeManager.
	KubeManager manager.Manager

	// Scheme is the scheme of typed steps and of GetKubeManager's client, if they need more than the built-in types.
	// Empty means the scheme of KubeManager, if that is set.
	Scheme *runtime.Scheme

	// UnregisterOnStop removes the webhook configuration when the Manager stops. It is for development on a laptop. In
	// a cluster, pods would be admitted unchanged during every restart. Default false.
	UnregisterOnStop bool

	// MetricsBindAddress ("host:port") is the address that serves Prometheus metrics at /metrics. Empty means that they
	// are not served.
	//
	// On a loopback address or "localhost", which can only be reached from the same machine or pod, the metrics are
	// served over plain HTTP. On any other address they are served over HTTPS, to clients with a bearer token that are
	// allowed to get the non-resource URL /metrics. To check that, the program needs the right to create TokenReviews
	// and SubjectAccessReviews. The certificate is that of the webhook, or a self-signed one as long as there is none.
	MetricsBindAddress string

	// MetricsUnauthenticated serves metrics on any address over plain HTTP, to every client that can reach the port.
	MetricsUnauthenticated bool

	// TracerProvider makes a span for each call, which continues the trace of the API server, and one for each run of a
	// step, whose context has it. Log lines about the call, exemplars of the durations in the metrics, and recorded calls
	// carry the trace's ID. A client can ask for its call to be sampled, so let the provider's sampler bound that. The
	// program shuts the provider down, after Run has returned. nil means that nothing is traced. See docs/operate.md#traces.
	TracerProvider trace.TracerProvider

	// HealthProbeBindAddress ("host:port") is the address that serves /healthz and /readyz over plain HTTP. Empty means
	// none. The webhook's own port always serves both, over HTTPS.
	HealthProbeBindAddress string

	// MaxRequestBytes is the maximum size of one AdmissionReview. 0 means 32 MiB, which is enough for any object that
	// the API server accepts: a legal 1 MB object arrives as a 12 MB review. It also is that of one ConversionReview, in
	// which API servers send one object.
	MaxRequestBytes int64

	// CALifetime is the lifetime of a new CA of the Manager's own, at least 16 days. The default is ten years. It is
	// replaced at half of that.
	CALifetime time.Duration

	// DrainDelay is the time for which a stopping Manager continues to serve after it reports itself not ready.
	// Services stop sending calls in that time. 0 means 5 s in Service mode and none in URL mode. A negative value
	// means none.
	DrainDelay time.Duration

	// Certificates is the source of serving certificates: FromFiles, FromSecret or FromCSR. nil means a CA of the
	// Manager's own, which is kept in the certificate Secret and needs no maintenance. With another source that Secret
	// is not used.
	Certificates CertificateSource

	// ClientCA certifies the clients that may call. Without it, every client that can reach the port may call. The
	// reason is that API servers present no client certificate unless they are configured to (see
	// docs/certificates.md#who-may-call). Health endpoints are open to every client.
	ClientCA ClientCA

	// TLS changes the TLS configuration of the webhook's port, which has MinVersion TLS 1.2 and NextProtos http/1.1, and to
	// which the TLSOpts of a KubeManager's webhook server were applied before. Validate tries it, and returns an error for what
	// it must leave alone: versions below TLS 1.2, certificates, ClientAuth, ClientCAs and GetConfigForClient. TLS and TLSOpts
	// are called several times, and by several Managers at once.
	TLS func(*tls.Config)

	// KeyAlgorithm is the type of newly generated keys: ECDSA-P256 (default), ECDSA-P384, RSA-2048, RSA-3072 or
	// RSA-4096. An existing CA keeps its key until it is rotated.
	KeyAlgorithm string
}

// withDefaults fills in the defaults that EiriniX's programs expect from GetManagerOptions.
func (o ManagerOptions) withDefaults() ManagerOptions {
	o.OperatorFingerprint = cmp.Or(o.OperatorFingerprint, defaultFingerprint)
	o.SetupCertificateName = cmp.Or(o.SetupCertificateName, certificateName(o.OperatorFingerprint))
	o.FailurePolicy = cmp.Or(o.FailurePolicy, new(admissionregistrationv1.Fail))
	o.FilterEiriniApps = cmp.Or(o.FilterEiriniApps, new(false))
	o.RegisterWebHook = cmp.Or(o.RegisterWebHook, new(true))
	o.SetupCertificate = cmp.Or(o.SetupCertificate, new(true))
	if o.serviceMode() && o.WebhookNamespace == "" {
		o.ownNamespace = podNamespace()
		o.WebhookNamespace = o.ownNamespace
	}
	switch {
	case o.Logger != nil: // if Logr is set too, Validate returns an error
	case o.Logr.GetSink() != nil:
		o.Logger = zap.New(slogcore.New(logr.ToSlogHandler(o.Logr)), zap.AddCaller()).Sugar()
		o.Logr = logr.Logger{}
	default:
		o.Logger = slogcore.NewDefault()
	}
	return o
}

// podNamespaceFile is the file in which the kubelet provides a pod's namespace. Specs have another one.
var podNamespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// podNamespace returns the namespace of the pod that this process runs in, or "" outside of a pod.
func podNamespace() string {
	text, _ := os.ReadFile(podNamespaceFile)
	return strings.TrimSpace(string(text))
}

func certificateName(fingerprint string) string { return fingerprint + "-setupcertificate" }

// versionsName returns the name of the Lease that holds the records of a program's versions.
func (o ManagerOptions) versionsName() string { return o.OperatorFingerprint + "-versions" }

// serviceMode reports whether the API server calls the program through a Service.
func (o ManagerOptions) serviceMode() bool { return o.ServiceName != "" }

// port returns the registered port. In URL mode it defaults to the port of ListenAddress.
func (o ManagerOptions) port() int32 {
	if o.Port != 0 || o.ListenAddress == "" || o.serviceMode() {
		return cmp.Or(o.Port, defaultPort)
	}
	_, port, _ := o.listen()
	return cmp.Or(int32(port), defaultPort)
}

// host returns Host without the brackets of an IPv6 literal.
func (o ManagerOptions) host() string {
	return strings.TrimSuffix(strings.TrimPrefix(o.Host, "["), "]")
}

// listen returns the address to listen on. Port 0 requests a free port.
func (o ManagerOptions) listen() (host string, port int, err error) {
	if o.ListenAddress != "" {
		host, service, err := net.SplitHostPort(o.ListenAddress)
		if err != nil {
			return "", 0, err
		}
		n, err := strconv.ParseUint(service, 10, 16)
		if err != nil {
			return "", 0, fmt.Errorf("port %q is not a number from 0 to 65535", service)
		}
		return host, int(n), nil
	}
	if !o.serviceMode() && !isIP(o.host()) {
		return "", int(o.port()), nil
	}
	return o.host(), int(o.port()), nil
}

// servingHosts returns the names and addresses that a serving certificate is issued for.
func (o ManagerOptions) servingHosts() []string {
	if o.serviceMode() {
		name := o.ServiceName + "." + o.WebhookNamespace
		return []string{name + ".svc", name + ".svc.cluster.local"}
	}
	return []string{o.host()}
}

// calledHosts returns the hosts that the API server calls, which every serving certificate must be valid for.
func (o ManagerOptions) calledHosts() []string { return o.servingHosts()[:1] }

// drainDelay returns DrainDelay with its default resolved.
func (o ManagerOptions) drainDelay() time.Duration {
	switch {
	case o.DrainDelay != 0:
		return max(o.DrainDelay, 0)
	case o.serviceMode():
		return defaultServiceDrain
	}
	return 0
}

// webhookOptions returns the options of the configurations. port is the port that the API server calls.
func (o ManagerOptions) webhookOptions(port int32) webhookconf.Options {
	return webhookconf.Options{
		Fingerprint: o.OperatorFingerprint,
		Target:      webhookconf.Target{Service: o.ServiceName, Namespace: o.WebhookNamespace, Host: o.host(), Port: port},
		Namespace:   o.Namespace,
		Domain:      o.Domain,
	}
}

func (o ManagerOptions) caLifetime() time.Duration {
	return cmp.Or(o.CALifetime, defaultCALifetime)
}

// retain returns the time for which an old CA stays trusted: within it, every replica has replaced a serving certificate
// that the old CA signed.
func (o ManagerOptions) retain() time.Duration {
	return cmp.Or(o.lifetimes.Retain, o.leafLifetime()+o.leafLifetime()/10)
}

func (o ManagerOptions) leafLifetime() time.Duration {
	return cmp.Or(o.lifetimes.Leaf, defaultLeafLifetime)
}

func isIP(host string) bool {
	_, err := netip.ParseAddr(host)
	return err == nil
}

// Validate checks the options and everything that was added. It returns all errors, joined by errors.Join, each with
// its remedy. It touches neither the network nor files, and does not compile Settings.Conditions.
func (m *ExtensionManager) Validate() error {
	hosted := m.validateHosted()
	m.mu.Lock()
	defer m.mu.Unlock()
	// A program that only watches or reconciles is never called, and needs no address.
	called := m.serves() || len(m.watchers)+len(m.reconcilers) == 0
	return m.setup.validate(called, hosted)
}

// validate returns all errors in the options and in what was added, with those of hosted in between.
func (s setup) validate(needsHost bool, hosted error) error {
	return errors.Join(s.options.validate(needsHost), hosted, errors.Join(s.addErrors...), s.check())
}

// validate returns all errors in the options, each with its remedy. needsHost is false for programs that only watch or
// reconcile, because those are never called.
func (o ManagerOptions) validate(needsHost bool) error {
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("eirinix: ManagerOptions."+format, args...))
	}
	badIf := func(wrong bool, format string, args ...any) {
		if wrong {
			bad(format, args...)
		}
	}
	checkName := func(option, value string, check func(string) []string) {
		if problems := check(value); value != "" && len(problems) > 0 {
			rule, _, _ := strings.Cut(problems[0], " (e.g.") // the regular expression of the rule follows
			bad("%s is %q: %s", option, value, rule)
		}
	}
	checkName("Namespace", o.Namespace, validation.IsDNS1123Label)
	checkName("WebhookNamespace", o.WebhookNamespace, validation.IsDNS1123Label)
	checkName("ServiceName", o.ServiceName, validation.IsDNS1035Label)
	checkName("Domain", o.Domain, validation.IsDNS1123Subdomain)
	checkName("OperatorFingerprint", o.OperatorFingerprint, validation.IsDNS1123Label)
	if o.SetupCertificateName != certificateName(o.OperatorFingerprint) {
		checkName("SetupCertificateName", o.SetupCertificateName, validation.IsDNS1123Subdomain)
	}

	badIf(o.ServiceName != "" && o.WebhookNamespace == "",
		"ServiceName is %q but WebhookNamespace is empty, and this process runs in no pod whose namespace it could be; set it to that Service's namespace", o.ServiceName)
	o.validateHost(needsHost, bad)
	badIf(o.Port < 0 || o.Port > 65535, "Port is %d; give a port from 1 to 65535, or 0 for %d", o.Port, defaultPort)
	if host, port, err := o.listen(); err != nil {
		bad("ListenAddress is %q: %w; give host:port, such as \"0.0.0.0:9443\", \"[::1]:9443\" or \":0\"", o.ListenAddress, err)
	} else if listen := net.JoinHostPort(host, strconv.Itoa(port)); needsHost {
		for _, other := range []struct{ option, address string }{{"MetricsBindAddress", o.MetricsBindAddress}, {"HealthProbeBindAddress", o.HealthProbeBindAddress}} {
			badIf(serving.Collide(listen, other.address), "%s has port %d, on which webhooks are served; give it another", other.option, port)
		}
	}
	if p := o.FailurePolicy; p != nil && *p != admissionregistrationv1.Fail && *p != admissionregistrationv1.Ignore {
		bad("FailurePolicy is %q; it must be Fail or Ignore", *p)
	}
	badIf(o.Logger != nil && o.Logr.GetSink() != nil, "Logger and Logr are both set; keep one of them")
	if problems := validation.IsDNS1123Subdomain(o.ModesConfigMap); o.ModesConfigMap != "" && len(problems) > 0 {
		bad("ModesConfigMap is %q; give the name of a ConfigMap: %s", o.ModesConfigMap, problems[0])
	}
	badIf(o.KubeConfig != "" && o.RestConfig != nil, "KubeConfig is %q and RestConfig is set too; give one of them", o.KubeConfig)
	badIf(o.Context != nil && *o.Context == nil, "Context points at a nil context; leave it out or point it at a context")
	badIf(o.MaxRequestBytes < 0, "MaxRequestBytes is %d; give a number of bytes, or 0 for %d", o.MaxRequestBytes, defaultMaxRequestBytes)
	o.ClientCA.validate(bad)
	o.validateSource(bad)
	if err := ca.KeyAlgorithm(o.KeyAlgorithm).Validate(); err != nil {
		bad("KeyAlgorithm: %v", err)
	}
	badIf(o.CALifetime < 0 || o.lifetimes.Leaf < 0 || o.lifetimes.Retain < 0, "CALifetime, or a lifetime of a test, is negative (%s, %s, %s); give positive ones, or 0 for the defaults", o.CALifetime, o.lifetimes.Leaf, o.lifetimes.Retain)
	if least := max(2*o.retain(), o.leafLifetime()); o.CALifetime >= 0 && o.caLifetime() <= least {
		bad("CALifetime is %s, so that a CA would end while the one before it is still trusted, or a certificate that it signed is valid; give more than %s", o.caLifetime(), least)
	}
	return errors.Join(errs...)
}

func (o ManagerOptions) validateHost(needed bool, bad func(string, ...any)) {
	host := o.host()
	if host == "" {
		if needed && !o.serviceMode() {
			bad("Host is empty; set it to the name or IP address under which the API server reaches this program, or set ServiceName and WebhookNamespace")
		}
		return
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		if ip.IsUnspecified() && !o.serviceMode() {
			bad("Host is %q, which no client can call; set it to the name or IP address under which the API server reaches this program (and ListenAddress to %q), or set ServiceName and WebhookNamespace", o.Host, net.JoinHostPort(host, strconv.Itoa(int(o.port()))))
		}
		return
	}
	// A name with a trailing dot can be resolved, but a certificate cannot hold it.
	if problems := validation.IsDNS1123Subdomain(strings.ToLower(host)); len(problems) > 0 {
		bad("Host is %q; give a DNS name or an IP address alone, without scheme or port: %s", o.Host, problems[0])
	}
}
