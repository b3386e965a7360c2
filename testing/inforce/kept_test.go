package inforce_test

// This file takes away what a rule in force needs, and restarts, rolls out and registers its program meanwhile.

import (
	"context"
	"fmt"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

// enough is the number of creates after a step of a play.
const enough = 4

// watched is a program whose rule is looked at all the time.
type watched struct {
	*program
	rule, others *load
	journal      *journal
	began        time.Time
	notes        []string
}

// look begins to look at a rule that is in force, and reports at the end what was seen.
func (p *program) look(ctx context.Context, resource string, create func(context.Context) error) *watched {
	GinkgoHelper()
	w := &watched{program: p, began: time.Now()}
	Eventually(func() string { return outcomeOf(create(ctx)) }).WithContext(ctx).ShouldNot(Equal(admitted))
	Eventually(func() error { return p.createConfigMap(ctx) }).WithContext(ctx).Should(Succeed())
	w.rule, w.others, w.journal = startLoad(ctx, crowd, create), startLoad(ctx, 1, p.createConfigMap), p.keepJournal(ctx, resource)
	DeferCleanup(func() {
		AddReportEntry(fmt.Sprintf("the rule's objects: %s; the other step's: %s; states without the entry: %d of %d; %v; %s",
			w.rule, w.others, len(w.journal.problems()), w.journal.written(), w.notes, time.Since(w.began).Round(100*time.Millisecond)), ReportEntryVisibilityAlways)
	})
	return w
}

// expectInForce sees that nothing has been admitted, that the entry has been in force all the time, and that the other
// step has answered all of its calls.
func (w *watched) expectInForce(ctx context.Context) {
	GinkgoHelper()
	w.rule.more(ctx, enough)
	w.others.more(ctx, enough)
	Expect(w.rule.of(admitted)).To(BeZero(), "admitted, although the rule refuses it; %s", w.rule)
	Expect(w.journal.problems()).To(BeEmpty(), "states of the entry")
	Expect(w.others.besides(admitted)).To(BeEmpty(), "calls of the step that does not wait; %s", w.others)
}

// event is what happens to all replicas in turn.
type event string

const (
	restart event = "restart"
	rollout event = "rollout" // of the next version, which has one more step
)

// eventsOf returns what happens to a program with this number of replicas. Both happen to each, and each comes first once.
func eventsOf(replicas int) []event {
	if replicas == 1 {
		return []event{restart, rollout}
	}
	return []event{rollout, restart}
}

// happens plays an event.
func (w *watched) happens(ctx context.Context, e event) {
	GinkgoHelper()
	By("a " + string(e))
	if e == rollout {
		w.steps = append(slices.Clone(w.steps), harmless())
	}
	for _, r := range slices.Clone(w.replicas) {
		switch {
		case e == rollout:
			w.rollOut(ctx, r)
		case len(w.replicas) == 1: // the clients of the other step wait until it is there again
			w.others.rest(func() { w.restart(ctx, r) })
		default:
			w.restart(ctx, r)
		}
	}
}

// starts runs the replicas. A single one that is restarted first does not wait for another one to take its calls.
func (p *program) starts(ctx context.Context, replicas int) {
	GinkgoHelper()
	if replicas == 1 {
		p.drain = -1
	}
	for range replicas {
		p.start(ctx)
	}
	p.drain = drain
}

// mended waits until the rule refuses by itself.
func (w *watched) mended(ctx context.Context) {
	GinkgoHelper()
	took := w.rule.next(ctx, refused)
	w.notes = append(w.notes, "refuses by itself after "+took.Round(10*time.Millisecond).String())
}

// way is one way to take away what a rule needs.
type way struct {
	name     string
	resource string // of the rule
	rule     func(*program) any
	create   func(*program) func(context.Context) error

	prepare, fault, mend func(context.Context, *program)
}

func createPods(p *program) func(context.Context) error  { return p.createPod }
func createShops(p *program) func(context.Context) error { return p.createShop }

var (
	readsRight = way{
		name: "the right to list what it reads is revoked", resource: "pods", rule: (*program).readsConfigMaps, create: createPods,
		prepare: func(ctx context.Context, p *program) {
			p.hasAccount(ctx, "program")
			p.grant(ctx, p.user)
			p.mayList(ctx, p.user, true)
		},
		fault: func(ctx context.Context, p *program) { p.revoke(ctx, p.user) },
		mend:  func(ctx context.Context, p *program) { p.grant(ctx, p.user) },
	}
	kindItReads = way{
		name: "the definition of what it reads is deleted", resource: "pods", rule: (*program).readsShops, create: createPods,
		prepare: func(ctx context.Context, p *program) { p.shops.serve(ctx) },
		fault:   func(ctx context.Context, p *program) { p.shops.remove(ctx) },
		mend:    func(ctx context.Context, p *program) { p.shops.define(ctx) },
	}
	listForbidden = way{
		name: "the list of what it reads is forbidden for some seconds at a start", resource: "pods", rule: (*program).readsConfigMaps, create: createPods,
		prepare: func(context.Context, *program) {},
		fault:   func(_ context.Context, p *program) { p.forbids.Store(true) },
		mend:    func(_ context.Context, p *program) { p.forbids.Store(false) },
	}
	ownKind = way{
		name: "the definition of its own kind is deleted, and then made anew", resource: "shops", rule: (*program).refusesShops, create: createShops,
		prepare: func(ctx context.Context, p *program) { p.shops.serve(ctx) },
		fault:   func(ctx context.Context, p *program) { p.shops.remove(ctx) },
		mend:    func(ctx context.Context, p *program) { p.shops.define(ctx) },
	}
	ways = []way{readsRight, kindItReads, listForbidden, ownKind}
)

var _ = Describe("A rule in force stays in force", func() {
	begin := func(ctx SpecContext, w way, replicas int) *watched {
		GinkgoHelper()
		p := deploy(ctx)
		w.prepare(ctx, p)
		p.steps = []any{label(), w.rule(p)}
		p.starts(ctx, replicas)
		seen := p.look(ctx, w.resource, w.create(p))
		seen.rule.next(ctx, refused)
		w.fault(ctx, p)
		return seen
	}

	for _, w := range ways {
		for _, replicas := range []int{1, 2} {
			It(fmt.Sprintf("over the %s and the %s of %d replicas, while %s", eventsOf(replicas)[0], eventsOf(replicas)[1], replicas, w.name), func(ctx SpecContext) {
				seen := begin(ctx, w, replicas)
				for _, e := range eventsOf(replicas) {
					seen.happens(ctx, e)
					seen.settled(ctx)
					seen.expectInForce(ctx)
				}
				Eventually(seen.entry).WithContext(ctx).WithArguments("services").ShouldNot(BeNil(), "the next version is registered")
				w.mend(ctx, seen.program)
				seen.mended(ctx)
				seen.expectInForce(ctx)
			}, SpecTimeout(3*patience))
		}
	}

	It("over the restart of 2 replicas, between which the definition of its own kind is made anew", func(ctx SpecContext) {
		w := ownKind
		seen := begin(ctx, w, 2)
		first, second := seen.replicas[0], seen.replicas[1]
		seen.restart(ctx, first)
		w.mend(ctx, seen.program)
		seen.restart(ctx, second)
		seen.settled(ctx)
		seen.mended(ctx)
		seen.expectInForce(ctx)
	}, SpecTimeout(3*patience))

	for _, w := range []way{ownKind, kindItReads} {
		for _, replicas := range []int{1, 2} {
			It(fmt.Sprintf("over RegisterExtensions after the %s and the %s of %d serving replicas, while %s", eventsOf(replicas)[0], eventsOf(replicas)[1], replicas, w.name), func(ctx SpecContext) {
				p := deploy(ctx)
				w.prepare(ctx, p)
				p.split, p.steps = true, []any{label(), w.rule(p)}
				Expect(p.register(p.steps...)).To(Succeed())
				p.starts(ctx, replicas)
				seen := p.look(ctx, w.resource, w.create(p))
				seen.rule.next(ctx, refused)
				w.fault(ctx, p)
				var waiting error
				for _, e := range eventsOf(replicas) {
					seen.happens(ctx, e)
					waiting = p.register(p.steps...)
					if waiting == nil {
						seen.notes = append(seen.notes, "RegisterExtensions returned nil")
					}
					Expect(p.entry(ctx, w.resource)).To(HaveValue(And(
						HaveField("FailurePolicy", HaveValue(Equal(admissionregistrationv1.Fail))), HaveField("ClientConfig.CABundle", Not(BeEmpty())))))
					seen.expectInForce(ctx)
				}
				Expect(p.entry(ctx, "services")).NotTo(BeNil(), "the steps that do not wait are registered")
				Expect(waiting).To(MatchError(ContainSubstring("gate")), "it names the step that waits")

				w.mend(ctx, p)
				seen.mended(ctx)
				Eventually(func() error { return p.register(p.steps...) }).WithContext(ctx).Should(Succeed())
				seen.expectInForce(ctx)
			}, SpecTimeout(3*patience))
		}
	}
})
