package controller_test

// This file shows that each rule is needed: it runs the same worlds with one rule broken. A world that did not notice would
// prove nothing.

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
)

// find looks through some worlds for the effect of a broken rule. It returns the last one.
func find(s settings, worlds, steps int) *world {
	return bubble(func() *world {
		var w *rotations
		for seed := range worlds {
			w = newRotations(s, uint64(seed))
			for w.steps < steps && w.step() {
			}
			w.stop()
			if w.violation != "" {
				break
			}
		}
		return w.world
	})
}

const (
	untrusted = "certificate signed by unknown authority"
	shrinks   = "which the Secret trusts"
)

var _ = Describe("A rule of the rotation that is broken", Label("slow", "sequential"), func() {
	DescribeTable("is noticed",
		func(as string, changes ...change) {
			is(find(but(append([]change{busy}, changes...)...), 20, 10_000), as)
		},
		Entry("no cross-signed certificates", untrusted, uncrossed),
		Entry("activated before it is published, and an API server calls by the bundle before", untrusted, unconfirmed),
		Entry("activated before it is published, and no cross-signed certificates", untrusted, unconfirmed, uncrossed, prompt),
		Entry("pruned at once", untrusted, prunesAtOnce),
		Entry("a caBundle from a Secret that was read before", shrinks, readsFirst),
		Entry("a leaf before its CA is published, and no cross-signed certificates", untrusted, swapsFirst, uncrossed, prompt),
		Entry("an API server that lags behind for longer than an old CA is retained", untrusted,
			change(func(s *settings) { s.lag *= 4 })),
		Entry("a replica that does not look for longer than that", untrusted,
			change(func(s *settings) { s.looks *= 4 })),
		Entry("a process that registers a CA of its own while the Secret is gone, and takes away the others", untrusted,
			lossAtStart, prompt, noForeign),
	)

	It("is mended, for a process that starts while the Secret is gone, by taking away from a caBundle late", func() {
		holds(find(but(busy, lossAtStart, prompt), 2, rotationSteps/40))
	})

	// Cross-signing makes up for these, as long as both CAs can sign each other. The rules are for a CA that was taken
	// over and may not.
	DescribeTable("does no harm while CAs sign each other",
		func(changes ...change) {
			holds(find(but(append([]change{busy}, changes...)...), 2, rotationSteps/40))
		},
		Entry("a leaf before its CA is published", swapsFirst),
		Entry("activated before it is published, and API servers follow at once", unconfirmed, prompt),
	)
})

func uncrossed(s *settings)    { s.broken.uncrossed = true }
func unconfirmed(s *settings)  { s.broken.unconfirmed = true }
func prunesAtOnce(s *settings) { s.broken.prunesAtOnce = true }
func readsFirst(s *settings)   { s.broken.readsFirst = true }
func swapsFirst(s *settings)   { s.broken.swapsFirst = true }
func noForeign(s *settings)    { s.broken.noForeign = true }

// busy has much happen in few steps.
func busy(s *settings) { s.requests, s.slow = 5*time.Minute, 0.05 }

// prompt has API servers follow at once.
func prompt(s *settings) { s.lag = 0 }

// lossAtStart has processes start when the Secret is gone.
func lossAtStart(s *settings) { s.losses, s.starters = 12*time.Minute, true }
