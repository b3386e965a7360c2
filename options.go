package eirinix

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// What an option left out means. The numbers of EiriniX are kept: programs rely on them.
const (
	defaultFingerprint     = "eirini-x"
	defaultPort            = 443
	defaultMaxRequestBytes = 32 << 20 // 3 MiB request, escaped six-fold, + 1.5 MiB stored, escaped six-fold, + envelope
	defaultCALifetime      = 10 * 365 * 24 * time.Hour
	defaultLeafLifetime    = 7 * 24 * time.Hour
	defaultServiceDrain    = 5 * time.Second
)

// ManagerOptions says where the extensions are served, for which pods, and how the Manager reaches the
// cluster. The zero value of each field is a sensible default; URL mode needs Host, Service mode needs
// ServiceName and WebhookNamespace. Validate tells everything that is wrong at once.
type ManagerOptions struct {
	// Namespace holds the pods that are sent to the extensions, and that watchers and reconcilers see.
	// Empty means all namespaces but the cluster's own (kube-system, kube-node-lease, kube-public) and,
	// in Service mode, the webhook's.
	Namespace string

	// Host, in URL mode, is the name or IP address (also IPv6) under which the API server calls this
	// program: it stands in the webhook's URL and in the serving certificate. In Service mode it is the
	// address to listen on; empty means all.
	Host string

	// Port is the port in the webhook's URL, or the port of the Service; unless ListenAddress says
	// otherwise it is also the port to listen on. 0 means 443, and in URL mode the port of ListenAddress
	// where that names one.
	Port int32

	// KubeConfig is the path of a kubeconfig file. Empty means: the service account of the pod, else
	// $KUBECONFIG, else ~/.kube/config.
	KubeConfig string

	// RestConfig is the connection to use instead of one from a kubeconfig.
	RestConfig *rest.Config

	// OperatorFingerprint names what the Manager owns in the cluster: the Secret
	// <fingerprint>-setupcertificate and the configuration <fingerprint>-mutating-hook. Two programs on
	// one cluster need two fingerprints. Default "eirini-x".
	OperatorFingerprint string

	// Domain is the end of webhook names, <step or group>.<fingerprint>.<domain>, which users see in denials. Default
	// "eirinix.cloudfoundry.org".
	Domain string

	// SetupCertificateName is the name of the certificate Secret. Default <fingerprint>-setupcertificate.
	SetupCertificateName string

	// SetupCertificate set to false never creates or mends the certificate Secret: the Manager waits
	// until another one (RegisterExtensions, in a split deployment) has. Default true.
	SetupCertificate *bool

	// RegisterWebHook set to false serves without touching the webhook configuration, for the serving
	// half of a split deployment; the other half calls RegisterExtensions. Default true.
	RegisterWebHook *bool

	// ServiceName selects Service mode: the API server calls that Service in WebhookNamespace.
	ServiceName string

	// WebhookNamespace holds the Service and the certificate Secret. Required with ServiceName.
	// Without it the Secret lies in Namespace, else in the pod's own namespace, else in the one of the
	// kubeconfig's context, else in "default".
	WebhookNamespace string

	// ListenAddress ("host:port") is the address to listen on where it differs from what is
	// registered, behind a load balancer or a container port, say. Without it Service mode listens on
	// Host:Port, and URL mode on Port of Host, if that is an IP address, or of all addresses. Port 0
	// picks a free port: Addr tells which, and in URL mode with Port left out the URL carries it.
	ListenAddress string

	// FailurePolicy says what becomes of a pod whose call fails: Fail (default) refuses it, Ignore
	// lets it in unchanged.
	FailurePolicy *admissionregistrationv1.FailurePolicyType

	// FilterEiriniApps limits extensions and watchers to Cloud Foundry applications: pods with the
	// label LabelSourceType=APP. Default false (EiriniX: true).
	FilterEiriniApps *bool

	// WatcherStartRV is the resourceVersion after which watchers see events. Empty: from now on.
	WatcherStartRV string

	// Context is the parent of GetContext and of the contexts that handlers get from it; when it ends,
	// the Manager stops. Default context.Background.
	Context *context.Context

	// Logger is where everything is logged. Default zap's production logger (JSON on standard error).
	Logger *zap.SugaredLogger

	// KubeManager is a controller-runtime manager of the program's own, which the Manager becomes a part of: its
	// connection, scheme, cache, leader election and metrics are shared. Whoever starts it starts the Manager too: the
	// program, or Start or Run, one of them. One that runs already when NewManager is called is joined by Start or Run. If its webhook server has certificates of its own (CertDir, or
	// files where controller-runtime looks for them, with the CA's in ca.crt), that one serves; else one of ours does.
	// Several Managers may share it, with a fingerprint each.
	KubeManager manager.Manager

	// Scheme is the scheme of GetKubeManager's client, where reconcilers need more than the built-in
	// types.
	Scheme *runtime.Scheme

	// UnregisterOnStop removes the webhook configuration when the Manager stops. It is for laptops:
	// in a cluster a restart would leave a gap through which pods slip unchanged. Default false.
	UnregisterOnStop bool

	// MetricsBindAddress ("host:port") serves Prometheus metrics at /metrics. Empty: not served. On a loopback address
	// or "localhost", which only the same machine or pod reaches, they are served over plain HTTP. On any other they are
	// served over HTTPS, to callers with a bearer token that may get the non-resource URL /metrics; to find that out the
	// program needs to create TokenReviews and SubjectAccessReviews. The certificate is the one that webhooks are
	// served with, and a self-signed one while there is none.
	MetricsBindAddress string

	// MetricsUnauthenticated serves metrics on every address over plain HTTP, to every client that reaches the port.
	MetricsUnauthenticated bool

	// HealthProbeBindAddress ("host:port") serves /healthz and /readyz over plain HTTP. Empty: not
	// served. The webhook's own port always answers both, over HTTPS.
	HealthProbeBindAddress string

	// MaxRequestBytes bounds one AdmissionReview. 0 means 32 MiB, more than any object the API server
	// accepts can take: a legal 1 MB object arrives as a 12 MB review.
	MaxRequestBytes int64

	// Rotation holds the lifetimes of certificates. The defaults suit everyone but tests.
	Rotation Rotation

	// DrainDelay is how long the Manager goes on serving after it was told to stop and has declared
	// itself not ready, so that Services stop sending calls first. 0 means 5 s in Service mode and none
	// in URL mode; negative means none.
	DrainDelay time.Duration

	// Certificates is where serving certificates come from: FromFiles, FromSecret or FromCSR. nil means a CA of our
	// own, kept in the certificate Secret, which nobody ever need think about; the Secret is not used otherwise.
	Certificates CertificateSource

	// ClientCA certifies who may call. Without it everybody who reaches the port may, as API servers show no
	// certificate unless they are told to (docs/certificates.md says how). Health endpoints answer everybody.
	ClientCA ClientCA

	// ClientNames are the names of which a caller's certificate must have one, as its common name or among
	// its DNS names. Empty: whoever ClientCA has certified may call.
	ClientNames []string

	// EnableHTTP2 offers HTTP/2 beside HTTP/1.1. API servers use it for loopback URLs only. Default false: it
	// gains nothing, and has a history of floods (CVE-2023-44487).
	EnableHTTP2 bool

	// KeyAlgorithm is the kind of the keys that are made: ECDSA-P256 (default), ECDSA-P384, RSA-2048,
	// RSA-3072 or RSA-4096. A CA that exists keeps its key until it is rotated.
	KeyAlgorithm string

	// Deployment is what Manifests must be told of the program: its image first of all.
	Deployment DeploymentOptions
}

