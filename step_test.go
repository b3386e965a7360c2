package eirinix

import (
	"context"

	. "github.com/onsi/ginkgo/v2/dsl/core"
	. "github.com/onsi/ginkgo/v2/dsl/table"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// foreign is an object that no scheme knows.
type foreign struct{ corev1.Pod }

var _ = Describe("A typed step", func() {
	apply := func(context.Context, *Call, *corev1.Pod) error { return nil }
	check := func(context.Context, *Call, *corev1.PodExecOptions, *corev1.PodExecOptions) error { return nil }
	validate := func(steps ...any) error {
		m := NewManager(ManagerOptions{Host: "webhook.example.org"})
		for _, s := range steps {
			_ = m.AddExtension(s) // reported again by Validate
		}
		return m.Validate()
	}
	rules := func(resource string) []admissionregistrationv1.RuleWithOperations {
		return []admissionregistrationv1.RuleWithOperations{{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{resource}},
		}}
	}

	It("may be added by value and by pointer, with and without ID", func() {
		s := Mutation[*corev1.Pod]{Apply: apply}
		Expect(validate(s, &s, s, Mutation[*corev1.Pod]{ID: "named", Apply: apply})).To(Succeed())
	})

	DescribeTable("is refused, with the remedy,",
		func(step any, parts ...string) {
			err := validate(step)
			for _, part := range parts {
				Expect(err).To(MatchError(ContainSubstring(part)))
			}
		},
		Entry("without Apply", Mutation[*corev1.Pod]{ID: "x"}, `"x" has no Apply`),
		Entry("without any callback", Validation[*corev1.Pod]{}, "has no callback", "set Create, Update or Delete"),
		Entry("without Check", Subresource[*corev1.PodExecOptions]{}, "has no Check"),
		Entry("without Resource", Subresource[*corev1.PodExecOptions]{Check: check}, "has no Resource"),
		Entry("without Subresource", Subresource[*corev1.PodExecOptions]{Check: check, Resource: corev1.SchemeGroupVersion.WithResource("pods")}, "has no Subresource"),
		Entry("for an interface", Mutation[client.Object]{Apply: func(context.Context, *Call, client.Object) error { return nil }}, "must be a pointer to an API type"),
		Entry("for a type that the scheme does not know", Mutation[*foreign]{Apply: func(context.Context, *Call, *foreign) error { return nil }}, "ManagerOptions.Scheme"),
		Entry("for anything at all", Mutation[*unstructured.Unstructured]{Apply: func(context.Context, *Call, *unstructured.Unstructured) error { return nil }}, "set Settings.Rules"),
		Entry("for a type, with rules for any resource", Mutation[*corev1.Pod]{Apply: apply, Settings: Settings{Rules: rules("*")}}, "may yield another kind"),
		Entry("with an empty condition", Mutation[*corev1.Pod]{ID: "cel", Apply: apply, Settings: Settings{
			Conditions: []admissionregistrationv1.MatchCondition{{Name: "c", Expression: " "}},
		}}, `"cel"`, "correct Settings.Conditions: matchConditions[0].expression: Required value"),
		Entry("with a timeout beyond the API's", Mutation[*corev1.Pod]{ID: "slow", Apply: apply, Settings: Settings{Timeout: 31e9}}, `"slow"`, "30"),
		Entry("with an unknown policy", Mutation[*corev1.Pod]{ID: "odd", Apply: apply, Settings: Settings{FailurePolicy: "Maybe"}}, `"odd"`, "Maybe"),
	)

	It("may have a condition that does not compile, until the API server is asked to register it", func() {
		Expect(validate(Mutation[*corev1.Pod]{Apply: apply, Settings: Settings{
			Conditions: []admissionregistrationv1.MatchCondition{{Name: "c", Expression: "object.metadata.name =="}},
		}})).To(Succeed())
	})

	It("may be of a type of the KubeManager's scheme, or of a built-in one", func() {
		scheme := runtime.NewScheme()
		scheme.AddKnownTypeWithName(schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Foreign"}, &foreign{})
		kube, err := manager.New(&rest.Config{Host: "https://192.0.2.1"}, manager.Options{Scheme: scheme, Metrics: metricsserver.Options{BindAddress: "0"}})
		Expect(err).NotTo(HaveOccurred())
		m := NewManager(ManagerOptions{Host: "webhook.example.org", KubeManager: kube})
		Expect(m.AddExtension(Mutation[*foreign]{ID: "foreign", Apply: func(context.Context, *Call, *foreign) error { return nil }})).To(Succeed())
		Expect(m.AddExtension(Mutation[*corev1.Pod]{ID: "pod", Apply: apply})).To(Succeed())
		Expect(m.Validate()).To(Succeed())
	})

	It("may not have the name of another", func() {
		Expect(validate(Mutation[*corev1.Pod]{ID: "one", Apply: apply}, Mutation[*corev1.Pod]{ID: "one", Apply: apply})).
			To(MatchError(ContainSubstring(`"one" is already added`)))
	})

	It("can be given a Call that was made by hand", func() {
		c := &Call{}
		c.Warn("unsent")
		c.Annotate("key", "unsent")
	})
})

var _ = Describe("Invalid", func() {
	It("is nothing without faults, and names each of them else", func() {
		Expect(Invalid(nil)).To(Succeed())
		err := Invalid(field.ErrorList{field.Required(field.NewPath("spec", "a"), "say which"), field.Forbidden(field.NewPath("spec", "b"), "not here")})
		Expect(err).To(MatchError(And(ContainSubstring("spec.a"), ContainSubstring("spec.b"))))
		status, ok := err.(interface{ Status() metav1.Status })
		Expect(ok).To(BeTrue())
		Expect(status.Status().Code).To(BeEquivalentTo(422))
		Expect(status.Status().Details.Causes).To(HaveLen(2))
	})
})
