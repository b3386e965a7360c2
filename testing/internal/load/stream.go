// Package load holds what the specs of programs under load share: streams of calls, replicas, and the Service that leads
// the calls to the replicas.
package load

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// Patience bounds the time that a slow machine may take. A spec that passes does not wait for it.
const Patience = time.Minute

// Stream makes calls again and again, and keeps the failures.
type Stream struct {
	ended context.Context
	stop  context.CancelFunc
	all   sync.WaitGroup

	mu        sync.Mutex
	succeeded map[string]int // by the name of the call
	failures  []string
}

// NewStream returns a stream that lasts until End, and as long as the spec at most.
func NewStream() *Stream {
	s := &Stream{succeeded: map[string]int{}}
	s.ended, s.stop = context.WithCancel(context.Background())
	DeferCleanup(s.End)
	return s
}

// Send makes a call at each tick, unless so many of them are in flight already.
func (s *Stream) Send(name string, every time.Duration, inFlight int, call func(ctx context.Context, turn int) error) {
	s.all.Go(func() {
		ticker := time.NewTicker(every)
		defer ticker.Stop()
		places := make(chan struct{}, inFlight)
		for turn := 0; ; turn++ {
			select {
			case <-s.ended.Done():
				return
			case <-ticker.C:
			}
			select {
			case <-s.ended.Done():
				return
			case places <- struct{}{}:
			}
			s.all.Go(func() {
				defer func() { <-places }()
				ctx, cancel := context.WithTimeout(context.Background(), Patience)
				defer cancel()
				began := time.Now()
				s.Note(name, began, call(ctx, turn))
			})
		}
	})
}

// Run has a function run until the stream ends.
func (s *Stream) Run(run func(ctx context.Context)) { s.all.Go(func() { run(s.ended) }) }

// Note keeps the outcome of a call.
func (s *Stream) Note(name string, began time.Time, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		s.succeeded[name]++
		return
	}
	s.failures = append(s.failures, fmt.Sprintf("%s, after %s, %s: %v", began.Format("15:04:05.000"), time.Since(began).Round(time.Millisecond), name, err))
}

// Failures returns the failures so far.
func (s *Stream) Failures() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.failures)
}

// Succeeded is how many calls of that name succeeded so far.
func (s *Stream) Succeeded(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.succeeded[name]
}

// Total is how many calls succeeded so far.
func (s *Stream) Total() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, succeeded := range s.succeeded {
		n += succeeded
	}
	return n
}

// ExpectMore waits until that many more calls have come to an end.
func (s *Stream) ExpectMore(ctx context.Context, n int) {
	GinkgoHelper()
	ended := func() int { return s.Total() + len(s.Failures()) }
	Eventually(ended).WithContext(ctx).WithTimeout(Patience).Should(BeNumerically(">=", ended()+n))
}

// End stops the stream and waits for the calls in flight.
func (s *Stream) End() {
	s.stop()
	s.all.Wait()
}
