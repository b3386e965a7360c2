package eirinixtest

// This file creates the keys, certificates and kubeconfigs of a control plane.

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

const (
	adminUser  = "eirinix-admin"
	adminGroup = "system:masters"

	// serviceCIDR is the range of ClusterIPs. kubernetesIP is its first address, that of the Service kubernetes.
	serviceCIDR  = "10.96.0.0/16"
	kubernetesIP = "10.96.0.1"

	// A control plane lives for minutes in a test, and for days on a developer's machine.
	certLifetime = 365 * 24 * time.Hour
)

// controlPlaneCerts holds the keys of one control plane. The servers read files, so the keys are stored in the private
// folder, and removed with it. etcd has its own CA, so that no Kubernetes user can connect to it.
type controlPlaneCerts struct {
	ca, etcdCA                     *certAuthority
	server, etcdServer, etcdClient *certFiles

	serviceAccountKey, serviceAccountPublicKey string // paths

	adminTLS, etcdTLS *tls.Config
}

type certFiles struct {
	certFile, keyFile string
	certPEM, keyPEM   []byte
}

type certAuthority struct {
	certFiles
	cert *x509.Certificate
	key  crypto.Signer
}

func writeControlPlaneCerts(dir string) (*controlPlaneCerts, error) {
	w := &certWriter{dir: dir}
	c := &controlPlaneCerts{ca: w.authority("ca"), etcdCA: w.authority("etcd-ca")}
	c.server = w.issue(c.ca, "server", pkix.Name{CommonName: "kube-apiserver"}, x509.ExtKeyUsageServerAuth)
	c.etcdServer = w.issue(c.etcdCA, "etcd-server", pkix.Name{CommonName: "etcd"},
		x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth)
	c.etcdClient = w.issue(c.etcdCA, "etcd-client", pkix.Name{CommonName: "kube-apiserver"}, x509.ExtKeyUsageClientAuth)
	admin := w.issue(c.ca, "admin", pkix.Name{CommonName: adminUser, Organization: []string{adminGroup}},
		x509.ExtKeyUsageClientAuth)
	c.serviceAccountKey, c.serviceAccountPublicKey = w.keyPair("service-account")
	c.adminTLS = w.clientTLS(c.ca, admin)
	c.etcdTLS = w.clientTLS(c.etcdCA, c.etcdClient)

	if w.err != nil {
		return nil, fmt.Errorf("keys of the control plane in %s: %w", dir, w.err)
	}

	return c, nil
}

// clientConfig returns the configuration of a user of the API server at host.
func (c *controlPlaneCerts) clientConfig(host, user string, groups []string) (*rest.Config, error) {
	cert, err := issue(c.ca, pkix.Name{CommonName: user, Organization: groups}, x509.ExtKeyUsageClientAuth)
	if err != nil {
		return nil, err
	}

	return &rest.Config{
		Host: host,
		TLSClientConfig: rest.TLSClientConfig{
			CAData:   c.ca.certPEM,
			CertData: cert.certPEM,
			KeyData:  cert.keyPEM,
		},
		QPS:   1000,
		Burst: 2000,
	}, nil
}

// writeKubeconfig writes a kubeconfig that only its owner can read.
func writeKubeconfig(path string, config *rest.Config) error {
	const name = "eirinix"

	kubeconfig := clientcmdapi.NewConfig()
	kubeconfig.Clusters[name] = &clientcmdapi.Cluster{
		Server: config.Host, CertificateAuthorityData: config.CAData,
	}
	kubeconfig.AuthInfos[name] = &clientcmdapi.AuthInfo{
		ClientCertificateData: config.CertData, ClientKeyData: config.KeyData,
	}
	kubeconfig.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	kubeconfig.CurrentContext = name

	data, err := clientcmd.Write(*kubeconfig)
	if err != nil {
		return fmt.Errorf("kubeconfig of the control plane: %w", err)
	}

	if err := os.WriteFile(path, data, 0o600); err != nil {
		return fmt.Errorf("kubeconfig of the control plane: %w", err)
	}

	return nil
}

