package conformance_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"code.cloudfoundry.org/eirinix"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
)

// A turnstile stands between the API server and a Manager at the level of TCP, and counts the connections.
type turnstile struct {
	listener net.Listener
	behind   string
	entered  atomic.Int64
}

func newTurnstile() *turnstile {
	GinkgoHelper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	Expect(err).NotTo(HaveOccurred())
	t := &turnstile{listener: l}
	DeferCleanup(l.Close)
	return t
}

// options has the API server call the turnstile, and the Manager listen behind it.
func (t *turnstile) options(o *eirinix.ManagerOptions) {
	t.behind = net.JoinHostPort("127.0.0.1", strconv.Itoa(int(FreePort())))
	o.Port, o.ListenAddress = int32(t.listener.Addr().(*net.TCPAddr).Port), t.behind
	go func() {
		for {
			conn, err := t.listener.Accept()
			if err != nil {
				return
			}
			t.entered.Add(1)
			go t.pass(conn)
		}
	}()
}

func (t *turnstile) pass(in net.Conn) {
	out, err := net.Dial("tcp", t.behind)
	if err != nil {
		_ = in.Close()
		return
	}
	for _, way := range [][2]net.Conn{{in, out}, {out, in}} {
		go func() {
			_, _ = io.Copy(way[0], way[1])
			_ = way[0].Close()
			_ = way[1].Close()
		}()
	}
}

var _ = Describe("S29 Connections", Label("S29"), func() {
	const parallel = 10

	eachMode(func(mode mode) {
		// Through a loopback URL the API server would speak HTTP/2, and so need one connection, to a server
		// that offers it. This library does not (CVE-2023-44487), so that both modes are the same.
		It("are one for each call at a time, and kept for the next ones", func(ctx SpecContext) {
			namespace, gate := newNamespace(ctx), newTurnstile()
			var together sync.WaitGroup // a call ends when all of its wave have arrived
			var mu sync.Mutex
			wave := func() *sync.WaitGroup { mu.Lock(); defer mu.Unlock(); return &together }
			var met atomic.Int64
			serve(ctx, mode, namespace, gate.options, eirinix.Mutation[*corev1.ConfigMap]{
				ID: "slow",
				Apply: func(ctx context.Context, _ *eirinix.Call, c *corev1.ConfigMap) error {
					w := wave()
					w.Done()
					arrived := make(chan struct{})
					go func() { w.Wait(); close(arrived) }()
					select {
					case <-arrived:
						met.Add(1)
						return nil
					case <-ctx.Done():
						return ctx.Err()
					}
				},
				Settings: eirinix.Settings{Timeout: 20 * time.Second},
			})
			create := func(name string) {
				GinkgoHelper()
				wave().Add(parallel)
				var clients sync.WaitGroup
				for i := range parallel {
					clients.Go(func() {
						defer GinkgoRecover()
						_, err := createConfigMap(ctx, namespace, newConfigMap(fmt.Sprintf("%s-%d", name, i), nil))
						Expect(err).NotTo(HaveOccurred())
					})
				}
				clients.Wait()
			}
			create("first")
			Expect(met.Load()).To(BeEquivalentTo(parallel), "all ten were in flight at once")
			entered := gate.entered.Load()
			Expect(entered).To(BeNumerically(">=", parallel))
			// The Manager's own probe, the marker's and ten; a connection dialled for a call that another one
			// became free for is kept too.
			Expect(entered).To(BeNumerically("<=", 2*parallel+2))

			// A transport has a connection back a moment after it has given the answer on. On a busy machine a wave that
			// follows at once may miss one, and dial.
			waves := 1
			Eventually(func() int64 {
				before := gate.entered.Load()
				waves++
				create(fmt.Sprintf("wave-%d", waves))
				return gate.entered.Load() - before
			}).WithContext(ctx).Should(BeZero(), "a later wave opens no connection")
			Expect(met.Load()).To(BeEquivalentTo(waves * parallel))
			Expect(gate.entered.Load()).To(BeNumerically("<=", 2*parallel+2))
		}, SpecTimeout(2*patience))
	})
})
