// Package serving is the TLS side of the webhook: the listener, the serving certificate that every process
// signs for itself, draining, and health.
package serving

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"log"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
)

const (
	// idleTimeout must exceed the 90 s after which the API server's client drops an idle connection: the
	// side that closes first loses the requests that are on their way. controller-runtime's server has
	// exactly 90 s.
	idleTimeout = 5 * time.Minute

	// freePortTries bounds how often a free port that somebody else took meanwhile is chosen again.
	freePortTries = 10

	healthzPath = "/healthz"
	readyzPath  = "/readyz"
)

// Server serves a handler over TLS through controller-runtime's webhook server, with health endpoints
// beside it. Fill in the fields, then Start once, Drain, Shutdown.
type Server struct {
	Host           string // address to listen on; empty means all
	WantPort       int    // 0 picks a free one
	GetCertificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	Handler        http.Handler // everything but the health endpoints
	Ready          func() error // why /readyz is not OK; nil result means ready
	Log            logr.Logger

	draining atomic.Bool
	port     int
	inner    webhook.Server
	stop     context.CancelFunc
	done     chan struct{}
	err      error // of the inner server; read after done is closed
}

// Start listens and returns when the port answers with our own certificate. ctx bounds the start only; the
// server runs until Shutdown, so that a program's context does not cut off requests in flight.
func (s *Server) Start(ctx context.Context) error {
	for try := 1; ; try++ {
		port := s.WantPort
		if port == 0 {
			var err error
			if port, err = freePort(s.Host); err != nil {
				return listenError(s.Host, 0, err)
			}
		}
		err := s.startOn(ctx, port)
		if err == nil {
			s.Log.Info("serving", "address", s.Addr().String())
			return nil
		}
		if s.WantPort == 0 && errors.Is(err, syscall.EADDRINUSE) && try < freePortTries {
			continue
		}
		return listenError(s.Host, port, err)
	}
}

func (s *Server) startOn(ctx context.Context, port int) error {
	// The server's own context outlives ctx: controller-runtime makes it the base of every request's,
	// and its end is what stops the server.
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	var once sync.Once
	inner := webhook.NewServer(webhook.Options{
		Host: s.Host,
		Port: port,
		TLSOpts: []func(*tls.Config){func(c *tls.Config) { //nolint:contextcheck // a handshake has a context of its own
			c.MinVersion = tls.VersionTLS12
			c.NextProtos = []string{"http/1.1"} // h2 buys nothing with one API server and has a history of floods
			c.GetCertificate = func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
				once.Do(func() { s.adjust(hello.Context()) })
				return s.GetCertificate(hello)
			}
		}},
	})
	inner.Register("/", http.HandlerFunc(s.route))
	done := make(chan struct{})
	s.port, s.inner, s.stop, s.done = port, inner, stop, done
	go func() {
		defer close(done)
		s.err = inner.Start(running)
	}()
	if err := s.awaitAnswer(ctx); err != nil {
		stop()
		<-done
		return err
	}
	return nil
}

// adjust changes what controller-runtime's server has no option for. It runs before the first handshake
// ends, and every connection waits for it, so no request can see the server half changed.
func (s *Server) adjust(ctx context.Context) {
	server, ok := ctx.Value(http.ServerContextKey).(*http.Server)
	if !ok {
		return
	}
	server.IdleTimeout = idleTimeout
	server.ErrorLog = log.New(&connectionLog{log: s.Log}, "", 0)
	// ServeMux answers an unclean path with a redirect, and the API server follows redirects with the
	// whole object in the body. Ours answers every path itself.
	server.Handler = http.HandlerFunc(s.route)
}

func (s *Server) route(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case healthzPath:
		s.health(w, nil)
	case readyzPath:
		s.health(w, s.ready())
	default:
		s.Handler.ServeHTTP(w, r)
	}
}

func (s *Server) ready() error {
	if s.Draining() {
		return errors.New("stopping")
	}
	return s.Ready()
}

