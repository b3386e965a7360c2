package serving

// This file gives controller-runtime's server an HTTP/2 half that knows our idle timeout.

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"
)

const http2Protocol = "h2" // as ALPN calls it

// newHTTP2 returns a server whose HTTP/2 half is set up with this idle timeout, nil if net/http has no HTTP/2.
//
// A server's HTTP/2 half keeps the idle timeout that the server had when it began to serve. By the time we
// come to change controller-runtime's, it has begun, so its half is replaced with that of another server,
// which has begun, and ended, on a listener that has no connections.
func newHTTP2(idle time.Duration) *http.Server {
	server := &http.Server{IdleTimeout: idle}
	_ = server.Serve(noConnections{})
	if server.TLSNextProto[http2Protocol] == nil {
		return nil
	}
	return server
}

// useHTTP2 makes server serve HTTP/2 with the half of another one, which is told of the shutdown, so that it
// sends its connections a GOAWAY. Handler and ErrorLog are looked up in server at each request.
func useHTTP2(server, other *http.Server) {
	server.TLSNextProto[http2Protocol] = other.TLSNextProto[http2Protocol]
	server.RegisterOnShutdown(func() { _ = other.Shutdown(context.Background()) })
}

type noConnections struct{}

func (noConnections) Accept() (net.Conn, error) { return nil, errors.New("no connections here") }
func (noConnections) Close() error              { return nil }
func (noConnections) Addr() net.Addr            { return &net.TCPAddr{} }
