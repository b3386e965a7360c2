package controlplane

// This file creates the keys, certificates and kubeconfigs of a control plane.

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

const (
	adminUser  = "eirinix-admin"
	adminGroup = "system:masters"

	serviceAccountKey = "service-account.key"

	// serviceCIDR is the range of ClusterIPs. kubernetesIP is its first address, that of the Service kubernetes.
	serviceCIDR  = "10.96.0.0/16"
	kubernetesIP = "10.96.0.1"

	// A control plane lives for minutes in a test, and for days on a developer's machine.
	certLifetime = 365 * 24 * time.Hour

	// Specs must not notice the client's own limits.
	clientQPS, clientBurst = 1000, 2000
)

// keys holds the keys of one control plane. The servers read files, so the keys are stored in the private folder, and
// removed with it. etcd has its own CA, so that no Kubernetes user can connect to it.
type keys struct {
	dir                string
	ca                 *pair
	adminTLS, etcdTLS  *tls.Config
	serviceAccountFile string // signs the tokens of service accounts, and verifies them
}

func writeKeys(dir string) (*keys, error) {
	k := &keys{dir: dir, serviceAccountFile: filepath.Join(dir, serviceAccountKey)}
	var errs []error
	write := func(path string, data []byte, err error) {
		if err == nil {
			err = os.WriteFile(path, data, 0o600)
		}
		errs = append(errs, err)
	}
	issue := func(name string, issuer *pair, subject string, usages ...x509.ExtKeyUsage) *pair {
		made, err := newPair(issuer, pkix.Name{CommonName: subject}, usages...)
		write(k.certFile(name), made.certPEM, err)
		write(k.keyFile(name), made.keyPEM, err)
		return &made
	}
	k.ca = issue("ca", nil, "eirinix test ca")
	etcdCA := issue("etcd-ca", nil, "eirinix test etcd-ca")
	issue("server", k.ca, "kube-apiserver", x509.ExtKeyUsageServerAuth)
	issue("etcd-server", etcdCA, "etcd", x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth)
	etcdClient := issue("etcd-client", etcdCA, "kube-apiserver", x509.ExtKeyUsageClientAuth)
	key, err := keyutil.MakeEllipticPrivateKeyPEM()
	write(k.serviceAccountFile, key, err)

	k.etcdTLS, err = rest.TLSConfigFor(&rest.Config{TLSClientConfig: etcdClient.trusting(etcdCA)})
	errs = append(errs, err)
	if err := errors.Join(append(errs, k.makeAdmin())...); err != nil {
		return nil, fmt.Errorf("keys of the control plane in %s: %w", dir, err)
	}
	return k, nil
}

// readKeys returns the keys that writeKeys has written, but for etcd's.
func readKeys(dir string) (*keys, error) {
	k := &keys{dir: dir, serviceAccountFile: filepath.Join(dir, serviceAccountKey), ca: &pair{}}
	loaded, err := tls.LoadX509KeyPair(k.certFile("ca"), k.keyFile("ca"))
	if err == nil {
		k.ca.cert, k.ca.key = loaded.Leaf, loaded.PrivateKey.(*ecdsa.PrivateKey)
		k.ca.certPEM, err = cert.EncodeCertificates(loaded.Leaf)
	}
	if err == nil {
		err = k.makeAdmin()
	}
	if err != nil {
		return nil, fmt.Errorf("keys of the control plane in %s: %w", dir, err)
	}
	return k, nil
}

// makeAdmin makes the settings with which this process probes the API servers.
func (k *keys) makeAdmin() error {
	config, err := k.clientConfig("", adminUser, []string{adminGroup})
	if err == nil {
		k.adminTLS, err = rest.TLSConfigFor(config)
	}
	return err
}

func (k *keys) certFile(name string) string { return filepath.Join(k.dir, name+".crt") }
func (k *keys) keyFile(name string) string  { return filepath.Join(k.dir, name+".key") }

// clientConfig returns the configuration of a user of the API server at host.
func (k *keys) clientConfig(host, user string, groups []string) (*rest.Config, error) {
	client, err := newPair(k.ca, pkix.Name{CommonName: user, Organization: groups}, x509.ExtKeyUsageClientAuth)
	if err != nil {
		return nil, err
	}
	return &rest.Config{Host: host, TLSClientConfig: client.trusting(k.ca), QPS: clientQPS, Burst: clientBurst}, nil
}

// writeKubeconfig writes a kubeconfig that only its owner can read.
func writeKubeconfig(path string, config *rest.Config) error {
	const name = "eirinix"
	kubeconfig := clientcmdapi.NewConfig()
	kubeconfig.Clusters[name] = &clientcmdapi.Cluster{Server: config.Host, CertificateAuthorityData: config.CAData}
	kubeconfig.AuthInfos[name] = &clientcmdapi.AuthInfo{
		ClientCertificateData: config.CertData, ClientKeyData: config.KeyData,
	}
	kubeconfig.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	kubeconfig.CurrentContext = name
	if err := clientcmd.WriteToFile(*kubeconfig, path); err != nil { // with mode 0600
		return fmt.Errorf("kubeconfig of the control plane: %w", err)
	}
	return nil
}

// pair is a certificate and its key.
type pair struct {
	cert            *x509.Certificate
	key             *ecdsa.PrivateKey
	certPEM, keyPEM []byte
}

// newPair creates a key and a certificate that the issuer signs. Without an issuer, it is a CA. A leaf is valid for
// every name and address of a server on loopback.
func newPair(issuer *pair, subject pkix.Name, usages ...x509.ExtKeyUsage) (made pair, err error) {
	if made.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return made, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()),
		Subject:      subject,
		NotBefore:    now.Add(-time.Hour),
		NotAfter:     now.Add(certLifetime),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  usages,
		DNSNames: []string{
			"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc",
			"kubernetes.default.svc.cluster.local",
		},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.ParseIP(kubernetesIP)},
	}
	parent, signer := template, made.key
	if issuer != nil {
		parent, signer = issuer.cert, issuer.key
	} else {
		template.IsCA, template.BasicConstraintsValid = true, true
		template.KeyUsage |= x509.KeyUsageCertSign | x509.KeyUsageCRLSign
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, made.key.Public(), signer)
	if err != nil {
		return made, err
	}
	if made.cert, err = x509.ParseCertificate(der); err != nil {
		return made, err
	}
	if made.certPEM, err = cert.EncodeCertificates(made.cert); err != nil {
		return made, err
	}
	made.keyPEM, err = keyutil.MarshalPrivateKeyToPEM(made.key)
	return made, err
}

// trusting returns the TLS settings of a client with this pair that trusts the CA.
func (p *pair) trusting(ca *pair) rest.TLSClientConfig {
	return rest.TLSClientConfig{CAData: ca.certPEM, CertData: p.certPEM, KeyData: p.keyPEM}
}
