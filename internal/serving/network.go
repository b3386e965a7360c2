package serving

// This file connects a Server to a network.

import (
	"context"
	"crypto/tls"
	"net"

	"sigs.k8s.io/controller-runtime/pkg/webhook"
)

// Network is where a program listens, and how it reaches its own port. The zero value is the machine's network. Another
// one is for tests of whole programs.
type Network struct {
	NewServer func(webhook.Options) webhook.Server
	Dial      func(ctx context.Context, network, address string) (net.Conn, error)
}

func (n Network) newServer(o webhook.Options) webhook.Server {
	if n.NewServer == nil {
		return webhook.NewServer(o)
	}
	return n.NewServer(o)
}

// DialTLS connects, and completes the handshake. A ServerName that is missing is that of the address.
func (n Network) DialTLS(ctx context.Context, address string, config *tls.Config) (net.Conn, error) {
	if n.Dial == nil {
		return (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", address)
	}
	connection, err := n.Dial(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	secure := tls.Client(connection, config)
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = connection.Close()
		return nil, err
	}
	return secure, nil
}
