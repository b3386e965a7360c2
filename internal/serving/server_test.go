package serving_test

// This file is about the server: its address, TLS, health, and how it ends. It is also about serving on the webhook server of a
// program's own controller-runtime manager.

import (
	"bufio"
	"context"
	"crypto/fips140"
	"crypto/tls"
	"crypto/x509"
	"fmt"
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

	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gleak"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"code.cloudfoundry.org/eirinix/internal/serving"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
)

var _ = Describe("Server", func() {
	var s *serving.Server

	BeforeEach(func() { s = newServer() })

	Describe("Start", func() {
		DescribeTable("picks a free port of", func(ctx SpecContext, host string, loopbacks ...string) {
			s.Host = host
			start(ctx, s)
			Expect(s.Addr().String()).To(HaveSuffix(":" + strconv.Itoa(s.Port())))
			for _, loopback := range loopbacks {
				conn := Must(tls.Dial("tcp", net.JoinHostPort(loopback, strconv.Itoa(s.Port())), &tls.Config{InsecureSkipVerify: true}))
				Expect(conn.Close()).To(Succeed())
			}
		},
			Entry("the IPv4 loopback", "127.0.0.1", "127.0.0.1"),
			Entry("the IPv6 loopback", "::1", "::1"),
			Entry("all addresses", "", "127.0.0.1", "::1"),
			Entry("all addresses by the unspecified IPv6 address", "::", "127.0.0.1", "::1"),
		)

		It("names the cause and the option when the port is taken, and leaves no goroutine behind", func(ctx SpecContext) {
			taker := httptest.NewTLSServer(http.NotFoundHandler())
			DeferCleanup(taker.Close)
			s.WantPort = taker.Listener.Addr().(*net.TCPAddr).Port
			before := gleak.Goroutines()
			err := s.Start(ctx)
			Expect(err).To(MatchError(syscall.EADDRINUSE))
			Expect(err).To(MatchError(And(
				ContainSubstring(taker.Listener.Addr().String()),
				ContainSubstring("another process has that port"),
				ContainSubstring("ManagerOptions.Port or ListenAddress"),
			)))
			Eventually(gleak.Goroutines).ShouldNot(gleak.HaveLeaked(before))
		})

		It("names the remedy when the machine has no such address", func(ctx SpecContext) {
			s.Host = "192.0.2.1" // reserved for documentation; with port 0 nothing is sent to it
			err := s.Start(ctx)
			Expect(err).To(MatchError(syscall.EADDRNOTAVAIL))
			Expect(err).To(MatchError(And(ContainSubstring("192.0.2.1"), ContainSubstring("ManagerOptions.ListenAddress"))))
		})

		It("gives up with ctx when there is no certificate, and frees the port", func(ctx SpecContext) {
			tried := map[int]bool{}
			s.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
				tried[s.Port()] = true
				return nil, serving.ErrNoCertificate
			}
			ended, end := context.WithCancelCause(ctx)
			end(errNotYet)
			Expect(s.Start(ended)).To(And(MatchError(errNotYet), MatchError(serving.ErrNoCertificate)))
			Expect(tried).To(HaveLen(1), "another port would be no better")
			Expect(Must(net.Listen("tcp", s.Addr().String())).Close()).To(Succeed())
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
		minimum := func(version uint16) func(*tls.Config) { return func(c *tls.Config) { c.MinVersion = version } }
		// spoken is the version of HTTP that a client gets which would like HTTP/2.
		spoken := func() int {
			GinkgoHelper()
			client := caller()
			client.Transport.(*http.Transport).ForceAttemptHTTP2 = true
			resp := Must(client.Get("https://" + s.Addr().String() + "/readyz"))
			Expect(resp.Body.Close()).To(Succeed())
			Expect(resp).To(HaveHTTPStatus(http.StatusOK))
			return resp.ProtoMajor
		}

		DescribeTable("is 1.2 or 1.3, and the server refuses the versions before 1.2:", func(ctx SpecContext, version uint16, spoken bool) {
			start(ctx, s)
			state, err := handshake(s, &tls.Config{MinVersion: version, MaxVersion: version})
			if spoken {
				Expect(err).NotTo(HaveOccurred())
				Expect(state.Version).To(Equal(version))
				return
			}
			refused := ContainSubstring("protocol version")
			if fips140.Enabled() { // then a client of the standard library does not even ask
				refused = ContainSubstring("no supported versions")
			}
			Expect(err).To(MatchError(refused))
		},
			Entry("1.0", uint16(tls.VersionTLS10), false),
			Entry("1.1", uint16(tls.VersionTLS11), false),
			Entry("1.2", uint16(tls.VersionTLS12), true),
			Entry("1.3", uint16(tls.VersionTLS13), true),
		)

		It("carries HTTP/1.1, and HTTP/2 only for a program that asks for it", func(ctx SpecContext) {
			start(ctx, s)
			Expect(spoken()).To(Equal(1))
			s = newServer()
			s.TLS = []func(*tls.Config){func(c *tls.Config) { c.NextProtos = []string{"h2", "http/1.1"} }}
			start(ctx, s)
			Expect(spoken()).To(Equal(2))
		})

		It("is changed by the program in order, for each connection", func(ctx SpecContext) {
			s.TLS = []func(*tls.Config){minimum(tls.VersionTLS11), nil, minimum(tls.VersionTLS13)}
			start(ctx, s)
			for range 2 {
				_, err := handshake(s, &tls.Config{MaxVersion: tls.VersionTLS12})
				Expect(err).To(MatchError(ContainSubstring("protocol version not supported")))
				Expect(handshake(s, nil)).To(HaveField("Version", uint16(tls.VersionTLS13)))
			}
		})

		It("cannot go below 1.2, nor leave that to the environment", func(ctx SpecContext) {
			if fips140.Enabled() {
				Skip("the client of this spec may not offer TLS 1.1")
			}
			GinkgoT().Setenv("GODEBUG", "tls10server=1")
			s.TLS = []func(*tls.Config){minimum(0)}
			start(ctx, s)
			_, err := handshake(s, &tls.Config{MinVersion: tls.VersionTLS11, MaxVersion: tls.VersionTLS11})
			Expect(err).To(MatchError(ContainSubstring("protocol version not supported")))
		})

		DescribeTable("does not take changes, and names the remedy, where they", func(change func(*tls.Config), fault, remedy string) {
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

		It("takes changes of all else, and names all faults of others", func() {
			Expect(serving.CheckTLS("Some.Option", []func(*tls.Config){nil, minimum(0), func(c *tls.Config) {
				Expect(c.NextProtos).To(Equal([]string{"http/1.1"}))
				c.CipherSuites = []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256}
			}})).To(Succeed())
			err := serving.CheckTLS("Some.Option", []func(*tls.Config){minimum(tls.VersionTLS10), func(c *tls.Config) { c.ClientAuth = tls.RequestClientCert }})
			Expect(strings.Split(err.Error(), "\n")).To(HaveLen(2))
		})

		It("has the certificate of the moment at every handshake, so that a renewed one is served at once", func(ctx SpecContext) {
			var current atomic.Pointer[tls.Certificate]
			current.Store(selfSigned())
			s.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return current.Load(), nil }
			start(ctx, s)
			for range 2 {
				served := selfSigned()
				current.Store(served)
				Expect(Must(handshake(s, nil)).PeerCertificates[0].Raw).To(Equal(served.Certificate[0]))
			}
		})
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

	It("never redirects, which would send the API server on with the object", func(ctx SpecContext) {
		start(ctx, s)
		for _, path := range []string{"//mutate//x", "/mutate/../healthz", "/mutate/./x", "/mutate/x/", "/healthz/"} {
			Expect(get(caller(), s, path)).To(Equal(reply{Status: http.StatusOK, Body: path}), "the handler sees the path as it came")
		}
	})

	It("is alive, and names the reason when it is not ready", func(ctx SpecContext) {
		var fault error
		s.Ready = func() error { return fault }
		start(ctx, s)
		Expect(get(caller(), s, "/readyz")).To(HaveField("Status", http.StatusOK))
		fault = errNotYet
		Expect(get(caller(), s, "/readyz")).To(Equal(reply{Status: http.StatusServiceUnavailable, Body: "not ready: not registered yet\n"}))
		Expect(get(caller(), s, "/healthz")).To(HaveField("Status", http.StatusOK))
	})

	It("fails on /readyz after Drain while calls are still served, and closes connections after their next answer", func(ctx SpecContext) {
		start(ctx, s)
		client := caller()
		Expect(get(client, s, "/healthz")).To(HaveField("Closes", false))
		Expect(get(client, s, "/readyz")).To(HaveField("Closes", false))
		Expect(s.Draining()).To(BeFalse())
		s.Drain()
		Expect(s.Draining()).To(BeTrue())
		Expect(get(client, s, "/readyz")).To(Equal(reply{Status: http.StatusServiceUnavailable, Body: "not ready: stopping\n", Closes: true}))
		Expect(get(client, s, "/healthz")).To(Equal(reply{Status: http.StatusOK, Body: "ok\n", Closes: true}))
		Expect(get(client, s, "/x")).To(HaveField("Status", http.StatusOK))
		Expect(s.Done()).NotTo(BeClosed())
	})

	Describe("Shutdown", func() {
		It("is nothing before Start", func(ctx SpecContext) {
			Expect(s.Addr()).To(BeNil())
			Expect(s.Shutdown(ctx)).To(Succeed())
		})

		It("stops accepting, and waits for the request in flight and one that is on its way, not for connections that have had none", func(ctx SpecContext) {
			entered, released := make(chan struct{}), make(chan struct{})
			release := sync.OnceFunc(func() { close(released) })
			s.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/x" {
					close(entered)
					<-released
				}
				_, _ = io.WriteString(w, "finished")
			})
			start(ctx, s)
			DeferCleanup(release)
			client, answered := caller(), make(chan reply, 1)
			go func() {
				defer GinkgoRecover()
				answered <- Must(get(client, s, "/x"))
			}()
			Eventually(entered).Should(BeClosed())
			unused, late := dial(s, ""), dial(s, "")

			ended := make(chan error, 1)
			go func() { ended <- s.Shutdown(ctx) }()
			Eventually(s.Draining).Should(BeTrue())
			Must(io.WriteString(late, "GET /late HTTP/1.1\r\nHost: spec\r\n\r\n"))
			Expect(http.ReadResponse(bufio.NewReader(late), nil)).To(HaveHTTPStatus(http.StatusOK))
			Eventually(func() error { _, err := handshake(s, nil); return err }).Should(MatchError(syscall.ECONNREFUSED))
			// net/http closes such a connection seconds later, and until then drops each request that arrives on it.
			Expect(unused.SetReadDeadline(time.Now().Add(time.Second))).To(Succeed())
			_, err := unused.Read(make([]byte, 1))
			Expect(err).NotTo(MatchError(os.ErrDeadlineExceeded))
			Expect(ended).NotTo(Receive())
			Expect(s.Done()).NotTo(BeClosed())
			hasty, cancel := context.WithCancelCause(ctx)
			cancel(errNotYet)
			Expect(s.Shutdown(hasty)).To(MatchError(errNotYet), "its context bounds the wait")

			release()
			Eventually(answered).Should(Receive(And(HaveField("Status", http.StatusOK), HaveField("Body", "finished"))))
			Eventually(ended).Should(Receive(BeNil()))
			Expect(s.Done()).To(BeClosed())
			Expect(s.Err()).NotTo(HaveOccurred())
			Expect(s.Shutdown(ctx)).To(Succeed(), "once more changes nothing")
		}, SpecTimeout(time.Minute))

		It("leaves no goroutine behind", func(ctx SpecContext) {
			before := gleak.Goroutines()
			Expect(s.Start(ctx)).To(Succeed())
			client := caller()
			Expect(get(client, s, "/x")).To(HaveField("Status", http.StatusOK))
			Expect(s.Shutdown(ctx)).To(Succeed())
			client.CloseIdleConnections()
			Eventually(gleak.Goroutines).ShouldNot(gleak.HaveLeaked(before))
		})
	})
})

