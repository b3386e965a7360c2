package world

// This file serves the same mux with the same tls.Config as controller-runtime's webhook server, which listens on real
// sockets.

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"strconv"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"code.cloudfoundry.org/eirinix/internal/serving"
)

// webhookServer is controller-runtime's DefaultServer on a network of a world: the same limits, and the same shutdown.
type webhookServer struct {
	options webhook.Options
	network *network
	host    *host
	mux     *http.ServeMux
}

var _ webhook.Server = (*webhookServer)(nil)

// networkOf is where a process listens.
func networkOf(n *network, h *host) serving.Network {
	return serving.Network{
		NewServer: func(o webhook.Options) webhook.Server {
			return &webhookServer{options: o, network: n, host: h, mux: http.NewServeMux()}
		},
		Dial: func(ctx context.Context, _, address string) (net.Conn, error) { return n.dial(ctx, h, address) },
	}
}

func (*webhookServer) NeedLeaderElection() bool                     { return false }
func (s *webhookServer) Register(path string, handler http.Handler) { s.mux.Handle(path, handler) }
func (s *webhookServer) WebhookMux() *http.ServeMux                 { return s.mux }
func (*webhookServer) StartedChecker() healthz.Checker              { return healthz.Ping }

func (s *webhookServer) Start(ctx context.Context) error {
	config := &tls.Config{NextProtos: []string{"h2"}} //nolint:gosec // as controller-runtime; the options raise the version
	for _, change := range s.options.TLSOpts {
		change(config)
	}
	inner, err := s.network.listen(s.host, net.JoinHostPort(s.options.Host, strconv.Itoa(s.options.Port)))
	if err != nil {
		return err
	}
	s.host.listens(s.mux)
	defer s.host.listens(nil)
	server := &http.Server{
		Handler: s.mux, MaxHeaderBytes: 1 << 20, IdleTimeout: 90 * time.Second, ReadHeaderTimeout: 32 * time.Second,
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		<-ctx.Done()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		_ = server.Shutdown(ctx)
	}()
	if err := server.Serve(tls.NewListener(inner, config)); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	<-ended
	return nil
}
