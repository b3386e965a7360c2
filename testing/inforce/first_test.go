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
)

// bound is far above the time in which a rule comes into force once it can be. A slow machine needs more of it.
const bound = 5 * time.Second

// comes waits for the entry of a resource, and returns the time until then.
func (p *program) comes(ctx context.Context, resource string) time.Duration {
	GinkgoHelper()
	began := time.Now()
	Eventually(p.entry).WithContext(ctx).WithArguments(resource).ShouldNot(BeNil())
	return time.Since(began)
}

var _ = Describe("A rule that was never registered", func() {
	It("waits for the right to list what it reads, and for its own kind, while all other steps work", func(ctx SpecContext) {
		p := deploy(ctx)
		p.hasAccount(ctx, "program")
		p.steps = []any{label(), p.readsConfigMaps(), p.refusesShops()}
		p.start(ctx)
		Eventually(func() error { return p.createConfigMap(ctx) }).WithContext(ctx).Should(Succeed())
		others := startLoad(ctx, 1, p.createConfigMap)
		// This is long enough for attempts that become rare.
		Consistently(func(g Gomega) {
			for _, resource := range []string{"pods", "shops"} {
				g.Expect(p.entry(ctx, resource)).To(BeNil(), resource)
			}
			g.Expect(p.createPod(ctx)).To(Succeed())
		}).WithContext(ctx).WithTimeout(8 * time.Second).WithPolling(100 * time.Millisecond).Should(Succeed())

		p.shops.define(ctx)
		kind := p.comes(ctx, "shops")
		Eventually(func() string { return outcomeOf(p.createShop(ctx)) }).WithContext(ctx).Should(Equal(refused))
		Expect(p.entry(ctx, "pods")).To(BeNil(), "it waits still")

		p.grant(ctx, p.user)
		right := p.comes(ctx, "pods")
		Eventually(func() string { return outcomeOf(p.createPod(ctx)) }).WithContext(ctx).Should(Equal(refused))
		AddReportEntry(fmt.Sprintf("registered %s after its definition was created, and %s after the right was granted; the other step's: %s",
			kind.Round(time.Millisecond), right.Round(time.Millisecond), others), ReportEntryVisibilityAlways)
		Expect(others.of(failed)).To(BeZero(), others.example(failed))
		Expect(kind).To(BeNumerically("<", bound), "after the definition")
		Expect(right).To(BeNumerically("<", 2*bound), "after the right, of which no event tells")
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
		others := startLoad(ctx, 2, with(nil))
		inForce := func() {
			GinkgoHelper()
			seen.expectInForce(ctx)
			others.more(ctx, enough)
			Expect(seen.rule.of(failed)).To(BeZero(), "the rule in force fails; %s", seen.rule.example(failed))
			Expect(others.besides(admitted)).To(BeEmpty(), "pods that no rule refuses; %s", others)
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
		p.comes(ctx, "services")
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
		p.comes(ctx, "pods")
		seen := p.look(ctx, "pods", p.createPod)

		By("restarting the one that cannot")
		p.user = without
		p.restart(ctx, p.replicas[0])
		p.settled(ctx)
		seen.expectInForce(ctx)

		By("having both look at the configuration again and again")
		before := seen.journal.written()
		const times = 4
		for n := range times {
			for _, wake := range []func([]byte) error{
				func(patch []byte) error {
					_, err := clients.CoreV1().Secrets(p.namespace).Patch(ctx, p.namespace+"-setupcertificate", types.MergePatchType, patch, metav1.PatchOptions{})
					return err
				},
				func(patch []byte) error {
					_, err := clients.CoordinationV1().Leases(p.namespace).Patch(ctx, p.namespace+"-versions", types.MergePatchType, patch, metav1.PatchOptions{})
					return err
				},
			} {
				Expect(wake(fmt.Appendf(nil, `{"metadata":{"annotations":{"spec":"%d"}}}`, n))).To(Succeed())
			}
			seen.others.more(ctx, enough)
		}
		Expect(seen.journal.written()-before).To(BeZero(), "writes of the configuration in %d passes", times)

		By("restarting the one that can")
		p.user = with
		p.restart(ctx, can)
		p.settled(ctx)
		seen.expectInForce(ctx)
		seen.notes = append(seen.notes, fmt.Sprintf("%d writes in all", seen.journal.written()))
		Expect(seen.journal.written()-before).To(BeZero(), "writes of the configuration")
	}, SpecTimeout(3*patience))
})
