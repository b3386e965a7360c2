package serving_test

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"code.cloudfoundry.org/eirinix/internal/ca"
	"code.cloudfoundry.org/eirinix/internal/serving"
)

// showing is a caller with a client certificate.
func showing(certificate *tls.Certificate) *http.Client {
	client := caller()
	client.Transport.(*http.Transport).TLSClientConfig.Certificates = []tls.Certificate{*certificate}
	return client
}

var _ = Describe("A server that asks who calls", func() {
	var (
		s                *serving.Server
		trusted, another *ca.Authority
		handled          atomic.Int32
	)
	BeforeEach(func() {
		handled.Store(0)
		s = newServer()
		inner := s.Handler
		s.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			handled.Add(1)
			inner.ServeHTTP(w, r)
		})
		trusted, another = leafCA(GinkgoTB(), leafYear, time.Now()), leafCA(GinkgoTB(), leafYear, time.Now())
		s.Clients = &serving.Clients{Names: []string{"front-proxy-client"}}
		Expect(s.Clients.SetCAs(trusted.CertificatePEM)).To(Succeed())
	})

	Describe("while it serves", func() {
		BeforeEach(func(ctx SpecContext) { start(ctx, s) })

		It("answers an allowed client", func() {
			client := showing(clientCert(GinkgoTB(), trusted, "front-proxy-client"))
			for range 3 {
				Expect(get(client, s, "/mutate/x")).To(HaveField("Body", "/mutate/x"))
			}
			Expect(handled.Load()).To(BeEquivalentTo(3))
		})

		It("answers a client without a certificate with 401 and the expected names, on every path", func() {
			for _, path := range []string{"/", "/mutate/x", "/healthz/", "//healthz", "/healthz/../mutate", "/metrics"} {
				got, err := get(caller(), s, path)
				Expect(err).NotTo(HaveOccurred())
				Expect(got.Status).To(Equal(http.StatusUnauthorized), path)
				Expect(got.Body).To(HavePrefix("no client certificate; expected is a certificate for client authentication"), path)
				Expect(got.Body).To(HaveSuffix("one of the names [\"front-proxy-client\"]\n"), path)
			}
			Expect(handled.Load()).To(BeZero())
		})

		It("answers a client with a wrong one with 403 and the reason", func() {
			for _, certificate := range []*tls.Certificate{
				clientCert(GinkgoTB(), another, "front-proxy-client"),
				clientCert(GinkgoTB(), trusted, "other"),
			} {
				got, err := get(showing(certificate), s, "/mutate/x")
				Expect(err).NotTo(HaveOccurred())
				Expect(got.Status).To(Equal(http.StatusForbidden))
				Expect(got.Body).To(MatchRegexp(`^the client certificate is not accepted: "CN=.*".*; expected is a certificate .* \["front-proxy-client"\]\n$`))
			}
			Expect(handled.Load()).To(BeZero())
		})

		It("answers every client about its health, such as kubelets, which present none", func() {
			for _, client := range []*http.Client{caller(), showing(clientCert(GinkgoTB(), another, "other"))} {
				for _, path := range []string{"/healthz", "/readyz"} {
					Expect(get(client, s, path)).To(HaveField("Body", "ok\n"), path)
				}
			}
		})

		It("refuses on an open connection whose CA is no longer one", func(ctx SpecContext) {
			client := showing(clientCert(GinkgoTB(), trusted, "front-proxy-client"))
			Expect(get(client, s, "/x")).To(HaveField("Status", http.StatusOK))
			Expect(s.Clients.SetCAs(another.CertificatePEM)).To(Succeed())

			var reused atomic.Bool
			traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(c httptrace.GotConnInfo) { reused.Store(c.Reused) }})
			req, err := http.NewRequestWithContext(traced, http.MethodGet, "https://"+s.Addr().String()+"/x", nil)
			Expect(err).NotTo(HaveOccurred())
			resp, err := client.Do(req)
			Expect(err).NotTo(HaveOccurred())
			Expect(resp.Body.Close()).To(Succeed())
			Expect(resp.StatusCode).To(Equal(http.StatusForbidden))
			Expect(reused.Load()).To(BeTrue(), "otherwise this spec proves nothing")

			// The next connection may show another certificate.
			Eventually(func(g Gomega) {
				reused.Store(true)
				resp, err := client.Do(req)
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(resp.Body.Close()).To(Succeed())
				g.Expect(reused.Load()).To(BeFalse())
			}).Should(Succeed())
		})
	})

	for name, version := range map[string]uint16{"1.2": tls.VersionTLS12, "1.3": tls.VersionTLS13} {
		It("judges a session of TLS "+name+" that is resumed by the CAs of now", func(ctx SpecContext) {
			start(ctx, s)
			client := showing(clientCert(GinkgoTB(), trusted, "front-proxy-client"))
			transport := client.Transport.(*http.Transport)
			transport.TLSClientConfig.ClientSessionCache = tls.NewLRUClientSessionCache(10)
			transport.TLSClientConfig.ServerName = "localhost"
			transport.TLSClientConfig.MaxVersion = version
			transport.DisableKeepAlives = true
			status := func() (code int, resumed bool) {
				resp, err := client.Get("https://" + s.Addr().String() + "/x")
				Expect(err).NotTo(HaveOccurred())
				Expect(resp.Body.Close()).To(Succeed())
				return resp.StatusCode, resp.TLS.DidResume
			}
			Expect(status()).To(Equal(http.StatusOK))
			code, resumed := status()
			Expect(resumed).To(BeTrue(), "otherwise this spec proves nothing")
			Expect(code).To(Equal(http.StatusOK))
			Expect(s.Clients.SetCAs(another.CertificatePEM)).To(Succeed())
			code, resumed = status()
			Expect(resumed).To(BeTrue())
			Expect(code).To(Equal(http.StatusForbidden))
		})
	}

	It("does not wait for the body of a call that it refuses", func(ctx SpecContext) {
		start(ctx, s)
		conn, err := tls.Dial("tcp", s.Addr().String(), &tls.Config{InsecureSkipVerify: true})
		Expect(err).NotTo(HaveOccurred())
		defer conn.Close()
		Expect(conn.SetDeadline(time.Now().Add(20 * time.Second))).To(Succeed())
		_, err = fmt.Fprintf(conn, "POST /mutate/x HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n") // and no body
		Expect(err).NotTo(HaveOccurred())
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		Expect(err).NotTo(HaveOccurred())
		defer resp.Body.Close()
		Expect(resp.StatusCode).To(Equal(http.StatusUnauthorized))
		Expect(resp.Close).To(BeTrue())
	})

	It("does not name its CAs, so that a client sends the certificate that it has", func(ctx SpecContext) {
		start(ctx, s)
		var asked *tls.CertificateRequestInfo
		_, err := handshake(s, &tls.Config{GetClientCertificate: func(info *tls.CertificateRequestInfo) (*tls.Certificate, error) {
			asked = info
			return &tls.Certificate{}, nil
		}})
		Expect(err).NotTo(HaveOccurred())
		Expect(asked).NotTo(BeNil())
		Expect(asked.AcceptableCAs).To(BeEmpty())
	})

	It("logs refused clients, a few at a time", func(ctx SpecContext) {
		var logs logLines
		s.Log = logs.logger()
		start(ctx, s)
		for range 20 {
			Expect(get(caller(), s, "/mutate/x")).To(HaveField("Status", http.StatusUnauthorized))
		}
		refusals := logs.with("refused a client")
		Expect(refusals).NotTo(BeEmpty())
		Expect(len(refusals)).To(BeNumerically("<", 6))
		Expect(refusals[0]).To(And(ContainSubstring("no client certificate"), ContainSubstring("front-proxy-client")))
	})

	It("requests no certificate when every client may call", func(ctx SpecContext) {
		s.Clients = nil
		start(ctx, s)
		Expect(get(caller(), s, "/x")).To(HaveField("Status", http.StatusOK))
		asked := false
		_, err := handshake(s, &tls.Config{GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			asked = true
			return &tls.Certificate{}, nil
		}})
		Expect(err).NotTo(HaveOccurred())
		Expect(asked).To(BeFalse())
	})
})
