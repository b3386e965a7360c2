package ca_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"code.cloudfoundry.org/eirinix/internal/ca"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
)

var _ = Describe("Two clocks", func() {
	DescribeTable("give certificates that are valid by both", func(ahead time.Duration) {
		server := now.Add(ahead)
		authority := Must(ca.New("spec", year, now, ca.ServerTime(server)))
		leaf := Must(authority.SignServing([]string{"h"}, day, now, ca.ServerTime(server))).Leaf
		for _, moment := range []time.Time{now, server} {
			Expect(authority.Usable(moment.Add(-50*time.Minute))).To(Succeed(), "backdated")
			Expect(leaf.NotBefore).To(BeTemporally("<=", moment.Add(-time.Hour)))
			Expect(leaf.NotAfter).To(BeTemporally(">=", moment.Add(day)), "a whole lifetime")
		}
	},
		Entry("the server's is ahead", 6*time.Hour),
		Entry("the server's is behind", -6*time.Hour),
		Entry("they agree", time.Duration(0)),
	)

	It("are one where the server's is unknown", func() {
		authority := Must(ca.New("spec", year, now, ca.ServerTime(time.Time{})))
		Expect(authority.Certificate.NotBefore).To(Equal(now.Add(-time.Hour)))
		Expect(authority.Certificate.NotAfter).To(Equal(now.Add(year)))
	})

	// A replica whose own clock is wrong finds the CA that others made, and must not give it up.
	DescribeTable("judge a CA that is valid by one of them to be good", func(local time.Duration, sentinel error) {
		authority, wrong := NewCA(30*day, now), now.Add(local)
		server := ca.ServerTime(now)
		Expect(authority.Usable(wrong)).To(MatchError(sentinel))
		Expect(authority.Usable(wrong, ca.ServerTime(wrong))).To(MatchError(sentinel), "by neither")
		Expect(authority.Usable(wrong, server)).To(Succeed())

		leaf := Must(authority.SignServing([]string{"h"}, day, wrong, server)).Leaf
		Expect(now).To(And(BeTemporally(">=", leaf.NotBefore), BeTemporally("<=", leaf.NotAfter)))
		Expect(authority.CrossSign(NewCA(30*day, now).Certificate, wrong, server)).Error().NotTo(HaveOccurred())
		Expect(authority.TrustedBy(authority.CertificatePEM, wrong)).To(BeFalse())
		Expect(authority.TrustedBy(authority.CertificatePEM, wrong, server)).To(BeTrue())
	},
		Entry("ours is behind", -6*time.Hour, ca.ErrNotYetValid),
		Entry("ours is ahead", 40*day, ca.ErrExpired),
	)
})

var _ = Describe("RenewIn", func() {
	DescribeTable("is two thirds of the remaining life, give or take a tenth", func(jitter float64, after time.Duration) {
		Expect(ca.RenewIn(30*time.Hour, jitter)).To(BeNumerically("~", after, time.Second))
	},
		Entry("middle", 0.0, 20*time.Hour),
		Entry("earliest", -1.0, 18*time.Hour),
		Entry("latest", 1.0, 22*time.Hour),
		Entry("out of range", -99.0, 18*time.Hour),
		Entry("out of range on the other side", 99.0, 22*time.Hour),
	)

	DescribeTable("is never in the past of a fresh certificate, however short its life", func(lifetime time.Duration) {
		leaf := Must(NewCA(year, now).SignServing([]string{"h"}, lifetime, now)).Leaf
		renewal := func(jitter float64) time.Time {
			return leaf.NotBefore.Add(ca.RenewIn(leaf.NotAfter.Sub(leaf.NotBefore), jitter))
		}
		Expect(renewal(-1)).To(BeTemporally(">", now))
		Expect(renewal(1)).To(BeTemporally("<", leaf.NotAfter))
	},
		Entry("two seconds", 2*time.Second),
		Entry("a minute", time.Minute),
		Entry("an hour", time.Hour),
		Entry("a week", 7*day),
	)
})
