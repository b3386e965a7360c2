package conformance_test

import (
	"context"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"

	"code.cloudfoundry.org/eirinix"
)

const startKey = "mutation-start"

func stageKey(n int) string { return fmt.Sprintf("mutation-stage-%d", n) }

// stages is the data that has passed the first n stages.
func stages(n int) map[string]string {
	data := map[string]string{startKey: "yes"}
	for i := range n {
		data[stageKey(i+1)] = "yes"
	}
	return data
}

// passStage adds the key of stage n to data that has the key before it.
func passStage(data map[string]string, n int) {
	before := startKey
	if n > 1 {
		before = stageKey(n - 1)
	}
	if data[before] == "yes" {
		data[stageKey(n)] = "yes"
	}
}

// stage is a Mutation of config maps, called when they are made.
func stage(n int, settings eirinix.Settings) eirinix.Mutation[*corev1.ConfigMap] {
	if settings.Rules == nil {
		settings.Rules = rules("", "v1", "configmaps", admissionregistrationv1.Create)
	}
	return eirinix.Mutation[*corev1.ConfigMap]{
		ID: fmt.Sprintf("stage-%d", n), Settings: settings,
		Apply: func(_ context.Context, _ *eirinix.Call, c *corev1.ConfigMap) error {
			passStage(c.Data, n)
			return nil
		},
	}
}

// rules is one rule for one resource.
func rules(group, version, resource string, operations ...admissionregistrationv1.OperationType) []admissionregistrationv1.RuleWithOperations {
	return []admissionregistrationv1.RuleWithOperations{{
		Operations: operations,
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{group}, APIVersions: []string{version}, Resources: []string{resource}},
	}}
}

var _ = Describe("A mutating webhook", func() {
	eachMode(func(mode mode) {
		var namespace string
		BeforeEach(func(ctx SpecContext) { namespace = newNamespace(ctx) })

		DescribeTable("sees the changes of the one before it to a config map", Label("S6"),
			func(ctx SpecContext, isolated bool, entries int) {
				m := serve(ctx, mode, namespace, nil,
					stage(1, eirinix.Settings{Isolated: isolated}), stage(2, eirinix.Settings{Isolated: isolated}))
				Expect(mutatingConfiguration(ctx, m).Webhooks).To(HaveLen(entries + 2)) // and the marker, and the canary
				Expect(createConfigMap(ctx, namespace, newConfigMap("staged", stages(0)))).To(HaveField("Data", Equal(stages(2))))
				Expect(createConfigMap(ctx, namespace, newConfigMap("other", map[string]string{"a": "b"}))).
					To(HaveField("Data", Equal(map[string]string{"a": "b"})))
			},
			Entry("in a call of its own each", true, 2, SpecTimeout(2*patience)),
			Entry("in one call", false, 1, SpecTimeout(2*patience)),
		)

		It("sees the changes of another program's", Label("S6"), func(ctx SpecContext) {
			// The API server calls configurations in the order of their names.
			serve(ctx, mode, namespace, func(o *eirinix.ManagerOptions) { o.OperatorFingerprint += "-a" }, stage(1, eirinix.Settings{}))
			serve(ctx, mode, namespace, func(o *eirinix.ManagerOptions) { o.OperatorFingerprint += "-b" }, stage(2, eirinix.Settings{}))
			Expect(createConfigMap(ctx, namespace, newConfigMap("staged", stages(0)))).To(HaveField("Data", Equal(stages(2))))
		}, SpecTimeout(2*patience))

		It("has its additions to a pod defaulted", Label("S7"), func(ctx SpecContext) {
			serve(ctx, mode, namespace, nil, eirinix.Mutation[*corev1.Pod]{
				Settings: eirinix.Settings{Rules: rules("", "v1", "pods", admissionregistrationv1.Create)},
				Apply: func(_ context.Context, _ *eirinix.Call, p *corev1.Pod) error {
					p.Spec.InitContainers = append(p.Spec.InitContainers, corev1.Container{Name: "webhook-added-init-container", Image: "setup:1"})
					return nil
				},
			})
			created, err := createPod(ctx, namespace, newPod("webhook-to-be-mutated"))
			Expect(err).NotTo(HaveOccurred())
			Expect(created.Spec.InitContainers).To(ConsistOf(And(
				HaveField("Name", "webhook-added-init-container"),
				HaveField("TerminationMessagePolicy", corev1.TerminationMessageReadFile))))
		}, SpecTimeout(2*patience))

		DescribeTable("is called only for objects that meet its matchConditions", Label("S22"),
			func(ctx SpecContext, isolated bool) {
				serve(ctx, mode, namespace, nil, stage(1, eirinix.Settings{Isolated: isolated, Conditions: []admissionregistrationv1.MatchCondition{
					{Name: "skip-me", Expression: "object.metadata.name != 'skip-me'"},
				}}))
				Expect(createConfigMap(ctx, namespace, newConfigMap("skip-me", stages(0)))).To(HaveField("Data", Equal(stages(0))))
				Expect(createConfigMap(ctx, namespace, newConfigMap("change-me", stages(0)))).To(HaveField("Data", Equal(stages(1))))
			},
			Entry("in a call of its own", true, SpecTimeout(2*patience)),
			Entry("in an entry that is named after them", false, SpecTimeout(2*patience)),
		)
	})
})
