package webhookconf_test

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

var _ = Describe("What is undone again and again", func() {
	var (
		c     *cluster
		time0 *clock
		p     *process
	)

	BeforeEach(func(ctx SpecContext) {
		c, time0 = newCluster(), &clock{now: noon}
		p = time0.start(c, step("a", isolated))
		p.register(ctx)
	})

	// repaired lets the process look every second until it has repaired the harm, and tells when that was. told is the
	// last word about it.
	repaired := func(ctx context.Context) (after time.Duration, told *webhookconf.Contest) {
		GinkgoHelper()
		for began := time0.now; ; time0.pass(time.Second) {
			s := p.survey(ctx)
			written := p.register(ctx)
			if told = written.Contest; written.Outcome != webhookconf.Deferred {
				Expect(written.Outcome).To(BeElementOf(webhookconf.Created, webhookconf.Updated))
				Expect(c.bundles()).To(Equal([]string{"bundle"}))
				Expect(p.survey(ctx)).To(And(HaveField("Action", webhookconf.Keep), HaveField("Due", false)))
				return time0.now.Sub(began), told
			}
			Expect(s.Due).To(BeFalse())
			Expect(written.At).To(BeTemporally(">", time0.now))
			Expect(told.Until).To(Equal(written.At))
			Expect(p.survey(ctx).Contest).To(Equal(told), "also of caBundles, which only Register can judge")
			if s.Action == webhookconf.Write {
				Expect(s.At).To(Equal(written.At))
			}
			Expect(time0.now.Sub(began)).To(BeNumerically("<", time.Hour))
		}
	}
	edit := func(n int) { c.tamper(weaken) }
	remove := func(int) { c.lose() }
	distrust := func(int) { c.tamper(blank) }
	something := func(n int) {
		c.tamper(func(m *admissionregistrationv1.MutatingWebhookConfiguration) {
			m.Webhooks[0].TimeoutSeconds = new(int32(6 + n%20))
		})
	}
	relabel := func(int) {
		c.tamper(func(m *admissionregistrationv1.MutatingWebhookConfiguration) { m.Labels = nil })
	}
	s := time.Second
	atOnce := func(n int, then ...time.Duration) []time.Duration { return append(make([]time.Duration, n), then...) }

	DescribeTable("is repaired later and later",
		func(ctx SpecContext, harm func(int), answersAfter time.Duration, kind string, expected []time.Duration) {
			for n, delay := range expected {
				time0.pass(answersAfter)
				harm(n)
				after, told := repaired(ctx)
				Expect(after).To(Equal(delay), "repair %d", n+1)
				if n < 5 {
					Expect(told).To(BeNil(), "repair %d", n+1)
				}
				if n >= 20 || n >= 5 && kind != "" {
					Expect(told).To(HaveValue(And(HaveField("Harm", kind), HaveField("Times", BeNumerically(">=", 1)), HaveField("Until", BeZero()))), "repair %d", n+1)
				}
			}
		},
		Entry("an edit", edit, s, "edited", atOnce(5, 5*s, 10*s, 20*s, 40*s, 80*s, 160*s, 320*s, 600*s, 600*s)),
		Entry("a deletion", remove, s, "deleted", atOnce(5, 5*s, 10*s, 20*s)),
		Entry("what is said about it", relabel, s, "edited", atOnce(5, 5*s, 10*s)),
		Entry("a caBundle, more gently: nothing works without it", distrust, s, "caBundle", atOnce(5, 2*s, 4*s, 8*s, 15*s, 15*s, 15*s)),
		Entry("an answer within a minute", edit, time.Minute, "edited", atOnce(5, 5*s, 10*s)),
		Entry("not an edit every two minutes, but it is told", edit, 2*time.Minute, "edited", atOnce(12)),
		Entry("not an edit every hour, nor is it told", edit, time.Hour, "", atOnce(5)),
		Entry("not twenty different edits: that is somebody at work", something, s, "", atOnce(20)),
	)

	It("is counted and the user is told of it", func(ctx SpecContext) {
		for n := range 9 {
			time0.pass(2 * time.Minute)
			edit(n)
			_, told := repaired(ctx)
			if n < 5 {
				Expect(told).To(BeNil())
				continue
			}
			Expect(told).To(HaveValue(And(HaveField("Harm", "edited"), HaveField("Times", n+1))))
			Expect(p.survey(ctx).Contest).To(Equal(told), "it may go on, though it is repaired")
		}
		time0.pass(15 * time.Minute)
		Expect(p.survey(ctx).Contest).NotTo(BeNil())
		time0.pass(time.Second)
		Expect(p.survey(ctx).Contest).To(BeNil())
		time0.pass(time.Hour)
		edit(0)
		_, told := repaired(ctx)
		Expect(told).To(BeNil(), "that was another story")
	})

	It("is repaired at once again when it has been left alone for a while", func(ctx SpecContext) {
		for n := range 8 {
			time0.pass(time.Second)
			edit(n)
			repaired(ctx)
		}
		time0.pass(2 * time.Minute)
		edit(0)
		after, _ := repaired(ctx)
		Expect(after).To(BeZero())
	})

	It("may be more than twenty different edits after all", func(ctx SpecContext) {
		var delays []time.Duration
		for n := range 23 {
			time0.pass(time.Second)
			c.tamper(func(m *admissionregistrationv1.MutatingWebhookConfiguration) {
				m.Webhooks[0].MatchConditions = []admissionregistrationv1.MatchCondition{{Name: fmt.Sprint("c", n), Expression: "true"}}
			})
			after, _ := repaired(ctx)
			delays = append(delays, after)
		}
		Expect(delays).To(Equal(atOnce(20, 5*s, 10*s, 20*s)))
	})

	It("keeps its caBundles while the repair of the rest is put off", func(ctx SpecContext) {
		for n := range 10 {
			time0.pass(time.Second)
			edit(n)
			repaired(ctx)
		}
		time0.pass(time.Second)
		c.tamper(weaken)
		c.tamper(blank)
		written := p.register(ctx)
		Expect(written).To(And(HaveField("Outcome", webhookconf.Updated), HaveField("At", BeTemporally(">", time0.now)), HaveField("Contest", Not(BeNil()))))
		Expect(c.bundles()).To(Equal([]string{"bundle"}))
		Expect(c.stored().Webhooks[0].FailurePolicy).To(HaveValue(Equal(admissionregistrationv1.Ignore)))
		Expect(p.register(ctx).Outcome).To(Equal(webhookconf.Deferred))
	})

	It("is not what could not be written", func(ctx SpecContext) {
		edit(0)
		failing := true
		c.PrependReactor("update", resourceName, func(clienttesting.Action) (bool, runtime.Object, error) {
			return failing, nil, apierrors.NewServiceUnavailable("busy")
		})
		for range 10 {
			time0.pass(time.Second)
			_, err := p.Register(ctx, p.trusts)
			Expect(apierrors.IsServiceUnavailable(err)).To(BeTrue(), "%v", err)
			Expect(p.survey(ctx).Due).To(BeTrue())
		}
		failing = false
		Expect(p.register(ctx)).To(And(HaveField("Outcome", webhookconf.Updated), HaveField("Contest", BeNil())))
	})

	It("is no rotation, however fast", func(ctx SpecContext) {
		for n := range 50 {
			time0.pass(time.Second)
			p.bundle = fmt.Sprint("generation ", n%3)
			Expect(p.register(ctx)).To(And(HaveField("Outcome", webhookconf.Updated), HaveField("Contest", BeNil())))
		}
	})

	It("is no rotation that another replica publishes and this one prunes", func(ctx SpecContext) {
		other := time0.start(c, step("a", isolated))
		for n := range 50 {
			time0.pass(time.Second)
			other.bundle = fmt.Sprint("generations ", n, n+1)
			Expect(other.register(ctx)).To(And(HaveField("Outcome", webhookconf.Updated), HaveField("Contest", BeNil())))
			p.bundle = fmt.Sprint("generation ", n+1)
			Expect(p.register(ctx)).To(And(HaveField("Outcome", webhookconf.Updated), HaveField("Contest", BeNil())))
		}
	})
})
