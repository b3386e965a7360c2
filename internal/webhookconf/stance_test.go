package webhookconf_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

// older and newer are two versions in a rollout.
var (
	older = webhookconf.Stamp{Digest: "older", Started: noon}
	newer = webhookconf.Stamp{Digest: "newer", Started: noon.Add(time.Hour)}
)

var _ = Describe("What a process does about a configuration", func() {
	replica := func(s webhookconf.Stamp, after time.Duration) webhookconf.Stamp {
		s.Started = s.Started.Add(after)
		return s
	}

	DescribeTable("is decided by who started later",
		func(s webhookconf.Situation, action webhookconf.Action, reason string) {
			s.Now = noon.Add(2 * time.Hour)
			if s.Patience == 0 {
				s.Since, s.Patience = s.Now, 10*time.Minute
			}
			v := webhookconf.Judge(s)
			Expect(v).To(And(HaveField("Action", action), HaveField("Reason", ContainSubstring(reason))))
			if action == webhookconf.Yield {
				Expect(v.At).To(Equal(s.Since.Add(s.Patience)))
			} else {
				Expect(v.At).To(BeZero())
			}
		},
		Entry("nothing is there", webhookconf.Situation{Us: older}, webhookconf.Write, "does not exist"),
		Entry("EiriniX's or an older library's", webhookconf.Situation{Us: older, Exists: true}, webhookconf.Write, "nothing tells whose"),
		Entry("ours", webhookconf.Situation{Us: older, Exists: true, Stamp: older, Intact: true}, webhookconf.Keep, "these steps"),
		Entry("an earlier replica's", webhookconf.Situation{Us: replica(older, time.Minute), Exists: true, Stamp: older, Intact: true}, webhookconf.Keep, "these steps"),
		Entry("a later replica's", webhookconf.Situation{Us: older, Exists: true, Stamp: replica(older, time.Minute), Intact: true}, webhookconf.Keep, "these steps"),
		Entry("ours, edited", webhookconf.Situation{Us: older, Exists: true, Stamp: older}, webhookconf.Write, "edited"),
		Entry("a replica's, edited", webhookconf.Situation{Us: older, Exists: true, Stamp: replica(older, time.Minute)}, webhookconf.Write, "edited"),
		Entry("those of an older version", webhookconf.Situation{Us: newer, Exists: true, Stamp: older}, webhookconf.Write, "started before, at 2030-03-01T12:00:00Z"),
		Entry("those of a newer version", webhookconf.Situation{Us: older, Exists: true, Stamp: newer}, webhookconf.Yield, "started later, at 2030-03-01T13:00:00Z"),
		Entry("those of an older version that was started again, as after kubectl rollout undo", webhookconf.Situation{Us: newer, Exists: true, Stamp: replica(older, 2*time.Hour)}, webhookconf.Yield, "started later"),
		Entry("those of one that started in the same moment, and is preferred", webhookconf.Situation{Us: older, Exists: true, Stamp: webhookconf.Stamp{Digest: "zzz", Started: noon}}, webhookconf.Yield, "started later"),
		Entry("those of one that started in the same moment, and is not", webhookconf.Situation{Us: older, Exists: true, Stamp: webhookconf.Stamp{Digest: "aaa", Started: noon}}, webhookconf.Write, "started before"),
		Entry("those of a newer version, when somebody ordered ours", webhookconf.Situation{Us: older, Exists: true, Stamp: newer, Insists: true}, webhookconf.Write, "asked for"),
		Entry("those of a newer version, just before patience ends", webhookconf.Situation{
			Us: older, Exists: true, Stamp: newer, Since: noon.Add(110*time.Minute + 1), Patience: 10 * time.Minute,
		}, webhookconf.Yield, "started later"),
		Entry("those of a newer version, when patience has ended", webhookconf.Situation{
			Us: older, Exists: true, Stamp: newer, Since: noon.Add(110 * time.Minute), Patience: 10 * time.Minute,
		}, webhookconf.Write, "still runs after 10m0s"),
	)
})