var _ = Describe("Serving on the webhook server of a program's own manager", func() {
	echo := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "we answer ", r.URL.Path) })

	server := func() *webhook.DefaultServer {
		GinkgoHelper()
		certificate := selfSigned()
		return webhook.NewServer(webhook.Options{Host: "127.0.0.1", Port: int(FreePort()), TLSOpts: []func(*tls.Config){func(c *tls.Config) {
			c.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return certificate, nil }
		}}}).(*webhook.DefaultServer)
	}

	It("waits until that answers, which is logged, and takes all below its prefix", func(ctx SpecContext) {
		host, lines := server(), make(chan string, 100)
		host.Register("/theirs", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "theirs") }))
		hosted := serving.NewHosted(host, echo, "/eirinix/ours", funcr.New(func(_, line string) { lines <- line }, funcr.Options{}))
		started := make(chan error, 1)
		go func() { started <- hosted.Start(ctx) }()
		Eventually(lines).Should(Receive(ContainSubstring("waiting for the KubeManager's webhook server")))
		Expect(started).NotTo(Receive())

		running, stop := context.WithCancel(ctx)
		var over sync.WaitGroup
		over.Go(func() {
			defer GinkgoRecover()
			Expect(host.Start(running)).To(Succeed())
		})
		DeferCleanup(over.Wait)
		DeferCleanup(stop)
		Eventually(started).Should(Receive(BeNil()))
		Expect(hosted.Addr().String()).To(Equal(fmt.Sprint("127.0.0.1:", host.Options.Port)))
		Expect(hosted.Addr().Network()).To(Equal("tcp"))
		Expect(lines).To(Receive(And(ContainSubstring("serving on the KubeManager's webhook server"), ContainSubstring(hosted.Addr().String()))))

		client := caller()
		Expect(getFrom(client, hosted.Addr(), "/eirinix/ours/of/another/version")).To(HaveField("Body", "we answer /of/another/version"), "without the prefix")
		Expect(getFrom(client, hosted.Addr(), "/eirinix/others/step")).To(HaveField("Body", Not(ContainSubstring("we answer"))))
		Expect(getFrom(client, hosted.Addr(), "/theirs")).To(HaveField("Body", "theirs"))

		Expect(hosted.Draining()).To(BeFalse())
		Expect(hosted.Shutdown(ctx)).To(Succeed())
		Expect(hosted.Draining()).To(BeTrue())
		Expect(getFrom(client, hosted.Addr(), "/eirinix/ours/step")).To(HaveField("Body", "we answer /step"), "the manager ends its server, not we")
		Expect(hosted.Err()).NotTo(HaveOccurred())
		Expect(hosted.Done()).NotTo(BeClosed())
	})

	It("does not wait longer than its context", func(ctx SpecContext) {
		over, cancel := context.WithCancel(ctx)
		cancel()
		Expect(serving.NewHosted(server(), echo, "/eirinix/ours", GinkgoLogr).Start(over)).To(MatchError(context.Canceled))
	})

	It("refuses a path that is taken, with the remedy", func(ctx SpecContext) {
		host := server()
		host.Register("/eirinix/ours/", echo)
		Expect(serving.NewHosted(host, echo, "/eirinix/ours", GinkgoLogr).Start(ctx)).To(MatchError(
			And(ContainSubstring("/eirinix/ours"), ContainSubstring("an OperatorFingerprint of its own"))))
	})

	It("has certificates where its options give one, or say where to get it", func() {
		one := func(c *tls.Config) { c.Certificates = make([]tls.Certificate, 1) }
		Expect(serving.HasCertificates(webhook.Options{TLSOpts: []func(*tls.Config){one}})).To(BeTrue())
		Expect(serving.HasCertificates(server().Options)).To(BeTrue())
		Expect(serving.HasCertificates(webhook.Options{})).To(BeFalse())
	})

	It("gives way to a server of ours, unless that cannot keep its changes of TLS, each of which is reported once", func() {
		old := func(c *tls.Config) { c.MinVersion = tls.VersionTLS11 }
		theirs := serving.CheckReplaced(webhook.Options{TLSOpts: []func(*tls.Config){old}}, nil)
		Expect(theirs).To(MatchError(And(HavePrefix("eirinix: ManagerOptions.KubeManager"), Not(ContainSubstring("\n")))))
		Expect(serving.CheckReplaced(webhook.Options{}, old)).To(MatchError(HavePrefix("eirinix: ManagerOptions.TLS")))
		Expect(serving.CheckReplaced(webhook.Options{}, nil)).To(Succeed())
	})

	It("lists the paths that were registered on one server, and none of another's", func() {
		mux := http.NewServeMux()
		one, other := webhook.NewServer(webhook.Options{Port: -1, WebhookMux: mux}), webhook.NewServer(webhook.Options{Port: -1})
		other.Register("/hosted-theirs", echo)
		other.Register("/hosted-below/theirs", echo)
		one.Register("/hosted-b", echo)
		one.Register("/hosted-a", echo)
		one.Register("/hosted-below/", echo)
		Expect(serving.Registered(mux)).To(HaveExactElements("/hosted-a", "/hosted-b", "/hosted-below/"))
	})
})

var _ = DescribeTable("Two addresses collide, or not:", func(a, b string, collide bool) {
	Expect([]bool{serving.Collide(a, b), serving.Collide(b, a)}).To(HaveEach(collide))
},
	Entry("the same", "127.0.0.1:1", "127.0.0.1:1", true),
	Entry("one of all interfaces", ":1", "127.0.0.1:1", true),
	Entry("one that is unspecified", "[::]:1", "127.0.0.1:1", true),
	Entry("of two interfaces", "127.0.0.1:1", "127.0.0.2:1", false),
	Entry("of two ports", ":1", ":2", false),
	Entry("of ports that the system chooses", ":0", ":0", false),
	Entry("one that is none", "x", "x:", false),
)
