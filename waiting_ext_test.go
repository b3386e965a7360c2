package eirinix_test

// This file specifies steps about kinds that a CustomResourceDefinition adds to a cluster.

import (
	"context"
	"maps"
	"net/http"
	"sync"
	"sync/atomic"

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
	. "code.cloudfoundry.org/eirinix/internal/spectest"
)

// anyClient reads and writes objects of any kind.
func anyClient() client.Client {
	GinkgoHelper()
	return Must(client.New(controlPlane().Config(), client.Options{Scheme: runtime.NewScheme()}))
}

// definition is that of the kind Shop in a group of the spec's own.
func definition(group string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": "shops." + group},
		"spec": map[string]any{
			"group": group, "scope": "Namespaced",
			"names": map[string]any{"kind": "Shop", "plural": "shops", "singular": "shop", "listKind": "ShopList"},
			"versions": []any{map[string]any{
				"name": "v1", "served": true, "storage": true,
				"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
			}},
		},
	}}
}

func newShop(group, namespace, name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": group + "/v1", "kind": "Shop", "metadata": map[string]any{"namespace": namespace, "name": name},
	}}
}

// shopStep opens shops.
func shopStep(group string) eirinix.Mutation[*unstructured.Unstructured] {
	return eirinix.Mutation[*unstructured.Unstructured]{
		ID: "shop-defaults",
		Settings: eirinix.Settings{Rules: []admissionregistrationv1.RuleWithOperations{{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{group}, APIVersions: []string{"v1"}, Resources: []string{"shops"}},
		}}},
		Apply: func(_ context.Context, _ *eirinix.Call, shop *unstructured.Unstructured) error {
			return unstructured.SetNestedField(shop.Object, true, "open")
		},
	}
}

var _ = Describe("A step about a kind that the cluster does not serve yet", Label("api-server"), func() {
	var namespace, group string
	BeforeEach(func(ctx SpecContext) {
		namespace = newNamespace(ctx)
		group = namespace + ".example.org"
	})

	opens := func(ctx context.Context) {
		GinkgoHelper()
		c := anyClient()
		Expect(c.Create(ctx, definition(group))).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { Expect(c.Delete(ctx, definition(group))).To(Succeed()) })
		Eventually(func(g Gomega) {
			shop := newShop(group, namespace, "corner")
			_ = c.Delete(ctx, shop)
			g.Expect(c.Create(ctx, shop)).To(Succeed())
			g.Expect(shop.Object).To(HaveKeyWithValue("open", true))
		}).WithContext(ctx).WithTimeout(patience).Should(Succeed())
	}

	It("holds back its own step alone, and is registered once it can be, without a call of the others lost", func(ctx SpecContext) {
		o := urlOptions(namespace)
		logger, logs := Observed()
		o.Logger = logger
		m := managerOf(o, shopStep(group), eirinix.Validation[*corev1.ConfigMap]{ID: "never", Create: func(context.Context, *eirinix.Call, *corev1.ConfigMap) error {
			return eirinix.Deny("no config maps")
		}})
		runManager(ctx, m)
		Expect(logs.FilterMessageSnippet("a step waits until the cluster serves its kind").All()).To(HaveExactElements(HaveField("ContextMap()", And(
			HaveKeyWithValue("step", "shop-defaults"), HaveKeyWithValue("reason", And(ContainSubstring("shops"), ContainSubstring(group)))))))
		Expect(certificateMetrics(namespace)["eirinix_registration_waiting kind"]).To(BeEquivalentTo(1))

		var skipped, unready atomic.Int32
		stop, refusing := make(chan struct{}), sync.WaitGroup{}
		refusing.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if _, err := clients().CoreV1().ConfigMaps(namespace).Create(ctx, newConfigMap("skipped", nil), metav1.CreateOptions{DryRun: []string{"All"}}); err == nil {
					skipped.Add(1)
				}
				if health(m, "/readyz") != http.StatusOK {
					unready.Add(1)
				}
			}
		})
		opens(ctx)
		close(stop)
		refusing.Wait()
		Expect(skipped.Load()).To(BeZero())
		Expect(unready.Load()).To(BeZero(), "all replicas come to know of a kind at the same time")
		Eventually(func() float64 { return certificateMetrics(namespace)["eirinix_registration_waiting kind"] }).WithContext(ctx).WithTimeout(patience).Should(BeZero())
		Expect(m.Diagnose(ctx).Err()).To(Succeed())
	}, SpecTimeout(3*patience))
})

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
		validation := func(rule string, policy admissionregistrationv1.FailurePolicyType, mode eirinix.Mode) eirinix.Validation[*limitedShop] {
			return eirinix.Validation[*limitedShop]{
				ID:       rule,
				Settings: eirinix.Settings{Objects: &metav1.LabelSelector{MatchLabels: map[string]string{"rule": rule}}, FailurePolicy: policy, Mode: mode},
				Create:   func(context.Context, *eirinix.Call, *limitedShop) error { return nil },
				Update:   func(context.Context, *eirinix.Call, *limitedShop, *limitedShop) error { return nil },
			}
		}
		c := anyClient()
		Expect(c.Create(ctx, definition(group))).To(Succeed())
		DeferCleanup(c.Delete, definition(group))
		runManager(ctx, managerOf(o,
			validation("fails", admissionregistrationv1.Fail, eirinix.ModeDeny),
			validation("ignores", admissionregistrationv1.Ignore, eirinix.ModeDeny),
			validation("warns", admissionregistrationv1.Fail, eirinix.ModeWarn)))
		config := controlPlane().Config()
		config.WarningHandler = warnings
		c = Must(client.New(config, client.Options{}))
		shop := func(name, rule, cpu string) *unstructured.Unstructured {
			s := newShop(group, namespace, name)
			s.SetLabels(map[string]string{"rule": rule})
			s.Object["tills"] = []any{map[string]any{}, map[string]any{"limits": map[string]any{"cpu": cpu}}}
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

		By("an old object")
		old := c.Patch(ctx, shop("b", "fails", "1"), client.Merge)
		Expect(old).To(And(Satisfy(apierrors.IsInternalError), MatchError(MatchRegexp(`failed calling webhook .*step .*fails.* failed: the object cannot be read`))))
	}, SpecTimeout(3*patience))
})
