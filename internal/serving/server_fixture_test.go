package serving_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"math/big"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"code.cloudfoundry.org/eirinix/internal/serving"
)

// logLines are the lines of a log. They are safe for concurrent use.
type logLines struct {
	mu    sync.Mutex
	lines []string
}

// logger returns a logger that adds its lines.
func (l *logLines) logger() logr.Logger {
	return funcr.New(func(_, line string) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.lines = append(l.lines, line)
	}, funcr.Options{})
}

// with returns the lines that contain the text.
func (l *logLines) with(text string) (found []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.lines {
		if strings.Contains(line, text) {
			found = append(found, line)
		}
	}
	return found
}

// String returns all lines, which gomega prints when an expectation fails.
func (l *logLines) String() string { return strings.Join(l.with(""), "\n") }

// selfSigned makes a certificate; those of two calls differ.
func selfSigned() *tls.Certificate {
	GinkgoHelper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	Expect(err).NotTo(HaveOccurred())
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"localhost"}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	Expect(err).NotTo(HaveOccurred())
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// newServer makes one that listens on a free port of the loopback and answers everything with 200 and the
// path.
func newServer() *serving.Server {
	GinkgoHelper()
	certificate := selfSigned()
	return &serving.Server{
		Host:           "127.0.0.1",
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return certificate, nil },
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, r.URL.Path)
		}),
		Ready: func() error { return nil },
	}
}

// start starts the server and shuts it down when the spec ends.
func start(ctx context.Context, s *serving.Server) {
	GinkgoHelper()
	Expect(s.Start(ctx)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) { Expect(s.Shutdown(ctx)).To(Succeed()) }, NodeTimeout(time.Minute))
}

// caller is an HTTP client that trusts any certificate, follows no redirect and forgets its connections
// when the spec ends.
func caller() *http.Client {
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	DeferCleanup(transport.CloseIdleConnections)
	return &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Timeout:       20 * time.Second,
	}
}

type reply struct {
	Status int
	Body   string
	Closes bool // the server ends the connection after this answer
}

func get(client *http.Client, s *serving.Server, path string) (reply, error) {
	resp, err := client.Get("https://" + s.Addr().String() + path)
	if err != nil {
		return reply{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return reply{Status: resp.StatusCode, Body: string(body), Closes: resp.Close}, err
}

// handshake opens a connection and closes it again; config may be nil.
func handshake(s *serving.Server, config *tls.Config) (tls.ConnectionState, error) {
	if config == nil {
		config = &tls.Config{}
	}
	config.InsecureSkipVerify = true
	conn, err := tls.Dial("tcp", s.Addr().String(), config)
	if err != nil {
		return tls.ConnectionState{}, err
	}
	return conn.ConnectionState(), conn.Close()
}

var errNotYet = errors.New("not registered yet")
