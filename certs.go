package eirinix

// This file sets up the certificates: those that the program serves with, from a CA of its own in a Secret or from a
// CertificateSource, and the CA of the clients that may call. Package internal/controller maintains the former, and
// internal/certsource implements the sources.

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"code.cloudfoundry.org/eirinix/internal/ca"
	"code.cloudfoundry.org/eirinix/internal/certsecret"
	"code.cloudfoundry.org/eirinix/internal/certsource"
	"code.cloudfoundry.org/eirinix/internal/controller"
	"code.cloudfoundry.org/eirinix/internal/rights"
	"code.cloudfoundry.org/eirinix/internal/serving"
)

// newCertificates returns the certificates that the options select.
func (p *program) newCertificates() controller.Certificates {
	m, o, namespace, log := p.m, p.m.GetManagerOptions(), p.namespace, p.log
	if source := m.certificateSource(); source != nil {
		served := certsource.NewServed(source.source(certificateSite{
			config: p.config, namespace: namespace, fingerprint: o.OperatorFingerprint, hosts: o.calledHosts(), log: log, now: m.api.Earlier,
		}))
		served.Hosts, served.AtOnce, served.Log = o.calledHosts(), m.host != nil, log
		return &controller.Issued{Served: served}
	}
	leaf := serving.NewLeaf(o.servingHosts(), o.leafLifetime(), time.Now)
	leaf.Key, leaf.ServerTime = ca.KeyAlgorithm(o.KeyAlgorithm), m.api.ServerTime
	return &controller.OwnCA{
		Store: &certsecret.Store{
			Secrets: p.clients.CoreV1().Secrets(namespace), Namespace: namespace, Name: o.SetupCertificateName, Lifetime: o.caLifetime(),
			Key: ca.KeyAlgorithm(o.KeyAlgorithm), ServerTime: m.api.ServerTime, Now: m.api.Earlier, Log: log, OthersRegister: !*o.RegisterWebHook,
			Cached: func(ctx context.Context) (*corev1.Secret, error) {
				secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: o.SetupCertificateName}}
				return secret, p.cache.Get(ctx, secret)
			},
		},
		Leaf: leaf, SetUp: *o.SetupCertificate, Log: log, Now: m.api.Earlier,
	}
}

// certificateSource returns the external source of the serving certificates, or nil if the Manager issues them from a
// CA of its own.
func (m *ExtensionManager) certificateSource() CertificateSource {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.options.Certificates != nil:
		return m.options.Certificates
	case m.host != nil:
		dir, cert, key := serving.HostFiles(m.hostOptions)
		return FromFiles(dir, cert, key, "ca.crt") // where cert-manager puts it
	}
	return nil
}