func (s *Server) health(w http.ResponseWriter, err error) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if s.Draining() {
		w.Header().Set("Connection", "close")
	}
	if err != nil {
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = fmt.Fprintf(w, "not ready: %v\n", err)
		return
	}
	_, _ = w.Write([]byte("ok\n"))
}

// awaitAnswer returns when our own certificate answers on the port, or the server has failed.
func (s *Server) awaitAnswer(ctx context.Context) error {
	// The server answers within a millisecond of listening; the ticks only bound the wait.
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		err := s.probe(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-s.done:
			if s.err == nil {
				return errors.New("the webhook server ended at once")
			}
			return s.err
		case <-ctx.Done():
			return fmt.Errorf("the webhook server does not answer: %w (%w)", context.Cause(ctx), err)
		case <-tick.C:
		}
	}
}

// probe makes one handshake with the port and checks that it is this process that answers.
func (s *Server) probe(ctx context.Context) error {
	own, err := s.GetCertificate(&tls.ClientHelloInfo{})
	if err != nil {
		return err
	}
	dialer := tls.Dialer{
		NetDialer: &net.Dialer{Timeout: time.Second},
		Config: &tls.Config{
			MinVersion:         tls.VersionTLS12,
			InsecureSkipVerify: true, // compared byte by byte with our own instead
			VerifyPeerCertificate: func(raw [][]byte, _ [][]*x509.Certificate) error {
				if len(raw) == 0 || string(raw[0]) != string(own.Certificate[0]) {
					return errors.New("another process answers on the port")
				}
				return nil
			},
		},
	}
	conn, err := dialer.DialContext(ctx, "tcp", s.dialAddress())
	if err != nil {
		return err
	}
	return conn.Close()
}

// dialAddress is where this process reaches its own listener.
func (s *Server) dialAddress() string {
	host := s.Host
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
		if ip != nil && ip.To4() == nil {
			host = "::1"
		}
	}
	return net.JoinHostPort(host, strconv.Itoa(s.port))
}

// Port is the port that the server listens on, with the one that was picked for 0; 0 before Start.
func (s *Server) Port() int { return s.port }

// Addr is the address that the server listens on; nil before Start.
func (s *Server) Addr() net.Addr {
	if s.port == 0 {
		return nil
	}
	return &net.TCPAddr{IP: net.ParseIP(s.Host), Port: s.port}
}

// Done is closed when the server has ended, by Shutdown or by itself.
func (s *Server) Done() <-chan struct{} { return s.done }

// Err tells why the server ended by itself. It may be called after Done is closed.
func (s *Server) Err() error { return s.err }

// Drain makes /readyz say no and closes connections after their next answer, while calls are still served.
func (s *Server) Drain() { s.draining.Store(true) }

// Draining tells whether Drain was called.
func (s *Server) Draining() bool { return s.draining.Load() }

// Shutdown stops accepting and waits for the requests in flight, for as long as ctx allows (and a minute
// at most, which is longer than any call can take).
func (s *Server) Shutdown(ctx context.Context) error {
	if s.stop == nil {
		return nil
	}
	s.Drain()
	s.stop()
	select {
	case <-s.done:
		return s.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// freePort asks the system for a port that is free at this moment.
func freePort(host string) (int, error) {
	l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		return 0, err
	}
	port := l.Addr().(*net.TCPAddr).Port
	return port, l.Close()
}

// listenError says what to do about a port that cannot be had.
func listenError(host string, port int, err error) error {
	address := net.JoinHostPort(host, strconv.Itoa(port))
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("cannot listen on %s, another process has that port; stop it, or set ManagerOptions.Port or ListenAddress to another (port 0 in ListenAddress picks a free one): %w", address, err)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("cannot listen on %s, ports below 1024 need a privilege; set ManagerOptions.ListenAddress to a higher port, or grant CAP_NET_BIND_SERVICE: %w", address, err)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return fmt.Errorf("cannot listen on %s, this machine has no such address; where Host is a load balancer's address, set ManagerOptions.ListenAddress to \"0.0.0.0:%d\": %w", address, port, err)
	}
	return fmt.Errorf("cannot serve on %s: %w", address, err)
}
