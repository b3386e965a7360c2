package eirinix_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"code.cloudfoundry.org/eirinix"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
)

// otherSecrets is the number of other Secrets in the namespace: fifteen thousand in the long run.
func otherSecrets() int {
	if os.Getenv("EIRINIX_SOAK") != "" {
		return 15_000
	}
	return 3_000
}

// meter counts the bytes that a Manager receives and the requests that it sends.
type meter struct {
	bytes  atomic.Int64
	mu     sync.Mutex
	writes []string
}

func (m *meter) on(config *rest.Config) *rest.Config {
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTrip(func(r *http.Request) (*http.Response, error) {
			if r.Method != http.MethodGet {
				m.mu.Lock()
				m.writes = append(m.writes, r.Method+" "+r.URL.RequestURI())
				m.mu.Unlock()
			}
			resp, err := next.RoundTrip(r)
			if err == nil {
				resp.Body = &metered{resp.Body, m}
			}
			return resp, err
		})
	})
	return config
}

// written returns the writes so far. A review of rights and a dry run are no writes.
func (m *meter) written() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var writes []string
	for _, w := range m.writes {
		if !strings.Contains(w, "reviews") && !strings.Contains(w, "dryRun=All") {
			writes = append(writes, w)
		}
	}
	return writes
}

type metered struct {
	io.ReadCloser
	meter *meter
}

func (b *metered) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.meter.bytes.Add(int64(n))
	return n, err
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// heap is the memory in use.
func heap() int64 {
	runtime.GC()
	runtime.GC() // frees the memory that finalizers kept
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

var _ = Describe("A Manager at rest", Label("api-server"), func() {
	It("sees no Secret but its own, and takes no memory for others", Serial, func(ctx SpecContext) {
		const size, mebibyte = 1 << 10, 1 << 20
		empty, full := newNamespace(ctx), newNamespace(ctx)
		config := controlPlane().Config()
		config.QPS = -1
		secrets := Clients(config).CoreV1().Secrets(full)
		places, filler := make(chan struct{}, 16), []byte(strings.Repeat("x", size))
		var all sync.WaitGroup
		for n := range otherSecrets() {
			places <- struct{}{}
			all.Go(func() {
				defer GinkgoRecover()
				defer func() { <-places }()
				_, err := secrets.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("other-%d", n)}, Data: map[string][]byte{"x": filler}}, metav1.CreateOptions{})
				Expect(err).NotTo(HaveOccurred())
			})
		}
		all.Wait()

		// grown runs a Manager for a while. It returns the growth of the heap and the bytes from the API server.
		grown := func(namespace string) (memory, bytes int64) {
			m := &meter{}
			options := urlOptions(namespace)
			options.RestConfig = m.on(controlPlane().Config())
			before := heap()
			x := addEnvManager(options)
			runManager(ctx, x)
			// Another replica's rotation has everything read again.
			Expect(x.RotateCA(ctx, eirinix.RotateOptions{})).To(Succeed())
			memory = heap() - before
			Expect(secretVersion(ctx, namespace)).NotTo(BeEmpty())
			return memory, m.bytes.Load()
		}
		grown(empty) // allocates everything that the process allocates once
		alone, sent := grown(newNamespace(ctx))
		among, sentAmong := grown(full)
		AddReportEntry(fmt.Sprintf("beside %d other Secrets: %d KiB of heap, %d KiB received; alone: %d KiB, %d KiB",
			otherSecrets(), among>>10, sentAmong>>10, alone>>10, sent>>10), ReportEntryVisibilityAlways)
		Expect(among - alone).To(BeNumerically("<", 2*mebibyte))
		Expect(sentAmong).To(BeNumerically("<", sent+64<<10), "the API server sends only our objects")
	}, SpecTimeout(10*time.Minute))

	It("costs little beside others in its process", Serial, func(ctx SpecContext) {
		run := func() {
			options := urlOptions(newNamespace(ctx))
			options.Logger = zap.NewNop().Sugar()
			runManager(ctx, addEnvManager(options))
		}
		run() // has what the process has once
		const more, kibibyte = 10, 1 << 10
		goroutines, memory := runtime.NumGoroutine(), heap()
		for range more {
			run()
		}
		Eventually(func() int { return (runtime.NumGoroutine() - goroutines) / more }).WithTimeout(patience).Should(BeNumerically("<=", 30))
		Eventually(func() int64 { return (heap() - memory) / more / kibibyte }).WithTimeout(patience).Should(BeNumerically("<=", 300))
		AddReportEntry(fmt.Sprintf("each further one: %d goroutines, %d KiB", (runtime.NumGoroutine()-goroutines)/more, (heap()-memory)/more/kibibyte), ReportEntryVisibilityAlways)
	}, SpecTimeout(5*time.Minute))

	It("writes nothing", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		var meters []*meter
		for range 2 {
			m := &meter{}
			meters = append(meters, m)
			options := urlOptions(namespace)
			options.Port = 8443 // one address, as replicas have
			options.RestConfig = m.on(controlPlane().Config())
			x := addEnvManager(options)
			runManager(ctx, x)
		}
		written := func() (all []string) {
			for _, m := range meters {
				all = append(all, m.written()...)
			}
			return all
		}
		var before []string
		Eventually(func() bool { // both have settled
			last := before
			before = written()
			return len(before) == len(last)
		}).WithPolling(2 * time.Second).WithTimeout(patience).Should(BeTrue())
		Consistently(written, idle(), "500ms").Should(Equal(before))
	}, SpecTimeout(5*time.Minute))
})

// idle is the time without any write. In the long run it exceeds the minute after which every object is checked again.
func idle() time.Duration {
	if os.Getenv("EIRINIX_SOAK") != "" {
		return 70 * time.Second
	}
	return 10 * time.Second
}

func secretVersion(ctx context.Context, namespace string) string {
	GinkgoHelper()
	s, err := clients().CoreV1().Secrets(namespace).Get(ctx, namespace+"-setupcertificate", metav1.GetOptions{})
	Expect(err).NotTo(HaveOccurred())
	return s.ResourceVersion
}
