package rotation_test

// This file generates the load of conversions: reads, writes and watches of shops, through every API server.

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// shopsPerServer is how many shops are written through one API server. The first half stays, and the others come and go.
const shopsPerServer = 6

// traffic is a stream of reads and writes through every API server, with watches.
type traffic struct {
	*load
	shops   *shops
	pace    time.Duration  // between two reads, and two writes, through one API server
	reads   []atomic.Int64 // that succeeded, by kind
	writing sync.RWMutex   // locked while no write may begin
	writers sync.WaitGroup
	written chan struct{} // closed when the writers end
	endOnce sync.Once

	followers []*follower
	mirrors   []*mirror

	mu    sync.Mutex
	wrote map[string]int64 // by shop: the writes so far
	done  int64            // all writes that succeeded
}

// readings are the kinds of reads. Each sees that all that it reads is complete.
var readings = []struct {
	name string
	read func(ctx context.Context, t *traffic, server, turn int) error
}{
	{"GET", func(ctx context.Context, t *traffic, server, turn int) error { return t.get(ctx, server, turn, asked) }},
	{"LIST", func(ctx context.Context, t *traffic, server, _ int) error {
		return t.list(ctx, server, metav1.ListOptions{})
	}},
	{"LIST in pages", func(ctx context.Context, t *traffic, server, _ int) error {
		return t.list(ctx, server, metav1.ListOptions{Limit: 5})
	}},
	{"LIST from the cache", func(ctx context.Context, t *traffic, server, _ int) error {
		return t.list(ctx, server, metav1.ListOptions{ResourceVersion: "0"})
	}},
	{"GET in the stored version", func(ctx context.Context, t *traffic, server, turn int) error { return t.get(ctx, server, turn, stored) }},
}

func shopName(server, i int) string {
	if i < shopsPerServer/2 {
		return fmt.Sprintf("stays-%d-%d", server, i)
	}
	return fmt.Sprintf("passes-%d-%d", server, i)
}

// startTraffic reads, writes and watches until it is finished, at the latest when the spec ends.
func startTraffic(ctx context.Context, s *shops, pace time.Duration) *traffic {
	GinkgoHelper()
	t := &traffic{
		load: &load{stop: make(chan struct{}), admitted: make([]atomic.Int64, len(servers))}, shops: s, pace: pace,
		reads: make([]atomic.Int64, len(readings)), wrote: map[string]int64{}, written: make(chan struct{}),
	}
	for server := range servers {
		for i := range shopsPerServer {
			name := shopName(server, i)
			Eventually(func() error {
				_, err := s.at(server, stored).Create(ctx, s.shop(name, 0), metav1.CreateOptions{})
				return err
			}).WithContext(ctx).WithTimeout(patience).Should(Succeed())
			t.wrote[name] = 0
		}
	}
	for server := range servers {
		t.expectReads(ctx, server)
	}
	s.deployment.balancer.unserved.Store(0) // the canary of the first replica may have come before its endpoint
	watching, stop := context.WithCancel(context.WithoutCancel(ctx))
	for server := range servers {
		f, m := &follower{traffic: t, server: server}, &mirror{traffic: t}
		t.followers, t.mirrors = append(t.followers, f), append(t.mirrors, m)
		t.all.Go(func() { f.run(watching) })
		t.all.Go(func() { m.run(watching, server) })
		t.all.Go(func() { t.generate(server) })
		t.writers.Go(func() { t.write(server) })
	}
	DeferCleanup(func() { t.endWrites(); stop(); t.end() })
	t.all.Go(func() { <-t.stop; stop() })
	return t
}

