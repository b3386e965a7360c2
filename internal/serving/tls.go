package serving

// This file sets up TLS and HTTP as controller-runtime's server has no options for.

import (
	"context"
	"crypto/tls"
	"log"
	"net/http"
	"sync"
	"time"
)

// idleTimeout must exceed the 90 s after which the API server's client drops an idle connection: the
// side that closes first loses the requests that are on their way. controller-runtime's server has
// exactly 90 s.
const idleTimeout = 5 * time.Minute

// configure sets up TLS. Versions aside everything is left to Go, which prefers TLS 1.3 and keeps its lists of
// cipher suites and curves up to date. Lists of our own would also be in the way of FIPS 140-3: with
// GOFIPS140 or GODEBUG=fips140=on, crypto/tls strikes from whatever list there is all that is not approved.
func (s *Server) configure(c *tls.Config) {
	var http2 *http.Server
	c.MinVersion = tls.VersionTLS12
	c.NextProtos = []string{"http/1.1"} // h2 buys little with one API server and has a history of floods
	if s.HTTP2 {
		if http2 = newHTTP2(s.idleTimeout()); http2 != nil {
			c.NextProtos = []string{http2Protocol, "http/1.1"}
		} else {
			s.Log.Info("HTTP/2 is wanted, but net/http has none (GODEBUG=http2server=0?); serving HTTP/1.1")
		}
	}
	if s.Clients != nil {
		// Asked for, but not verified here: kubelets have none for the health endpoints, and whoever is
		// refused is told why over HTTP and not by a TLS alert. The acceptable CAs (ClientCAs) are not
		// announced: a Go client, as the API server is, that finds its own not among them sends no
		// certificate at all, so nobody would learn which one it has; and strangers need not know our CAs.
		c.ClientAuth = tls.RequestClientCert
	}
	c.GetCertificate = s.GetCertificate
	var once sync.Once
	// Every handshake passes here, a resumed one (which needs no certificate) too.
	c.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		once.Do(func() { s.adjust(hello.Context(), http2) })
		return nil, s.open.admit(hello.Conn)
	}
}

// adjust changes what controller-runtime's server has no option for. It runs before the first handshake
// ends, and every connection waits for it, so no request can see the server half changed.
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
	// ServeMux answers an unclean path with a redirect, and the API server follows redirects with the
	// whole object in the body. Ours answers every path itself.
	server.Handler = http.HandlerFunc(s.route)
}

func (s *Server) idleTimeout() time.Duration {
	if s.idle == 0 {
		return idleTimeout
	}
	return s.idle
}
