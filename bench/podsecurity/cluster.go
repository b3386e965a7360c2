package podsecurity

// This file starts an API server for one group of peers, and creates their objects.

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"code.cloudfoundry.org/eirinix/internal/ca"
	eirinixtest "code.cloudfoundry.org/eirinix/testing"
)

// cluster is an API server whose own plugin PodSecurity is off, and a folder for the files of its peers.
type cluster struct {
	*eirinixtest.ControlPlane
	client client.Client
	typed  kubernetes.Interface
	dir    string
	bundle []byte // the CA of the certificate that certificateFiles names
}

// newCluster starts an API server. The caller stops it.
func newCluster(ctx context.Context) (*cluster, error) {
	dir, err := os.MkdirTemp("", "eirinix-bench-")
	if err != nil {
		return nil, err
	}
	c := &cluster{dir: dir}
	c.ControlPlane, err = eirinixtest.NewControlPlane(ctx, eirinixtest.ControlPlaneOptions{
		APIServerArgs: []string{"--disable-admission-plugins=PodSecurity"},
	})
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	if c.client, err = client.New(c.Config(), client.Options{}); err == nil {
		c.typed, err = kubernetes.NewForConfig(c.Config())
	}
	if err == nil {
		err = c.writeCertificate()
	}
	if err != nil {
		return nil, errors.Join(err, c.stop())
	}
	return c, nil
}

func (c *cluster) stop() error { return errors.Join(c.Stop(), os.RemoveAll(c.dir)) }

// create creates objects in their order.
func (c *cluster) create(ctx context.Context, objects ...client.Object) error {
	for _, object := range objects {
		if err := c.client.Create(ctx, object); err != nil {
			return fmt.Errorf("%s %s: %w", object.GetObjectKind().GroupVersionKind().Kind, object.GetName(), err)
		}
	}
	return nil
}

// certificateFiles returns the paths of a serving certificate for 127.0.0.1 and of its key. Their folder holds nothing
// else, and the names are those of a Secret of type kubernetes.io/tls.
func (c *cluster) certificateFiles() (certificate, key string) {
	return filepath.Join(c.dir, "serving", "tls.crt"), filepath.Join(c.dir, "serving", "tls.key")
}

func (c *cluster) writeCertificate() error {
	now := time.Now()
	authority, err := ca.New("bench", 24*time.Hour, now)
	if err != nil {
		return err
	}
	serving, err := authority.SignServing([]string{"127.0.0.1"}, 12*time.Hour, now)
	if err != nil {
		return err
	}
	key, err := x509.MarshalPKCS8PrivateKey(serving.PrivateKey)
	if err != nil {
		return err
	}
	var chain bytes.Buffer
	for _, der := range serving.Certificate {
		chain.Write(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	}
	c.bundle = authority.CertificatePEM
	certificateFile, keyFile := c.certificateFiles()
	return errors.Join(
		os.Mkdir(filepath.Dir(keyFile), 0o700),
		os.WriteFile(certificateFile, chain.Bytes(), 0o600),
		os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}), 0o600),
	)
}

// freePort returns a port on loopback on which no process listens.
func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	address, ok := l.Addr().(*net.TCPAddr)
	if !ok {
		return 0, fmt.Errorf("%s has no port", l.Addr())
	}
	return address.Port, l.Close()
}
