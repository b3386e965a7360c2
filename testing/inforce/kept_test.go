package inforce_test

// This file takes away what a rule in force needs, and restarts, rolls out and registers its program meanwhile. A rule that
// was never registered waits for what it needs, and for nothing else.

import (
	"context"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// enough is the number of creates after a step of a play.
const enough = 4

// watched is a program whose rule is looked at all the time.
type watched struct {
	*program
	rule, others *traffic
	journal      *journal
}

// look begins to look at a rule that is in force.
func (p *program) look(ctx context.Context, resource string, create func(context.Context) error) *watched {
	GinkgoHelper()
	Eventually(func() string { return outcomeOf(create(ctx)) }).WithContext(ctx).ShouldNot(Equal(admitted))
	Eventually(func() error { return p.createConfigMap(ctx) }).WithContext(ctx).Should(Succeed())
	return &watched{program: p, rule: startTraffic(ctx, crowd, create), others: startTraffic(ctx, 1, p.createConfigMap), journal: p.keepJournal(ctx, resource)}
}

// expectInForce sees that nothing has been admitted, that the entry has been in force all the time, and that the other
// step has answered all of its calls.
func (w *watched) expectInForce(ctx context.Context) {
	GinkgoHelper()
	w.rule.more(ctx, enough)
	w.others.more(ctx, enough)
	Expect(w.rule.of(admitted)).To(BeZero(), "admitted, although the rule refuses it")
	Expect(w.journal.seen()).To(BeEmpty(), "states of the entry")
	Expect(w.others.besides(admitted)).To(BeEmpty(), "calls of the step that does not wait")
}

// event is what happens to all replicas in turn.
type event string

const (
	restart event = "restart"
	rollout event = "rollout" // of the next version, which has one more step
)

// happens plays an event.
func (w *watched) happens(ctx context.Context, e event) {
	GinkgoHelper()
	By("a " + string(e))
	if e == rollout {
		w.steps = append(slices.Clone(w.steps), harmless())
	}
	for _, r := range slices.Clone(w.replicas) {
		if e == rollout {
			w.rollOut(ctx, r)
		} else {
			w.restart(ctx, r)
		}
	}
}

// way is one way to take away what a rule needs, as a real API server takes it away: its authorizer learns of a right, and
// its discovery of a kind, late.
type way struct {
	name     string
	resource string // of the rule
	rule     func(*program) any
	create   func(*program, context.Context) error

	prepare, fault, mend func(context.Context, *program)
}

var (
	readsRight = way{
		name: "the right to list what it reads is revoked", resource: "pods", rule: (*program).readsConfigMaps, create: (*program).createPod,
		prepare: func(ctx context.Context, p *program) {
			p.hasAccount(ctx, "program")
			p.grant(ctx, p.user)
			p.mayList(ctx, p.user, true)
		},
		fault: func(ctx context.Context, p *program) { p.revoke(ctx, p.user) },
		mend:  func(ctx context.Context, p *program) { p.grant(ctx, p.user) },
	}
	kindItReads = way{
		name: "the definition of what it reads is deleted", resource: "pods", rule: (*program).readsShops, create: (*program).createPod,
		prepare: func(ctx context.Context, p *program) { p.shops.serve(ctx) },
		fault:   func(ctx context.Context, p *program) { p.shops.remove(ctx) },
		mend:    func(ctx context.Context, p *program) { p.shops.define(ctx) },
	}
	ownKind = way{
		name: "the definition of its own kind is deleted, and then made anew", resource: "shops", rule: (*program).refusesShops, create: (*program).createShop,
		prepare: func(ctx context.Context, p *program) { p.shops.serve(ctx) },
		fault:   func(ctx context.Context, p *program) { p.shops.remove(ctx) },
		mend:    func(ctx context.Context, p *program) { p.shops.define(ctx) },
	}
)

var _ = Describe("A rule in force stays in force", func() {
	// begin takes away what the rule needs.
	begin := func(ctx SpecContext, w way, split bool) *watched {
		GinkgoHelper()
		p := deploy(ctx)
		w.prepare(ctx, p)
		p.split, p.steps = split, []any{label(), w.rule(p)}
		if split {
			Expect(p.register(p.steps...)).To(Succeed())
		}
		for range 2 {
			p.start(ctx)
		}
		seen := p.look(ctx, w.resource, func(ctx context.Context) error { return w.create(p, ctx) })
		seen.rule.next(ctx, refused)
		w.fault(ctx, p)
		return seen
	}
	const events = "over the rollout and the restart of 2 replicas, while "
	for _, w := range []way{readsRight, kindItReads, ownKind} {
		It(events+w.name, func(ctx SpecContext) {
			seen := begin(ctx, w, false)
			for _, e := range []event{rollout, restart} {
				seen.happens(ctx, e)
				seen.settled(ctx)
				seen.expectInForce(ctx)
			}
			Eventually(seen.entry).WithContext(ctx).WithArguments("services").ShouldNot(BeNil(), "the next version is registered")
			w.mend(ctx, seen.program)
			seen.rule.next(ctx, refused)
			seen.expectInForce(ctx)
		}, SpecTimeout(3*patience))
	}

	It("over RegisterExtensions, and "+events+kindItReads.name, func(ctx SpecContext) {
		seen := begin(ctx, kindItReads, true)
		for _, e := range []event{rollout, restart} {
			seen.happens(ctx, e)
			Expect(seen.register(seen.steps...)).To(Or(Succeed(), MatchError(ContainSubstring("gate"))), "it names the step that waits")
			seen.expectInForce(ctx)
		}
		Expect(seen.entry(ctx, "services")).NotTo(BeNil(), "the steps that do not wait are registered")
		Expect(seen.register(seen.steps...)).To(MatchError(ContainSubstring("gate")))
		kindItReads.mend(ctx, seen.program)
		seen.rule.next(ctx, refused)
		Eventually(func() error { return seen.register(seen.steps...) }).WithContext(ctx).Should(Succeed())
		seen.expectInForce(ctx)
	}, SpecTimeout(3*patience))
})

var _ = Describe("A rule goes out of force", func() {
	It("at once by RegisterExtensions without it, also while its kind is not served", func(ctx SpecContext) {
		p := deploy(ctx)
		p.shops.serve(ctx)
		Expect(p.register(label(), p.refusesShops())).To(Succeed())
		Expect(p.entry(ctx, "shops")).NotTo(BeNil())
		p.split, p.steps = true, []any{label(), p.refusesShops()}
		p.start(ctx)
		p.shops.remove(ctx)
		p.restart(ctx, p.replicas[0])
		Expect(p.register(label())).To(Succeed())
		Expect(p.entry(ctx, "shops")).To(BeNil())
		Eventually(func() error { return p.createConfigMap(ctx) }).WithContext(ctx).Should(Succeed())
	}, SpecTimeout(3*patience))

	It("by Unregister, and does not come back when it can list what it reads again", func(ctx SpecContext) {
		p := deploy(ctx)
		p.steps = []any{label(), p.readsConfigMaps()}
		p.start(ctx)
		p.look(ctx, "pods", p.createPod)
		p.forbids.Store(true)
		r := p.restart(ctx, p.replicas[0])
		p.settled(ctx)
		Expect(p.entry(ctx, "pods")).NotTo(BeNil())
		Expect(r.Unregister(ctx)).To(Succeed())
		Expect(p.entry(ctx, "pods")).To(BeNil())
		p.forbids.Store(false)
		Eventually(func() string { return outcomeOf(p.createPod(ctx)) }).WithContext(ctx).Should(Equal(admitted))
		Consistently(p.entry).WithContext(ctx).WithArguments("pods").WithTimeout(2 * time.Second).WithPolling(100 * time.Millisecond).Should(BeNil())
	}, SpecTimeout(3*patience))
})

var _ = Describe("A rule that was never registered", func() {
	It("waits for the right to list what it reads, and for its own kind, while all other steps work", func(ctx SpecContext) {
		p := deploy(ctx)
		p.hasAccount(ctx, "program")
		p.steps = []any{label(), p.readsConfigMaps(), p.refusesShops()}
		p.start(ctx)
		Eventually(func() error { return p.createConfigMap(ctx) }).WithContext(ctx).Should(Succeed())
		others := startTraffic(ctx, 1, p.createConfigMap)
		Consistently(func(g Gomega) { // over several attempts
			g.Expect(p.entry(ctx, "pods")).To(BeNil())
			g.Expect(p.entry(ctx, "shops")).To(BeNil())
			g.Expect(p.createPod(ctx)).To(Succeed())
		}).WithContext(ctx).WithTimeout(4 * time.Second).WithPolling(100 * time.Millisecond).Should(Succeed())

		p.shops.define(ctx)
		Eventually(p.entry).WithContext(ctx).WithArguments("shops").ShouldNot(BeNil())
		Eventually(func() string { return outcomeOf(p.createShop(ctx)) }).WithContext(ctx).Should(Equal(refused))
		Expect(p.entry(ctx, "pods")).To(BeNil(), "it waits still")
		p.grant(ctx, p.user)
		Eventually(func() string { return outcomeOf(p.createPod(ctx)) }).WithContext(ctx).Should(Equal(refused))
		Expect(others.besides(admitted)).To(BeEmpty())
	}, SpecTimeout(3*patience))

	It("is left out by RegisterExtensions, which registers all other steps and names it", func(ctx SpecContext) {
		p := deploy(ctx)
		Expect(p.register(label(), harmless(), p.refusesShops())).To(MatchError(ContainSubstring("gate")))
		Expect(p.entry(ctx, "services")).NotTo(BeNil())
		Expect(p.entry(ctx, "shops")).To(BeNil())
		p.shops.serve(ctx)
		Expect(p.register(label(), harmless(), p.refusesShops())).To(Succeed())
		Expect(p.entry(ctx, "shops")).NotTo(BeNil())
	}, SpecTimeout(3*patience))

	It("is of a version that gets ready beside the earlier one, which had no configuration of its sort", func(ctx SpecContext) {
		p := deploy(ctx)
		p.steps = []any{label()}
		p.start(ctx)
		p.steps = []any{label(), harmless()}
		p.rollOut(ctx, p.replicas[0])
		Eventually(p.entry).WithContext(ctx).WithArguments("services").ShouldNot(BeNil())
	}, SpecTimeout(3*patience))
})
