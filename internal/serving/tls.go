package serving

// This file configures TLS and the log of connections, for which controller-runtime's server has no options.

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"code.cloudfoundry.org/eirinix/internal/lograte"
)

// idleTimeout must exceed the 90 s after which the API server's client drops an idle connection. The side that closes
// first loses the requests that are on their way. The server of controller-runtime uses exactly 90 s.
const idleTimeout = 5 * time.Minute

// ChangedTLS returns the configuration that a Server serves with, but for what it sets itself, after a program's changes
// (nil for none). Apart from versions and protocol, everything is left to Go, which prefers TLS 1.3 and keeps its lists of
// cipher suites and curves up to date. Lists of our own would also get in the way of FIPS 140-3: with GOFIPS140 or
// GODEBUG=fips140=on, crypto/tls removes from any list every algorithm that is not approved.
func ChangedTLS(c *tls.Config, changes []func(*tls.Config)) *tls.Config {
	c.MinVersion = tls.VersionTLS12
	c.NextProtos = []string{"http/1.1"} // API servers use h2 for loopback URLs only, and it has a history of floods (CVE-2023-44487)
	for _, change := range changes {
		if change != nil {
			change(c)
		}
	}
	return c
}

// CheckTLS returns an error, with the name of the changes, for each setting that a Server cannot keep.
func CheckTLS(name string, changes []func(*tls.Config)) (err error) {
	c := ChangedTLS(new(tls.Config), changes)
	badIf := func(wrong bool, format string, args ...any) {
		if wrong {
			err = errors.Join(err, fmt.Errorf("eirinix: "+name+" sets "+format, args...))
		}
	}
	badIf(c.MinVersion != 0 && c.MinVersion < tls.VersionTLS12, "MinVersion to %s; raise it to TLS 1.2, or leave it out", tls.VersionName(c.MinVersion))
	badIf(c.MaxVersion != 0 && c.MaxVersion < max(c.MinVersion, tls.VersionTLS12), "MaxVersion to %s, with which no client could connect; raise it, or leave it out", tls.VersionName(c.MaxVersion))
	badIf(len(c.Certificates) > 0 || c.GetCertificate != nil, "a certificate, but the Manager provides its own; leave it out, or also set ManagerOptions.Certificates")
	badIf(c.ClientAuth != tls.NoClientCert || c.ClientCAs != nil, "ClientAuth or ClientCAs, but the Manager verifies clients; leave them out, and set ManagerOptions.ClientCA")
	badIf(c.GetConfigForClient != nil, "GetConfigForClient, which the Manager needs; leave it out, and change the configuration itself")
	return err
}

func (s *Server) configure(c *tls.Config) {
	ChangedTLS(c, s.TLS)
	c.MinVersion = max(c.MinVersion, tls.VersionTLS12) // 0 would leave it to GODEBUG
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
		once.Do(func() { s.adjust(hello.Context()) })
		return nil, s.open.admit(hello.Conn)
	}
}

// adjust changes settings for which controller-runtime's server has no option. It runs before the first handshake ends,
// and every connection waits for it. So no request can observe a partially changed server.
func (s *Server) adjust(ctx context.Context) {
	server, ok := ctx.Value(http.ServerContextKey).(*http.Server)
	if !ok {
		return
	}
	server.IdleTimeout = idleTimeout
	server.MaxHeaderBytes = maxHeaderBytes
	server.ErrorLog = log.New(&connectionLog{log: s.Log}, "", 0)
	// ServeMux answers an unclean path with a redirect, and the API server follows redirects with the whole object in
	// the body. Our handler answers every path itself.
	server.Handler = http.HandlerFunc(s.route)
}

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
