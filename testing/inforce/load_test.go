package inforce_test

// This file holds what looks at a rule all the time: the clients that create objects, and the watch of its entry.

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
)

const (
	// pace is the time between two creates of one client, if the machine can keep up.
	pace = 40 * time.Millisecond

	// crowd is the number of clients that create objects of a rule. Each has one create in flight, which can take long.
	crowd = 4
)

// The outcomes of a create.
const (
	admitted = "admitted"
	refused  = "refused by the rule"
	failed   = "refused by a failure"
	away     = "of a kind that is not served"
)

func outcomeOf(err error) string {
	switch {
	case err == nil:
		return admitted
	case strings.Contains(err.Error(), refusal):
		return refused
	case apierrors.IsNotFound(err):
		return away
	}
	return failed
}

// traffic creates objects, and counts the outcomes.
type traffic struct {
	create  func(context.Context) error
	clients int
	resting sync.RWMutex // locked while no create may begin
	stop    chan struct{}
	all     sync.WaitGroup

	mu     sync.Mutex
	counts map[string]int
	sample map[string]string // the last error of each outcome
}

// startTraffic has clients create objects until the spec ends.
func startTraffic(ctx context.Context, clients int, create func(context.Context) error) *traffic {
	l := &traffic{create: create, clients: clients, stop: make(chan struct{}), counts: map[string]int{}, sample: map[string]string{}}
	ctx = context.WithoutCancel(ctx)
	for range clients {
		l.all.Go(func() {
			ticker := time.NewTicker(pace)
			defer ticker.Stop()
			for {
				select {
				case <-l.stop:
					return
				case <-ticker.C:
					l.send(ctx)
				}
			}
		})
	}
	DeferCleanup(func() { close(l.stop); l.all.Wait() })
	return l
}

func (l *traffic) send(ctx context.Context) {
	l.resting.RLock()
	defer l.resting.RUnlock()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err := l.create(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counts[outcomeOf(err)]++
	l.sample[outcomeOf(err)] = fmt.Sprint(err)
}

// rest has no create in flight while f runs.
func (l *traffic) rest(f func()) {
	l.resting.Lock()
	defer l.resting.Unlock()
	f()
}

// of returns the number of creates with an outcome.
func (l *traffic) of(outcome string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.counts[outcome]
}

// besides returns an error of each other outcome.
func (l *traffic) besides(outcome string) map[string]string {
	l.mu.Lock()
	defer l.mu.Unlock()
	others := maps.Clone(l.sample)
	delete(others, outcome)
	return others
}

// more waits for n creates that begin from now on.
func (l *traffic) more(ctx context.Context, n int) {
	GinkgoHelper()
	total := func() (n int) {
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, count := range l.counts {
			n += count
		}
		return n
	}
	before := total()
	Eventually(total).WithContext(ctx).Should(BeNumerically(">=", before+l.clients+n))
}

// settles waits until no create fails.
func (l *traffic) settles(ctx context.Context) {
	GinkgoHelper()
	Eventually(func() int {
		before := l.of(failed)
		l.more(ctx, 10*enough)
		return l.of(failed) - before
	}).WithContext(ctx).Should(BeZero(), func() string { return fmt.Sprint(l.besides(admitted)) })
}

// next waits for a create with this outcome that begins from now on.
func (l *traffic) next(ctx context.Context, outcome string) {
	GinkgoHelper()
	before := l.of(outcome)
	Eventually(l.of).WithContext(ctx).WithArguments(outcome).Should(BeNumerically(">", before+l.clients), func() string { return fmt.Sprint(l.besides(outcome)) })
}

// journal notes each state of the validating configuration.
type journal struct {
	resource string

	mu      sync.Mutex
	writes  int      // so far
	without []string // the states in which the entry was not in force
}

// keepJournal watches the entry of a resource until the spec ends. It stands already.
func (p *program) keepJournal(ctx context.Context, resource string) *journal {
	GinkgoHelper()
	j := &journal{resource: resource}
	hooks := clients.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	c, err := hooks.Get(ctx, p.validating(), metav1.GetOptions{})
	Expect(err).NotTo(HaveOccurred())
	j.look(c)
	w, err := hooks.Watch(context.WithoutCancel(ctx), metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, p.validating()).String(), ResourceVersion: c.ResourceVersion,
	})
	Expect(err).NotTo(HaveOccurred())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for event := range w.ResultChan() {
			j.note(event)
		}
	}()
	DeferCleanup(func() { w.Stop(); <-ended })
	return j
}

func (j *journal) note(event watch.Event) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.writes++
	c, ok := event.Object.(*admissionregistrationv1.ValidatingWebhookConfiguration)
	switch {
	case !ok:
		j.without = append(j.without, fmt.Sprintf("the watch ended: %v", event.Object))
	case event.Type == watch.Deleted:
		j.without = append(j.without, "the configuration was deleted")
	default:
		j.look(c)
	}
}

// look sees that the entry is in force.
func (j *journal) look(c *admissionregistrationv1.ValidatingWebhookConfiguration) {
	e := entryOf(c, j.resource)
	switch {
	case e == nil:
		j.without = append(j.without, "no entry for "+j.resource)
	case e.FailurePolicy == nil || *e.FailurePolicy != admissionregistrationv1.Fail:
		j.without = append(j.without, fmt.Sprintf("failurePolicy %v", e.FailurePolicy))
	case len(e.ClientConfig.CABundle) == 0:
		j.without = append(j.without, "no caBundle")
	}
}

// seen returns the number of writes so far, and the states in which the entry was not in force.
func (j *journal) seen() (writes int, without []string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.writes, slices.Clone(j.without)
}