// Rotation holds the lifetimes of the certificates that a Manager makes. Zero values are defaults.
type Rotation struct {
	CALifetime   time.Duration // 10 years
	LeafLifetime time.Duration // 7 days; renewed in memory at two thirds

	// Retain is how long a CA that was replaced stays trusted: LeafLifetime and a tenth. Every replica that still
	// serves what it signed must have noticed by then.
	Retain time.Duration
}

// withDefaults fills in what EiriniX's programs expect to read back from GetManagerOptions.
func (o ManagerOptions) withDefaults() ManagerOptions {
	if o.OperatorFingerprint == "" {
		o.OperatorFingerprint = defaultFingerprint
	}
	if o.SetupCertificateName == "" {
		o.SetupCertificateName = certificateName(o.OperatorFingerprint)
	}
	if o.FailurePolicy == nil {
		o.FailurePolicy = new(admissionregistrationv1.Fail)
	}
	if o.FilterEiriniApps == nil {
		o.FilterEiriniApps = new(false)
	}
	if o.RegisterWebHook == nil {
		o.RegisterWebHook = new(true)
	}
	if o.SetupCertificate == nil {
		o.SetupCertificate = new(true)
	}
	if o.Logger == nil {
		logger, err := zap.NewProduction()
		if err != nil { // only where standard error cannot be opened
			logger = zap.NewNop()
		}
		o.Logger = logger.Sugar()
	}
	return o
}

func certificateName(fingerprint string) string { return fingerprint + "-setupcertificate" }

// serviceMode tells whether the API server reaches us through a Service.
func (o ManagerOptions) serviceMode() bool { return o.ServiceName != "" }

// port is the port that is registered: in URL mode that of ListenAddress unless Port says otherwise.
func (o ManagerOptions) port() int32 {
	if o.Port != 0 || o.ListenAddress == "" || o.serviceMode() {
		return cmp.Or(o.Port, defaultPort)
	}
	_, port, _ := o.listen()
	return cmp.Or(int32(port), defaultPort)
}

// host is Host without the brackets of an IPv6 literal.
func (o ManagerOptions) host() string {
	return strings.TrimSuffix(strings.TrimPrefix(o.Host, "["), "]")
}

// listen gives the address to listen on; port 0 asks for a free one.
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

// servingHosts are the names and addresses that the serving certificate must hold.
func (o ManagerOptions) servingHosts() []string {
	if o.serviceMode() {
		name := o.ServiceName + "." + o.WebhookNamespace
		return []string{name + ".svc", name + ".svc.cluster.local"}
	}
	return []string{o.host()}
}

// calledHosts are those by which the API server calls, which any serving certificate must hold.
func (o ManagerOptions) calledHosts() []string { return o.servingHosts()[:1] }

// drainDelay resolves DrainDelay's default.
func (o ManagerOptions) drainDelay() time.Duration {
	switch {
	case o.DrainDelay != 0:
		return max(o.DrainDelay, 0)
	case o.serviceMode():
		return defaultServiceDrain
	}
	return 0
}

func (o ManagerOptions) caLifetime() time.Duration {
	if o.Rotation.CALifetime == 0 {
		return defaultCALifetime
	}
	return o.Rotation.CALifetime
}

// retain is how long an old CA stays trusted.
func (o ManagerOptions) retain() time.Duration {
	if o.Rotation.Retain == 0 {
		return o.leafLifetime() + o.leafLifetime()/10
	}
	return o.Rotation.Retain
}

func (o ManagerOptions) leafLifetime() time.Duration {
	if o.Rotation.LeafLifetime == 0 {
		return defaultLeafLifetime
	}
	return o.Rotation.LeafLifetime
}

func isIP(host string) bool {
	_, err := netip.ParseAddr(host)
	return err == nil
}
