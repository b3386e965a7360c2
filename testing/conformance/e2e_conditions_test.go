package conformance_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"code.cloudfoundry.org/eirinix"
)

// A configuration that is refused is never called, so there is one mode.
var _ = Describe("A matchCondition that does not compile", func() {
	refused := func(ctx SpecContext, kind kind, expression, because string) {
		namespace := newNamespace(ctx)
		step := func(conditions ...admissionregistrationv1.MatchCondition) any {
			return affect(kind, "step", eirinix.Settings{Rules: rules("", "v1", "configmaps", created), Conditions: conditions})
		}
		bad := admissionregistrationv1.MatchCondition{Name: "bad", Expression: expression}

		By("asking the API server")
		m := serve(ctx, urlMode, namespace, nil, step())
		f := foreignTo(ctx, m, kind, namespace, namespace)
		f.Webhook.MatchConditions = []admissionregistrationv1.MatchCondition{bad}
		err := f.create(ctx, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		Expect(err).To(And(Satisfy(apierrors.IsInvalid), MatchError(ContainSubstring(because))))
		causes := err.(apierrors.APIStatus).Status().Details.Causes
		Expect(causes).To(ConsistOf(HaveField("Field", "webhooks[0].matchConditions[0].expression")))

		By("asking the library, before anything is written")
		again := eirinix.NewManager(optionsFor(ctx, urlMode, newNamespace(ctx)))
		Expect(again.AddExtension(step(bad))).To(Succeed())
		Expect(again.Validate()).To(MatchError(And(
			ContainSubstring(`extension "step": mend Settings.Conditions: matchConditions[0].expression: `),
			ContainSubstring(causes[0].Message))), "for the same reason")
		Expect(again.Run(ctx)).To(MatchError(ContainSubstring(causes[0].Message)))
	}
	for kind, scenario := range map[kind]string{validating: "S20", mutating: "S21"} {
		DescribeTable("is refused by the API server and by Validate alike, "+string(kind), Label(scenario), refused,
			Entry("a syntax error", kind, "object.metadata.name ==", "compilation failed", SpecTimeout(2*patience)),
			Entry("the project's own example", kind, "... [] bad expression", "compilation failed", SpecTimeout(2*patience)),
			Entry("an unknown variable", kind, "unknown.name == 'a'", "compilation failed", SpecTimeout(2*patience)),
			Entry("not a boolean", kind, "object.metadata.name + 'a'", "must evaluate to bool", SpecTimeout(2*patience)),
		)
	}
})
