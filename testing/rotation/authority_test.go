package rotation_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/internal/ca"
)

var _ = Describe("RotateCA of a program that does not serve", func() {
	It("writes caBundles and nothing else", func(ctx SpecContext) {
		d := deploy(ctx, 2, lifetimes{CA: time.Hour, Leaf: time.Minute, Retain: 2 * time.Second})
		clients := clientsOf(0)
		l := startLoad(ctx, d, few)
		j := d.keepJournal(ctx, clients)
		tools := map[string]func() *eirinix.ExtensionManager{
			"without steps": func() *eirinix.ExtensionManager { return d.manager(1, "empty").ExtensionManager },
			"with another port and other steps": func() *eirinix.ExtensionManager {
				m := d.manager(1, "other-port", func(o *eirinix.ManagerOptions) { o.Port = 1 })
				Expect(m.AddExtension(mark("another", "yes", eirinix.Settings{}))).To(Succeed())
				return m.ExtensionManager
			},
		}
		for name, tool := range tools {
			By(name)
			before := d.settle(ctx, clients)
			Expect(tool().RotateCA(ctx, eirinix.RotateOptions{})).To(Succeed())
			Expect(d.state(ctx, clients).CurrentID).To(Equal(before.CurrentID+1), name)
			Expect(d.settle(ctx, clients).CurrentID).To(Equal(before.CurrentID+1), name)
			Expect(l.failing()).To(BeEmpty(), name)
		}
		for _, kind := range []string{mutatingKind, validatingKind} {
			Expect(j.changes(kind)).To(HaveLen(1), "the %s is unchanged, but for caBundles", kind)
			Expect(j.written(kind)).To(BeNumerically(">=", 2*len(tools)), "and these were written")
		}
		Expect(j.written(leaseKind)).To(BeZero())
		d.expectNoFailure(l, fmt.Sprintf("RotateCA of %d programs that do not serve", len(tools)))
	}, SpecTimeout(5*patience))
})

// thief has stolen the key of a CA, and collects the chains that servers send to every client.
type thief struct {
	key  *ca.Authority
	host string

	mu        sync.Mutex
	collected []*x509.Certificate
}

// steal takes the key of the CA that signs now.
func (d *deployment) steal(ctx context.Context) *thief {
	GinkgoHelper()
	key, err := d.state(ctx, clientsOf(0)).Current()
	Expect(err).NotTo(HaveOccurred())
	return &thief{key: key, host: serviceName + "." + d.namespace + ".svc", collected: []*x509.Certificate{key.Certificate}}
}

// collect asks these endpoints again and again until stop, for all certificates behind the serving one.
func (t *thief) collect(ctx context.Context, endpoints ...string) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var collecting sync.WaitGroup
	for _, endpoint := range endpoints {
		collecting.Go(func() {
			for ctx.Err() == nil {
				conn, err := (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}).DialContext(ctx, "tcp", endpoint)
				if err != nil {
					continue
				}
				sent := conn.(*tls.Conn).ConnectionState().PeerCertificates[1:]
				_ = conn.Close()
				t.mu.Lock()
				for _, certificate := range sent {
					if !slices.ContainsFunc(t.collected, certificate.Equal) {
						t.collected = append(t.collected, certificate)
					}
				}
				t.mu.Unlock()
			}
		})
	}
	stop = sync.OnceFunc(func() { cancel(); collecting.Wait() })
	DeferCleanup(stop)
	return stop
}

// leaf is signed with the stolen key, to be valid for as long as its CA is.
func (t *thief) leaf() *tls.Certificate {
	GinkgoHelper()
	leaf, err := t.key.SignServing([]string{t.host}, 20*365*24*time.Hour, time.Now())
	Expect(err).NotTo(HaveOccurred())
	return leaf
}

// verify reports whether a client with this caBundle trusts the thief's leaf at a time, with all that was collected.
func (t *thief) verify(bundle []byte, at time.Time) error {
	GinkgoHelper()
	roots, intermediates := x509.NewCertPool(), x509.NewCertPool()
	Expect(roots.AppendCertsFromPEM(bundle)).To(BeTrue())
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, certificate := range t.collected {
		intermediates.AddCert(certificate)
	}
	_, err := t.leaf().Leaf.Verify(x509.VerifyOptions{DNSName: t.host, Roots: roots, Intermediates: intermediates, CurrentTime: at})
	return err
}