// generate reads.
func (t *traffic) generate(server int) {
	ticker := time.NewTicker(t.pace)
	defer ticker.Stop()
	places := make(chan struct{}, few)
	for turn := 0; ; turn++ {
		select {
		case <-t.stop:
			return
		case <-ticker.C:
		}
		select {
		case <-t.stop:
			return
		case places <- struct{}{}:
		}
		t.all.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			kind := turn % len(readings)
			began := time.Now()
			if err := readings[kind].read(ctx, t, server, turn/len(readings)); err != nil {
				t.failed(fmt.Sprintf("%s, after %s, %s through API server %d: %v", began.Format("15:04:05.000"), time.Since(began).Round(time.Millisecond), readings[kind].name, server, err))
			} else {
				t.reads[kind].Add(1)
				t.admitted[server].Add(1)
			}
			<-places
		})
	}
}

// get reads one shop.
func (t *traffic) get(ctx context.Context, server, turn int, version string) error {
	name := shopName(turn%len(servers), turn/len(servers)%shopsPerServer)
	o, err := t.shops.at(server, version).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		if mayBeGone(name, err) {
			return nil
		}
		return err
	}
	_, err = t.shops.complete(o, version)
	return err
}

// list reads all shops in v2. Each that stays must be there once.
func (t *traffic) list(ctx context.Context, server int, o metav1.ListOptions) error {
	found := map[string]bool{}
	for {
		page, err := t.shops.at(server, asked).List(ctx, o)
		if err != nil {
			return err
		}
		for i := range page.Items {
			name := page.Items[i].GetName()
			if found[name] {
				return fmt.Errorf("%s is there twice", name)
			}
			found[name] = true
			if _, err := t.shops.complete(&page.Items[i], asked); err != nil {
				return err
			}
		}
		if o.Continue = page.GetContinue(); o.Continue == "" {
			break
		}
		o.ResourceVersion = ""
	}
	for other := range servers {
		for i := range shopsPerServer {
			if name := shopName(other, i); !comesAndGoes(name) && !found[name] {
				return fmt.Errorf("%s is not there", name)
			}
		}
	}
	return nil
}

// write writes the shops of one API server, one after the other.
func (t *traffic) write(server int) {
	ticker := time.NewTicker(t.pace)
	defer ticker.Stop()
	for turn := 0; ; turn++ {
		select {
		case <-t.written:
			return
		case <-ticker.C:
		}
		name := shopName(server, turn%shopsPerServer)
		t.writing.RLock()
		began := time.Now()
		err := t.writeNext(server, name)
		t.writing.RUnlock()
		if err != nil {
			t.failed(fmt.Sprintf("%s, after %s, write of %s through API server %d: %v", began.Format("15:04:05.000"), time.Since(began).Round(time.Millisecond), name, server, err))
		}
	}
}

// writeNext writes a shop once more. A write that failed may have been done.
func (t *traffic) writeNext(server int, name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	n := t.writesOf(name) + 1
	if comesAndGoes(name) && n%generation == 0 {
		return t.renew(ctx, server, name, n)
	}
	version := writtenIn(n)
	client := t.shops.at(server, version)
	o, err := client.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	found, err := t.shops.complete(o, version)
	if err != nil {
		return err
	}
	switch found {
	case n - 1:
	case n: // the last attempt failed, and was done
		t.wroteNow(name, n)
		return nil
	default:
		return fmt.Errorf("it is of write %d instead of %d", found, n-1)
	}
	maps.Copy(o.Object, content(version, name, n))
	if _, err = client.Update(ctx, o, metav1.UpdateOptions{}); err != nil {
		return err
	}
	t.wroteNow(name, n)
	return nil
}

// renew deletes a shop and creates it anew.
func (t *traffic) renew(ctx context.Context, server int, name string, n int64) error {
	if err := t.shops.at(server, asked).Delete(ctx, name, metav1.DeleteOptions{}); err != nil && !mayBeGone(name, err) {
		return err
	}
	if _, err := t.shops.at(server, stored).Create(ctx, t.shops.shop(name, n), metav1.CreateOptions{}); err != nil {
		return err
	}
	t.wroteNow(name, n)
	return nil
}

