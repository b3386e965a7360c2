// Package serving is the TLS side of the webhook: the listener, the serving certificate that every process signs for
// itself, client authorization, draining, and health.
package serving

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"code.cloudfoundry.org/eirinix/internal/lograte"
)

// freePortTries limits how often a free port is chosen again if another process has taken it in the meantime.
const freePortTries = 10

// A Receiver receives the API server's calls: a Server, or a Hosted.
type Receiver interface {
	Start(ctx context.Context) error
	Done() <-chan struct{} // closed when it has ended
	Err() error
	Drain()
	Draining() bool
	Shutdown(ctx context.Context) error
	Addr() net.Addr
	Port() int
}

// Server serves a handler over TLS through controller-runtime's webhook server, together with health endpoints. Set the
// fields, call Start once, then Drain, then Shutdown.
type Server struct {
	Host           string // address to listen on; empty means all
	WantPort       int    // 0 chooses a free one
	GetCertificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	Handler        http.Handler // everything but the health endpoints
	Ready          func() error // why /readyz is not OK; a nil result means ready
	Log            logr.Logger
	Clients        *Clients            // nil allows every client; the health endpoints always do
	Refused        func(status int)    // is told of each client that is refused; can be nil
	TLS            []func(*tls.Config) // the program's changes, which CheckTLS has accepted
	Network        Network

	most     int // connections; 0 means maxConnections
	open     connections
	refusals lograte.Limiter
	draining atomic.Bool
	port     int
	stop     context.CancelFunc
	done     chan struct{}
	err      error // of the inner server; read after done is closed
}

// Start listens and returns when the port answers with our own certificate. ctx limits only the start. The server runs
// until Shutdown, so that the end of a program's context does not cut off requests in flight.
func (s *Server) Start(ctx context.Context) error {
	for try := 1; ; try++ {
		port, err := s.WantPort, error(nil)
		if port == 0 {
			port, err = freePort(s.Host)
		}
		if err == nil {
			err = s.startOn(ctx, port)
		}
		if err == nil {
			s.Log.Info("serving", "address", s.Addr().String())
			return nil
		}
		if s.WantPort != 0 || !errors.Is(err, syscall.EADDRINUSE) || try == freePortTries {
			return listenError(s.Host, port, err)
		}
	}
}

func (s *Server) startOn(ctx context.Context, port int) error {
	// The server's own context outlives ctx. controller-runtime derives every request's context from it, and its end
	// stops the server.
	s.open.most, s.open.log = cmp.Or(s.most, maxConnections), s.Log
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	inner := s.Network.newServer(webhook.Options{
		Host: s.Host, Port: port,
		TLSOpts: []func(*tls.Config){s.configure},
	})
	inner.Register("/", http.HandlerFunc(s.route))
	done := make(chan struct{})
	s.port, s.stop, s.done = port, stop, done
	go func() {
		defer close(done)
		s.err = inner.Start(running)
	}()
	err := s.awaitAnswer(ctx)
	if err != nil {
		stop()
		<-done
	}
	return err
}

// awaitAnswer returns when our own certificate answers on the port, or the server has failed.
func (s *Server) awaitAnswer(ctx context.Context) error {
	// The server listens within a millisecond, so the first probe can be too early. Each tick that is missed delays the
	// start.
	tick := time.NewTicker(time.Millisecond)
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

// probe performs one handshake with the port and checks that this process answers. Package net dials this machine if
// the host is unspecified, or none is named.
func (s *Server) probe(ctx context.Context) error {
	own, err := s.GetCertificate(&tls.ClientHelloInfo{})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	conn, err := s.Network.DialTLS(ctx, net.JoinHostPort(s.Host, strconv.Itoa(s.port)), &tls.Config{
		MinVersion:         tls.VersionTLS12,
		InsecureSkipVerify: true, // compared byte by byte with our own instead
		VerifyPeerCertificate: func(raw [][]byte, _ [][]*x509.Certificate) error {
			if len(raw) == 0 || string(raw[0]) != string(own.Certificate[0]) {
				return errors.New("another process answers on the port")
			}
			return nil
		},
	})
	if err != nil {
		return err
	}
	return conn.Close()
}

// freePort returns a port that is free at this moment, chosen by the system.
func freePort(host string) (int, error) {
	l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		return 0, err
	}
	port := l.Addr().(*net.TCPAddr).Port
	return port, l.Close()
}

// listenError adds the remedy to an error about a port that cannot be used.
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

func (s *Server) route(w http.ResponseWriter, r *http.Request) {
	if x := s.open.begin(r); x != nil {
		defer x.end(r)
	}
	switch r.URL.Path {
	case "/healthz":
		s.health(w, nil)
	case "/readyz":
		s.health(w, s.ready())
	default:
		if s.Clients != nil {
			if err := s.Clients.Check(r.TLS); err != nil {
				s.refuse(w, r, err)
				return
			}
		}
		s.Handler.ServeHTTP(w, r)
	}
}

// refuse answers a client that is not allowed. The body is not read. The connection is closed, because a client
// presents a new certificate only on a new connection.
func (s *Server) refuse(w http.ResponseWriter, r *http.Request, err error) {
	status := http.StatusForbidden
	if errors.Is(err, ErrNoClientCertificate) {
		status = http.StatusUnauthorized
	}
	if s.Refused != nil {
		s.Refused(status)
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Connection", "close")
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, "%v; expected is %s\n", err, s.Clients.Expected())
	// client-go shows its user the text of a 403, but not that of a 401, so it is also logged here.
	if withheld, ok := s.refusals.Allow("refused", ""); ok {
		s.Log.Info("refused a client", "status", status, "reason", err.Error(), "expected", s.Clients.Expected(),
			"from", r.RemoteAddr, "moreSinceLast", withheld)
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

// Port returns the port that the server listens on, also if it was chosen for 0. It is 0 before Start.
func (s *Server) Port() int { return s.port }

// Addr returns the address that the server listens on, or nil before Start.
func (s *Server) Addr() net.Addr {
	if s.port == 0 {
		return nil
	}
	return &net.TCPAddr{IP: net.ParseIP(s.Host), Port: s.port}
}

// Done returns a channel that is closed when the server has ended, through Shutdown or by itself.
func (s *Server) Done() <-chan struct{} { return s.done }

// Err returns why the server ended by itself. It can be called once Done is closed.
func (s *Server) Err() error { return s.err }

// Drain makes /readyz report not ready and closes connections after their next response, while calls are still served.
func (s *Server) Drain() { s.draining.Store(true) }

// Draining reports whether Drain was called.
func (s *Server) Draining() bool { return s.draining.Load() }

// Shutdown stops accepting connections and waits for the requests in flight, and for those that are on their way on a
// new connection. It waits for as long as ctx allows, but at most a minute, which is longer than any call can take.
func (s *Server) Shutdown(ctx context.Context) error {
	if s.stop == nil {
		return nil
	}
	s.Drain()
	s.open.closeUnused(ctx)
	s.stop()
	select {
	case <-s.done:
		return s.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// EveryAddress reports whether listening on a host means listening on all addresses.
func EveryAddress(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "" || err == nil && ip.IsUnspecified()
}

// Collide reports whether one process cannot listen on both addresses, because they have the same port on the same
// interface or on all.
func Collide(a, b string) bool {
	hostA, portA, errA := net.SplitHostPort(a)
	hostB, portB, errB := net.SplitHostPort(b)
	return errA == nil && errB == nil && portA == portB && portA != "0" && (hostA == hostB || EveryAddress(hostA) || EveryAddress(hostB))
}