// serve answers instead of the replicas, and counts the calls that come through.
func (t *thief) serve(d *deployment) (called func() int) {
	GinkgoHelper()
	leaf := t.leaf()
	t.mu.Lock()
	for _, certificate := range t.collected {
		leaf.Certificate = append(leaf.Certificate, certificate.Raw)
	}
	t.mu.Unlock()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	Expect(err).NotTo(HaveOccurred())
	var mu sync.Mutex
	calls := 0
	server := &http.Server{TLSConfig: &tls.Config{Certificates: []tls.Certificate{*leaf}}, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		calls++
		w.WriteHeader(http.StatusTeapot)
	})}
	server.SetKeepAlivesEnabled(false)
	go func() { _ = server.ServeTLS(listener, "", "") }()
	DeferCleanup(server.Close)
	for _, r := range d.replicas {
		d.balancer.remove(r.endpoint())
	}
	d.balancer.add(listener.Addr().String())
	DeferCleanup(func() { d.balancer.remove(listener.Addr().String()) })
	return func() int {
		mu.Lock()
		defer mu.Unlock()
		return calls
	}
}

var _ = Describe("A stolen key of the CA", func() {
	DescribeTable("is worth nothing after a rotation", func(ctx SpecContext, lives lifetimes, options eirinix.RotateOptions) {
		d := deploy(ctx, 3, lives)
		clients := clientsOf(0)
		l := startLoad(ctx, d, few)
		t := d.steal(ctx)
		var endpoints []string
		for _, r := range d.replicas {
			endpoints = append(endpoints, r.endpoint())
		}
		stop := t.collect(ctx, endpoints...)
		bundles, err := d.bundles(ctx, clients)
		Expect(err).NotTo(HaveOccurred())
		Expect(t.verify(bundles[0], time.Now())).To(Succeed(), "the harness can tell a good leaf")

		began := time.Now()
		Expect(d.replicas[0].RotateCA(ctx, options)).To(Succeed())
		signs := time.Since(began)
		state := d.settle(ctx, clients)
		trustedNoMore := time.Since(began)
		Expect(trustedNoMore).To(BeNumerically("<", patience))
		stop()
		Expect(ca.SplitBundle(state.Bundle())).To(HaveLen(1))
		Expect(len(t.collected)).To(BeNumerically(">", 1), "servers have sent cross-signed certificates")

		bundles, err = d.bundles(ctx, clients)
		Expect(err).NotTo(HaveOccurred())
		Expect(bundles).NotTo(BeEmpty())
		const day = 24 * time.Hour
		for _, after := range []time.Duration{0, time.Hour, 30 * day, 5 * 365 * day, 9 * 365 * day} {
			for _, bundle := range bundles {
				Expect(t.verify(bundle, time.Now().Add(after))).To(MatchError(ContainSubstring("signed by unknown authority")), "after %s", after)
			}
		}
		d.expectNoFailure(l, fmt.Sprintf("a rotation with Retain %s and %+v: RotateCA returns after %s, the old CA is trusted no more after %s, %d certificates collected", lives.Retain, options,
			signs.Round(100*time.Millisecond), trustedNoMore.Round(100*time.Millisecond), len(t.collected)-1))

		called := t.serve(d)
		for n := range servers {
			Eventually(admit).WithArguments(ctx, clientsOf(n), d.objects).WithContext(ctx).WithTimeout(patience).
				Should(MatchError(ContainSubstring("signed by unknown authority")))
		}
		Expect(called()).To(BeZero())
	},
		Entry("that has retained the old CA", lifetimes{CA: 10 * 365 * 24 * time.Hour, Leaf: time.Minute, Retain: 3 * time.Second}, eirinix.RotateOptions{}, SpecTimeout(5*patience)),
		Entry("with Distrust, within seconds", lifetimes{}, eirinix.RotateOptions{Distrust: true}, SpecTimeout(5*patience)),
	)
})
