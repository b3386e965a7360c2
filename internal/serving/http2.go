package serving

// This file equips controller-runtime's server with an HTTP/2 implementation that uses our idle timeout.

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"
)

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
