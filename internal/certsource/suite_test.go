package certsource_test

// This file runs the specs, and holds their fixtures: issuers, and the recorder of a Source's deliveries.

import (
	"context"
	"crypto"
	"crypto/fips140"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"code.cloudfoundry.org/eirinix/internal/ca"
	"code.cloudfoundry.org/eirinix/internal/certsource"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
)

func TestCertsource(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(30 * time.Second) // for what takes milliseconds on an idle machine
	SetDefaultEventuallyPollingInterval(5 * time.Millisecond)
	RunSpecs(t, "internal/certsource")
}

// bubble runs f in synctest's time, which needs a *testing.T: months pass at once there.
func bubble(t *testing.T, f func(t *testing.T)) {
	if fips140.Enabled() {
		t.Skip("keys are made in the bubble, and FIPS 140-3's source of entropy needs a real clock")
	}
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

// background runs a source in a bubble.
func background(t *testing.T, source certsource.Source, r *recorder) {
	go func() { _ = source.Run(t.Context(), r.deliver, r.wait) }()
	synctest.Wait()
}

// at is a connection to an API server of a few lines.
func at(server http.RoundTripper) *rest.Config {
	return &rest.Config{Host: "https://api.example.org", Transport: server, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}
}

func answered(code int, body io.Reader) *http.Response {
	return &http.Response{StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(body)}
}

func failed(code int, reason metav1.StatusReason) *http.Response {
	return answered(code, strings.NewReader(fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"code":%d}`, reason, code)))
}

const day = 24 * time.Hour

// hosts are those of every certificate that does not say otherwise.
var hosts = []string{"webhook.cf.svc", "127.0.0.1"}

// issued holds the certificate, key and CA of an issuer, as texts.
type issued struct {
	certificate, key, ca []byte
	authority            *ca.Authority
}

func newAuthority() *ca.Authority { return Must(ca.New("spec", 365*day, time.Now())) }

// issue makes a certificate of a CA of its own.
func issue() issued { return issueFor(hosts, 90*day, time.Now()) }

func issueFor(hosts []string, lifetime time.Duration, at time.Time) issued {
	GinkgoHelper()
	return issueBy(Must(ca.New("spec", 365*day, at)), hosts, lifetime, at)
}

func issueBy(authority *ca.Authority, hosts []string, lifetime time.Duration, at time.Time) issued {
	GinkgoHelper()
	certificate := Must(authority.SignServing(hosts, lifetime, at))
	return issued{
		certificate: ca.EncodeCertificate(certificate.Leaf),
		key:         PKCS8(certificate.PrivateKey),
		ca:          authority.CertificatePEM,
		authority:   authority,
	}
}

// sign issues a certificate for a key, changed by the editors.
func sign(authority *ca.Authority, public crypto.PublicKey, edit ...func(*x509.Certificate)) []byte {
	GinkgoHelper()
	return Sign(authority, public, append([]func(*x509.Certificate){ForServer(hosts...)}, edit...)...)
}

func join(texts ...[]byte) (all []byte) {
	for _, t := range texts {
		all = append(all, t...)
	}
	return all
}

func serialOf(i issued) string {
	GinkgoHelper()
	return leafOf(i.certificate).SerialNumber.String()
}

func leafOf(certificatePEM []byte) *x509.Certificate {
	GinkgoHelper()
	block, _ := pem.Decode(certificatePEM)
	return Must(x509.ParseCertificate(block.Bytes))
}

// shared is a value that a spec changes while a source reads it.
type shared[T any] struct {
	mu    sync.Mutex
	value T
}

func (s *shared[T]) set(value T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.value = value
}

func (s *shared[T]) get() T {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.value
}

// recorder is a caller of Run. It uses each delivery as a client would.
type recorder struct {
	now func() time.Time

	mu        sync.Mutex
	delivered []certsource.Material
	reasons   []string
	waits     bool // the last word was a reason to wait
	bad       []error
	lines     []string
}

func newRecorder() *recorder { return &recorder{now: time.Now} }

func (r *recorder) deliver(m certsource.Material) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.delivered, r.waits = append(r.delivered, m), false
	if err := errors.Join(m.Verify(hosts, r.now()), handshake(m, hosts[0], r.now())); err != nil {
		r.bad = append(r.bad, err)
	}
}

func (r *recorder) wait(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reasons, r.waits = append(r.reasons, err.Error()), true
}

// last is the Material in use, empty before there is anything.
func (r *recorder) last() certsource.Material {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.delivered) == 0 {
		return certsource.Material{Certificate: &tls.Certificate{Leaf: &x509.Certificate{}}}
	}
	return r.delivered[len(r.delivered)-1]
}

// serial is that of the certificate in use.
func (r *recorder) serial() string { return fmt.Sprint(r.last().Certificate.Leaf.SerialNumber) }

func (r *recorder) bundle() string { return string(r.last().Bundle) }

// deliveries counts them.
func (r *recorder) deliveries() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.delivered)
}

// reason is why it waits, empty when it does not.
func (r *recorder) reason() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.waits {
		return ""
	}
	return r.reasons[len(r.reasons)-1]
}

func (r *recorder) allReasons() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.reasons)
}

func (r *recorder) log() logr.Logger {
	return funcr.New(func(_, line string) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.lines = append(r.lines, line)
		GinkgoWriter.Println(line)
	}, funcr.Options{Verbosity: 1})
}

func (r *recorder) logged() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.lines)
}

// faults returns the errors of all deliveries.
func (r *recorder) faults() []error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.bad
}

// run runs a source until the spec ends. Then Run returns, and nothing bad was delivered.
func run(source certsource.Source, r *recorder) {
	GinkgoHelper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- source.Run(ctx, r.deliver, r.wait) }()
	DeferCleanup(func() {
		cancel()
		Eventually(done).Should(Receive(BeNil()), "Run ends with its context")
		Expect(r.faults()).To(BeEmpty())
	})
}

// handshake is a TLS connection of a client that trusts the bundle and asks for the host.
func handshake(m certsource.Material, host string, now time.Time) error {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(m.Bundle)
	server := &tls.Config{Certificates: []tls.Certificate{*m.Certificate}}
	client := &tls.Config{RootCAs: roots, ServerName: host, Time: func() time.Time { return now }}
	// Over loopback: a pipe would block both when one refuses.
	listener, err := tls.Listen("tcp", "127.0.0.1:0", server)
	if err != nil {
		return err
	}
	defer listener.Close()
	served := make(chan error, 1)
	go func() {
		conn, err := listener.Accept()
		if err == nil {
			err = conn.(*tls.Conn).Handshake()
			conn.Close()
		}
		served <- err
	}()
	conn, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		return err
	}
	err = tls.Client(conn, client).Handshake()
	conn.Close()
	return errors.Join(err, <-served)
}

// count is how many of the lines contain all of the words.
func count(lines []string, words ...string) (n int) {
	for _, line := range lines {
		all := true
		for _, word := range words {
			all = all && strings.Contains(line, word)
		}
		if all {
			n++
		}
	}
	return n
}
