package eirinix

// This file declares the external sources of serving certificates: FromFiles, FromSecret and FromCSR.

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

// A CertificateSource provides serving certificates that the Manager does not issue itself. FromFiles, FromSecret and
// FromCSR return one. The certificate must be valid for the name that the API server calls: Host, or in Service mode
// <ServiceName>.<WebhookNamespace>.svc.
//
// With any source, the Manager owns the caBundle of its webhook configurations. A new certificate is served only once
// every caBundle in the API server holds a CA that verifies it. Until then, and while the newest certificate cannot be
// used, the last good one is served, and the reason is logged. A CA that is no longer needed stays trusted for
// Rotation.Retain, because other replicas can still serve certificates that it signed. A program can therefore also
// change from one source to another without interruption.
type CertificateSource interface {
	fmt.Stringer // describes the source, for logs

	source(certificateSite) certsource.Source
	rights(namespace string) manifest.SourceRights
}

// certificateSite holds the data that a source needs about the program.
type certificateSite struct {
	config      *rest.Config // for the library's own requests
	namespace   string       // the default namespace of a Secret
	fingerprint string
	hosts       []string // the hosts that the API server calls
	log         logr.Logger
	now         func() time.Time
}

// FromFiles reads the serving certificate, its private key and the CA's certificate from PEM files in dir. They can be
// a mounted Secret or the output of an agent. Empty names mean tls.crt, tls.key and ca.crt, the names that cert-manager
// uses. An absolute name can refer to another directory.
//
// The files are read again every five seconds. They are adopted together, once they match each other, in whatever way
// they are replaced. While one of them is missing, Start waits and logs the reason.
func FromFiles(dir, cert, key, ca string) CertificateSource { return fromFiles{dir, cert, key, ca} }

type fromFiles struct{ dir, cert, key, ca string }

func (f fromFiles) source(s certificateSite) certsource.Source {
	return &certsource.Files{Dir: f.dir, Cert: f.cert, Key: f.key, CA: f.ca, Hosts: s.hosts, Now: s.now}
}

func (f fromFiles) String() string { return f.source(certificateSite{}).String() }

func (fromFiles) rights(string) manifest.SourceRights { return manifest.SourceRights{} }

// FromSecret reads tls.crt, tls.key and ca.crt of a Secret that cert-manager or another issuer maintains, and follows
// its changes. An empty namespace means the namespace that the certificate Secret would be in. It needs get, list and
// watch on that Secret. With only get it reads the Secret every half minute. While the Secret is missing, Start waits
// and logs the reason.
//
// Some issuers make a new CA with every certificate, such as cert-manager's self-signed issuer without a CA. The
// webhook configuration then has to be written at every renewal. A program that must not do so itself (RegisterWebHook
// false) depends on a timely call of RegisterExtensions.
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

// SignerOptions holds the inputs of FromCSR in addition to the signer's name.
type SignerOptions struct {
	// TrustPEM holds the signer's CA certificates in PEM. The certificates API does not provide them.
	TrustPEM []byte

	// Trust returns the signer's CA certificates, for example from a ClusterTrustBundle or a ConfigMap. It is called
	// every minute, and every five seconds while its last result does not verify the certificate. The CAs of TrustPEM
	// and Trust are all trusted.
	Trust func(context.Context) ([]byte, error)

	// Lifetime is the requested lifetime, at least ten minutes. 0 leaves the choice to the signer, which can also
	// ignore a requested lifetime.
	Lifetime time.Duration
}

// FromCSR requests certificates from a signer through the certificates.k8s.io API. Each request has a new private key,
// which stays in memory. The certificate is renewed after two thirds of its lifetime. Each request must be approved,
// and Start logs that it waits for the approval. A request that is denied, fails or is deleted is repeated after a
// delay that doubles.
//
// Kubernetes' own signers do not issue serving certificates for webhooks, so signerName is another signer, such as
// "example.org/webhook-serving". FromCSR needs create and get on certificatesigningrequests, and uses list, watch and
// delete if it has those rights.
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

// validateSource reports the errors of Certificates. It uses no clients: those are made later and are never missing.
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
		hosts = []string{"localhost"} // a missing Host is already reported
	}
	site := certificateSite{config: &rest.Config{}, namespace: "default", fingerprint: o.OperatorFingerprint, hosts: hosts}
	if err := o.Certificates.source(site).Validate(); err != nil {
		bad("Certificates: %v", err)
	}
}
