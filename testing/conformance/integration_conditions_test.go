package conformance_test

import (
	"context"
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"code.cloudfoundry.org/eirinix"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
)

// where makes named conditions of expressions.
func where(expressions ...string) []admissionregistrationv1.MatchCondition {
	conditions := make([]admissionregistrationv1.MatchCondition, 0, len(expressions))
	for i, e := range expressions {
		conditions = append(conditions, admissionregistrationv1.MatchCondition{Name: fmt.Sprintf("condition-%d", i), Expression: e})
	}
	return conditions
}

func many(n int) []admissionregistrationv1.MatchCondition {
	expressions := make([]string, n)
	for i := range expressions {
		expressions[i] = "true"
	}
	return where(expressions...)
}

// expensive compiles, and costs more than one evaluation may.
func expensive() string {
	ten := "[0,1,2,3,4,5,6,7,8,9]"
	open := ""
	for i := range 7 {
		open += fmt.Sprintf("%s.all(x%d, ", ten, i)
	}
	return open + "x0 >= 0" + strings.Repeat(")", 7)
}

var _ = Describe("S26 matchConditions", Label("S26"), func() {
	const fail, ignore = admissionregistrationv1.Fail, admissionregistrationv1.Ignore

	// steps returns a step of each kind, which count their calls.
	steps := func(calls *callLog, conditions []admissionregistrationv1.MatchCondition, policy admissionregistrationv1.FailurePolicyType) []any {
		settings := eirinix.Settings{Conditions: conditions, FailurePolicy: policy}
		note := func(kind string) func(context.Context, *eirinix.Call, *corev1.Pod) error {
			return func(_ context.Context, _ *eirinix.Call, p *corev1.Pod) error {
				calls.add(kind, p.Name)
				return nil
			}
		}
		return []any{
			eirinix.Mutation[*corev1.Pod]{ID: "mutating", Settings: settings, Apply: note("mutating")},
			eirinix.Validation[*corev1.Pod]{ID: "validating", Settings: settings, Create: note("validating"), Delete: note("deleting")},
		}
	}

	const missing = "object.nonExistentProperty == 'someval'"
	eachMode(func(mode mode) {
		DescribeTable("decide who is called", func(ctx SpecContext, conditions []admissionregistrationv1.MatchCondition, policy admissionregistrationv1.FailurePolicyType, called []string, refused string) {
			namespace, calls := newNamespace(ctx), &callLog{}
			serve(ctx, mode, namespace, nil, steps(calls, conditions, policy)...)
			for _, name := range []string{"test1", "test2"} {
				_, err := createPod(ctx, namespace, newPod(name))
				if refused != "" {
					Expect(err).To(And(Satisfy(apierrors.IsForbidden), MatchError(ContainSubstring(refused))))
				} else {
					Expect(err).NotTo(HaveOccurred())
				}
			}
			var expected []string
			for _, name := range called {
				expected = append(expected, "mutating "+name, "validating "+name)
			}
			Expect(calls.list()).To(ConsistOf(expected))
		},
			Entry("one is true", where("object.metadata.name != 'test1'"), fail, []string{"test2"}, "", SpecTimeout(2*patience)),
			Entry("all must be true", where("object.metadata.name != 'test1'", "object.metadata.name != 'test2'"), fail, nil, "", SpecTimeout(2*patience)),
			Entry("any false skips, whatever errs", where(missing, "true", "false", "true", missing), fail, nil, "", SpecTimeout(2*patience)),
			Entry("an error under Fail refuses, with 403 and without a call", where(missing, "true"), fail, nil, "no such key: nonExistentProperty", SpecTimeout(2*patience)),
			Entry("an error under Ignore skips", where(missing, "true"), ignore, nil, "", SpecTimeout(2*patience)),
			Entry("more than one evaluation may cost is an error under Fail", where(expensive()), fail, nil, "cost", SpecTimeout(2*patience)),
			Entry("more than one evaluation may cost skips under Ignore", where(expensive()), ignore, nil, "", SpecTimeout(2*patience)),
			Entry("oldObject is null on CREATE", where("oldObject == null"), fail, []string{"test1", "test2"}, "", SpecTimeout(2*patience)),
			Entry("64 of them", many(64), fail, []string{"test1", "test2"}, "", SpecTimeout(2*patience)),
		)

		It("see the object that goes as oldObject on DELETE", func(ctx SpecContext) {
			namespace, calls := newNamespace(ctx), &callLog{}
			serve(ctx, mode, namespace, nil, steps(calls, where("object == null && oldObject.metadata.name == 'test1'"), fail)...)
			for _, name := range []string{"test1", "test2"} {
				_, err := createPod(ctx, namespace, newPod(name))
				Expect(err).NotTo(HaveOccurred())
				Expect(clients().CoreV1().Pods(namespace).Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))})).To(Succeed())
			}
			// A pod that goes at once is admitted twice: to be marked, and to be removed.
			Expect(calls.list()).To(And(Not(BeEmpty()), HaveEach("deleting test1")))
		}, SpecTimeout(2*patience))

		It("may ask for the user's rights", func(ctx SpecContext) {
			namespace, calls := newNamespace(ctx), &callLog{}
			serve(ctx, mode, namespace, nil, steps(calls, where("!authorizer.group('').resource('pods').namespace(request.namespace).check('bypass').allowed()"), fail)...)
			ordinary, err := controlPlane().User("ordinary-" + namespace)
			Expect(err).NotTo(HaveOccurred())
			rbac := clients().RbacV1()
			_, err = rbac.Roles(namespace).Create(ctx, &rbacv1.Role{
				ObjectMeta: metav1.ObjectMeta{Name: "creator"},
				Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"create"}}},
			}, metav1.CreateOptions{})
			Expect(err).NotTo(HaveOccurred())
			_, err = rbac.RoleBindings(namespace).Create(ctx, &rbacv1.RoleBinding{
				ObjectMeta: metav1.ObjectMeta{Name: "creator"},
				RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "creator"},
				Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "ordinary-" + namespace}},
			}, metav1.CreateOptions{})
			Expect(err).NotTo(HaveOccurred())
			_, err = createPod(ctx, namespace, newPod("of-the-administrator"))
			Expect(err).NotTo(HaveOccurred())
			Expect(calls.list()).To(BeEmpty())
			Eventually(func() error { // the authorizer learns of the role from an informer
				_, err := Clients(ordinary).CoreV1().Pods(namespace).Create(ctx, newPod("of-ordinary"), metav1.CreateOptions{})
				return err
			}).WithContext(ctx).Should(Succeed())
			Expect(calls.list()).To(ConsistOf("mutating of-ordinary", "validating of-ordinary"))
		}, SpecTimeout(2*patience))
	})

	DescribeTable("that the API server would refuse are refused before it is asked, for the same reason",
		func(ctx SpecContext, conditions []admissionregistrationv1.MatchCondition, reason string) {
			namespace := newNamespace(ctx)
			m := eirinix.NewManager(optionsFor(ctx, urlMode, namespace))
			for _, s := range steps(&callLog{}, conditions, fail) {
				Expect(m.AddExtension(s)).To(Succeed())
			}
			ours := m.Validate()
			Expect(ours).To(MatchError(And(ContainSubstring(reason), ContainSubstring(`"mutating"`), ContainSubstring(`"validating"`), ContainSubstring("Settings.Conditions"))))

			_, theirs := clients().AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(ctx, &admissionregistrationv1.ValidatingWebhookConfiguration{
				ObjectMeta: metav1.ObjectMeta{Name: namespace},
				Webhooks: []admissionregistrationv1.ValidatingWebhook{{
					Name: "a.b.c", SideEffects: new(admissionregistrationv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
					ClientConfig:    admissionregistrationv1.WebhookClientConfig{URL: new("https://127.0.0.1:1/")},
					MatchConditions: conditions,
				}},
			}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			Expect(theirs).To(And(Satisfy(apierrors.IsInvalid), MatchError(ContainSubstring(reason))))
		},
		Entry("65 of them", many(65), "must have at most 64 items", SpecTimeout(patience)),
		Entry("a name twice", append(where("true"), where("false")...), "Duplicate value", SpecTimeout(patience)),
		Entry("no name", []admissionregistrationv1.MatchCondition{{Expression: "true"}}, "Required value", SpecTimeout(patience)),
		Entry("no expression", where(""), "Required value", SpecTimeout(patience)),
		Entry("a name that is none", []admissionregistrationv1.MatchCondition{{Name: "a b", Expression: "true"}}, "Invalid value", SpecTimeout(patience)),
	)

	DescribeTable("that do not compile are refused by the API server, which ends the start",
		func(ctx SpecContext, expression, reason string) {
			m := eirinix.NewManager(optionsFor(ctx, urlMode, newNamespace(ctx)))
			for _, s := range steps(&callLog{}, where(expression), fail) {
				Expect(m.AddExtension(s)).To(Succeed())
			}
			Expect(m.Validate()).To(Succeed())
			Expect(m.Run(ctx)).To(And(Satisfy(apierrors.IsInvalid), MatchError(And(ContainSubstring(reason), ContainSubstring("webhooks[0].matchConditions[0].expression")))))
		},
		Entry("a syntax error", "object.metadata.", "compilation failed", SpecTimeout(patience)),
		Entry("not a boolean", "'yes'", "must evaluate to bool", SpecTimeout(patience)),
	)
})
