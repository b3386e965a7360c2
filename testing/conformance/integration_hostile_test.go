package conformance_test

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
)

// An attacker does harm on one connection to the webhook's port, in one of many ways.
type attacker struct {
	name   string
	plain  bool           // without TLS
	opens  string         // sent first; PATH stands for that of the webhook
	drip   string         // sent now and then after that, until one side hangs up
	answer func(int) bool // whether a status is right, where there is an answer; nil: hangs on, or comes again
}

const headers = "Host: webhook\r\nContent-Type: application/json\r\n"

func refusedWith(statuses ...int) func(int) bool {
	return func(status int) bool {
		for _, s := range statuses {
			if s == status {
				return true
			}
		}
		return false
	}
}

// These try something, and come again at once.
var visitors = []attacker{
	{name: "garbage instead of TLS", plain: true, opens: "\x00\x01\x02 garbage \xff\xfe\r\n\r\n"},
	{name: "plain HTTP", plain: true, opens: "POST PATH HTTP/1.1\r\n" + headers + "Content-Length: 2\r\n\r\n{}", answer: refusedWith(http.StatusBadRequest)},
	{name: "garbage inside TLS", opens: "\x00\x01\x02 garbage\r\n\r\n", answer: refusedWith(http.StatusBadRequest)},
	{name: "a garbage body", opens: "POST PATH HTTP/1.1\r\n" + headers + "Content-Length: 7\r\n\r\ngarbage", answer: refusedWith(http.StatusBadRequest)},
	{name: "an empty review", opens: "POST PATH HTTP/1.1\r\n" + headers + "Content-Length: 2\r\n\r\n{}", answer: refusedWith(http.StatusBadRequest)},
	{name: "a deep body", opens: "POST PATH HTTP/1.1\r\n" + headers + "Content-Length: 100000\r\n\r\n" + strings.Repeat("[", 100000), answer: refusedWith(http.StatusBadRequest)},
	{name: "GET", opens: "GET PATH HTTP/1.1\r\n" + headers + "\r\n", answer: refusedWith(http.StatusMethodNotAllowed)},
	{name: "DELETE", opens: "DELETE PATH HTTP/1.1\r\n" + headers + "\r\n", answer: refusedWith(http.StatusMethodNotAllowed)},
	{name: "CONNECT", opens: "CONNECT PATH HTTP/1.1\r\n" + headers + "\r\n", answer: refusedWith(http.StatusMethodNotAllowed, http.StatusBadRequest, http.StatusNotFound)},
	{name: "a form", opens: "POST PATH HTTP/1.1\r\nHost: webhook\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\n{}", answer: refusedWith(http.StatusUnsupportedMediaType)},
	{name: "a giant declared body", opens: "POST PATH HTTP/1.1\r\n" + headers + "Content-Length: 1099511627776\r\n\r\n{", answer: refusedWith(http.StatusRequestEntityTooLarge)},
	{name: "an unknown webhook", opens: "POST /mutate/unknown HTTP/1.1\r\n" + headers + "Content-Length: 2\r\n\r\n{}", answer: refusedWith(http.StatusServiceUnavailable)},
}

// These hold on to a resource of the server.
var squatters = []attacker{
	{name: "a silent connection", plain: true},
	{name: "half a handshake", plain: true, opens: "\x16\x03\x01\x02\x00\x01"},
	{name: "a slow request", opens: "POST PATH HTTP/1.1\r\nHost: webhook\r\n", drip: "X-Slow: yes\r\n"},
	{name: "a slow upload of 2 MiB", opens: "POST PATH HTTP/1.1\r\n" + headers + "Content-Length: 2097152\r\n\r\n{", drip: " "},
	{name: "a slow upload of 30 MiB", opens: "POST PATH HTTP/1.1\r\n" + headers + "Content-Length: 31457280\r\n\r\n{", drip: " "},
	{name: "a slow chunked upload", opens: "POST PATH HTTP/1.1\r\n" + headers + "Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n", drip: "1\r\n \r\n"},
}

