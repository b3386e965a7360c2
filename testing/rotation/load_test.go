package rotation_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// every is the time between two admissions by one API server, if the machine can keep up.
const every = 40 * time.Millisecond

// How many admissions by one API server may be in flight at once.
const (
	few  = 6
	many = 40 // requests to a frozen API server pile up, and all run at once when it goes on
)

// load is a stream of admissions through every API server.
type load struct {
	stop     chan struct{}
	all      sync.WaitGroup
	admitted []atomic.Int64 // by API server
	wanted   atomic.Pointer[wanted]

	mu       sync.Mutex
	failures []string
}

// startLoad sends admissions until end is called, at the latest when the spec ends.
func startLoad(ctx context.Context, d *deployment, inFlight int) *load {
	GinkgoHelper()
	l := &load{stop: make(chan struct{}), admitted: make([]atomic.Int64, len(servers))}
	for n := range servers {
		clients := clientsOf(n)
		Eventually(func() error { return admit(ctx, clients, d.objects) }).Should(Succeed(), "the API server acts on the configurations")
		l.all.Go(func() { l.generate(clients, n, d.objects, inFlight) })
	}
	d.balancer.unserved.Store(0) // the canary of the first replica may have come before its endpoint
	DeferCleanup(func() { l.end() })
	return l
}

func (l *load) generate(clients kubernetes.Interface, server int, namespace string, inFlight int) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	places := make(chan struct{}, inFlight)
	for {
		select {
		case <-l.stop:
			return
		case <-ticker.C:
		}
		select {
		case <-l.stop:
			return
		case places <- struct{}{}:
		}
		l.all.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			began, before := time.Now(), l.wanted.Load()
			data, err := admitted(ctx, clients, namespace)
			if err == nil {
				err = before.missedBy(data)
			}
			if after := l.wanted.Load(); err != nil && data != nil && after != before {
				err = after.missedBy(data)
			}
			if err != nil {
				l.failed(fmt.Sprintf("%s, after %s, API server %d: %v", began.Format("15:04:05.000"), time.Since(began).Round(time.Millisecond), server, err))
			} else {
				l.admitted[server].Add(1)
			}
			<-places
		})
	}
}

func (l *load) failed(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failures = append(l.failures, text)
}

// failing returns the failed admissions so far.
func (l *load) failing() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string(nil), l.failures...)
}

// total is how many admissions succeeded so far.
func (l *load) total() (n int64) {
	for i := range l.admitted {
		n += l.admitted[i].Load()
	}
	return n
}

// end stops the load and waits for the requests in flight.
func (l *load) end() {
	select {
	case <-l.stop:
	default:
		close(l.stop)
	}
	l.all.Wait()
}

// admit has one object admitted, and sees that it was changed and checked.
func admit(ctx context.Context, clients kubernetes.Interface, namespace string) error {
	_, err := admitted(ctx, clients, namespace)
	return err
}

// admitted is admit, and returns the object's data after all steps.
func admitted(ctx context.Context, clients kubernetes.Interface, namespace string) (map[string]string, error) {
	c, err := clients.CoreV1().ConfigMaps(namespace).Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "load-", Labels: map[string]string{"load": "yes", "tier": "one"}},
	}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	switch {
	case err != nil:
		return nil, err
	case c.Data["mutated"] != "yes":
		return nil, fmt.Errorf("admitted without the mutation")
	}
	return c.Data, nil
}

// wanted is the data that steps must have left in an object. While another wanted takes its place, an admitted object may
// have the data of either. The nil wanted accepts everything.
type wanted struct {
	has   map[string]string
	exact bool // and nothing else
}

func (w *wanted) missedBy(data map[string]string) error {
	if w == nil {
		return nil
	}
	for key, value := range w.has {
		if found, ok := data[key]; !ok || value != "" && found != value {
			return fmt.Errorf("%s is %q instead of %q, in %v", key, found, value, data)
		}
	}
	for key := range data {
		if _, ok := w.has[key]; w.exact && !ok {
			return fmt.Errorf("%s is there, in %v", key, data)
		}
	}
	return nil
}