var _ = Describe("A process that yields", func() {
	var (
		now    time.Time
		stance *webhookconf.Stance
	)

	BeforeEach(func() { now, stance = noon.Add(2*time.Hour), &webhookconf.Stance{Us: older} })

	finds := func(stamp webhookconf.Stamp) webhookconf.Action {
		return stance.Judge(now, true, stamp, stamp.Digest == stance.Us.Digest).Action
	}
	// yieldsTo lets time go by until it yields no more, and tells how long that took.
	yieldsTo := func(stamp webhookconf.Stamp) time.Duration {
		GinkgoHelper()
		began := now
		for finds(stamp) == webhookconf.Yield {
			now = now.Add(time.Second)
			Expect(now.Sub(began)).To(BeNumerically("<", 24*time.Hour))
		}
		return now.Sub(began)
	}

	It("tries again after ten minutes, and the later it is the more often that was undone", func() {
		var waits []time.Duration
		for range 8 {
			waits = append(waits, yieldsTo(newer).Round(time.Minute))
			stance.Wrote(now)
			now = now.Add(time.Millisecond)
			if len(waits)%2 == 0 { // it may see its own steps before they are replaced again, or not
				Expect(finds(older)).To(Equal(webhookconf.Keep))
			}
		}
		m := time.Minute
		Expect(waits).To(Equal([]time.Duration{10 * m, 20 * m, 40 * m, 80 * m, 160 * m, 240 * m, 240 * m, 240 * m}))
	})

	It("learns from the tries of its replicas", func() {
		Expect(finds(newer)).To(Equal(webhookconf.Yield))
		now = now.Add(9 * time.Minute)
		Expect(finds(older)).To(Equal(webhookconf.Keep), "another replica has registered the same steps")
		Expect(yieldsTo(newer)).To(Equal(20 * time.Minute))
	})

	It("forgets when its steps have stood there for long", func() {
		yieldsTo(newer)
		stance.Wrote(now)
		now = now.Add(10 * time.Minute)
		Expect(finds(older)).To(Equal(webhookconf.Keep))
		Expect(yieldsTo(newer)).To(Equal(10 * time.Minute))
	})

	It("waits anew when another process registers later steps", func() {
		Expect(finds(newer)).To(Equal(webhookconf.Yield))
		now = now.Add(9 * time.Minute)
		Expect(yieldsTo(webhookconf.Stamp{Digest: "newer", Started: newer.Started.Add(time.Second)})).To(Equal(10 * time.Minute))
	})

	It("does not wait for longer when the configuration is lost meanwhile", func() {
		Expect(finds(newer)).To(Equal(webhookconf.Yield))
		Expect(stance.Judge(now, false, webhookconf.Stamp{}, false).Action).To(Equal(webhookconf.Write))
		stance.Wrote(now)
		Expect(yieldsTo(newer)).To(Equal(10 * time.Minute))
	})

	It("waits from now on when its clock is put back", func() {
		Expect(finds(newer)).To(Equal(webhookconf.Yield))
		now = now.Add(-time.Hour)
		Expect(yieldsTo(newer)).To(Equal(10 * time.Minute))
	})

	It("does not claim to come from the future when its clock is put back", func() {
		stance.Us.Started = now.Add(time.Hour)
		Expect(finds(newer)).To(Equal(webhookconf.Write), "it is the later one")
		Expect(stance.StampOver(newer)).To(Equal(webhookconf.Stamp{Digest: "older", Started: now}), "others would not believe more")
	})

	DescribeTable("stamps what it writes",
		func(us, over webhookconf.Stamp, insists bool, expected webhookconf.Stamp) {
			Expect((&webhookconf.Stance{Us: us, Insists: insists}).StampOver(over)).To(Equal(expected))
		},
		Entry("with its own start", older, webhookconf.Stamp{}, false, older),
		Entry("with its own start over an older version", newer, older, false, newer),
		Entry("with its own start when it comes back, so that a later one that lives replaces it at once", older, newer, false, older),
		Entry("with the latest start of all replicas", older, webhookconf.Stamp{Digest: "older", Started: newer.Started}, false, webhookconf.Stamp{Digest: "older", Started: newer.Started}),
		Entry("with its own start over an earlier replica's", webhookconf.Stamp{Digest: "older", Started: newer.Started}, older, false, webhookconf.Stamp{Digest: "older", Started: newer.Started}),
		Entry("later than what it replaces by order", older, newer, true, webhookconf.Stamp{Digest: "older", Started: newer.Started.Add(1)}),
	)
})
