package balancing_test

// This file restarts the replicas under load, and lets other programs take an address that a replica gave up.

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"os"
	"slices"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	. "code.cloudfoundry.org/eirinix/internal/spectest"
	"code.cloudfoundry.org/eirinix/testing/internal/load"
)

// volume is how many restarts a spec makes, and how many calls at least.
func volume(usually int) (restarts, calls int) {
	if os.Getenv("EIRINIX_SOAK") != "" {
		return 30, 20_000
	}
	return usually, 300
}

// startLoad sends pods one by one, and bursts of them. For a burst an API server opens connections, of which most are idle
// until the next one: calls of those meet a replica that has been told to stop.
func startLoad(p *program) *load.Stream {
	s := load.NewStream()
	s.Send("pod", 10*time.Millisecond, 20, func(ctx context.Context, _ int) error { return p.send(ctx) })
	s.Send("burst", 600*time.Millisecond, 1, func(ctx context.Context, _ int) error {
		const pods = 15
		sent := make(chan error, pods)
		for range pods {
			go func() { sent <- p.send(ctx) }()
		}
		var all []error
		for range pods {
			all = append(all, <-sent)
		}
		return errors.Join(all...)
	})
	return s
}

// expectSpread sees that calls one after the other reach all replicas if the API server balances calls. Otherwise most of
// them stay on the connection that the first of them opened.
func (p *program) expectSpread(ctx context.Context) {
	GinkgoHelper()
	clear(p.answered)
	for range 90 {
		Expect(p.send(ctx)).To(Succeed())
	}
	if p.server.balances {
		Expect(p.answered).To(HaveLen(len(p.replicas)))
		return
	}
	Expect(slices.Max(slices.Collect(maps.Values(p.answered)))).To(BeNumerically(">", 45))
}

var _ = Describe("Rolling restarts of three replicas behind a Service", func() {
	DescribeTable("fail no call, and no call goes to a program that took the address of a replica", Label("soak"),
		func(ctx SpecContext, server func() *apiServer, usually int) {
			restarts, calls := volume(usually)
			p := deploy(ctx, server(), 3, 0) // the default of DrainDelay covers what an API server needs to learn of endpoints
			p.expectSpread(ctx)
			began := time.Now()
			s := startLoad(p)
			var intruders []*intruder
			for n := range restarts {
				old := p.replicas[0]
				if n%3 == 0 {
					By("starting the successor at the same address, later")
					p.dismiss(ctx, old)
					p.bury(ctx, old)
					p.join(ctx, old.endpoint)
				} else {
					By("starting the successor at another address, before, and another program at the old one as soon as it is free")
					p.join(ctx, load.NewEndpoint())
					p.dismiss(ctx, old)
					intruders = append(intruders, intrude(ctx, old.endpoint, n%3 == 1, p.host()))
					p.bury(ctx, old)
				}
				for _, r := range p.replicas {
					if p.server.balances {
						Eventually(p.answeredBy).WithArguments(r.Name).WithContext(ctx).Should(BeNumerically(">", 0), r.Name)
					}
				}
				Eventually(func() int { return p.answeredBy() }).WithContext(ctx).Should(BeNumerically(">=", (n+1)*calls/restarts))
				Expect(s.Failures()).To(BeEmpty(), "after %d restarts", n+1)
			}
			s.End()
			AddReportEntry(fmt.Sprintf("%d calls in %s, %d failed, %d restarts", p.answeredBy(), time.Since(began).Round(time.Second), len(s.Failures()), restarts), ReportEntryVisibilityAlways)
			Expect(s.Failures()).To(BeEmpty())
			for _, i := range intruders {
				i.expectNothing(ctx)
			}
		},
		Entry("which the API server dials itself (aggregator routing)", func() *apiServer { return dialsEndpoints }, 3, SpecTimeout(time.Hour)),
		Entry("at its cluster IP", func() *apiServer { return dialsClusterIP }, 2, SpecTimeout(time.Hour)),
	)
})

var _ = Describe("A program that took the address of a replica while the address is still listed", func() {
	DescribeTable("fails the call, and learns nothing of the pod",
		func(ctx SpecContext, withTLS bool, reason string) {
			p := deploy(ctx, dialsEndpoints, 1, -time.Second)
			r := p.replicas[0]
			r.Stop()
			i := intrude(ctx, r.endpoint, withTLS, p.host())
			load.ExpectEnd(ctx, r.Replica)
			Eventually(func(g Gomega) {
				err := p.send(ctx)
				if err == nil {
					StopTrying("a pod was admitted").Now()
				}
				g.Expect(err).To(MatchError(And(ContainSubstring("failed calling webhook"), MatchRegexp(reason))))
				g.Expect(i.connections.Load()).To(BeNumerically(">", 0)) // the first calls may end with the connections to the replica
			}).WithContext(ctx).Should(Succeed())
			Expect(i.requests.Load()).To(BeZero())
		},
		Entry("with a foreign certificate", true, "x509: certificate signed by unknown authority", SpecTimeout(5*load.Patience)),
		Entry("without TLS", false, "EOF|connection reset by peer", SpecTimeout(5*load.Patience)),
	)
})

// intruder is another program. It counts all that it receives.
type intruder struct {
	net.Listener
	connections atomic.Int64
	requests    atomic.Int64 // of HTTP, or connections whose bytes hold the words of an admission request
}

// host is the name that replicas have certificates for.
func (p *program) host() string { return load.ServiceName + "." + p.name + ".svc" }

// intrude runs another program at an endpoint, as soon as that is free, until the spec ends. It has a foreign certificate
// for the host, or no TLS.
func intrude(ctx context.Context, endpoint string, withTLS bool, host string) *intruder {
	GinkgoHelper()
	i := &intruder{}
	Eventually(func() (err error) {
		i.Listener, err = net.Listen("tcp", endpoint)
		return err
	}).WithContext(ctx).WithPolling(time.Millisecond).Should(Succeed())
	DeferCleanup(i.Listener.Close)
	if !withTLS {
		go i.listen()
		return i
	}
	certificate, key := Issue(NewCA(time.Hour, time.Now()), ForServer(host))
	server := &http.Server{
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{Must(tls.X509KeyPair(certificate, key))}},
		ErrorLog:  log.New(io.Discard, "", 0), // its clients refuse its certificate
		Handler:   http.HandlerFunc(func(http.ResponseWriter, *http.Request) { i.requests.Add(1) }),
	}
	go func() { _ = server.ServeTLS(i, "", "") }()
	return i
}

// listen reads the first bytes of each connection, and closes it.
func (i *intruder) listen() {
	for {
		conn, err := i.Accept()
		if err != nil {
			return
		}
		first := make([]byte, 64<<10)
		n, _ := conn.Read(first)
		if bytes.Contains(first[:n], []byte("AdmissionReview")) || bytes.Contains(first[:n], []byte("POST")) {
			i.requests.Add(1)
		}
		_ = conn.Close()
	}
}

// Accept implements net.Listener.
func (i *intruder) Accept() (net.Conn, error) {
	conn, err := i.Listener.Accept()
	if err == nil {
		i.connections.Add(1)
	}
	return conn, err
}

// expectNothing sees that no connection came, and then that one would have been counted.
func (i *intruder) expectNothing(ctx context.Context) {
	GinkgoHelper()
	Expect(i.connections.Load()).To(BeZero(), "connections to the program that took %s", i.Addr())
	conn := Must((&net.Dialer{}).DialContext(ctx, "tcp", i.Addr().String()))
	defer conn.Close()
	Eventually(i.connections.Load).WithContext(ctx).Should(BeEquivalentTo(1))
}
