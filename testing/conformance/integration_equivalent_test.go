package conformance_test

import (
	"context"
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"code.cloudfoundry.org/eirinix"
)

// newResource makes a kind of objects of that name in a group of its own, with these versions, the first of
// which is stored. It goes when the spec ends.
func newResource(ctx context.Context, group, kind string, versions ...string) schema.GroupResource {
	GinkgoHelper()
	plural := strings.ToLower(kind) + "s"
	var all []any
	for i, v := range versions {
		all = append(all, map[string]any{
			"name": v, "served": true, "storage": i == 0,
			"schema":       map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
			"subresources": map[string]any{"status": map[string]any{}},
		})
	}
	definitions := dynamicClients().Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	name := plural + "." + group
	_, err := definitions.Create(ctx, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": name},
		"spec": map[string]any{
			"group": group, "scope": "Namespaced", "versions": all,
			"names": map[string]any{"kind": kind, "listKind": kind + "List", "plural": plural, "singular": strings.ToLower(kind)},
		},
	}}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx context.Context) error { return definitions.Delete(ctx, name, metav1.DeleteOptions{}) })
	for _, v := range versions {
		Eventually(func() error {
			_, err := dynamicClients().Resource(schema.GroupVersionResource{Group: group, Version: v, Resource: plural}).List(ctx, metav1.ListOptions{})
			return err
		}).WithContext(ctx).Should(Succeed())
	}
	return schema.GroupResource{Group: group, Resource: plural}
}

