package rotation_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"code.cloudfoundry.org/eirinix/internal/ca"
)

var _ = Describe("Replicas that come and go during a rotation", func() {
	const (
		secrets    = "secrets"
		mutating   = "mutatingwebhookconfigurations"
		validating = "validatingwebhookconfigurations"
	)
	lives := lifetimes{CA: time.Hour, Leaf: 30 * time.Second, Retain: 4 * time.Second}

	secretIn := func(phase ca.Phase, past bool) func(moment) bool {
		return func(m moment) bool { return m == moment{object: secrets, phase: phase, past: past} }
	}
	configuration := func(kind string, past bool) func(moment) bool {
		return func(m moment) bool { return m == moment{object: kind, past: past} }
	}
	// after is the first moment of that kind once the Secret has been written in that phase.
	after := func(phase ca.Phase, then func(moment) bool) func(moment) bool {
		var reached atomic.Bool
		written := secretIn(phase, true)
		return func(m moment) bool {
			if written(m) {
				reached.Store(true)
			}
			return reached.Load() && then(m)
		}
	}

	It("may be lost at any write, and the others finish it", func(ctx SpecContext) {
		d := deploy(ctx, 3, lives)
		clients := clientsOf(0)
		l := startLoad(ctx, d, few)
		moments := []struct {
			name string
			at   func(moment) bool
		}{
			{"before it stages", secretIn(ca.Staged, false)},
			{"staged, not adopted", secretIn(ca.Staged, true)},
			{"before it publishes", after(ca.Staged, configuration(mutating, false))},
			{"one configuration published", after(ca.Staged, configuration(mutating, true))},
			{"before it publishes the other", after(ca.Staged, configuration(validating, false))},
			{"both published", after(ca.Staged, configuration(validating, true))},
			{"before it activates", secretIn(ca.Retaining, false)},
			{"activated, not adopted", secretIn(ca.Retaining, true)},
			{"before it prunes", secretIn(ca.Steady, false)},
			{"pruned, not adopted", after(ca.Retaining, secretIn(ca.Steady, true))},
			{"pruned, before it takes the old CA out", after(ca.Steady, configuration(mutating, false))},
			{"one configuration rid of the old CA", after(ca.Steady, configuration(mutating, true))},
		}
		for n, m := range moments {
			By(m.name)
			before := d.settle(ctx, clients).CurrentID
			c := loseAt(m.at)
			d.crash.Store(c)
			d.request(ctx, clients, fmt.Sprint("request ", n))
			var victim *replica
			Eventually(c.victim).WithContext(ctx).Should(Receive(&victim), m.name)
			d.crash.Store(nil)
			d.replace(ctx, victim)
			Expect(d.settle(ctx, clients).CurrentID).To(Equal(before+1), m.name)
			Expect(l.failing()).To(BeEmpty(), m.name)
		}
		d.expectNoFailure(l, fmt.Sprintf("%d replicas lost", len(moments)))
	}, SpecTimeout(10*patience))

	It("may all be replaced while the next CA is staged", func(ctx SpecContext) {
		d := deploy(ctx, 3, lives)
		clients := clientsOf(0)
		l := startLoad(ctx, d, few)
		before := d.settle(ctx, clients).CurrentID
		gate := holdAt(secretIn(ca.Retaining, false))
		d.crash.Store(gate)
		d.request(ctx, clients, "request")
		Eventually(gate.held).WithContext(ctx).Should(Receive())
		for range 3 {
			d.replace(ctx, d.replicas[0])
		}
		Expect(d.state(ctx, clients).Phase).To(Equal(ca.Staged))
		d.crash.Store(nil)
		close(gate.hold)
		Expect(d.settle(ctx, clients).CurrentID).To(Equal(before + 1))
		d.expectNoFailure(l, "3 replicas replaced")
	}, SpecTimeout(5*patience))

	It("may be rolled out again and again while the CA rotates", func(ctx SpecContext) {
		d := deploy(ctx, 3, lives)
		clients := clientsOf(0)
		l := startLoad(ctx, d, few)
		before := d.state(ctx, clients).CurrentID

		stop := make(chan struct{})
		var rotating sync.WaitGroup
		end := sync.OnceFunc(func() {
			close(stop)
			rotating.Wait()
		})
		DeferCleanup(end)
		rotating.Go(func() {
			defer GinkgoRecover()
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				d.request(ctx, clients, fmt.Sprint("request ", n))
				Eventually(func() bool { return d.state(ctx, clients).Requested() }).WithContext(ctx).Should(BeFalse())
			}
		})
		const rollouts = 4
		for range rollouts {
			for range 3 {
				d.replace(ctx, d.replicas[0])
			}
		}
		end()
		rotated := d.settle(ctx, clients).CurrentID - before
		Expect(rotated).To(BeNumerically(">=", 2))
		d.expectNoFailure(l, fmt.Sprintf("%d rollouts of 3 replicas, %d rotations", rollouts, rotated))
	}, SpecTimeout(5*patience))
})
