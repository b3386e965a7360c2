package eirinix_test

// This file specifies what a Manager costs its process and the API server.

import (
	"fmt"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"go.uber.org/zap"
)

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
		var mu sync.Mutex
		var writes []string // a review of rights and a dry run are none
		for range 2 {
			options := urlOptions(namespace)
			options.Port = 8443 // one address, as replicas have
			options.RestConfig = between(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
				if uri := r.URL.RequestURI(); r.Method != http.MethodGet && !strings.Contains(uri, "reviews") && !strings.Contains(uri, "dryRun=All") {
					mu.Lock()
					writes = append(writes, r.Method+" "+uri)
					mu.Unlock()
				}
				return next.RoundTrip(r)
			})
			runManager(ctx, addEnvManager(options))
		}
		written := func() []string {
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(writes)
		}
		rest := 5 * time.Second
		if os.Getenv("EIRINIX_SOAK") != "" {
			rest = 70 * time.Second // more than the minute after which every object is checked again
		}
		before := written()
		Eventually(func() []string {
			last := before
			before = written()
			return before[len(last):]
		}).WithPolling(rest).WithTimeout(10 * rest).Should(BeEmpty())
	}, SpecTimeout(15*time.Minute))
})
