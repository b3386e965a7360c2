package eirinix_test

import (
	"context"
	"maps"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"code.cloudfoundry.org/eirinix"
)

// limitedShop is the Go type of a Shop whose definition lets anything pass.
type limitedShop struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Tills             []till `json:"tills,omitempty"`
}

type till struct {
	Limits corev1.ResourceList `json:"limits,omitempty"`
}

func (s *limitedShop) DeepCopyObject() runtime.Object {
	c := &limitedShop{TypeMeta: s.TypeMeta, ObjectMeta: *s.ObjectMeta.DeepCopy()}
	for _, t := range s.Tills {
		c.Tills = append(c.Tills, till{maps.Clone(t.Limits)})
	}
	return c
}

var _ = Describe("A custom resource with a typo that its definition admits", Label("api-server"), func() {
	It("is denied by typed steps with its path, except under Ignore and in Warn", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		group, warnings := namespace+".example.org", &heard{}
		o := urlOptions(namespace)
		o.Scheme = runtime.NewScheme()
		o.Scheme.AddKnownTypeWithName(schema.GroupVersionKind{Group: group, Version: "v1", Kind: "Shop"}, &limitedShop{})
		settings := func(rule string) eirinix.Settings {
			return eirinix.Settings{Objects: &metav1.LabelSelector{MatchLabels: map[string]string{"rule": rule}}}
		}
		validation := func(rule string, policy admissionregistrationv1.FailurePolicyType, mode eirinix.Mode) eirinix.Validation[*limitedShop] {
			v := eirinix.Validation[*limitedShop]{
				ID: rule, Settings: settings(rule),
				Create: func(context.Context, *eirinix.Call, *limitedShop) error { return nil },
				Update: func(context.Context, *eirinix.Call, *limitedShop, *limitedShop) error { return nil },
			}
			v.Settings.FailurePolicy, v.Settings.Mode = policy, mode
			return v
		}
		breaks := shopStep(group)
		breaks.ID, breaks.Settings.Objects = "breaks", settings("broken").Objects
		tills := func(cpu string) []any {
			return []any{map[string]any{}, map[string]any{"limits": map[string]any{"cpu": cpu}}}
		}
		breaks.Apply = func(_ context.Context, _ *eirinix.Call, s *unstructured.Unstructured) error {
			s.Object["tills"] = tills("1y")
			return nil
		}
		typed := eirinix.Mutation[*limitedShop]{
			ID: "typed", Settings: settings("broken"), Apply: func(context.Context, *eirinix.Call, *limitedShop) error { return nil },
		}
		typed.Settings.Rules = breaks.Settings.Rules
		c := anyClient()
		Expect(c.Create(ctx, definition(group))).To(Succeed())
		DeferCleanup(c.Delete, definition(group))
		m := eirinix.NewManager(o)
		for _, step := range []any{
			validation("fails", admissionregistrationv1.Fail, eirinix.ModeDeny), validation("ignores", admissionregistrationv1.Ignore, eirinix.ModeDeny),
			validation("warns", admissionregistrationv1.Fail, eirinix.ModeWarn), validation("shades", admissionregistrationv1.Fail, eirinix.ModeShadow), breaks, typed,
		} {
			Expect(m.AddExtension(step)).To(Succeed())
		}
		runManager(ctx, m)
		config := controlPlane().Config()
		config.WarningHandler = warnings
		c, err := client.New(config, client.Options{})
		Expect(err).NotTo(HaveOccurred())
		shop := func(name, rule, cpu string) *unstructured.Unstructured {
			s := newShop(group, namespace, name)
			s.SetLabels(map[string]string{"rule": rule})
			s.Object["tills"] = tills(cpu)
			return s
		}
		denied := And(Satisfy(apierrors.IsBadRequest), MatchError(ContainSubstring(
			"denied the request: tills[1].limits.cpu cannot be read: quantities must match the regular expression")))
		Eventually(func() error { return c.Create(ctx, shop("a", "fails", "1x"), client.DryRunAll) }).
			WithContext(ctx).WithTimeout(patience).Should(denied)
		Expect(c.Create(ctx, shop("a", "fails", "1"))).To(Succeed())
		Expect(c.Create(ctx, shop("b", "ignores", "1x"))).To(Succeed())
		warnings.take()
		Expect(c.Create(ctx, shop("c", "warns", "1x"))).To(Succeed())
		Expect(warnings.take()).To(ConsistOf(ContainSubstring(`step "warns" would deny this: tills[1].limits.cpu cannot be read`)))

		Expect(c.Create(ctx, shop("e", "shades", "1x"))).To(Succeed())
		Eventually(func() map[string]float64 { return decisionsOf("shades") }).WithContext(ctx).WithTimeout(patience).
			Should(And(HaveKeyWithValue("would_deny CREATE", 1.), Not(HaveKey("would_fail CREATE"))))

		By("an object that an earlier step broke")
		broken := c.Create(ctx, shop("d", "broken", "1"))
		Expect(broken).To(And(Satisfy(apierrors.IsInternalError), MatchError(MatchRegexp(`failed calling webhook .*step .*typed.* failed: the object cannot be read`))))

		By("an old object")
		old := c.Patch(ctx, shop("b", "fails", "1"), client.Merge)
		Expect(old).To(And(Satisfy(apierrors.IsInternalError), MatchError(MatchRegexp(`failed calling webhook .*step .*fails.* failed: the object cannot be read`))))
	}, SpecTimeout(3*patience))
})
