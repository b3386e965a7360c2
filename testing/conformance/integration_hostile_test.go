package conformance_test

// This file plays the API server's calls while others do harm at the webhook's port.

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"code.cloudfoundry.org/eirinix"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
)

// An attacker does harm on one connection to the webhook's port, again and again.
type attacker struct {
	plain  bool   // without TLS
	opens  string // sent first; PATH stands for that of the webhook
	drip   string // sent now and then after that, until one side hangs up
	stands int    // how many of them there are
}

const (
	post  = "POST PATH HTTP/1.1\r\nHost: webhook\r\nContent-Type: application/json\r\n"
	crowd = 24 // more than there is room for large bodies
)

var attackers = []attacker{
	{plain: true, opens: "\x00\x01\x02 garbage \xff\xfe\r\n\r\n", stands: 1},
	{plain: true, opens: post + "Content-Length: 2\r\n\r\n{}", stands: 1},
	{opens: "\x00\x01\x02 garbage\r\n\r\n", stands: 1},
	{opens: post + "Content-Length: 100000\r\n\r\n" + strings.Repeat("[", 100000), stands: 1},
	{opens: post + "Content-Length: 1099511627776\r\n\r\n{", stands: 1},

	// These hold on to a resource of the server.
	{plain: true, stands: crowd},
	{plain: true, opens: "\x16\x03\x01\x02\x00\x01", stands: crowd}, // half a handshake
	{opens: "POST PATH HTTP/1.1\r\nHost: webhook\r\n", drip: "X-Slow: yes\r\n", stands: crowd},
	{opens: post + "Content-Length: 2097152\r\n\r\n{", drip: " ", stands: crowd},
	{opens: post + "Content-Length: 31457280\r\n\r\n{", drip: " ", stands: crowd},
	{opens: post + "Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n", drip: "1\r\n \r\n", stands: crowd},
}

// visit does it once. It returns when it is over, or ctx ends. It calls there when the harm is being done.
func (s attacker) visit(ctx context.Context, address, path string, there func()) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return
	}
	if !s.plain {
		conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true}) // an attacker trusts any certificate
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	if _, err := conn.Write([]byte(strings.ReplaceAll(s.opens, "PATH", path))); err != nil {
		return
	}
	there()
	if s.drip != "" {
		go func() {
			for tick := time.NewTicker(50 * time.Millisecond); ; <-tick.C {
				if _, err := conn.Write([]byte(s.drip)); err != nil {
					tick.Stop()
					return
				}
			}
		}()
	}
	if resp, err := http.ReadResponse(bufio.NewReader(conn), nil); err == nil {
		_ = resp.Body.Close()
	}
}

// besiege lets attackers connect until the spec ends. It returns when all of them are there.
func besiege(address, path string) {
	ctx, cancel := context.WithCancel(context.Background())
	var all, there sync.WaitGroup
	for _, s := range attackers {
		for range s.stands {
			there.Add(1)
			all.Go(func() {
				var once sync.Once
				for ctx.Err() == nil {
					s.visit(ctx, address, path, func() { once.Do(there.Done) })
					select {
					case <-ctx.Done():
					case <-time.After(10 * time.Millisecond):
					}
				}
			})
		}
	}
	DeferCleanup(func() { cancel(); all.Wait() })
	there.Wait()
}

var _ = Describe("S34 Hostile requests beside normal traffic", Label("S34"), func() {
	// Alone, each of these takes some tens of milliseconds; the rest is for machines that are busy. A call that waits
	// for attackers to go, who stay for half a minute, fails.
	const timeout = 25 * time.Second

	eachMode(func(mode mode) {
		It("neither fail nor delay the API server's calls, small or large", func(ctx SpecContext) {
			// net/http writes every handshake that fails to the standard logger.
			log.SetOutput(GinkgoWriter)
			DeferCleanup(log.SetOutput, os.Stderr)
			namespace := newNamespace(ctx)
			m := serve(ctx, mode, namespace, nil,
				labelOnce("maps", "seen", "yes", eirinix.Settings{Timeout: timeout}),
				eirinix.Mutation[*corev1.Pod]{ID: "pods", Settings: eirinix.Settings{Timeout: timeout}, Apply: func(_ context.Context, _ *eirinix.Call, p *corev1.Pod) error {
					metav1.SetMetaDataLabel(&p.ObjectMeta, "seen", "yes")
					return nil
				}})
			path := ""
			if hook := mutatingConfiguration(ctx, m).Webhooks[0].ClientConfig; hook.Service != nil {
				path = *hook.Service.Path
			} else {
				path = Must(url.Parse(*hook.URL)).Path
			}
			besiege(m.Addr().String(), path+"?timeout=30s")

			// The review of a heavy one is several times as long: "<" is escaped there, six-fold.
			heavy := map[string]string{"markup": strings.Repeat("<", 400<<10)}
			var clientsAtWork sync.WaitGroup
			for client := range 2 {
				clientsAtWork.Go(func() {
					defer GinkgoRecover()
					for i := range 40 {
						p, err := createPod(ctx, namespace, NewPod(fmt.Sprintf("pod-%d-%d", client, i), nil))
						Expect(err).NotTo(HaveOccurred())
						Expect(p.Labels).To(HaveKeyWithValue("seen", "yes"))
					}
				})
				clientsAtWork.Go(func() {
					defer GinkgoRecover()
					for i := range 6 {
						c, err := createConfigMap(ctx, namespace, newConfigMap(fmt.Sprintf("heavy-%d-%d", client, i), heavy))
						Expect(err).NotTo(HaveOccurred())
						Expect(c.Labels).To(HaveKeyWithValue("seen", "yes"))
					}
				})
			}
			clientsAtWork.Wait()
		}, SpecTimeout(4*patience))
	})
})
