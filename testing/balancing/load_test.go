package balancing_test

// This file sends a steady stream of pods through an API server.

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
)

const (
	// pace is the time between two pods, if the machine can keep up.
	pace = 10 * time.Millisecond

	// burst pods are sent at once, after as many ticks as calm says. An API server opens connections for them, of which
	// most are idle until the next burst: calls of those meet a replica that has been told to stop.
	burst = 15
	calm  = 60

	// inFlight bounds the pods that are sent and not answered.
	inFlight = 20
)

// load is the stream, and its results.
type load struct {
	p        *program
	stop     chan struct{}
	all      sync.WaitGroup
	places   chan struct{}
	mu       sync.Mutex
	answered map[string]int // by replica
	failures []string
}

// startLoad sends pods until end is called, at the latest when the spec ends.
func startLoad(p *program) *load {
	l := &load{p: p, stop: make(chan struct{}), places: make(chan struct{}, inFlight), answered: map[string]int{}}
	l.all.Go(l.generate)
	DeferCleanup(func() { l.end() })
	return l
}

func (l *load) generate() {
	ticker := time.NewTicker(pace)
	defer ticker.Stop()
	for n := 1; ; n++ {
		select {
		case <-l.stop:
			return
		case <-ticker.C:
		}
		pods := 1
		if n%calm == 0 {
			pods = burst
		}
		for range pods {
			select {
			case <-l.stop:
				return
			case l.places <- struct{}{}:
			}
			l.all.Go(l.send)
		}
	}
}

func (l *load) send() {
	defer func() { <-l.places }()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	began := time.Now()
	name, err := l.p.admitted(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.failures = append(l.failures, fmt.Sprintf("%s, after %s: %v", began.Format("15:04:05.000"), time.Since(began).Round(time.Millisecond), err))
		return
	}
	l.answered[name]++
}

// failing returns the failed calls so far.
func (l *load) failing() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string(nil), l.failures...)
}

// by returns the number of answered calls so far, by replica.
func (l *load) by() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.answered)
}

// sent is the number of calls so far, failed ones included.
func (l *load) sent() int {
	n := len(l.failing())
	for _, answered := range l.by() {
		n += answered
	}
	return n
}

// end stops the stream and waits for the pods in flight.
func (l *load) end() {
	select {
	case <-l.stop:
	default:
		close(l.stop)
	}
	l.all.Wait()
}