// visit does it once. It returns when it is over, or ctx ends. It calls there when the harm is being done.
func (s attacker) visit(ctx context.Context, address, path string, there func()) error {
	var conn net.Conn
	var err error
	if s.plain {
		conn, err = (&net.Dialer{}).DialContext(ctx, "tcp", address)
	} else {
		conn, err = (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}).DialContext(ctx, "tcp", address) // an attacker trusts any certificate
	}
	if err != nil {
		return err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	if _, err := conn.Write([]byte(strings.ReplaceAll(s.opens, "PATH", path))); err != nil {
		return nil // hung up on, which is fine
	}
	there()
	if s.drip != "" {
		go func() {
			tick := time.NewTicker(50 * time.Millisecond)
			defer tick.Stop()
			for range tick.C {
				if _, err := conn.Write([]byte(s.drip)); err != nil {
					return
				}
			}
		}()
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil || s.answer == nil {
		return nil
	}
	defer resp.Body.Close()
	if !s.answer(resp.StatusCode) {
		return fmt.Errorf("%s was answered %s", s.name, resp.Status)
	}
	return nil
}

// besiege lets attackers connect until the function that it returns is called, which returns their complaints. It
// returns when those who hold on are there: more of each than there is room for large bodies.
func besiege(ctx context.Context, address, path string) (stop func() []string) {
	GinkgoHelper()
	ctx, cancel := context.WithCancel(ctx)
	var all, there sync.WaitGroup
	complaints := &callLog{}
	come := func(s attacker, again time.Duration, first func()) {
		all.Go(func() {
			var once sync.Once
			for ctx.Err() == nil {
				err := s.visit(ctx, address, path, func() { once.Do(first) })
				if err != nil && ctx.Err() == nil {
					complaints.add(err.Error())
				}
				select {
				case <-ctx.Done():
				case <-time.After(again):
				}
			}
			once.Do(first)
		})
	}
	for _, s := range squatters {
		for range 24 {
			there.Add(1)
			come(s, time.Millisecond, there.Done)
		}
	}
	for _, s := range visitors {
		come(s, 10*time.Millisecond, func() {})
	}
	there.Wait()
	return func() []string {
		cancel()
		all.Wait()
		return complaints.list()
	}
}

// heavy makes a config map whose review is several times as long: "<" is escaped there, six-fold.
func heavy(name string) *corev1.ConfigMap {
	return newConfigMap(name, map[string]string{"markup": strings.Repeat("<", 400<<10)})
}

var _ = Describe("S34 Hostile requests beside normal traffic", Label("S34"), func() {
	// Alone, each of these takes some tens of milliseconds; the rest is for machines that are busy. A call that waits
	// for squatters to go, who stay for half a minute, fails.
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
			hook := mutatingConfiguration(ctx, m).Webhooks[0].ClientConfig
			path := ""
			if hook.Service != nil {
				path = *hook.Service.Path
			} else {
				u, err := url.Parse(*hook.URL)
				Expect(err).NotTo(HaveOccurred())
				path = u.Path
			}
			stop := besiege(ctx, m.Addr().String(), path+"?timeout=30s")
			DeferCleanup(func() { stop() })

			var slowest sync.Map
			var clientsAtWork sync.WaitGroup
			work := func(prefix string, n int, create func(name string) (labels map[string]string, err error)) {
				clientsAtWork.Go(func() {
					defer GinkgoRecover()
					worst := time.Duration(0)
					for i := range n {
						began := time.Now()
						labels, err := create(fmt.Sprintf("%s-%d", prefix, i))
						Expect(err).NotTo(HaveOccurred(), prefix)
						Expect(labels).To(HaveKeyWithValue("seen", "yes"), prefix)
						worst = max(worst, time.Since(began))
					}
					slowest.Store(prefix, worst)
				})
			}
			for i := range 2 {
				work(fmt.Sprintf("pod%d", i), 40, func(name string) (map[string]string, error) {
					p, err := createPod(ctx, namespace, newPod(name))
					return p.GetLabels(), err
				})
				work(fmt.Sprintf("heavy%d", i), 6, func(name string) (map[string]string, error) {
					c, err := createConfigMap(ctx, namespace, heavy(name))
					return c.GetLabels(), err
				})
			}
			clientsAtWork.Wait()
			slowest.Range(func(prefix, worst any) bool {
				GinkgoWriter.Printf("the slowest of %v took %v\n", prefix, worst)
				return true
			})
			Expect(stop()).To(BeEmpty(), "the answers to attackers")
			_, err := createPod(ctx, namespace, newPod("afterwards"))
			Expect(err).NotTo(HaveOccurred())
		}, SpecTimeout(4*patience))
	})
})
