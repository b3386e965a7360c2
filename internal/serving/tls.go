package serving

// This file configures TLS, HTTP/2 and the log of connections, for which controller-runtime's server has no options.

import (
	"context"
	"crypto/tls"
	"errors"
	"log"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"code.cloudfoundry.org/eirinix/internal/lograte"
)

// idleTimeout must exceed the 90 s after which the API server's client drops an idle connection. The side that closes
// first loses the requests that are on their way. The server of controller-runtime uses exactly 90 s.
const idleTimeout = 5 * time.Minute

// configure configures TLS. Apart from the versions, everything is left to Go, which prefers TLS 1.3 and keeps its
// lists of cipher suites and curves up to date. Custom lists would also get in the way of FIPS 140-3: with GOFIPS140 or
// GODEBUG=fips140=on, crypto/tls removes from any list every algorithm that is not approved.
func (s *Server) configure(c *tls.Config) {
	var http2 *http.Server
	c.MinVersion = tls.VersionTLS12
	c.NextProtos = []string{"http/1.1"} // h2 gains little with one API server and has a history of floods
	if s.HTTP2 {
		if http2 = newHTTP2(s.idleTimeout()); http2 != nil {
			c.NextProtos = []string{http2Protocol, "http/1.1"}
		} else {
			s.Log.Info("HTTP/2 is wanted, but net/http has none (GODEBUG=http2server=0?); serving HTTP/1.1")
		}
	}
	if s.Clients != nil {
		// The certificate is requested, but not verified here. Kubelets have none for the health endpoints, and a
		// refused client gets the reason over HTTP and not as a TLS alert. The acceptable CAs (ClientCAs) are not
		// announced. If they were, a Go client such as the API server would send no certificate when its own CA is
		// missing. No one would then learn which one it has. Unknown clients also need not learn our CAs.
		c.ClientAuth = tls.RequestClientCert
	}
	c.GetCertificate = s.GetCertificate
	var once sync.Once
	// Every handshake passes here, even a resumed one, which needs no certificate.
	c.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		once.Do(func() { s.adjust(hello.Context(), http2) })
		return nil, s.open.admit(hello.Conn, slices.Contains(c.NextProtos, http2Protocol) && slices.Contains(hello.SupportedProtos, http2Protocol))
	}
}

// adjust changes settings for which controller-runtime's server has no option. It runs before the first handshake ends,
// and every connection waits for it. So no request can observe a partially changed server.
func (s *Server) adjust(ctx context.Context, http2 *http.Server) {
	server, ok := ctx.Value(http.ServerContextKey).(*http.Server)
	if !ok {
		return
	}
	server.IdleTimeout = s.idleTimeout()
	server.MaxHeaderBytes = mostHeaderBytes
	if http2 != nil {
		useHTTP2(server, http2) //nolint:contextcheck // the shutdown is not the handshake's
	}
	server.ErrorLog = log.New(&connectionLog{log: s.Log}, "", 0)
	// ServeMux answers an unclean path with a redirect, and the API server follows redirects with the whole object in
	// the body. Our handler answers every path itself.
	server.Handler = http.HandlerFunc(s.route)
}

func (s *Server) idleTimeout() time.Duration {
	if s.idle == 0 {
		return idleTimeout
	}
	return s.idle
}

const http2Protocol = "h2" // its ALPN protocol name

// newHTTP2 returns a server whose HTTP/2 implementation has this idle timeout, or nil if net/http has no HTTP/2.
//
// An HTTP/2 implementation keeps the idle timeout that its server had when it started to serve. By the time we can
// change controller-runtime's server, it has started. So its implementation is replaced by that of another server,
// which has started and ended on a listener without connections.
func newHTTP2(idle time.Duration) *http.Server {
	server := &http.Server{IdleTimeout: idle}
	_ = server.Serve(noConnections{})
	if server.TLSNextProto[http2Protocol] == nil {
		return nil
	}
	return server
}

// useHTTP2 makes server serve HTTP/2 with the implementation of another server. The other one is notified of the
// shutdown, so that it sends a GOAWAY to its connections. Handler and ErrorLog are read from server at each request.
func useHTTP2(server, other *http.Server) {
	server.TLSNextProto[http2Protocol] = other.TLSNextProto[http2Protocol]
	server.RegisterOnShutdown(func() { _ = other.Shutdown(context.Background()) })
}

type noConnections struct{}

func (noConnections) Accept() (net.Conn, error) { return nil, errors.New("no connections here") }
func (noConnections) Close() error              { return nil }
func (noConnections) Addr() net.Addr            { return &net.TCPAddr{} }

// connectionLog receives net/http's messages about connections, above all about failed handshakes. An API server that
// does not trust our certificate appears here as "bad certificate".
type connectionLog struct {
	log  logr.Logger
	logs lograte.Limiter
}

// Write logs one line, unless another was logged shortly before: any client can cause them.
func (c *connectionLog) Write(line []byte) (int, error) {
	if withheld, ok := c.logs.Allow("failed", ""); ok {
		const most = 500
		text := strings.ToValidUTF8(string(line[:min(len(line), most)]), "")
		c.log.Info("a connection failed", "reason", strings.TrimSpace(text), "moreSinceLast", withheld)
	}
	return len(line), nil
}
