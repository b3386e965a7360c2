// Package serving is the TLS side of the webhook: the listener, the serving certificate that every process signs for
// itself, client authorization, draining, and health.
package serving

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"code.cloudfoundry.org/eirinix/internal/lograte"
)

const (
	// freePortTries limits how often a free port is chosen again if another process has taken it in the meantime.
	freePortTries = 10

	healthzPath = "/healthz"
	readyzPath  = "/readyz"
)

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
	TLS            []func(*tls.Config) // the program's changes, which CheckTLS has accepted

	idle     time.Duration // 0 means idleTimeout
	most     int           // connections; 0 means maxConnections
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
	inner := webhook.NewServer(webhook.Options{
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

func (s *Server) route(w http.ResponseWriter, r *http.Request) {
	if x := s.open.begin(r); x != nil {
		defer x.end(r)
	}
	switch r.URL.Path {
	case healthzPath:
		s.health(w, nil)
	case readyzPath:
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

// Shutdown stops accepting connections and waits for the requests in flight. It waits for as long as ctx allows, but at
// most a minute, which is longer than any call can take.
func (s *Server) Shutdown(ctx context.Context) error {
	if s.stop == nil {
		return nil
	}
	s.Drain()
	s.open.closeUnused()
	s.stop()
	select {
	case <-s.done:
		return s.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