// certWriter creates keys and writes them to files of mode 0600. After the first error it does nothing more.
type certWriter struct {
	dir string
	err error
}

func (w *certWriter) authority(name string) *certAuthority {
	if w.err != nil {
		return nil
	}

	a := &certAuthority{}
	template := template(pkix.Name{CommonName: "eirinix test " + name})
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageCRLSign | x509.KeyUsageDigitalSignature

	var key *ecdsa.PrivateKey
	if key, w.err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); w.err != nil {
		return nil
	}

	a.key = key

	var der []byte
	if der, w.err = x509.CreateCertificate(rand.Reader, template, template, key.Public(), key); w.err != nil {
		return nil
	}

	if a.cert, w.err = x509.ParseCertificate(der); w.err != nil {
		return nil
	}

	a.certPEM = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	a.keyPEM, w.err = privateKeyPEM(key)
	w.write(name, &a.certFiles)

	return a
}

func (w *certWriter) issue(ca *certAuthority, name string, subject pkix.Name, usages ...x509.ExtKeyUsage) *certFiles {
	if w.err != nil {
		return nil
	}

	var files *certFiles
	files, w.err = issue(ca, subject, usages...)
	w.write(name, files)

	return files
}

func (w *certWriter) write(name string, files *certFiles) {
	if w.err != nil {
		return
	}

	files.certFile, files.keyFile = filepath.Join(w.dir, name+".crt"), filepath.Join(w.dir, name+".key")
	w.file(files.certFile, files.certPEM)
	w.file(files.keyFile, files.keyPEM)
}

func (w *certWriter) file(path string, data []byte) {
	if w.err == nil {
		w.err = os.WriteFile(path, data, 0o600)
	}
}

// keyPair writes a private key, which signs service account tokens, and its public key, which verifies them.
func (w *certWriter) keyPair(name string) (keyFile, publicFile string) {
	if w.err != nil {
		return "", ""
	}

	var key *ecdsa.PrivateKey
	if key, w.err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); w.err != nil {
		return "", ""
	}

	var private, public []byte
	if private, w.err = privateKeyPEM(key); w.err != nil {
		return "", ""
	}

	if public, w.err = x509.MarshalPKIXPublicKey(key.Public()); w.err != nil {
		return "", ""
	}

	keyFile, publicFile = filepath.Join(w.dir, name+".key"), filepath.Join(w.dir, name+".pub")
	w.file(keyFile, private)
	w.file(publicFile, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}))

	return keyFile, publicFile
}

func (w *certWriter) clientTLS(ca *certAuthority, client *certFiles) *tls.Config {
	if w.err != nil {
		return nil
	}

	var pair tls.Certificate
	if pair, w.err = tls.X509KeyPair(client.certPEM, client.keyPEM); w.err != nil {
		return nil
	}

	roots := x509.NewCertPool()
	roots.AddCert(ca.cert)

	return &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, Certificates: []tls.Certificate{pair}}
}

// issue signs a leaf certificate. A serving certificate is valid for every name and address of a server on loopback.
func issue(ca *certAuthority, subject pkix.Name, usages ...x509.ExtKeyUsage) (*certFiles, error) {
	template := template(subject)
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = usages

	if usages[0] == x509.ExtKeyUsageServerAuth {
		template.DNSNames = []string{
			"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc",
			"kubernetes.default.svc.cluster.local",
		}
		template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1), net.ParseIP(kubernetesIP)}
	}

	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}

	der, err := x509.CreateCertificate(rand.Reader, template, ca.cert, key.Public(), ca.key)
	if err != nil {
		return nil, err
	}

	keyPEM, err := privateKeyPEM(key)
	if err != nil {
		return nil, err
	}

	return &certFiles{
		certPEM: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		keyPEM:  keyPEM,
	}, nil
}

func template(subject pkix.Name) *x509.Certificate {
	now := time.Now()

	return &x509.Certificate{
		SerialNumber: new(big.Int).SetInt64(now.UnixNano()),
		Subject:      subject,
		NotBefore:    now.Add(-time.Hour),
		NotAfter:     now.Add(certLifetime),
	}
}

func privateKeyPEM(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}

	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), nil
}
