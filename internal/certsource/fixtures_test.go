package certsource_test

// This file holds issuers, and the recorder of a Source's deliveries.

import (
	"context"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"code.cloudfoundry.org/eirinix/internal/ca"
	"code.cloudfoundry.org/eirinix/internal/certsource"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
)

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

// recorder is a caller of Run. It uses each delivery as a client would.
type recorder struct {
	hosts []string
	now   func() time.Time

	mu        sync.Mutex
	delivered []certsource.Material
	reasons   []string
	waits     bool // the last word was a reason to wait
	bad       []error
	lines     []string
}

func newRecorder() *recorder { return &recorder{hosts: hosts, now: time.Now} }

func (r *recorder) deliver(m certsource.Material) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.delivered, r.waits = append(r.delivered, m), false
	if err := m.Verify(r.hosts, r.now()); err != nil {
		r.bad = append(r.bad, err)
	}
	if err := handshake(m, r.hosts[0], r.now()); err != nil {
		r.bad = append(r.bad, err)
	}
}

func (r *recorder) wait(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reasons, r.waits = append(r.reasons, err.Error()), true
}

// serial is that of the certificate in use, empty before there is one.
func (r *recorder) serial() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.delivered) == 0 {
		return ""
	}
	return r.delivered[len(r.delivered)-1].Certificate.Leaf.SerialNumber.String()
}

func (r *recorder) bundle() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.delivered) == 0 {
		return ""
	}
	return string(r.delivered[len(r.delivered)-1].Bundle)
}

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
	return append([]string(nil), r.reasons...)
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
	return append([]string(nil), r.lines...)
}

// faults returns the errors of all deliveries.
func (r *recorder) faults() []error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.bad
}

// run runs a source until the spec ends, or stop is called. Both see to it that Run returns, and nothing bad was
// delivered.
func run(source certsource.Source, r *recorder) (stop func()) {
	GinkgoHelper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- source.Run(ctx, r.deliver, r.wait) }()
	stop = sync.OnceFunc(func() {
		GinkgoHelper()
		cancel()
		Eventually(done).Should(Receive(BeNil()), "Run ends with its context")
		Expect(r.faults()).To(BeEmpty())
	})
	DeferCleanup(stop)
	return stop
}

// handshake is a TLS connection of a client that trusts the bundle and asks for the host.
func handshake(m certsource.Material, host string, now time.Time) error {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(m.Bundle)
	server := &tls.Config{Certificates: []tls.Certificate{*m.Certificate}}
	client := &tls.Config{RootCAs: roots, ServerName: host, Time: func() time.Time { return now }}
	return connect(server, client)
}

// hand is a clock that specs set.
type hand struct{ ahead atomic.Int64 }

func (h *hand) now() time.Time           { return time.Now().Add(time.Duration(h.ahead.Load())) }
func (h *hand) advance(by time.Duration) { h.ahead.Add(int64(by)) }

// plain is for tests that synctest needs a *testing.T for.
func plain(t *testing.T) *recorder {
	RegisterTestingT(t)
	return newRecorder()
}
