package serving_test

import (
	"context"
	"crypto/fips140"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gleak"

	"code.cloudfoundry.org/eirinix/internal/serving"
)

var _ = Describe("Server", func() {
	var s *serving.Server

	BeforeEach(func() { s = newServer() })

	Describe("Start", func() {
		It("knows no address before", func() {
			Expect(s.Addr()).To(BeNil())
			Expect(s.Port()).To(BeZero())
		})

		DescribeTable("picks a free port of", func(ctx SpecContext, host string) {
			s.Host = host
			start(ctx, s)
			Expect(s.Port()).NotTo(BeZero())
			Expect(s.Addr().String()).To(Equal(net.JoinHostPort(host, strconv.Itoa(s.Port()))))
			Expect(get(caller(), s, "/x")).To(HaveField("Status", http.StatusOK))
		},
			Entry("the IPv4 loopback", "127.0.0.1"),
			Entry("the IPv6 loopback", "::1"),
		)

		DescribeTable("listens on all addresses for", func(ctx SpecContext, host string) {
			s.Host = host
			start(ctx, s)
			for _, loopback := range []string{"127.0.0.1", "::1"} {
				conn, err := tls.Dial("tcp", net.JoinHostPort(loopback, strconv.Itoa(s.Port())), &tls.Config{InsecureSkipVerify: true})
				Expect(err).NotTo(HaveOccurred())
				Expect(conn.Close()).To(Succeed())
			}
		},
			Entry("no host", ""),
			Entry("the unspecified IPv6 address", "::"),
		)

		It("listens on the port that is wanted", func(ctx SpecContext) {
			// Taken and given back: the system picks no such port again so soon, but a listener can ask for it.
			l, err := net.Listen("tcp", "127.0.0.1:0")
			Expect(err).NotTo(HaveOccurred())
			s.WantPort = l.Addr().(*net.TCPAddr).Port
			Expect(l.Close()).To(Succeed())
			start(ctx, s)
			Expect(s.Port()).To(Equal(s.WantPort))
		})

		It("names the cause and the option when the port is taken", func(ctx SpecContext) {
			taker := httptest.NewTLSServer(http.NotFoundHandler())
			DeferCleanup(taker.Close)
			s.WantPort = taker.Listener.Addr().(*net.TCPAddr).Port
			err := s.Start(ctx)
			Expect(errors.Is(err, syscall.EADDRINUSE)).To(BeTrue(), "%v", err)
			Expect(err).To(MatchError(And(
				ContainSubstring(taker.Listener.Addr().String()),
				ContainSubstring("another process has that port"),
				ContainSubstring("ManagerOptions.Port or ListenAddress"),
			)))
		})

		It("names the remedy when the machine has no such address", func(ctx SpecContext) {
			s.Host = "192.0.2.1" // reserved for documentation; with port 0 nothing is sent to it
			err := s.Start(ctx)
			Expect(errors.Is(err, syscall.EADDRNOTAVAIL)).To(BeTrue(), "%v", err)
			Expect(err).To(MatchError(And(ContainSubstring("192.0.2.1"), ContainSubstring("ManagerOptions.ListenAddress"))))
		})

		It("gives up with ctx when there is no certificate, and frees the port", func(ctx SpecContext) {
			s.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return nil, serving.ErrNoCertificate }
			ended, end := context.WithCancelCause(ctx)
			end(errNotYet)
			err := s.Start(ended)
			Expect(err).To(MatchError(errNotYet))
			Expect(err).To(MatchError(serving.ErrNoCertificate))
			l, err := net.Listen("tcp", s.Addr().String())
			Expect(err).NotTo(HaveOccurred())
			Expect(l.Close()).To(Succeed())
		})

		It("outlives the context that bounds it", func(ctx SpecContext) {
			starting, cancel := context.WithCancel(ctx)
			start(starting, s)
			cancel()
			Expect(get(caller(), s, "/x")).To(HaveField("Status", http.StatusOK))
			Expect(s.Done()).NotTo(BeClosed())
		})
	})

	Describe("TLS", func() {
		BeforeEach(func(ctx SpecContext) { start(ctx, s) })

		DescribeTable("speaks", func(version uint16) {
			state, err := handshake(s, &tls.Config{MinVersion: version, MaxVersion: version})
			Expect(err).NotTo(HaveOccurred())
			Expect(state.Version).To(Equal(version))
		},
			Entry("1.2", uint16(tls.VersionTLS12)),
			Entry("1.3", uint16(tls.VersionTLS13)),
		)

		DescribeTable("refuses the versions before 1.2:", func(version uint16) {
			_, err := handshake(s, &tls.Config{MinVersion: version, MaxVersion: version})
			refused := ContainSubstring("protocol version")
			if fips140.Enabled() { // then a client of the standard library does not even ask
				refused = ContainSubstring("no supported versions")
			}
			Expect(err).To(MatchError(refused))
		},
			Entry("1.0", uint16(tls.VersionTLS10)),
			Entry("1.1", uint16(tls.VersionTLS11)),
		)

		It("offers HTTP/1.1 and not HTTP/2", func() {
			state, err := handshake(s, &tls.Config{NextProtos: []string{"h2", "http/1.1"}})
			Expect(err).NotTo(HaveOccurred())
			Expect(state.NegotiatedProtocol).To(Equal("http/1.1"))
			_, err = handshake(s, &tls.Config{NextProtos: []string{"h2"}})
			Expect(err).To(HaveOccurred())
			client := caller()
			client.Transport.(*http.Transport).ForceAttemptHTTP2 = true
			resp, err := client.Get("https://" + s.Addr().String() + "/x")
			Expect(err).NotTo(HaveOccurred())
			Expect(resp.Body.Close()).To(Succeed())
			Expect(resp.ProtoMajor).To(Equal(1))
		})
	})

	Describe("the program's changes of TLS", func() {
		minimum := func(version uint16) func(*tls.Config) { return func(c *tls.Config) { c.MinVersion = version } }

		It("are made in their order, and hold for each connection", func(ctx SpecContext) {
			s.TLS = []func(*tls.Config){minimum(tls.VersionTLS11), nil, minimum(tls.VersionTLS13)}
			start(ctx, s)
			for range 2 {
				_, err := handshake(s, &tls.Config{MaxVersion: tls.VersionTLS12})
				Expect(err).To(MatchError(ContainSubstring("protocol version not supported")))
				Expect(handshake(s, nil)).To(HaveField("Version", uint16(tls.VersionTLS13)))
			}
		})

		It("may ask for HTTP/2", func(ctx SpecContext) {
			s.TLS = []func(*tls.Config){func(c *tls.Config) { c.NextProtos = []string{"h2", "http/1.1"} }}
			start(ctx, s)
			client := caller()
			client.Transport.(*http.Transport).ForceAttemptHTTP2 = true
			resp, err := client.Get("https://" + s.Addr().String() + "/readyz")
			Expect(err).NotTo(HaveOccurred())
			Expect(resp.Body.Close()).To(Succeed())
			Expect(resp).To(And(HaveHTTPStatus(http.StatusOK), HaveField("Proto", "HTTP/2.0")))
		})

		It("cannot go below TLS 1.2, nor leave that to the environment", func(ctx SpecContext) {
			if fips140.Enabled() {
				Skip("the client of this spec may not offer TLS 1.1")
			}
			GinkgoT().Setenv("GODEBUG", "tls10server=1")
			s.TLS = []func(*tls.Config){minimum(0)}
			start(ctx, s)
			_, err := handshake(s, &tls.Config{MinVersion: tls.VersionTLS11, MaxVersion: tls.VersionTLS11})
			Expect(err).To(MatchError(ContainSubstring("protocol version not supported")))
		})

		DescribeTable("are refused, with the remedy, where they", func(change func(*tls.Config), fault, remedy string) {
			Expect(serving.CheckTLS("Some.Option", []func(*tls.Config){change})).To(MatchError(And(
				HavePrefix("eirinix: Some.Option sets "+fault), ContainSubstring("; "+remedy))))
		},
			Entry("allow TLS 1.1", minimum(tls.VersionTLS11), "MinVersion to TLS 1.1", "raise it to TLS 1.2"),
			Entry("end at TLS 1.1", func(c *tls.Config) { c.MaxVersion = tls.VersionTLS11 }, "MaxVersion to TLS 1.1", "raise it"),
			Entry("leave no version", func(c *tls.Config) { c.MinVersion, c.MaxVersion = tls.VersionTLS13, tls.VersionTLS12 }, "MaxVersion to TLS 1.2", "raise it"),
			Entry("give certificates", func(c *tls.Config) { c.Certificates = make([]tls.Certificate, 1) }, "a certificate", "leave it out, or also set ManagerOptions.Certificates"),
			Entry("give a certificate", func(c *tls.Config) {
				c.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return nil, nil }
			}, "a certificate", "leave it out"),
			Entry("ask clients for certificates", func(c *tls.Config) { c.ClientAuth = tls.RequireAnyClientCert }, "ClientAuth or ClientCAs", "leave them out, and set ManagerOptions.ClientCA"),
			Entry("name the CAs of clients", func(c *tls.Config) { c.ClientCAs = x509.NewCertPool() }, "ClientAuth or ClientCAs", "leave them out"),
			Entry("choose per connection", func(c *tls.Config) {
				c.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return nil, nil }
			}, "GetConfigForClient", "leave it out"),
		)

		It("are refused with all their faults", func() {
			err := serving.CheckTLS("Some.Option", []func(*tls.Config){minimum(tls.VersionTLS10), func(c *tls.Config) { c.ClientAuth = tls.RequestClientCert }})
			Expect(strings.Split(err.Error(), "\n")).To(HaveLen(2))
		})

		It("are accepted where they leave alone what is the server's", func() {
			Expect(serving.CheckTLS("Some.Option", []func(*tls.Config){nil, minimum(0), func(c *tls.Config) {
				Expect(c.NextProtos).To(Equal([]string{"http/1.1"}))
				c.CipherSuites = []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256}
			}})).To(Succeed())
		})
	})

	It("asks for the certificate at every handshake, so that a renewed one is served at once", func(ctx SpecContext) {
		var current atomic.Pointer[tls.Certificate]
		current.Store(selfSigned())
		s.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return current.Load(), nil }
		start(ctx, s)
		for range 2 {
			served := selfSigned()
			current.Store(served)
			state, err := handshake(s, nil)
			Expect(err).NotTo(HaveOccurred())
			Expect(state.PeerCertificates[0].Raw).To(Equal(served.Certificate[0]))
		}
	})

	It("keeps idle connections for longer than the API server's client does", func(ctx SpecContext) {
		idle := make(chan time.Duration, 1)
		s.Handler = http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			idle <- r.Context().Value(http.ServerContextKey).(*http.Server).IdleTimeout
		})
		start(ctx, s)
		Expect(get(caller(), s, "/x")).To(HaveField("Status", http.StatusOK))
		Expect(<-idle).To(BeNumerically(">", 90*time.Second))
	})

	It("ends idle connections after its own timeout, not after controller-runtime's", func(ctx SpecContext) {
		s.SetIdleTimeout(100 * time.Millisecond)
		start(ctx, s)
		conn, err := tls.Dial("tcp", s.Addr().String(), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}})
		Expect(err).NotTo(HaveOccurred())
		defer conn.Close()
		Expect(conn.SetDeadline(time.Now().Add(30 * time.Second))).To(Succeed())
		_, err = io.WriteString(conn, "GET /x HTTP/1.1\r\nHost: x\r\n\r\n")
		Expect(err).NotTo(HaveOccurred())
		got, err := io.ReadAll(conn)
		Expect(err).NotTo(HaveOccurred(), "ended by the server")
		Expect(got).NotTo(BeEmpty())
	})

	DescribeTable("never redirects, which would send the API server on with the object", func(ctx SpecContext, path string) {
		start(ctx, s)
		Expect(get(caller(), s, path)).To(Equal(reply{Status: http.StatusOK, Body: path}), "the handler sees the path as it came")
	},
		Entry("two slashes", "//mutate//x"),
		Entry("a parent directory, and not to health either", "/mutate/../healthz"),
		Entry("a dot", "/mutate/./x"),
		Entry("a slash at the end", "/mutate/x/"),
		Entry("a slash after health", "/healthz/"),
	)

	It("serves many connections that open at once", func(ctx SpecContext) {
		start(ctx, s)
		var all sync.WaitGroup
		for range 20 {
			client := caller()
			all.Go(func() {
				defer GinkgoRecover()
				Expect(get(client, s, "/x")).To(HaveField("Status", http.StatusOK))
			})
		}
		all.Wait()
	})

	Describe("health", func() {
		It("is good when it is ready", func(ctx SpecContext) {
			start(ctx, s)
			Expect(get(caller(), s, "/healthz")).To(HaveField("Status", http.StatusOK))
			Expect(get(caller(), s, "/readyz")).To(HaveField("Status", http.StatusOK))
		})

		It("is alive, but names the reason, when it is not ready", func(ctx SpecContext) {
			s.Ready = func() error { return errNotYet }
			start(ctx, s)
			Expect(get(caller(), s, "/healthz")).To(HaveField("Status", http.StatusOK))
			Expect(get(caller(), s, "/readyz")).To(Equal(reply{Status: http.StatusServiceUnavailable, Body: "not ready: not registered yet\n"}))
		})
	})

	Describe("Drain", func() {
		It("fails on /readyz while calls are still served", func(ctx SpecContext) {
			start(ctx, s)
			Expect(s.Draining()).To(BeFalse())
			s.Drain()
			Expect(s.Draining()).To(BeTrue())
			Expect(get(caller(), s, "/readyz")).To(And(HaveField("Status", http.StatusServiceUnavailable), HaveField("Body", ContainSubstring("stopping"))))
			Expect(get(caller(), s, "/healthz")).To(HaveField("Status", http.StatusOK))
			Expect(get(caller(), s, "/x")).To(HaveField("Status", http.StatusOK))
			Expect(s.Done()).NotTo(BeClosed())
		})

		It("closes connections after their next answer", func(ctx SpecContext) {
			start(ctx, s)
			client := caller()
			for _, path := range []string{"/healthz", "/readyz"} {
				Expect(get(client, s, path)).To(HaveField("Closes", false))
			}
			s.Drain()
			for _, path := range []string{"/healthz", "/readyz"} {
				Expect(get(client, s, path)).To(HaveField("Closes", true), path)
			}
		})
	})

	Describe("Shutdown", func() {
		It("is nothing before Start", func(ctx SpecContext) {
			Expect(s.Shutdown(ctx)).To(Succeed())
		})

		It("stops accepting, and waits for the request in flight", func(ctx SpecContext) {
			entered, release := make(chan struct{}), make(chan struct{})
			s.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				close(entered)
				<-release
				_, _ = io.WriteString(w, "finished")
			})
			start(ctx, s)
			client := caller()
			answered := make(chan reply, 1)
			go func() {
				defer GinkgoRecover()
				r, err := get(client, s, "/x")
				Expect(err).NotTo(HaveOccurred())
				answered <- r
			}()
			Eventually(entered).Should(BeClosed())

			hasty, cancel := context.WithCancelCause(ctx)
			cancel(errNotYet)
			Expect(s.Shutdown(hasty)).To(MatchError(errNotYet), "its context bounds the wait")

			ended := make(chan error, 1)
			go func() { ended <- s.Shutdown(ctx) }()
			Eventually(func() error { _, err := handshake(s, nil); return err }).Should(MatchError(syscall.ECONNREFUSED))
			Expect(ended).NotTo(Receive())
			Expect(s.Done()).NotTo(BeClosed())

			close(release)
			Eventually(answered).Should(Receive(And(HaveField("Status", http.StatusOK), HaveField("Body", "finished"))))
			Eventually(ended).Should(Receive(BeNil()))
			Expect(s.Done()).To(BeClosed())
			Expect(s.Err()).NotTo(HaveOccurred())
			Expect(s.Shutdown(ctx)).To(Succeed(), "once more changes nothing")
		}, SpecTimeout(time.Minute))

		It("closes connections that have had no request before it stops accepting, so that no client sends one", func(ctx SpecContext) {
			entered, released := make(chan struct{}), make(chan struct{})
			release := sync.OnceFunc(func() { close(released) })
			s.Handler = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
				close(entered)
				<-released
			})
			start(ctx, s)
			DeferCleanup(release)
			unused, err := tls.Dial("tcp", s.Addr().String(), &tls.Config{InsecureSkipVerify: true})
			Expect(err).NotTo(HaveOccurred())
			DeferCleanup(func() { _ = unused.Close() })
			answered := make(chan error, 1)
			go func() {
				_, err := get(caller(), s, "/x")
				answered <- err
			}()
			Eventually(entered).Should(BeClosed())

			ended := make(chan error, 1)
			go func() { ended <- s.Shutdown(ctx) }()
			Eventually(func() error { _, err := handshake(s, nil); return err }).Should(MatchError(syscall.ECONNREFUSED))
			// net/http closes such a connection seconds later, and until then drops each request that arrives on it.
			Expect(unused.SetReadDeadline(time.Now().Add(time.Second))).To(Succeed())
			_, err = unused.Read(make([]byte, 1))
			Expect(err).NotTo(MatchError(os.ErrDeadlineExceeded))
			Expect(ended).NotTo(Receive(), "the request in flight is not cut off")

			release()
			Eventually(answered).Should(Receive(BeNil()))
			Eventually(ended).Should(Receive(BeNil()))
		}, SpecTimeout(time.Minute))

		It("leaves no goroutine behind", func(ctx SpecContext) {
			before := gleak.Goroutines()
			Expect(s.Start(ctx)).To(Succeed())
			client := caller()
			Expect(get(client, s, "/x")).To(HaveField("Status", http.StatusOK))
			Expect(s.Shutdown(ctx)).To(Succeed())
			client.CloseIdleConnections()
			Eventually(gleak.Goroutines).WithTimeout(10 * time.Second).ShouldNot(gleak.HaveLeaked(before))
		})

		It("leaves no goroutine behind a failed Start", func(ctx SpecContext) {
			taker := httptest.NewTLSServer(http.NotFoundHandler())
			DeferCleanup(taker.Close)
			s.WantPort = taker.Listener.Addr().(*net.TCPAddr).Port
			before := gleak.Goroutines()
			Expect(s.Start(ctx)).NotTo(Succeed())
			Eventually(gleak.Goroutines).WithTimeout(10 * time.Second).ShouldNot(gleak.HaveLeaked(before))
		})
	})
})
