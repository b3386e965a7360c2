// Package metricsauth protects a metrics server. It serves over TLS and asks the API server about each caller, with a
// TokenReview and a SubjectAccessReview. It answers as controller-runtime's metrics/filters does. That package cannot
// be used here because it links the API server's own code.
package metricsauth

import (
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"code.cloudfoundry.org/eirinix/internal/cluster"
)

// Exposed reports whether other machines can reach an address to listen on ("host:port"). They cannot reach a loopback
// address, "localhost", or an address that is switched off ("" or "0").
func Exposed(address string) bool {
	if address == "" || address == "0" {
		return false
	}
	host, _, _ := net.SplitHostPort(address)
	ip, err := netip.ParseAddr(host)
	return host != "localhost" && (err != nil || !ip.IsLoopback())
}

// Protect makes a metrics server require a token. own returns the serving certificate, or nil while there is none.
// Callers then get the metrics server's self-signed certificate.
func Protect(o *metricsserver.Options, own func(*tls.ClientHelloInfo) *tls.Certificate, log logr.Logger) {
	o.SecureServing = true
	o.FilterProvider = func(config *rest.Config, client *http.Client) (metricsserver.Filter, error) {
		clients, err := cluster.NewClientsWith(config, client)
		if err != nil {
			return nil, err
		}
		return newReviewer(clients, log).filter, nil
	}
	o.TLSOpts = append(o.TLSOpts, func(c *tls.Config) {
		c.NextProtos = []string{"http/1.1"} // HTTP/2 has a history of floods, and a scrape gains nothing from it
		c.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			certificate := own(hello)
			if certificate == nil {
				return nil, nil //nolint:nilnil // the configuration of the server stands
			}
			return &tls.Config{NextProtos: c.NextProtos, Certificates: []tls.Certificate{*certificate}}, nil
		}
	})
}