// A CertificateSource provides serving certificates that the Manager does not issue itself. FromFiles, FromSecret and
// FromCSR return one. The certificate must be valid for the name that the API server calls: Host, or in Service mode
// <ServiceName>.<WebhookNamespace>.svc.
//
// With any source, the Manager owns the caBundle of its webhook configurations. A new certificate is served only once
// every caBundle in the API server holds a CA that verifies it. Until then, and while the newest certificate cannot be
// used, the last good one is served, and the reason is logged. A CA that is no longer needed stays trusted for
// 7.7 days, because other replicas can still serve certificates that it signed. A program can therefore also
// change from one source to another without interruption.
type CertificateSource interface {
	fmt.Stringer // describes the source, for logs

	source(certificateSite) certsource.Source
	rights(namespace string) rights.SourceRights
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
func FromFiles(dir, cert, key, ca string) CertificateSource {
	return &source{make: func(s certificateSite) certsource.Source {
		return &certsource.Files{Dir: dir, Cert: cert, Key: key, CA: ca, Hosts: s.hosts, Now: s.now}
	}}
}

// source is a CertificateSource of any kind.
type source struct {
	make  func(certificateSite) certsource.Source
	needs rights.SourceRights // SecretNamespace is empty for the default one
}

func (s *source) source(site certificateSite) certsource.Source { return s.make(site) }

func (s *source) String() string { return s.make(certificateSite{}).String() }

func (s *source) rights(namespace string) rights.SourceRights {
	r := s.needs
	if r.Secret != "" {
		r.SecretNamespace = cmp.Or(r.SecretNamespace, namespace)
	}
	return r
}

// FromSecret reads tls.crt, tls.key and ca.crt of a Secret that cert-manager or another issuer maintains, and follows
// its changes. An empty namespace means the namespace that the certificate Secret would be in. It needs get, list and
// watch on that Secret. With only get it reads the Secret every half minute. While the Secret is missing, Start waits
// and logs the reason.
//
// Some issuers make a new CA with every certificate, such as cert-manager's self-signed issuer without a CA. The
// webhook configuration then has to be written at every renewal. A program that must not do so itself (RegisterWebHook
// false) depends on a timely call of RegisterExtensions.
func FromSecret(namespace, name string) CertificateSource {
	return &source{needs: rights.SourceRights{SecretNamespace: namespace, Secret: name}, make: func(s certificateSite) certsource.Source {
		return &certsource.Secret{Config: s.config, Namespace: cmp.Or(namespace, s.namespace), Name: name, Hosts: s.hosts, Log: s.log, Now: s.now}
	}}
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
// "example.org/webhook-serving". FromCSR needs create, list and watch on certificatesigningrequests. With get
// instead of list and watch, it learns up to half a minute late how a request ended.
func FromCSR(signerName string, o SignerOptions) CertificateSource {
	return &source{needs: rights.SourceRights{Requests: true}, make: func(s certificateSite) certsource.Source {
		return &certsource.CSR{
			Config: s.config, SignerName: signerName, Hosts: s.hosts, NamePrefix: s.fingerprint, Lifetime: o.Lifetime,
			TrustPEM: o.TrustPEM, Trust: o.Trust, Log: s.log, Now: s.now,
		}
	}}
}

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

// ClientCA is the source of the CA that certifies callers: one of PEM, File and ConfigMap. A file or ConfigMap is read
// again when it changes, and the change also applies to open connections.
type ClientCA struct {
	PEM       []byte // CA certificates
	File      string // path of a PEM file
	ConfigMap string // "namespace/name" or "namespace/name/key"; the default key is ca.crt

	// Names are the accepted names of clients: the common name or a DNS name of a client's certificate must be one of
	// them. Empty means that every client with a certificate of the CA may call.
	Names []string
}

// isZero reports whether no ClientCA is set, so that every client may call.
func (c ClientCA) isZero() bool { return len(c.PEM) == 0 && c.File == "" && c.ConfigMap == "" }

func (c ClientCA) validate(bad func(format string, args ...any)) {
	given := 0
	for _, is := range []bool{len(c.PEM) > 0, c.File != "", c.ConfigMap != ""} {
		if is {
			given++
		}
	}
	if given == 0 && len(c.Names) > 0 {
		bad("ClientCA.Names is set without a CA, so no client certificate would be checked; set one of PEM, File and ConfigMap too")
	}
	if given > 1 {
		bad("ClientCA has more than one of PEM, File and ConfigMap; set only one of them")
	}
	if c.ConfigMap != "" {
		if _, _, err := serving.ParseConfigMap(c.ConfigMap); err != nil {
			bad("ClientCA.ConfigMap is %q; give \"namespace/name\" or \"namespace/name/key\"", c.ConfigMap)
		}
	}
}

// newCallers returns the verification of client certificates, or nil if every client may call. Its Follow method keeps
// the CAs up to date.
func (p *program) newCallers() (*serving.ClientCAs, error) {
	o := p.m.GetManagerOptions()
	if o.ClientCA.isZero() {
		return nil, nil
	}
	c := &serving.ClientCAs{Clients: &serving.Clients{Names: o.ClientCA.Names}, PEM: o.ClientCA.PEM, File: o.ClientCA.File, Log: p.log}
	if o.ClientCA.ConfigMap == "" {
		return c, nil
	}
	var err error
	c.Objects = p.objects
	c.ConfigMap, c.Key, err = serving.ParseConfigMap(o.ClientCA.ConfigMap)
	return c, err // Validate has reported it
}
