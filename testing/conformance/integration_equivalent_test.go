package conformance_test

// This file plays rules: of two versions of one kind, and for every resource that the API server serves.

import (
	"context"
	"fmt"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/internal/chain"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
)

var _ = Describe("S30 Two versions of one kind", Label("S30"), func() {
	// seen records two versions of a call: the one that the step registered for, and the one that the user sent.
	seen := func(calls *callLog, step string, c *eirinix.Call, apiVersion string) {
		calls.add(step, "sees", apiVersion, "as", c.Kind.Version+"/"+c.Resource.Version, "sent", c.RequestKind.Version+"/"+c.RequestResource.Version)
	}

	eachMode(func(mode mode) {
		DescribeTable("custom, and steps without Go type", func(ctx SpecContext, policy admissionregistrationv1.MatchPolicyType, expected func(group, sent string) []string) {
			namespace, calls := newNamespace(ctx), &callLog{}
			c := crdOf("equivalent")
			c.install(ctx, crdVersion("v1", true), crdVersion("v2", false))
			var steps []any
			for _, version := range []string{"v1", "v2"} {
				settings := eirinix.Settings{MatchPolicy: policy, Rules: ruleFor(c.group, version, []string{"gadgets"}, created, updated)}
				steps = append(steps,
					eirinix.Mutation[*unstructured.Unstructured]{
						ID: "m-" + version, Settings: settings,
						Apply: func(_ context.Context, c *eirinix.Call, u *unstructured.Unstructured) error {
							seen(calls, "m-"+version, c, u.GetAPIVersion())
							return unstructured.SetNestedField(u.Object, "was here", "data", version)
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
					})
			}
			serve(ctx, mode, namespace, nil, steps...)
			for _, sent := range []string{"v1", "v2"} {
				objects := c.objects(namespace, sent)
				made, err := objects.Create(ctx, c.object(sent, "of-"+sent, nil), metav1.CreateOptions{})
				Expect(err).NotTo(HaveOccurred())
				all := expected(c.group, sent)
				Expect(calls.take()).To(ConsistOf(all))
				Expect(made.Object["data"]).To(HaveLen(len(all)/2), "each mutation is in the stored object")
				Expect(made.GetAPIVersion()).To(Equal(c.group + "/" + sent))

				made.SetAnnotations(map[string]string{"touched": "yes"})
				_, err = objects.Update(ctx, made, metav1.UpdateOptions{})
				Expect(err).NotTo(HaveOccurred())
				Expect(calls.take()).To(ConsistOf(all))
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

// operationsOf are the operations that a webhook is asked about for the verbs of a resource.
func operationsOf(r metav1.APIResource) (all []admissionregistrationv1.OperationType) {
	_, sub, _ := strings.Cut(r.Name, "/")
	if slices.Contains([]string{"exec", "attach", "portforward", "proxy"}, sub) {
		return []admissionregistrationv1.OperationType{admissionregistrationv1.Connect}
	}
	for verb, operation := range map[string]admissionregistrationv1.OperationType{"create": created, "update": updated, "delete": deleted} {
		if slices.Contains(r.Verbs, verb) {
			all = append(all, operation)
		}
	}
	return all
}

var _ = Describe("S23 Every resource", Label("S23"), func() {
	It("is matched by the rules that name it and by wildcards, for every verb, and by no other", func(SpecContext) {
		_, lists, err := clients().Discovery().ServerGroupsAndResources()
		Expect(err).NotTo(HaveOccurred())
		played := 0
		for _, list := range lists {
			version := Must(schema.ParseGroupVersion(list.GroupVersion))
			for _, r := range list.APIResources {
				parent, sub, _ := strings.Cut(r.Name, "/")
				wildcard, others := "*", "*/other"
				if sub != "" {
					wildcard, others = parent+"/*", parent
				}
				for _, operation := range operationsOf(r) {
					played++
					request := &admissionv1.AdmissionRequest{
						Operation: admissionv1.Operation(operation), SubResource: sub, Name: "a",
						Resource: metav1.GroupVersionResource{Group: version.Group, Version: version.Version, Resource: parent},
					}
					if r.Namespaced {
						request.Namespace = "default"
					}
					matches := func(rules []admissionregistrationv1.RuleWithOperations) bool {
						return Must(chain.NewMatcher(rules, nil, nil)).Matches(request)
					}
					for _, resource := range []string{r.Name, wildcard, "*/*"} {
						Expect(matches(ruleFor(version.Group, version.Version, []string{resource}, operation))).To(BeTrue(), "%s of %s by %s", operation, r.Name, resource)
					}
					Expect(matches(ruleFor("*", "*", []string{"*/*"}, admissionregistrationv1.OperationAll))).To(BeTrue(), "%s of %s", operation, r.Name)
					for _, rules := range [][]admissionregistrationv1.RuleWithOperations{
						ruleFor(version.Group, version.Version, []string{others}, operation),
						ruleFor("other.example.org", "*", []string{"*/*"}, operation),
						ruleFor("*", "v0", []string{"*/*"}, operation),
						ruleFor("*", "*", []string{"*/*"}, "OTHER"),
					} {
						Expect(matches(rules)).To(BeFalse(), "%s of %s by %v", operation, r.Name, rules)
					}
				}
			}
		}
		Expect(played).To(BeNumerically(">", 150), "discovery is complete")
	}, SpecTimeout(patience))

	// virtualRelease is the minor release since which the API server calls no webhook for reviews of its callers (feature
	// gate ExcludeAdmissionWebhookVirtualResources, beta).
	const virtualRelease = 37

	DescribeTable("that is a review, and never stored, is sent before Kubernetes 1.37, and not since then", func(ctx SpecContext, resource string, warns bool) {
		heard, called := &overheard{}, &callLog{}
		serve(ctx, serviceMode, newNamespace(ctx), func(o *eirinix.ManagerOptions) {
			o.RestConfig = controlPlane().Config()
			o.RestConfig.WarningHandler = heard
		}, eirinix.Validation[*unstructured.Unstructured]{
			ID: "reviews",
			Settings: eirinix.Settings{
				Rules:         ruleFor("authentication.k8s.io", "v1", []string{resource}, created),
				FailurePolicy: admissionregistrationv1.Ignore, AllowClusterCritical: true,
			},
			Create: func(context.Context, *eirinix.Call, *unstructured.Unstructured) error {
				called.add("review")
				return nil
			},
		})
		_, err := clients().AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		excluded := ContainElement("webhooks[0].rules[0]: selfsubjectreviews.authentication.k8s.io is excluded from admission webhooks; this rule will have no effect")
		if has(virtualRelease) && warns {
			Expect(heard.list()).To(excluded)
		} else {
			Expect(heard.list()).NotTo(excluded)
		}
		Expect(called.list()).To(HaveLen(map[bool]int{true: 0, false: 1}[has(virtualRelease)]))
	},
		Entry("where a rule names it, which gets a warning", "selfsubjectreviews", true, SpecTimeout(2*patience)),
		Entry("by a wildcard, without a warning", "*", false, SpecTimeout(2*patience)),
	)
})
