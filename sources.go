package eirinix

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"

	"code.cloudfoundry.org/eirinix/internal/certsource"
	"code.cloudfoundry.org/eirinix/internal/manifest"
)

// A CertificateSource is where serving certificates come from when the Manager is not to make them. FromFiles,
// FromSecret and FromCSR give one. The certificate must be for the name by which the API server calls: Host, or in
// Service mode <ServiceName>.<WebhookNamespace>.svc.
//
// Whatever the source, the Manager owns the caBundle of what it registers. A new certificate is served only once every
// caBundle in the API server holds a CA that verifies it; until then, and while the newest one cannot be used, the last
// good one stays, and the log says why. A CA that is not needed any more stays trusted for Rotation.Retain, because other
// replicas may still serve what it signed. So programs may change from one source to another, too, without a gap.
type CertificateSource interface {
	fmt.Stringer // what it reads, for logs

	source(certificateSite) certsource.Source
	rights(namespace string) manifest.SourceRights
}

// certificateSite is what a source must know of the program that it is for.
type certificateSite struct {
	config      *rest.Config // of the library's own requests
	namespace   string       // that of a Secret unless it says otherwise
	fingerprint string
	hosts       []string // by which the API server calls
	log         logr.Logger
	now         func() time.Time
}

// FromFiles reads serving certificate, private key and the CA's certificate from files in dir, in PEM: a mounted Secret,
// or what an agent writes. Empty names mean tls.crt, tls.key and ca.crt, as cert-manager has them; absolute ones may
// lie elsewhere. They are read again every five seconds, and are taken over together when they fit each other, however
// they are replaced. While they are missing, Start waits, and says for what.
func FromFiles(dir, cert, key, ca string) CertificateSource { return fromFiles{dir, cert, key, ca} }

type fromFiles struct{ dir, cert, key, ca string }

func (f fromFiles) source(s certificateSite) certsource.Source {
	return &certsource.Files{Dir: f.dir, Cert: f.cert, Key: f.key, CA: f.ca, Hosts: s.hosts, Now: s.now}
}

func (f fromFiles) String() string { return f.source(certificateSite{}).String() }

func (fromFiles) rights(string) manifest.SourceRights { return manifest.SourceRights{} }

// FromSecret reads tls.crt, tls.key and ca.crt of a Secret that cert-manager or another issuer keeps, and follows it.
// An empty namespace is the one that the Manager would have its own Secret in. It needs get, list and watch on that
// Secret; with get alone it looks every half a minute. While the Secret is missing, Start waits, and says for what.
//
// An issuer that makes a new CA with every certificate (cert-manager's self-signed one without a CA of its own does)
// has the webhook configuration written at every renewal; a program that may not do so itself (RegisterWebHook
// false) then depends on RegisterExtensions to be called in time.
func FromSecret(namespace, name string) CertificateSource { return fromSecret{namespace, name} }

type fromSecret struct{ namespace, name string }

func (f fromSecret) source(s certificateSite) certsource.Source {
	return &certsource.Secret{Config: s.config, Namespace: cmp.Or(f.namespace, s.namespace), Name: f.name, Hosts: s.hosts, Log: s.log, Now: s.now}
}

func (f fromSecret) String() string {
	if f.namespace == "" {
		return "Secret " + f.name
	}
	return "Secret " + f.namespace + "/" + f.name
}

func (f fromSecret) rights(namespace string) manifest.SourceRights {
	return manifest.SourceRights{SecretNamespace: cmp.Or(f.namespace, namespace), Secret: f.name}
}

// SignerOptions says what FromCSR must know beside the signer's name.
type SignerOptions struct {
	// TrustPEM are the signer's CA certificates. The API does not tell them.
	TrustPEM []byte

	// Trust reads them instead, from a ClusterTrustBundle or a ConfigMap, say. It is called every minute, and every five
	// seconds while what it returned does not verify the certificate. What both give is trusted.
	Trust func(context.Context) ([]byte, error)

	// Lifetime is asked for, at least ten minutes. 0 leaves it to the signer, who may give another one anyway.
	Lifetime time.Duration
}

// FromCSR asks a signer for certificates through the certificates.k8s.io API: with a key of its own, which stays in
// memory, and again at two thirds of the certificate's life. Somebody must approve each request; Start waits for that,
// and says so. What is denied, fails or is deleted is asked for again, after a delay that doubles.
//
// Kubernetes' own signers do not issue serving certificates for webhooks, so signerName is that of another one, such as
// "example.org/webhook-serving". It needs create and get on certificatesigningrequests, and uses list, watch and
// delete where it may.
func FromCSR(signerName string, o SignerOptions) CertificateSource { return fromCSR{signerName, o} }

type fromCSR struct {
	signer  string
	options SignerOptions
}

func (f fromCSR) source(s certificateSite) certsource.Source {
	return &certsource.CSR{
		Config: s.config, SignerName: f.signer, Hosts: s.hosts, NamePrefix: s.fingerprint, Lifetime: f.options.Lifetime,
		TrustPEM: f.options.TrustPEM, Trust: f.options.Trust, Log: s.log, Now: s.now,
	}
}

func (f fromCSR) String() string { return f.source(certificateSite{}).String() }

func (f fromCSR) rights(string) manifest.SourceRights { return manifest.SourceRights{Requests: true} }

// validateSource tells what is wrong with Certificates. Clients are made later, and cannot be missing then.
func (o ManagerOptions) validateSource(bad func(string, ...any)) {
	if o.Certificates == nil {
		return
	}
	if isNil(o.Certificates) {
		bad("Certificates is a nil %T; make it with FromFiles, FromSecret or FromCSR, or leave it out", o.Certificates)
		return
	}
	hosts := o.calledHosts()
	if hosts[0] == "" {
		hosts = []string{"localhost"} // that Host is missing is told already
	}
	site := certificateSite{config: &rest.Config{}, namespace: "default", fingerprint: o.OperatorFingerprint, hosts: hosts}
	if err := o.Certificates.source(site).Validate(); err != nil {
		bad("Certificates: %v", err)
	}
}
