package conformance_test

import (
	"context"
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"code.cloudfoundry.org/eirinix"
)

// affect is a step of this kind for the creation of config maps, under this name: the one adds a key, which
// affected finds, the other refuses.
func affect(kind kind, name string, settings eirinix.Settings) any {
	if kind == mutating {
		return eirinix.Mutation[*corev1.ConfigMap]{ID: name, Settings: settings, Apply: func(_ context.Context, _ *eirinix.Call, c *corev1.ConfigMap) error {
			if c.Data == nil {
				c.Data = map[string]string{}
			}
			c.Data[name] = "was here"
			return nil
		}}
	}
	return eirinix.Validation[*corev1.ConfigMap]{ID: name, Settings: settings, Create: func(context.Context, *eirinix.Call, *corev1.ConfigMap) error {
		return eirinix.Deny("%s was here", name)
	}}
}

// affected reports whether the step of that name is called when a config map of this name is made.
func affected(ctx context.Context, kind kind, name, namespace, object string) (bool, error) {
	c, err := clients().CoreV1().ConfigMaps(namespace).Create(ctx, newConfigMap(object, nil), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		if kind == validating && strings.Contains(err.Error(), name+" was here") {
			return true, nil
		}
		return false, err
	}
	return c.Data[name] != "", nil
}

var _ = Describe("A configuration", func() {
	eachMode(func(mode mode) {
		for _, kind := range kinds {
			Context(string(kind), func() {
				var namespace string
				BeforeEach(func(ctx SpecContext) { namespace = newNamespace(ctx) })
				scenario := func(validates, mutates string) Labels {
					if kind == validating {
						return Label(validates)
					}
					return Label(mutates)
				}
				is := func(ctx context.Context, namespace, object string) func() (bool, error) {
					return func() (bool, error) { return affected(ctx, kind, "step", namespace, object) }
				}

				It("is in force as its rules are changed", scenario("S14", "S15"), func(ctx SpecContext) {
					m := serve(ctx, mode, namespace, nil, affect(kind, "step", eirinix.Settings{Rules: rules("", "v1", "configmaps", created)}))
					elsewhere := newNamespace(ctx)
					f := foreignTo(ctx, m, kind, namespace, elsewhere)
					f.mustCreate(ctx)
					Eventually(is(ctx, elsewhere, "probe")).Should(BeTrue(), "CREATE only")
					f.update(ctx, func(rules []admissionregistrationv1.RuleWithOperations) {
						rules[0].Operations = []admissionregistrationv1.OperationType{updated}
					})
					Eventually(is(ctx, elsewhere, "probe")).Should(BeFalse(), "UPDATE only")
					f.patch(ctx, `[{"op":"replace","path":"/webhooks/0/rules/0/operations","value":["CREATE"]}]`)
					Eventually(is(ctx, elsewhere, "probe")).Should(BeTrue(), "CREATE again")
				}, SpecTimeout(2*patience))

				It("is in force until it is deleted, one of a collection", scenario("S16", "S17"), func(ctx SpecContext) {
					m := serve(ctx, mode, namespace, nil, affect(kind, "step", eirinix.Settings{Rules: rules("", "v1", "configmaps", created)}))
					elsewhere := newNamespace(ctx)
					for i := range 10 {
						foreignTo(ctx, m, kind, fmt.Sprintf("%s-%d", namespace, i), elsewhere).mustCreate(ctx)
					}
					selected := metav1.ListOptions{LabelSelector: "foreign=" + elsewhere}
					Expect(listed(ctx, kind, selected)).To(Equal(10))
					Eventually(is(ctx, elsewhere, "probe")).Should(BeTrue())
					Expect(deleteAll(ctx, kind, selected)).To(Succeed())
					Expect(listed(ctx, kind, selected)).To(BeZero())
					Eventually(is(ctx, elsewhere, "probe")).Should(BeFalse())
					Expect(is(ctx, namespace, "probe")()).To(BeTrue(), "the Manager's own is not in the collection")
				}, SpecTimeout(2*patience))

				It("stores matchConditions, and is in force as they are changed", scenario("S18", "S19"), func(ctx SpecContext) {
					serveUnless := func(name string) (uid any, conditions []admissionregistrationv1.MatchCondition, stop func()) {
						m := serve(ctx, mode, namespace, nil, affect(kind, "step", eirinix.Settings{
							Rules:      rules("", "v1", "configmaps", created),
							Conditions: []admissionregistrationv1.MatchCondition{{Name: "unless", Expression: fmt.Sprintf("object.metadata.name != '%s'", name)}},
						}))
						if kind == mutating {
							c := mutatingConfiguration(ctx, m)
							return c.UID, c.Webhooks[0].MatchConditions, m.Stop
						}
						c := validatingConfiguration(ctx, m)
						return c.UID, c.Webhooks[0].MatchConditions, m.Stop
					}
					before, conditions, stop := serveUnless("a")
					Expect(conditions).To(ConsistOf(HaveField("Expression", "object.metadata.name != 'a'")))
					Expect(is(ctx, namespace, "a")()).To(BeFalse())
					Expect(is(ctx, namespace, "b")()).To(BeTrue())

					stop()
					after, conditions, _ := serveUnless("b")
					Expect(after).To(Equal(before), "updated in place")
					Expect(conditions).To(ConsistOf(HaveField("Expression", "object.metadata.name != 'b'")))
					Eventually(is(ctx, namespace, "a")).Should(BeTrue())
					Expect(is(ctx, namespace, "b")()).To(BeFalse())
				}, SpecTimeout(2*patience))
			})
		}
	})
})

func listed(ctx context.Context, kind kind, opts metav1.ListOptions) (int, error) {
	hooks := clients().AdmissionregistrationV1()
	if kind == mutating {
		list, err := hooks.MutatingWebhookConfigurations().List(ctx, opts)
		return len(list.Items), err
	}
	list, err := hooks.ValidatingWebhookConfigurations().List(ctx, opts)
	return len(list.Items), err
}

func deleteAll(ctx context.Context, kind kind, opts metav1.ListOptions) error {
	hooks := clients().AdmissionregistrationV1()
	if kind == mutating {
		return hooks.MutatingWebhookConfigurations().DeleteCollection(ctx, metav1.DeleteOptions{}, opts)
	}
	return hooks.ValidatingWebhookConfigurations().DeleteCollection(ctx, metav1.DeleteOptions{}, opts)
}
