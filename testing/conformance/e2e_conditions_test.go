package conformance_test

import (
	"io"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/preview"
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

		By("asking the library without a cluster")
		o := optionsFor(ctx, urlMode, newNamespace(ctx))
		o.Port = 4545 // for Managers that register without serving
		bare := func() *eirinix.ExtensionManager {
			again := eirinix.NewManager(o)
			Expect(again.AddExtension(step(bad))).To(Succeed())
			return again
		}
		Expect(bare().Validate()).To(Succeed(), "it compiles nothing")
		Expect(preview.Command(ctx, bare(), []string{"-"}, func(o *preview.Options) {
			o.Stdin, o.Stdout, o.Stderr = strings.NewReader("{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}"), io.Discard, io.Discard
		})).To(MatchError(And(ContainSubstring("correct Settings.Conditions"), ContainSubstring(causes[0].Message))), "for the same reason")

		By("starting it, and registering")
		configuration := o.OperatorFingerprint + "-" + string(kind) + "-hook"
		fail := MatchError(And(ContainSubstring(configuration), ContainSubstring(causes[0].Field+": "+causes[0].Message)))
		again := bare()
		Expect(again.Run(ctx)).To(fail)
		Expect(again.Ready()).NotTo(BeClosed())
		Expect(bare().RegisterExtensions()).To(fail)
		hooks := clients().AdmissionregistrationV1()
		_, err = hooks.MutatingWebhookConfigurations().Get(ctx, o.OperatorFingerprint+"-mutating-hook", metav1.GetOptions{})
		Expect(err).To(Satisfy(apierrors.IsNotFound))
		_, err = hooks.ValidatingWebhookConfigurations().Get(ctx, o.OperatorFingerprint+"-validating-hook", metav1.GetOptions{})
		Expect(err).To(Satisfy(apierrors.IsNotFound))
	}
	for kind, scenario := range map[kind]string{validating: "S20", mutating: "S21"} {
		DescribeTable("is refused by the API server, which ends the start, and by a preview for the same reason, "+string(kind), Label(scenario), refused,
			Entry("a syntax error", kind, "object.metadata.name ==", "compilation failed", SpecTimeout(2*patience)),
			Entry("the project's own example", kind, "... [] bad expression", "compilation failed", SpecTimeout(2*patience)),
			Entry("an unknown variable", kind, "unknown.name == 'a'", "compilation failed", SpecTimeout(2*patience)),
			Entry("not a boolean", kind, "object.metadata.name + 'a'", "must evaluate to bool", SpecTimeout(2*patience)),
		)
	}
})
