package conformance_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"code.cloudfoundry.org/eirinix"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
)

// A wiretap stands between the API server and a Manager, as a load balancer that terminates TLS would, and keeps
// the parts that no step receives: the version of the review, the timeout in the URL, the credentials.
type wiretap struct {
	listener net.Listener
	hosts    []string
	secret   func() (cert, key []byte, err error)

	mu    sync.Mutex
	heard []heard
	hold  func(heard) <-chan struct{} // delays a call until the channel is closed; nil delays none
	leaf  *tls.Certificate
}

// heard is one call, as it was on the wire.
type heard struct {
	path, timeout, authorization, version, proto string
	name                                         string // of the object
}

// newWiretap listens. Give its options method to serve.
func newWiretap() *wiretap {
	GinkgoHelper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	Expect(err).NotTo(HaveOccurred())
	return &wiretap{listener: l}
}

func (t *wiretap) port() int32 { return int32(t.listener.Addr().(*net.TCPAddr).Port) }

// options has the API server call the wiretap, and the Manager listen behind it.
func (t *wiretap) options(o *eirinix.ManagerOptions) {
	behind := net.JoinHostPort("127.0.0.1", strconv.Itoa(int(FreePort())))
	o.Port, o.ListenAddress = t.port(), behind
	t.hosts = []string{o.ServiceName + "." + o.WebhookNamespace + ".svc"}
	namespace, name := o.WebhookNamespace, o.OperatorFingerprint+"-setupcertificate"
	t.secret = func() (cert, key []byte, err error) {
		ctx, cancel := context.WithTimeout(context.Background(), patience) // a handshake has none of the spec's
		defer cancel()
		s, err := clients().CoreV1().Secrets(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return nil, nil, err
		}
		return s.Data["tls.crt"], s.Data["tls.key"], nil
	}
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "https", Host: behind})
	proxy.Transport = &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} // our own CA, on loopback
	proxy.ErrorLog = log.New(GinkgoWriter, "wiretap: ", 0)
	server := &http.Server{
		Handler:           t.listen(proxy),
		TLSConfig:         &tls.Config{GetCertificate: t.certificate, NextProtos: []string{"http/1.1"}},
		ErrorLog:          log.New(GinkgoWriter, "wiretap: ", 0),
		ReadHeaderTimeout: patience,
	}
	go func() { _ = server.ServeTLS(t.listener, "", "") }()
	DeferCleanup(server.Close)
}

// listen notes the call and lets it pass.
func (t *wiretap) listen(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		var review struct {
			APIVersion string `json:"apiVersion"`
			Request    struct {
				Name   string `json:"name"`
				Object struct {
					Metadata struct {
						Name string `json:"name"`
					} `json:"metadata"`
				} `json:"object"`
			} `json:"request"`
		}
		_ = json.Unmarshal(body, &review) // the Manager refuses a text that is no review
		call := heard{
			path: r.URL.Path, timeout: r.URL.Query().Get("timeout"), authorization: r.Header.Get("Authorization"),
			version: review.APIVersion, proto: r.Proto, name: review.Request.Object.Metadata.Name,
		}
		t.mu.Lock()
		t.heard = append(t.heard, call)
		hold := t.hold
		t.mu.Unlock()
		if hold != nil {
			if until := hold(call); until != nil {
				select {
				case <-until:
				case <-r.Context().Done(): // the API server has given up
					return
				}
			}
		}
		next.ServeHTTP(w, r)
	})
}

// about returns the calls for objects of that name.
func (t *wiretap) about(name string) []heard {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(t.heard), func(h heard) bool { return h.name != name })
}

func (t *wiretap) all() []heard {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.heard)
}

func (t *wiretap) holdWhere(hold func(heard) <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.hold = hold
}

// certificate is one of the Manager's own CA, so that the caBundle trusts it.
func (t *wiretap) certificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.leaf != nil {
		return t.leaf, nil
	}
	certPEM, keyPEM, err := t.secret()
	if err != nil {
		return nil, err
	}
	issuer, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, err
	}
	parent, err := x509.ParseCertificate(issuer.Certificate[0])
	if err != nil {
		return nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(2), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		DNSNames: t.hosts, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, parent, key.Public(), issuer.PrivateKey)
	if err != nil {
		return nil, err
	}
	t.leaf = &tls.Certificate{Certificate: [][]byte{der, issuer.Certificate[0]}, PrivateKey: key}
	return t.leaf, nil
}

func (t *wiretap) forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.heard = nil
}
