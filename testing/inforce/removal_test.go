package inforce_test

// This file takes rules out of force: by a version that does not declare them, and by an order.

import (
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Describe("A rule goes out of force", func() {
	for _, waiting := range []bool{false, true} {
		name := "with the last replica of a version that declares it"
		if waiting {
			name += ", also if it cannot list what it reads"
		}
		It(name, func(ctx SpecContext) {
			p := deploy(ctx)
			p.steps = []any{label(), p.readsConfigMaps()}
			for range 2 {
				p.start(ctx)
			}
			seen := p.look(ctx, "pods", p.createPod)
			p.forbids.Store(waiting)
			for _, r := range slices.Clone(p.replicas) {
				p.restart(ctx, r)
			}
			p.settled(ctx)
			p.steps = []any{label()}
			old := slices.Clone(p.replicas)
			seen.expectInForce(ctx)
			p.rollOut(ctx, old[0])
			seen.others.more(ctx, enough)
			Expect(seen.journal.problems()).To(BeEmpty(), "while the other one lives")
			p.rollOut(ctx, old[1])
			Eventually(p.entry).WithContext(ctx).WithArguments("pods").Should(BeNil())
			Eventually(func() error { return p.createPod(ctx) }).WithContext(ctx).Should(Succeed())
			seen.others.more(ctx, enough)
			Expect(seen.others.of(failed)).To(BeZero(), seen.others.example(failed))
		}, SpecTimeout(3*patience))
	}

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
