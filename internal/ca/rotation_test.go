package ca_test

// This file is about the decisions of a rotation: its next step, and how long the CAs of others stay.

import (
	"crypto/x509"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"code.cloudfoundry.org/eirinix/internal/ca"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
)

var _ = Describe("The due step of a rotation", func() {
	const life, retain = 100 * 24 * time.Hour, 8 * 24 * time.Hour
	born := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	current := Must(ca.New("current", life, born))
	next := Must(ca.New("next", life, born))
	foreign := Must(ca.New("foreign", life, born))

	bundle := func(all ...*ca.Authority) []byte {
		var texts [][]byte
		for _, a := range all {
			texts = append(texts, a.CertificatePEM)
		}
		return ca.Bundle(texts...)
	}
	live := func(bundles ...[]byte) []ca.Registered {
		var all []ca.Registered
		for i, b := range bundles {
			all = append(all, ca.Registered{Name: []string{"the first", "the second"}[i], Bundle: b})
		}
		return all
	}
	one, both := bundle(current), bundle(current, next)
	since := born.Add(20 * 24 * time.Hour)
	after := func(d time.Duration) time.Time { return since.Add(d) }

	DescribeTable("is returned with the reason:", func(s ca.RotationState, action ca.Action, reason string) {
		s.Current, s.Retain, s.Since = current.Certificate, retain, since
		step := ca.NextStep(s)
		Expect(step.Action).To(Equal(action))
		Expect(step.Reason).To(ContainSubstring(reason))
	},
		Entry("nothing, in the first half of life", ca.RotationState{Phase: ca.Steady, Now: after(0), Bundle: one, Live: live(one, one)}, ca.Wait, "not due"),
		Entry("nothing, while nothing is registered", ca.RotationState{Phase: ca.Steady, Now: after(0), Bundle: one}, ca.Wait, "not due"),
		Entry("a rotation at half of life", ca.RotationState{Phase: ca.Steady, Now: born.Add(life/2 + time.Hour), Bundle: one, Live: live(one)}, ca.Stage, "half of the CA's life is over since 2030-02-"),
		Entry("a rotation on demand", ca.RotationState{Phase: ca.Steady, Now: after(0), Requested: true, Bundle: one, Live: live(one)}, ca.Stage, "requested"),
		Entry("healing before a rotation", ca.RotationState{Phase: ca.Steady, Now: after(0), Requested: true, Bundle: one, Live: live(one, nil)}, ca.Publish, "the second lacks"),
		Entry("a caBundle that was blanked", ca.RotationState{Phase: ca.Steady, Now: after(0), Bundle: one, Live: live(nil)}, ca.Publish, "the first lacks a CA"),
		Entry("one of another program", ca.RotationState{Phase: ca.Steady, Now: after(0), Bundle: one, Live: live(bundle(foreign))}, ca.Publish, "lacks a CA"),
		Entry("one that trusts another CA, too", ca.RotationState{Phase: ca.Steady, Now: after(0), Bundle: one, Live: live(bundle(current, foreign))}, ca.Publish, "not ours"),
		Entry("one that still trusts the pruned CA", ca.RotationState{Phase: ca.Steady, Now: after(0), Bundle: one, Live: live(both)}, ca.Publish, "not any more"),
		Entry("not before a replica that it knows nothing of has had time", ca.RotationState{Phase: ca.Steady, Now: after(time.Minute), Tolerated: bundle(next), Until: after(time.Hour), Bundle: one, Live: live(both)}, ca.Wait, "another replica"),
		Entry("but then", ca.RotationState{Phase: ca.Steady, Now: after(time.Hour), Bundle: one, Live: live(both)}, ca.Publish, "not any more"),
		Entry("nor does that hold up a rotation", ca.RotationState{Phase: ca.Steady, Now: after(time.Minute), Requested: true, Tolerated: bundle(next), Until: after(time.Hour), Bundle: one, Live: live(both)}, ca.Stage, "requested"),
		Entry("publishing the staged CA", ca.RotationState{Phase: ca.Staged, Now: after(0), Bundle: both, Live: live(both, one)}, ca.Publish, "the second lacks"),
		Entry("activation when all hold it", ca.RotationState{Phase: ca.Staged, Now: after(0), Bundle: both, Live: live(both, both)}, ca.Activate, "every caBundle"),
		Entry("no shrinking meanwhile", ca.RotationState{Phase: ca.Staged, Now: after(0), Bundle: both, Live: live(bundle(current, next, foreign))}, ca.Activate, ""),
		Entry("no activation unseen", ca.RotationState{Phase: ca.Staged, Now: after(0), Bundle: both, Unseen: true}, ca.Wait, "may not read webhook configurations"),
		Entry("another next CA for one that cannot sign, also unseen", ca.RotationState{Phase: ca.Staged, Now: after(0), NextBroken: true, Bundle: both, Unseen: true}, ca.Stage, "cannot sign"),
		Entry("but first the CA in use is published", ca.RotationState{Phase: ca.Staged, Now: after(0), NextBroken: true, Bundle: both, Live: live(one)}, ca.Publish, "lacks"),
		Entry("and only while it is staged", ca.RotationState{Phase: ca.Retaining, Now: after(0), NextBroken: true, Bundle: both, Live: live(both)}, ca.Wait, ""),
		Entry("no second rotation during the first", ca.RotationState{Phase: ca.Staged, Now: after(0), Requested: true, Bundle: both, Live: live(both)}, ca.Activate, ""),
		Entry("the old CA is kept", ca.RotationState{Phase: ca.Retaining, Now: after(retain - time.Second), Bundle: both, Live: live(both)}, ca.Wait, "may still be served"),
		Entry("published again if need be", ca.RotationState{Phase: ca.Retaining, Now: after(time.Second), Bundle: both, Live: live(one)}, ca.Publish, "lacks"),
		Entry("which keeps none that was to go before", ca.RotationState{Phase: ca.Retaining, Now: after(time.Second), Bundle: both, Live: live(bundle(current, next, foreign))}, ca.Publish, "not any more"),
		Entry("and those that another replica may serve", ca.RotationState{Phase: ca.Retaining, Now: after(time.Second), Tolerated: bundle(foreign), Until: after(time.Hour), Bundle: both, Live: live(bundle(current, next, foreign))}, ca.Wait, ""),
		Entry("pruned when it is over", ca.RotationState{Phase: ca.Retaining, Now: after(retain), Bundle: both, Live: live(both)}, ca.Prune, "served any more"),
		Entry("also when a rotation is asked for", ca.RotationState{Phase: ca.Retaining, Now: after(retain), Requested: true, Bundle: both, Live: live(both)}, ca.Prune, ""),
		Entry("a phase that this version does not know is none", ca.RotationState{Phase: "", Now: after(0), Bundle: one, Live: live(one)}, ca.Wait, ""),
	)

	// Its validity begins an hour (or a tenth of its life) before it is made.
	DescribeTable("does not wait for the old CA beyond the end of a short-lived one:", func(life, now time.Duration, action ca.Action, at time.Duration) {
		short := Must(ca.New("short", life, since))
		step := ca.NextStep(ca.RotationState{
			Phase: ca.Retaining, Now: after(now), Since: since, Retain: retain, Current: short.Certificate,
			Bundle: bundle(short, current), Live: live(bundle(short, current)),
		})
		Expect(step.Action).To(Equal(action), step.Reason)
		if action == ca.Wait {
			Expect(step.At).To(BeTemporally("~", after(at), time.Hour))
		}
		if action == ca.Stage {
			Expect(step.Reason).To(ContainSubstring("half of the CA's life is over since 2030-01-"))
		}
	},
		Entry("it lives longer", 9*24*time.Hour, 5*24*time.Hour, ca.Wait, 8*24*time.Hour),
		Entry("it ends first, and is young", 6*24*time.Hour, 2*24*time.Hour, ca.Wait, 3*24*time.Hour),
		Entry("it ends first, and half of its life is over", 6*24*time.Hour, 3*24*time.Hour, ca.Stage, time.Duration(0)),
		Entry("it has ended", 6*24*time.Hour, 7*24*time.Hour, ca.Stage, time.Duration(0)),
		Entry("retention is over", 6*24*time.Hour, 8*24*time.Hour, ca.Prune, time.Duration(0)),
	)

	It("comes with the time to look again", func() {
		s := ca.RotationState{Phase: ca.Steady, Now: after(0), Current: current.Certificate, Bundle: one, Live: live(one)}
		step := ca.NextStep(s)
		s.Now = step.At.Add(-time.Second)
		Expect(ca.NextStep(s).Action).To(Equal(ca.Wait))
		s.Now = step.At
		Expect(ca.NextStep(s).Action).To(Equal(ca.Stage))

		s = ca.RotationState{Phase: ca.Retaining, Now: after(0), Since: since, Retain: retain, Current: current.Certificate, Bundle: both, Live: live(both)}
		Expect(ca.NextStep(s).At).To(Equal(after(retain)))
	})
})

