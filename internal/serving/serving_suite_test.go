package serving_test

// This file runs the specs, and holds their fixtures: certificates, a server and its clients, and a log.

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"code.cloudfoundry.org/eirinix/internal/ca"
	"code.cloudfoundry.org/eirinix/internal/serving"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
)

// The generator of random numbers in FIPS 140 mode starts at its first use, which fails in the time of a bubble.
func init() { _ = rand.Text() }

func TestServing(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(30 * time.Second) // of a busy machine
	RunSpecs(t, "internal/serving")
}

// bubble runs f in synctest's time. It needs a *testing.T, which Ginkgo does not have.
func bubble(t *testing.T, f func(t *testing.T)) {
	synctest.Test(t, func(t *testing.T) {
		RegisterTestingT(t)
		f(t)
	})
}

// passes lets the time of a bubble pass.
func passes(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

const (
	day  = 24 * time.Hour
	year = 365 * day
)

// noon is the moment of every spec that does not move its clock.
var noon = time.Date(2030, time.May, 17, 12, 0, 0, 0, time.UTC)

// clock is a wall clock that specs move.
type clock struct{ t atomic.Pointer[time.Time] }

func newClock(t time.Time) *clock {
	c := &clock{}
	c.set(t)
	return c
}

func (c *clock) set(t time.Time) { c.t.Store(&t) }
func (c *clock) now() time.Time  { return *c.t.Load() }

// clientCert makes a client certificate for a day from the CA's beginning on, changed by edit.
func clientCert(issuer *ca.Authority, name string, edit ...func(*x509.Certificate)) *tls.Certificate {
	GinkgoHelper()
	return certifiedBy(issuer.Certificate, issuer.PrivateKey, name, edit...)
}

func certifiedBy(issuer *x509.Certificate, issuerKey crypto.Signer, name string, edit ...func(*x509.Certificate)) *tls.Certificate {
	GinkgoHelper()
	key := NewKey()
	template := &x509.Certificate{
		SerialNumber: new(big.Int).SetBytes([]byte(rand.Text())), Subject: pkix.Name{CommonName: name},
		NotBefore: issuer.NotBefore, NotAfter: issuer.NotBefore.Add(day), BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	for _, e := range edit {
		e(template)
	}
	der := Must(x509.CreateCertificate(rand.Reader, template, issuer, key.Public(), issuerKey))
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: Must(x509.ParseCertificate(der))}
}

// intermediateCA is an editor, as are until and from.
func intermediateCA(c *x509.Certificate) {
	c.IsCA, c.KeyUsage, c.ExtKeyUsage = true, x509.KeyUsageCertSign, nil
}

func until(t time.Time) func(*x509.Certificate) { return func(c *x509.Certificate) { c.NotAfter = t } }

func from(t time.Time) func(*x509.Certificate) { return func(c *x509.Certificate) { c.NotBefore = t } }

// connectionOf is the connection of a client that has sent these certificates.
func connectionOf(certificates ...*tls.Certificate) *tls.ConnectionState {
	state := &tls.ConnectionState{}
	for _, c := range certificates {
		state.PeerCertificates = append(state.PeerCertificates, c.Leaf)
	}
	return state
}

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
	return Must(NewCA(year, time.Now()).SignServing([]string{"localhost"}, day, time.Now()))
}

// newServer makes one that listens on a free port of the loopback and answers everything with 200 and the path.
func newServer() *serving.Server {
	GinkgoHelper()
	certificate := selfSigned()
	return &serving.Server{
		Host:           "127.0.0.1",
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return certificate, nil },
		Handler:        http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.URL.Path) }),
		Ready:          func() error { return nil },
	}
}

// start starts the server and shuts it down when the spec ends.
func start(ctx context.Context, s *serving.Server) {
	GinkgoHelper()
	Expect(s.Start(ctx)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) { Expect(s.Shutdown(ctx)).To(Succeed()) }, NodeTimeout(time.Minute))
}

// caller is an HTTP client that trusts any certificate and follows no redirect. It forgets its connections when the spec
// ends.
func caller() *http.Client {
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	DeferCleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, Timeout: 20 * time.Second}
}

type reply struct {
	Status int
	Body   string
	Closes bool // the server ends the connection after this answer
}

func get(client *http.Client, s *serving.Server, path string) (reply, error) {
	return getFrom(client, s.Addr(), path)
}

func getFrom(client *http.Client, address net.Addr, path string) (reply, error) {
	resp, err := client.Get("https://" + address.String() + path)
	if err != nil {
		return reply{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return reply{Status: resp.StatusCode, Body: string(body), Closes: resp.Close}, err
}

// dial opens a connection that ends with the spec, and sends a text.
func dial(s *serving.Server, text string) *tls.Conn {
	GinkgoHelper()
	conn := Must(tls.Dial("tcp", s.Addr().String(), &tls.Config{InsecureSkipVerify: true}))
	DeferCleanup(func() { _ = conn.Close() }) // which fails where the server has closed it
	Must(io.WriteString(conn, text))
	return conn
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
