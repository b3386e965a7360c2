package drills_test

// This file holds the drills of rules that keep objects from being deleted or edited. Each shows how it goes wrong with a rule
// as programs write it without Validation.Rule, and that it does not with one.

import (
	"context"
	"errors"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var _ = Describe("A drill with kube-controller-manager", func() {
	It("of a namespace full of finalizers: a rule as before keeps it, and a Rule lets it go while the program runs, is down or is uninstalled", func(ctx SpecContext) {
		const each = 8
		begin := func(step any, after func(*tenant)) *tenant {
			t := newTenant(ctx)
			for i := range each {
				t.create(ctx, newLedger(fmt.Sprint("older-", i), bad, waits))
			}
			t.run(ctx, step)
			for i := range each {
				t.create(ctx, newLedger(fmt.Sprint("newer-", i), good, waits))
			}
			after(t)
			Expect(admin.CoreV1().Namespaces().Delete(ctx, t.namespace, metav1.DeleteOptions{})).To(Succeed())
			return t
		}
		up, down := func(*tenant) {}, func(t *tenant) { t.stop(ctx) }
		uninstalled := func(t *tenant) { Expect(t.replica.Unregister(ctx)).To(Succeed()) }
		judged, unanswered := begin(classic, up), begin(classic, down)
		goes := []*tenant{begin(asRule, up), begin(asRule, down), begin(asRule, uninstalled)}
		Eventually(judged.release).WithArguments(ctx).WithContext(ctx).Should(And(HaveLen(each), HaveEach(beDenied("spec.items[0].image"))))
		Eventually(unanswered.release).WithArguments(ctx).WithContext(ctx).Should(And(HaveLen(2*each), HaveEach(beUnanswered())))
		for _, t := range goes {
			t.expectGone(ctx)
		}
		for _, t := range []*tenant{judged, unanswered} {
			Eventually(func() ([]corev1.NamespaceCondition, error) {
				n, err := admin.CoreV1().Namespaces().Get(ctx, t.namespace, metav1.GetOptions{})
				return n.Status.Conditions, err
			}).WithContext(ctx).Should(ContainElement(And(HaveField("Type", corev1.NamespaceFinalizersRemaining), HaveField("Status", corev1.ConditionTrue))))
			uninstalled(t)
			t.expectGone(ctx)
		}
	}, SpecTimeout(5*patience))

	DescribeTable("of the garbage collector: a rule as before keeps an owner, and a Rule lets it go", func(ctx SpecContext, spec string, down bool, policy metav1.DeletionPropagation, remain int) {
		begin := func(step any) *tenant {
			t, dependent := newTenant(ctx), newLedger("dependent", spec)
			owner := t.create(ctx, newLedger("owner", spec))
			dependent.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(owner, owner.GroupVersionKind())})
			t.create(ctx, dependent)
			t.run(ctx, step)
			if down {
				t.stop(ctx)
			}
			Expect(t.ledgers("v1").Delete(ctx, "owner", metav1.DeleteOptions{PropagationPolicy: &policy})).To(Succeed())
			return t
		}
		Eventually(begin(asRule).list).WithArguments(ctx).WithContext(ctx).Should(HaveLen(remain))
		stuck := begin(classic)
		Eventually(stuck.rejections).WithArguments(ctx).WithContext(ctx).Should(BeNumerically(">", 1))
		Expect(stuck.list(ctx)).To(ContainElement(HaveField("GetName()", "owner")))
		Expect(stuck.replica.Unregister(ctx)).To(Succeed())
		Eventually(stuck.list).WithArguments(ctx).WithContext(ctx).Should(HaveLen(remain))
	},
		Entry("in the foreground, while the program is down", good, true, metav1.DeletePropagationForeground, 0, SpecTimeout(3*patience)),
		Entry("in the foreground, where both are older than the rule", bad, false, metav1.DeletePropagationForeground, 0, SpecTimeout(3*patience)),
		Entry("whose dependent is orphaned and older than the rule", bad, false, metav1.DeletePropagationOrphan, 1, SpecTimeout(3*patience)),
	)

	Describe("of objects that are older than a rule", Ordered, ContinueOnFailure, func() {
		var before, now *tenant // with a rule as before, and with a Rule
		entries := 0
		next := func(prefix string) string { // a name of an object, in both
			entries++
			return fmt.Sprint(prefix, entries)
		}
		BeforeAll(func(ctx SpecContext) {
			before, now = newTenant(ctx), newTenant(ctx)
			for _, t := range []*tenant{before, now} {
				for i := range 20 {
					t.create(ctx, newLedger(fmt.Sprint("older-", i), bad, waits))
					t.create(ctx, newLedger(fmt.Sprint("noted-", i), badNote, waits))
				}
			}
			before.run(ctx, classic)
			now.run(ctx, asRule)
		}, NodeTimeout(3*patience))
		const still = `{"spec":{"items":[{"name":"a","image":"app:latest"},`

		DescribeTable("a rule as before refuses, and a Rule admits,", func(ctx SpecContext, prefix, warning string, change edit) {
			name := next(prefix)
			Expect(change(ctx, before, name)).To(beDenied("bad"))
			now.warnings.Reset()
			Expect(change(ctx, now, name)).To(Succeed())
			if warning == "" {
				Expect(now.warnings.String()).To(BeEmpty(), "it is not judged")
			} else {
				Expect(now.warnings.String()).To(ContainSubstring("it still violates, as before this change: " + warning))
			}
		},
			Entry("a label", "older-", "spec.items[0].image", merge(`{"metadata":{"labels":{"tier":"1"}}}`)),
			Entry("a label where a denial names no field", "noted-", "the note is bad", merge(`{"metadata":{"labels":{"tier":"1"}}}`)),
			Entry("an edit of another item", "older-", "spec.items[0].image", merge(still+`{"name":"b","image":"b:2"}]}}`)),
			Entry("an item in front of it", "older-", "spec.items[1].image", merge(`{"spec":{"items":[{"name":"new"},{"name":"a","image":"app:latest"}]}}`)),
			Entry("another name of the item", "older-", "spec.items[0].image", merge(`{"spec":{"items":[{"name":"c","image":"app:latest"},{"name":"b","image":"b:1"}]}}`)),
			Entry("an edit that its Go type does not know", "older-", "spec.items[0].image", merge(`{"spec":{"hidden":"new"}}`)),
			Entry("its status, in a version without /status", "older-", "spec.items[0].image", mergeIn("v1beta1", `{"status":{"phase":"new"}}`)),
			Entry("the same again, as a storage migration writes it", "older-", "", edit(rewrite)),
			Entry("the same again, as kubectl apply writes it, twice", "older-", "", apply("kubectl", bad, "kubectl", bad)),
			Entry("two managers that apply different fields", "older-", "spec.items[0].image", apply("one", `{"note":"new"}`, "other", `{"items":[{"name":"c","image":"c:1"}]}`)),
		)

		It("a unit test names beforehand that a rule as before freezes them", func() {
			for _, spec := range []string{bad, badNote} {
				older := newLedger("older", spec, waits)
				Expect(unitTested(asRule, older)).To(BeEmpty())
				Expect(unitTested(classic, older)).To(And(
					HavePrefix("eirinixtest: not updatable: "), ContainSubstring("a label is added: "), ContainSubstring("it is stored anew"),
					ContainSubstring("finalizer "+waits+" is removed"), ContainSubstring("judge the object in Validation.Rule"),
				))
			}
		})

		It("a rule as before keeps one that has been deleted, and a Rule lets it go", func(ctx SpecContext) {
			name := next("older-")
			for _, t := range []*tenant{before, now} {
				Expect(t.ledgers("v1").Delete(ctx, name, metav1.DeleteOptions{})).To(Succeed())
			}
			Expect(merge(letGo)(ctx, before, name)).To(beDenied("spec.items[0].image"))
			Expect(merge(letGo)(ctx, now, name)).To(Succeed())
		})

		It("neither rule is asked about their /status", func(ctx SpecContext) {
			name, phase := next("older-"), mergeIn("v1", `{"status":{"phase":"bad"}}`, "status")
			Expect(errors.Join(phase(ctx, before, name), phase(ctx, now, name))).To(Succeed())
		})

		DescribeTable("a Rule lets no edit make it worse:", func(ctx SpecContext, prefix, cause string, change edit) {
			Expect(change(ctx, now, next(prefix))).To(beDenied(cause))
		},
			Entry("another bad value", "older-", "spec.items[0].image", merge(`{"spec":{"items":[{"name":"a","image":"other:latest"},{"name":"b","image":"b:1"}]}}`)),
			Entry("a second bad value", "older-", "spec.items[1].image", merge(still+`{"name":"b","image":"b:latest"}]}}`)),
			Entry("a bad value that moves to another item", "older-", "spec.items[1].image", merge(`{"spec":{"items":[{"name":"a","image":"b:1"},{"name":"b","image":"app:latest"}]}}`)),
			Entry("a bad value that moves to a new item", "older-", "spec.items[1].image", merge(`{"spec":{"items":[{"name":"a"},{"name":"c","image":"app:latest"}]}}`)),
			Entry("a bad value that another manager applies", "older-", "spec.items[2].image", apply("other", `{"items":[{"name":"c","image":"app:latest"}]}`)),
			Entry("a bad label beside a bad value", "older-", "metadata.labels[tier]", merge(`{"metadata":{"labels":{"tier":"bad"}}}`)),
			Entry("an edit of any field where a denial names none", "noted-", "the note is bad", merge(`{"spec":{"hidden":"new"}}`)),
		)
	})

	Describe("of a tenant who has an object deleted, and holds it by a finalizer", Ordered, ContinueOnFailure, func() {
		var recipe, now, every *tenant
		held := 0
		hold := func(ctx context.Context, of ...*tenant) (living, dying string) {
			GinkgoHelper()
			held++
			living, dying = fmt.Sprint("living-", held), fmt.Sprint("dying-", held)
			for _, t := range of {
				t.create(ctx, newLedger(living, good, waits))
				t.create(ctx, newLedger(dying, good, waits))
				Expect(t.ledgers("v1").Delete(ctx, dying, metav1.DeleteOptions{})).To(Succeed())
			}
			return living, dying
		}
		BeforeAll(func(ctx SpecContext) {
			step := asRule
			now = newTenant(ctx).run(ctx, step)
			step.Settings.EveryUpdate = true
			every = newTenant(ctx).run(ctx, step)
			step.Settings.Conditions = []admissionregistrationv1.MatchCondition{{
				Name: "living", Expression: "request.operation == 'CREATE' || !has(oldObject.metadata.deletionTimestamp)",
			}}
			recipe = newTenant(ctx).run(ctx, step)
		}, NodeTimeout(3*patience))

		DescribeTable("a condition that lets all dying objects go opens a door, and a Rule judges it:", func(ctx SpecContext, cause string, change edit) {
			living, dying := hold(ctx, now, recipe)
			Expect(change(ctx, recipe, living)).To(beDenied(cause))
			Expect(change(ctx, recipe, dying)).To(Succeed())
			Expect(change(ctx, now, living)).To(beDenied(cause))
			Expect(change(ctx, now, dying)).To(beDenied(cause))
		},
			Entry("its spec", "spec.items[0].image", merge(`{"spec":`+bad+`}`)),
			Entry("its spec, and it is let go", "spec.items[0].image", merge(`{"metadata":{"finalizers":null},"spec":`+bad+`}`)),
			Entry("its spec, with its status", "spec.items[0].image", mergeIn("v1beta1", `{"status":{"phase":"new"},"spec":`+bad+`}`)),
			Entry("a field of its spec that is new", "the note is bad", merge(`{"spec":{"note":"bad"}}`)),
			Entry("a field that its Go type does not know", "the hidden field is bad", merge(`{"spec":{"hidden":"bad"}}`)),
			Entry("its labels", "metadata.labels[tier]", merge(`{"metadata":{"labels":{"tier":"bad"}}}`)),
		)

		DescribeTable("a Rule does not see this of a dying object, by design, except with EveryUpdate:", func(ctx SpecContext, cause string, change edit) {
			living, dying := hold(ctx, now, every)
			Expect(change(ctx, now, living)).To(beDenied(cause))
			Expect(change(ctx, now, dying)).To(Succeed())
			Expect(change(ctx, every, dying)).To(beDenied(cause))
		},
			Entry("its status, in a version without /status", "status.phase", mergeIn("v1beta1", `{"status":{"phase":"bad"}}`)),
			Entry("its ownerReferences", "metadata.ownerReferences[0].name", merge(`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"bad","uid":"1"}]}}`)),
		)

		It("a deletionTimestamp by hand makes no object a dying one, and a dying one gets no finalizer", func(ctx SpecContext) {
			living, dying := hold(ctx, now)
			spoil, isBad := merge(`{"spec":`+bad+`}`), beDenied("spec.items[0].image")
			born := newLedger("born", bad)
			born.SetDeletionTimestamp(new(metav1.Now()))
			Expect(now.ledgers("v1").Create(ctx, born, metav1.CreateOptions{})).Error().To(isBad)
			born.Object["spec"] = map[string]any{}
			now.create(ctx, born)
			Expect(spoil(ctx, now, "born")).To(isBad)
			Expect(merge(`{"metadata":{"deletionTimestamp":"2026-01-01T00:00:00Z"},"spec":`+bad+`}`)(ctx, now, living)).To(MatchError(ContainSubstring("field is immutable")))
			Expect(spoil(ctx, now, living)).To(isBad)
			Expect(merge(`{"metadata":{"deletionTimestamp":null},"spec":`+bad+`}`)(ctx, now, dying)).To(isBad)
			Expect(merge(`{"metadata":{"finalizers":["`+waits+`","drills.example.org/more"]}}`)(ctx, now, dying)).To(MatchError(ContainSubstring("no new finalizers can be added")))
		})

		It("while the program is down, a dying object can go, and not be edited", func(ctx SpecContext) {
			_, dying := hold(ctx, now)
			now.stop(ctx)
			Expect(merge(`{"metadata":{"labels":{"tier":"1"}}}`)(ctx, now, dying)).To(beUnanswered())
			Expect(merge(letGo)(ctx, now, dying)).To(Succeed())
		})
	})
})
