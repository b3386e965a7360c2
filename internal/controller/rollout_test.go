package controller_test

// This file lets the model of rollouts run. The loop, its decisions, and the questions and answers are the shipped ones.

import (
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var usually = course{
	pace: pace{slow: 0.02, longest: 600 * time.Millisecond}, replicas: 4, versions: 2,
	turnover: 15 * time.Second, calls: time.Second, lag: 2 * time.Second,
}

type turn func(*course)

func with(turns ...turn) course {
	c := usually
	for _, t := range turns {
		t(&c)
	}
	return c
}

func waiting(c *course) {
	c.replicas, c.versions, c.astray, c.waits, c.deletes = 5, 4, 0.4, 20*time.Second, 3*time.Minute
}

func harmed(c *course) {
	c.versions, c.restores, c.outages, c.edits = 3, 5*time.Minute, 3*time.Minute, 2*time.Minute
}

func polling(c *course) { c.polls, c.turnover = 0.5, 20*time.Second }

var rolloutWorlds = []struct {
	name string
	course
}{
	{"three replicas, two versions", with(func(c *course) { c.replicas = 3 })},
	{"six replicas, four versions", with(func(c *course) { c.replicas, c.versions = 6, 4 })},
	{"a hundred replicas, three versions", with(func(c *course) { c.replicas, c.versions, c.turnover = 100, 3, 4*time.Second })},
	{"a person orders", with(func(c *course) { c.versions, c.orders = 3, time.Minute })},
	{"steps wait", with(waiting)},
	{"steps wait, and a person orders", with(waiting, func(c *course) { c.orders = time.Minute })},
	{"etcd is restored, and edited", with(harmed)},
	{"some replicas poll", with(polling)},
}

var _ = Describe("A rollout", Label("slow", "sequential"), func() {
	steps, seed := volume(rolloutSteps)
	for i, of := range rolloutWorlds {
		It("fails no call, skips no step, and comes to an end: "+of.name, func() {
			done, changes, calls, again := 0, 0, 0, 0
			for seed := seed + uint64(i)<<12; done < steps/len(rolloutWorlds); seed++ {
				w := bubble(func() *rollouts {
					return newRollouts(of.course, seed).run(min(6_000*(1+of.replicas/25), steps/len(rolloutWorlds)))
				})
				holds(w.world)
				done, changes, calls, again = done+w.steps, changes+w.changes, calls+w.calledAt, again+w.again
			}
			Expect(changes).To(BeNumerically(">=", max(1, done/40_000)), "the world is not worth its name")
			AddReportEntry(fmt.Sprintf("%d steps, %d changes of the registration, %d calls, %d of them repeated", done, changes, calls, again), ReportEntryVisibilityFailureOrVerbose)
		})
	}

	It("can be repeated", func() {
		told := func() string {
			return bubble(func() string { return newRollouts(rolloutWorlds[3].course, 7).run(2000).String() })
		}
		Expect(told()).To(Equal(told()))
	})

	DescribeTable("with a broken rule is noticed",
		func(as string, turns ...turn) {
			w := bubble(func() *rollouts {
				var w *rollouts
				for seed := range uint64(20) {
					if w = newRollouts(with(turns...), seed).run(5_000); w.violation != "" {
						break
					}
				}
				return w
			})
			is(w.world, as)
		},
		Entry("a version that does not answer", "takes v", turn(func(c *course) { c.broken.mute = true })),
		Entry("a version that hears of a question too late", "takes v", turn(func(c *course) { c.longest, c.slow = 25*time.Second, 0.3 })),
		Entry("paths of a later version, without its steps", "which came later, without step",
			turn(func(c *course) { c.versions, c.orders, c.broken.lenient = 4, 10*time.Second, true })),
		Entry("versions that do not know each other", "for 0 changes", turn(func(c *course) { c.broken.apart = true })),
		Entry("a configuration that is written by a late copy of the Lease", "writes the entries of",
			turn(func(c *course) { c.orders, c.slow, c.calls, c.broken.late = 10*time.Second, 0.2, time.Hour, true })),
		Entry("a replica that is called before it is ready", "answers", turn(func(c *course) { c.versions, c.turnover, c.slow, c.broken.eager = 4, 3*time.Second, 0.2, true })),
		Entry("paths of other versions that are not answered", "answers 503", turn(func(c *course) { c.broken.forgetful = true })),
		Entry("a step that is not declared while it waits", "out of force", turn(waiting), turn(func(c *course) { c.replicas, c.waits, c.calls, c.broken.dropping = 2, 2*time.Minute, time.Hour, true })),
		Entry("the version that came first, in place of the one that stands", "is first", turn(harmed), turn(func(c *course) { c.restores, c.outages, c.broken.arrival = 0, 0, true })),
		Entry("a write of its own that stands before what a replica reads", "is gone: true; replicas of it run: true", turn(harmed), turn(func(c *course) { c.edits, c.outages, c.broken.overlay = 0, 0, true })),
		Entry("silence that an outage explains", "takes v", turn(harmed), turn(func(c *course) { c.edits, c.restores, c.broken.blind = 0, 0, true })),
		Entry("a replica that does not say that it polls", "takes ", turn(polling), turn(func(c *course) { c.broken.unsaid = true })),
		Entry("a version that still counts as one that was left", "has just left", turn(func(c *course) { c.broken.uncleared = true })),
		Entry("a record that is ignored for its numbers", "is not ready", turn(harmed), turn(func(c *course) { c.versions, c.restores, c.outages, c.broken.ignoring = 2, 0, 0, true })),
	)
})
