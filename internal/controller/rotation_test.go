package controller_test

// This file lets the model of rotations run: replicas that are slow, crash and lose connections, watches and API servers
// that lag behind, people who damage the Secret and the caBundles. Chance picks who acts next; the seed decides all, and
// is reported with the last events when something fails. The loop, the Store and the decisions are the shipped ones.
//
// The bounds that the protocol needs are in settings. A "damaged Secret" is damaged only while every process that
// runs has started, and mostly in ways that its counter shows; other cases are below and among the
// broken rules, which show that each rule is needed: a world that did not notice would prove nothing.

import (
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

const worldSteps = 4_900 // of one world; then it must come to rest

// usual is a world in which nothing is damaged.
var usual = settings{
	replicas: 3, authorities: 10 * time.Hour, leaves: 12 * time.Minute, retain: 12 * time.Minute,
	lag: 11*time.Minute + 50*time.Second, looks: 11 * time.Minute,
	pace: pace{slow: 0.02, flaky: 0.01}, requests: 25 * time.Minute, crashes: 25 * time.Minute,
}

type change func(*settings)

func but(changes ...change) settings {
	s := usual
	for _, c := range changes {
		c(&s)
	}
	return s
}

// promptly has API servers follow within a minute. A Secret that is put back while an old CA is retained is retained anew,
// but it is registered again only when a replica comes to it, and for that the retention has to leave time.
func promptly(s *settings) { s.lag = time.Minute }

var rotationWorlds = []struct {
	name string
	settings
}{
	{"three replicas", usual},
	{"two replicas and a rotation after the other", but(func(s *settings) { s.replicas, s.requests = 2, 5*time.Minute })},
	{"five slow replicas", but(func(s *settings) { s.replicas, s.slow, s.flaky = 5, 0.1, 0.05 })},
	{"a CA that grows old", but(func(s *settings) { s.requests, s.authorities = 0, 100*time.Minute })},
	{"a key that leaks", but(func(s *settings) {
		s.requests, s.leaks, s.slow = 0, 10*time.Minute, 0.1        // each call is over before the next
		s.lag, s.looks = 300*time.Millisecond, 500*time.Millisecond // the old CA stays for five seconds, by two clocks
	})},
	{"a damaged Secret", but(promptly, func(s *settings) { s.losses = 15 * time.Minute })},
	{"damaged caBundles", but(func(s *settings) { s.blanks = 15 * time.Minute })},
	{"all of it", but(promptly, func(s *settings) {
		s.replicas, s.slow, s.flaky, s.losses, s.blanks = 4, 0.05, 0.03, 25*time.Minute, 25*time.Minute
	})},
}

// run lets a world be, and then come to rest.
func (w *rotations) run(steps int) *rotations {
	defer w.stop()
	for w.steps < steps {
		if !w.step() {
			return w
		}
	}
	w.frugal()
	w.settle()
	return w
}

var _ = Describe("A rotation of the CA, whatever comes between", Label("sequential"), func() {
	steps, seed := volume(rotationSteps)
	for i, of := range rotationWorlds {
		It("never serves a certificate that an API server does not trust, and comes to an end: "+of.name, func() {
			done, rotated, evicted := 0, 0, 0
			for seed := seed + uint64(i)<<12; done < steps/len(rotationWorlds); seed++ {
				w := bubble(func() *rotations {
					return newRotations(of.settings, seed).run(min(worldSteps, steps/len(rotationWorlds)))
				})
				holds(w.world)
				done, rotated, evicted = done+w.steps, rotated+w.staged, evicted+w.evictions
			}
			Expect(rotated).To(BeNumerically(">=", done/500), "the world is not worth its name")
			AddReportEntry(fmt.Sprintf("%d steps, %d rotations, %d forgeries", done, rotated, evicted), ReportEntryVisibilityFailureOrVerbose)
		})
	}

	It("can be repeated", func() {
		told := func() string {
			return bubble(func() string {
				w := newRotations(rotationWorlds[len(rotationWorlds)-1].settings, 7)
				defer w.stop()
				for w.steps < 2000 && w.step() {
				}
				return w.String()
			})
		}
		Expect(told()).To(Equal(told()))
	})
})

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
		holds(find(but(busy, lossAtStart, prompt), 2, rotationSteps/16))
	})

	// Cross-signing makes up for these, as long as both CAs can sign each other. The rules are for a CA that was taken
	// over and may not.
	DescribeTable("does no harm while CAs sign each other",
		func(changes ...change) {
			holds(find(but(append([]change{busy}, changes...)...), 2, rotationSteps/16))
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
