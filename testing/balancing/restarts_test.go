package balancing_test

// This file restarts the replicas under load.

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// volume is the size of a spec.
type volume struct {
	restarts int
	calls    int // at least
}

// size returns the volume of this run.
func size() volume {
	if os.Getenv("EIRINIX_SOAK") != "" {
		return volume{restarts: 30, calls: 20_000}
	}
	return volume{restarts: 4, calls: 300}
}

// restarts are the rolling restarts of a program, and their counts.
type restarts struct {
	*program
	load                    *load
	moved, taken, succeeded int
	intruders               []*intruder
}

// move has a successor with a new address take the place of a replica.
func (s *restarts) move(ctx context.Context, r *replica) {
	s.moved++
	s.join(ctx, s.start(ctx, nextAddress()))
	s.dismiss(ctx, r)
	s.bury(ctx, r)
}

// takeOver is move, and another program has the old address as soon as it is free, while it is still listed.
func (s *restarts) takeOver(withTLS bool) func(context.Context, *replica) {
	return func(ctx context.Context, r *replica) {
		s.taken++
		s.join(ctx, s.start(ctx, nextAddress()))
		s.dismiss(ctx, r)
		s.intruders = append(s.intruders, intrude(ctx, r.address, withTLS, s.serverName()))
		s.bury(ctx, r)
	}
}

// succeed stops a replica, and then starts its successor at the same address.
func (s *restarts) succeed(ctx context.Context, r *replica) {
	s.succeeded++
	s.dismiss(ctx, r)
	s.bury(ctx, r)
	s.join(ctx, s.start(ctx, r.address))
}

func (p *program) serverName() string { return serviceName + "." + p.namespace + ".svc" }

// spread returns the calls of each replica that answered some, out of that many calls one after the other.
func (p *program) spread(ctx context.Context, calls int) map[string]int {
	GinkgoHelper()
	answered := map[string]int{}
	for range calls {
		name, err := p.admitted(ctx)
		Expect(err).NotTo(HaveOccurred())
		answered[name]++
	}
	return answered
}

// expectSpread sees that calls one after the other reach all replicas if the API server balances calls. Otherwise they
// stay on the connection that the first of them opened.
func (p *program) expectSpread(ctx context.Context) map[string]int {
	GinkgoHelper()
	const calls = 90
	answered := p.spread(ctx, calls)
	if p.server.balances {
		Expect(answered).To(HaveLen(len(p.replicas)), "replicas that %d calls reached", calls)
	} else {
		Expect(answered).To(HaveLen(1), "replicas that %d calls on one connection reached", calls)
	}
	return answered
}

// expectReached waits until every replica has answered calls, if the API server balances calls.
func (s *restarts) expectReached(ctx context.Context) {
	GinkgoHelper()
	if !s.server.balances {
		return
	}
	for _, r := range s.replicas {
		Eventually(func() int { return s.load.by()[r.name] }).WithContext(ctx).Should(BeNumerically(">", 0), r.name)
	}
}

// report adds the figures to the report of the spec.
func (s *restarts) report(atRest map[string]int, took time.Duration) {
	answered := s.load.by()
	var by []string
	for _, r := range s.program.all {
		by = append(by, fmt.Sprint(answered[r.name]))
	}
	AddReportEntry(fmt.Sprintf("%s: %d calls in %s, %d failed, %d restarts (%d to a new address, %d whose address another program took, %d at the same address); "+
		"one after the other before: %v; answered by each replica in turn: %s",
		s.server, s.load.sent(), took.Round(time.Second), len(s.load.failing()), s.moved+s.taken+s.succeeded, s.moved, s.taken, s.succeeded, atRest, strings.Join(by, " ")),
		ReportEntryVisibilityAlways)
}

var _ = Describe("Rolling restarts of three replicas behind a Service", func() {
	DescribeTable("fail no call, and no call goes to a program that took the address of a replica", Label("soak"),
		func(ctx SpecContext, server func() *apiServer) {
			v := size()
			p := deploy(ctx, server(), 3, 0) // the default of DrainDelay covers what an API server needs to learn of endpoints
			atRest := p.expectSpread(ctx)
			began := time.Now()
			s := &restarts{program: p, load: startLoad(p)}
			ways := []func(context.Context, *replica){s.move, s.takeOver(true), s.succeed, s.takeOver(false)}
			for n := range v.restarts {
				ways[n%len(ways)](ctx, p.replicas[0])
				s.expectReached(ctx)
				Eventually(s.load.sent).WithContext(ctx).Should(BeNumerically(">=", (n+1)*v.calls/v.restarts))
				Expect(s.load.failing()).To(BeEmpty(), "after %d restarts", n+1)
			}
			s.load.end()
			s.report(atRest, time.Since(began))
			Expect(s.load.failing()).To(BeEmpty(), "of %d calls", s.load.sent())
			for _, i := range s.intruders {
				i.expectNothing(ctx)
			}
		},
		Entry("which the API server dials itself (aggregator routing)", func() *apiServer { return dialsEndpoints }, SpecTimeout(time.Hour)),
		Entry("at its cluster IP", func() *apiServer { return dialsClusterIP }, SpecTimeout(time.Hour)),
	)
})

// The errors of an API server that meets another program.
const (
	foreign = "x509: certificate signed by unknown authority"
	closed  = "EOF|connection reset by peer"
)

var _ = Describe("A program that took the address of a replica while the address is still listed", func() {
	DescribeTable("fails the call, and learns nothing of the pod",
		func(ctx SpecContext, server func() *apiServer, withTLS bool, reason string) {
			p := deploy(ctx, server(), 1, time.Second)
			r := p.replicas[0]
			r.Stop()
			i := intrude(ctx, r.address, withTLS, p.serverName())
			r.expectEnd(ctx)
			Eventually(func(g Gomega) {
				_, err := p.admitted(ctx)
				if err == nil {
					StopTrying("a pod was admitted").Now()
				}
				g.Expect(err).To(MatchError(And(ContainSubstring("failed calling webhook"), MatchRegexp(reason))))
				g.Expect(i.connections.Load()).To(BeNumerically(">", 0)) // the first calls may end with the connections to the replica
			}).WithContext(ctx).Should(Succeed())
			Expect(i.requests.Load()).To(BeZero())
		},
		Entry("with aggregator routing, a foreign certificate", func() *apiServer { return dialsEndpoints }, true, foreign, SpecTimeout(5*patience)),
		Entry("with aggregator routing, no TLS", func() *apiServer { return dialsEndpoints }, false, closed, SpecTimeout(5*patience)),
		Entry("at the cluster IP, a foreign certificate", func() *apiServer { return dialsClusterIP }, true, foreign, SpecTimeout(5*patience)),
		Entry("at the cluster IP, no TLS", func() *apiServer { return dialsClusterIP }, false, closed, SpecTimeout(5*patience)),
	)
})