var _ = Describe("Foreign CAs", func() {
	var (
		born                    = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
		ours, guest, late, gone []byte
		foreign                 ca.ForeignCAs
	)
	const patience = time.Hour
	mint := func(name string, life time.Duration) []byte { return Must(ca.New(name, life, born)).CertificatePEM }
	live := func(texts ...[]byte) []ca.Registered {
		return []ca.Registered{{Name: "it", Bundle: ca.Bundle(texts...)}}
	}
	look := func(live []ca.Registered, after time.Duration) ([]byte, time.Time) {
		return foreign.Tolerate(live, ours, born.Add(after),
			func(c *x509.Certificate) time.Duration {
				if c.Subject.CommonName == "gone" {
					return 0
				}
				return patience
			},
			func(c *x509.Certificate) bool { return c.Subject.CommonName == "late" })
	}
	BeforeEach(func() {
		ours, guest, late, gone = mint("ours", 24*time.Hour), mint("guest", 24*time.Hour), mint("late", 24*time.Hour), mint("gone", 24*time.Hour)
		foreign = ca.ForeignCAs{}
	})

	It("stay for as long as patience lasts, from when they are first seen", func() {
		tolerated, until := look(live(ours, guest), 0)
		Expect(tolerated).To(Equal(guest))
		Expect(until).To(Equal(born.Add(patience)))

		tolerated, until = look(live(ours, guest, late), patience/2)
		Expect(tolerated).To(Equal(ca.Bundle(guest, late)))
		Expect(until).To(Equal(born.Add(patience)), "of the first that need not stay any more")

		tolerated, until = look(live(ours, guest, late), patience)
		Expect(tolerated).To(Equal(late))
		Expect(until).To(Equal(born.Add(patience + patience/2)))
	})

	It("begin anew when they have gone and come back", func() {
		look(live(ours, guest), 0)
		look(live(ours), patience/2)
		tolerated, until := look(live(ours, guest), patience)
		Expect(tolerated).To(Equal(guest))
		Expect(until).To(Equal(born.Add(2 * patience)))
	})

	It("do not include a CA that replaced ours, unless it may be of another replica", func() {
		tolerated, _ := look(live(guest, late), 0)
		Expect(tolerated).To(Equal(late))
		tolerated, until := look(live(), 0)
		Expect(tolerated).To(BeEmpty())
		Expect(until).To(BeZero())
	})

	It("stay when they were beside us before we were taken away", func() {
		look(live(ours, guest), 0)
		tolerated, _ := look(live(guest), patience/2)
		Expect(tolerated).To(Equal(guest))
	})

	It("go at once where there is no patience with them, or they have expired", func() {
		tolerated, until := look(live(ours, gone), 0)
		Expect(tolerated).To(BeEmpty())
		Expect(until).To(BeZero())

		short := mint("short", patience/2)
		tolerated, until = look(live(ours, short), 0)
		Expect(tolerated).To(Equal(short))
		Expect(until).To(Equal(born.Add(patience / 2)))
		tolerated, _ = look(live(ours, short), patience/2+time.Minute)
		Expect(tolerated).To(BeEmpty())
	})

	It("are found in any of several caBundles, and returned once", func() {
		all := append(live(ours, guest), live(ours, guest, late)...)
		tolerated, _ := look(all, 0)
		Expect(tolerated).To(Equal(ca.Bundle(guest, late)))
		Expect(ca.Common(ca.Bundle(ours, late, guest), tolerated)).To(Equal(ca.Bundle(late, guest)))
		Expect(ca.Common(ours, tolerated)).To(BeEmpty())
	})
})