func (t *traffic) writesOf(name string) int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.wrote[name]
}

func (t *traffic) wroteNow(name string, n int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.wrote[name] = n
	t.done++
}

// allWrites is how many writes succeeded so far, and the last one of each shop.
func (t *traffic) allWrites() (int64, map[string]int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.done, maps.Clone(t.wrote)
}

// expectReads waits until every kind of read succeeds through an API server.
func (t *traffic) expectReads(ctx context.Context, server int) {
	GinkgoHelper()
	for _, r := range readings {
		Eventually(func() error { return r.read(ctx, t, server, 0) }).WithContext(ctx).WithTimeout(patience).Should(Succeed(), r.name)
	}
}

// expectProgress waits until every shop was written again, and every watch has seen that.
func (t *traffic) expectProgress(ctx context.Context) {
	GinkgoHelper()
	_, before := t.allWrites()
	Eventually(func(g Gomega) {
		for _, f := range t.followers {
			shown := f.shows()
			for name, n := range before {
				if !comesAndGoes(name) {
					g.Expect(shown[name]).To(BeNumerically(">", n), "%s, watched through API server %d", name, f.server)
				}
			}
		}
	}).WithContext(ctx).WithTimeout(patience).WithPolling(50 * time.Millisecond).Should(Succeed())
}

// endWrites waits for the writes in flight.
func (t *traffic) endWrites() {
	t.endOnce.Do(func() { close(t.written) })
	t.writers.Wait()
}

// finish ends the writes, waits until every watch has seen the last one, and ends the rest.
func (t *traffic) finish(ctx context.Context) {
	GinkgoHelper()
	t.endWrites()
	_, last := t.allWrites()
	for server := range servers {
		Eventually(t.followers[server].shows).WithContext(ctx).WithTimeout(patience).Should(Equal(last), "the watch through API server %d", server)
		Eventually(t.mirrors[server].shows).WithContext(ctx).WithTimeout(patience).Should(Equal(last), "the reflector through API server %d", server)
	}
	t.end()
}

// report shows the figures of several loads together.
func report(phase string, all []*traffic) {
	reads := make([]int64, len(readings))
	var failures, events, ended, lists, relisted int
	var writes, conversions, handshakes int64
	for _, t := range all {
		failures += len(t.failing())
		for i := range reads {
			reads[i] += t.reads[i].Load()
		}
		done, _ := t.allWrites()
		writes += done
		for server := range servers {
			f := t.followers[server]
			f.mu.Lock()
			events, ended, lists = events+f.events, ended+f.ended, lists+f.lists
			f.mu.Unlock()
			relisted += t.mirrors[server].lists()
		}
		conversions += t.shops.deployment.calls.Load()
		handshakes += t.shops.deployment.balancer.handshakes.Load()
	}
	var kinds []string
	for i, r := range readings {
		kinds = append(kinds, fmt.Sprintf("%d %s", reads[i], r.name))
	}
	AddReportEntry(fmt.Sprintf("%s: %d failures; reads: %s; %d writes; %d events; %d watches ended and resumed, and listed anew %d times; reflectors listed anew %d times; %d conversions, %d handshakes",
		phase, failures, strings.Join(kinds, ", "), writes, events, ended, lists, relisted, conversions, handshakes), ReportEntryVisibilityAlways)
}

// expectNoFailure sees that nothing failed, and that every call had a handshake of its own.
func (t *traffic) expectNoFailure() {
	GinkgoHelper()
	Expect(t.failing()).To(BeEmpty(), "of %d reads", t.total())
	b := t.shops.deployment.balancer
	Expect(b.unserved.Load()).To(BeZero(), "connections without a replica")
	Expect(b.resumed.Load()).To(BeZero(), "handshakes without a certificate")
	Expect(b.handshakes.Load()).To(BeNumerically(">=", t.reads[0].Load()), "calls without a handshake of their own")
}