var _ = Describe("S30 Two versions of one kind", Label("S30"), func() {
	const create, update, remove = admissionregistrationv1.Create, admissionregistrationv1.Update, admissionregistrationv1.Delete

	// seen records two versions of a call: the one that the step registered for, and the one that the user sent.
	seen := func(calls *callLog, step string, c *eirinix.Call, apiVersion string) {
		calls.add(step, "sees", apiVersion, "as", c.Kind.Version+"/"+c.Resource.Version, "sent", c.RequestKind.Version+"/"+c.RequestResource.Version)
	}

	eachMode(func(mode mode) {
		DescribeTable("custom, and steps without Go type", func(ctx SpecContext, policy admissionregistrationv1.MatchPolicyType, expected func(group, sent string) []string) {
			namespace, calls := newNamespace(ctx), &callLog{}
			group := strings.ReplaceAll(namespace, "conformance-", "c") + ".example.com"
			resource := newResource(ctx, group, "Gadget", "v1", "v2")
			var steps []any
			for _, version := range []string{"v1", "v2"} {
				settings := eirinix.Settings{MatchPolicy: policy, Rules: ruleFor(group, version, []string{resource.Resource}, create, update, remove)}
				steps = append(steps,
					eirinix.Mutation[*unstructured.Unstructured]{
						ID:       "m-" + version,
						Settings: eirinix.Settings{MatchPolicy: policy, Rules: ruleFor(group, version, []string{resource.Resource}, create, update)},
						Apply: func(_ context.Context, c *eirinix.Call, u *unstructured.Unstructured) error {
							seen(calls, "m-"+version, c, u.GetAPIVersion())
							return unstructured.SetNestedField(u.Object, "was here", "spec", version)
						},
					},
					eirinix.Validation[*unstructured.Unstructured]{
						ID: "v-" + version, Settings: settings,
						Create: func(_ context.Context, c *eirinix.Call, u *unstructured.Unstructured) error {
							seen(calls, "v-"+version, c, u.GetAPIVersion())
							return nil
						},
						Update: func(_ context.Context, c *eirinix.Call, old, now *unstructured.Unstructured) error {
							seen(calls, "v-"+version, c, now.GetAPIVersion())
							if old.GetAPIVersion() != now.GetAPIVersion() {
								return fmt.Errorf("old is %s, new is %s", old.GetAPIVersion(), now.GetAPIVersion())
							}
							return nil
						},
						Delete: func(_ context.Context, c *eirinix.Call, u *unstructured.Unstructured) error {
							seen(calls, "v-"+version, c, u.GetAPIVersion())
							return nil
						},
					})
			}
			serve(ctx, mode, namespace, nil, steps...)
			for _, sent := range []string{"v1", "v2"} {
				client := dynamicClients().Resource(resource.WithVersion(sent)).Namespace(namespace)
				made, err := client.Create(ctx, &unstructured.Unstructured{Object: map[string]any{
					"apiVersion": group + "/" + sent, "kind": "Gadget", "metadata": map[string]any{"name": "of-" + sent},
				}}, metav1.CreateOptions{})
				Expect(err).NotTo(HaveOccurred())
				all := expected(group, sent)
				Expect(calls.take()).To(ConsistOf(all))
				spec, _, _ := unstructured.NestedStringMap(made.Object, "spec")
				Expect(spec).To(HaveLen(len(all)/2), "each mutation is in the stored object")
				Expect(made.GetAPIVersion()).To(Equal(group + "/" + sent))

				made.SetAnnotations(map[string]string{"touched": "yes"})
				_, err = client.Update(ctx, made, metav1.UpdateOptions{})
				Expect(err).NotTo(HaveOccurred())
				Expect(calls.take()).To(ConsistOf(all))
				Expect(client.Delete(ctx, made.GetName(), metav1.DeleteOptions{})).To(Succeed())
				Expect(calls.take()).To(HaveLen(len(all)/2), "the mutations are not registered for DELETE")
			}
		},
			Entry("are all called under Equivalent, each with the version it registered for: 4 calls", admissionregistrationv1.Equivalent, func(group, sent string) (all []string) {
				for _, v := range []string{"v1", "v2"} {
					for _, kind := range []string{"m", "v"} {
						all = append(all, fmt.Sprintf("%s-%s sees %s/%s as %s/%s sent %s/%s", kind, v, group, v, v, v, sent, sent))
					}
				}
				return all
			}, SpecTimeout(3*patience)),
			Entry("are called for their own version alone under Exact", admissionregistrationv1.Exact, func(group, sent string) []string {
				return []string{
					fmt.Sprintf("m-%s sees %s/%s as %s/%s sent %s/%s", sent, group, sent, sent, sent, sent, sent),
					fmt.Sprintf("v-%s sees %s/%s as %s/%s sent %s/%s", sent, group, sent, sent, sent, sent, sent),
				}
			}, SpecTimeout(3*patience)),
		)

		It("built in, and typed steps: each gets its own Go type, and its change is in the other version too", func(ctx SpecContext) {
			namespace, calls := newNamespace(ctx), &callLog{}
			serve(ctx, mode, namespace, nil,
				eirinix.Mutation[*autoscalingv1.HorizontalPodAutoscaler]{ID: "one", Apply: func(_ context.Context, c *eirinix.Call, h *autoscalingv1.HorizontalPodAutoscaler) error {
					seen(calls, "one", c, h.APIVersion)
					h.Spec.TargetCPUUtilizationPercentage = new(int32(42))
					return nil
				}},
				eirinix.Mutation[*autoscalingv2.HorizontalPodAutoscaler]{ID: "two", Apply: func(_ context.Context, c *eirinix.Call, h *autoscalingv2.HorizontalPodAutoscaler) error {
					seen(calls, "two", c, h.APIVersion)
					h.Spec.Behavior = &autoscalingv2.HorizontalPodAutoscalerBehavior{ScaleDown: &autoscalingv2.HPAScalingRules{StabilizationWindowSeconds: new(int32(7))}}
					return nil
				}})
			for _, sent := range []string{"v1", "v2"} {
				_, err := dynamicClients().Resource(schema.GroupVersionResource{Group: "autoscaling", Version: sent, Resource: "horizontalpodautoscalers"}).Namespace(namespace).
					Create(ctx, &unstructured.Unstructured{Object: map[string]any{
						"apiVersion": "autoscaling/" + sent, "kind": "HorizontalPodAutoscaler", "metadata": map[string]any{"name": "of-" + sent},
						"spec": map[string]any{"maxReplicas": int64(3), "scaleTargetRef": map[string]any{"kind": "Deployment", "name": "web", "apiVersion": "apps/v1"}},
					}}, metav1.CreateOptions{})
				Expect(err).NotTo(HaveOccurred())
				Expect(calls.take()).To(Equal([]string{
					fmt.Sprintf("one sees autoscaling/v1 as v1/v1 sent %s/%s", sent, sent),
					fmt.Sprintf("two sees autoscaling/v2 as v2/v2 sent %s/%s", sent, sent),
				}))
				stored, err := clients().AutoscalingV2().HorizontalPodAutoscalers(namespace).Get(ctx, "of-"+sent, metav1.GetOptions{})
				Expect(err).NotTo(HaveOccurred())
				Expect(stored.Spec.Metrics).To(ConsistOf(HaveField("Resource.Target.AverageUtilization", HaveValue(BeEquivalentTo(42)))))
				Expect(stored.Spec.Behavior.ScaleDown.StabilizationWindowSeconds).To(HaveValue(BeEquivalentTo(7)))
			}
		}, SpecTimeout(2*patience))
	})
})
