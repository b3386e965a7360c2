package inforce_test

// This file holds rules that come into force: a first registration waits for what the rule needs, and for nothing else.

import (
	"context"
	"fmt"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"code.cloudfoundry.org/eirinix"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
)

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

	It("does not break the entry of a rule in force that it would share", func(ctx SpecContext) {
		p := deploy(ctx)
		p.hasAccount(ctx, "program")
		old, fresh := labels.Set{"refuse": "old"}, labels.Set{"refuse": "new"}
		p.steps = []any{label(), eirinix.Validation[*corev1.Pod]{ID: "old", Create: func(_ context.Context, _ *eirinix.Call, pod *corev1.Pod) error {
			if old.AsSelector().Matches(labels.Set(pod.Labels)) {
				return eirinix.Deny("%s: old", refusal)
			}
			return nil
		}}}
		for range 2 {
			p.start(ctx)
		}
		with := func(set labels.Set) func(context.Context) error {
			return func(ctx context.Context) error { return p.createPodWith(ctx, set) }
		}
		seen := p.look(ctx, "pods", with(old))
		others := startTraffic(ctx, 2, with(nil))
		inForce := func() {
			GinkgoHelper()
			seen.expectInForce(ctx)
			others.more(ctx, enough)
			Expect(seen.rule.of(failed)).To(BeZero(), "the rule in force fails: %v", seen.rule.besides(refused))
			Expect(others.besides(admitted)).To(BeEmpty(), "pods that no rule refuses")
		}

		By("rolling out a version in which the new rule cannot list what it reads")
		p.steps = append(slices.Clone(p.steps), p.readsConfigMapsFor("new", fresh))
		for _, r := range slices.Clone(p.replicas) {
			p.rollOut(ctx, r)
		}
		p.settled(ctx)
		inForce()
		Expect(p.createPodWith(ctx, fresh)).To(Succeed(), "it is held back")

		By("restarting that version")
		for _, r := range slices.Clone(p.replicas) {
			p.restart(ctx, r)
		}
		p.settled(ctx)
		inForce()
		Expect(p.createPodWith(ctx, fresh)).To(Succeed(), "it is held back")

		By("granting the right")
		p.grant(ctx, p.user)
		Eventually(func() string { return outcomeOf(p.createPodWith(ctx, fresh)) }).WithContext(ctx).Should(Equal(refused))
		// The first replica that can list registers the rule. Until the other one has listed, its calls fail.
		others.settles(ctx)
		seen.rule.settles(ctx)
		seen.expectInForce(ctx)
	}, SpecTimeout(3*patience))

	It("is of a version that gets ready beside the earlier one, which had no configuration of its sort", func(ctx SpecContext) {
		p := deploy(ctx)
		p.steps = []any{label()}
		p.start(ctx)
		p.steps = []any{label(), harmless()}
		p.rollOut(ctx, p.replicas[0])
		Eventually(p.entry).WithContext(ctx).WithArguments("services").ShouldNot(BeNil())
	}, SpecTimeout(3*patience))

	It("comes with the first replica that can list what it reads, and stays with those that cannot", func(ctx SpecContext) {
		p := deploy(ctx)
		p.hasAccount(ctx, "with")
		with := p.user
		p.grant(ctx, with)
		p.mayList(ctx, with, true)
		p.hasAccount(ctx, "without")
		without := p.user

		p.steps = []any{label(), p.readsConfigMaps()}
		p.start(ctx)
		Expect(p.entry(ctx, "pods")).To(BeNil())
		p.user = with
		can := p.start(ctx)
		Eventually(p.entry).WithContext(ctx).WithArguments("pods").ShouldNot(BeNil())
		seen := p.look(ctx, "pods", p.createPod)

		By("restarting the one that cannot")
		p.user = without
		p.restart(ctx, p.replicas[0])
		p.settled(ctx)
		seen.expectInForce(ctx)

		By("having both look at the configuration again and again")
		before, _ := seen.journal.seen()
		for n := range 4 {
			patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"spec":"%d"}}}`, n)
			Must(clients.CoreV1().Secrets(p.namespace).Patch(ctx, p.namespace+"-setupcertificate", types.MergePatchType, patch, metav1.PatchOptions{}))
			Must(clients.CoordinationV1().Leases(p.namespace).Patch(ctx, p.namespace+"-versions", types.MergePatchType, patch, metav1.PatchOptions{}))
			seen.others.more(ctx, enough)
		}

		By("restarting the one that can")
		p.user = with
		p.restart(ctx, can)
		p.settled(ctx)
		seen.expectInForce(ctx)
		after, _ := seen.journal.seen()
		Expect(after).To(Equal(before), "writes of the configuration")
	}, SpecTimeout(3*patience))
})
