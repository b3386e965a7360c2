package drills_test

import (
	"context"
	"fmt"
	"net"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"code.cloudfoundry.org/eirinix/diagnosis"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
	"code.cloudfoundry.org/eirinix/testing/internal/load"
)

var _ = Describe("A drill", func() {
	Describe("of a caBundle that is out of date", func() {
		stale := func(ctx context.Context, p *program) {
			GinkgoHelper()
			old := NewCA(time.Hour, time.Now()).CertificatePEM
			p.edit(ctx, func(w *admissionregistrationv1.MutatingWebhook) { w.ClientConfig.CABundle = old })
		}

		It("in a split deployment: calls fail, the diagnosis says why, and RegisterExtensions repairs it", func(ctx SpecContext) {
			p := newProgram(ctx, "drill")
			p.registers = false
			m := p.run(ctx)
			stale(ctx, p)
			Eventually(p.failure).WithArguments(ctx).WithContext(ctx).Should(MatchError(ContainSubstring("x509")))
			found := diagnose(ctx, m, diagnosis.UnknownAuthority)
			Expect(found.Object).To(Equal("MutatingWebhookConfiguration " + p.configuration()))
			Expect(found.Message).To(ContainSubstring("caBundle"))
			Expect(found.Remedy).To(ContainSubstring("call RegisterExtensions"))
			Expect(p.manager(true).RegisterExtensions()).To(Succeed())
			p.expectLimit(ctx)
			expectWell(ctx, m, diagnosis.UnknownAuthority)
		}, SpecTimeout(3*patience))

		It("in any other deployment: a replica repairs it", func(ctx SpecContext) {
			p := newProgram(ctx, "drill")
			m := p.run(ctx)
			stale(ctx, p)
			expectWell(ctx, m, diagnosis.UnknownAuthority)
			p.expectLimit(ctx)
		}, SpecTimeout(3*patience))
	})

	It("of a Service without endpoints: calls fail until the pods are ready", func(ctx SpecContext) {
		p := newProgram(ctx, "drill")
		m := p.run(ctx)
		p.service.List(ctx, nil)
		Eventually(p.failure).WithArguments(ctx).WithContext(ctx).Should(MatchError(ContainSubstring("no endpoints available")))
		found := diagnose(ctx, m, diagnosis.NoReadyEndpoints)
		Expect(found.Object).To(ContainSubstring(p.name + "/" + load.ServiceName))
		Expect(found.Remedy).To(ContainSubstring("start the pods"))
		p.service.List(ctx, []string{p.endpoint})
		p.expectLimit(ctx)
		expectWell(ctx, m, diagnosis.NoReadyEndpoints)
	}, SpecTimeout(2*patience))

	It("of four webhooks with Ignore that hang: they eat the request's time, and it fails", Label("slow"), func(ctx SpecContext) {
		p := newProgram(ctx, "drill")
		m := p.run(ctx)
		hole := Must(net.Listen("tcp", "127.0.0.1:0")) // which accepts no connection
		DeferCleanup(hole.Close)
		name, url := "a-slow-"+p.name, "https://"+hole.Addr().String()
		hooks := admin.AdmissionregistrationV1().MutatingWebhookConfigurations()
		c := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name}}
		for i := range 4 {
			c.Webhooks = append(c.Webhooks, admissionregistrationv1.MutatingWebhook{
				Name: fmt.Sprintf("slow-%d.example.org", i), ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: &url},
				Rules: []admissionregistrationv1.RuleWithOperations{{
					Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
					Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
				}},
				NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: p.objects}},
				FailurePolicy:     new(admissionregistrationv1.Ignore), TimeoutSeconds: new(int32(10)),
				SideEffects: new(admissionregistrationv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
			})
		}
		c = Must(hooks.Create(ctx, c, metav1.CreateOptions{}))
		DeferCleanup(func(ctx context.Context) error { return hooks.Delete(ctx, name, metav1.DeleteOptions{}) })
		Eventually(p.failure).WithArguments(ctx).WithContext(ctx).Should(MatchError(Or(ContainSubstring("deadline exceeded"), ContainSubstring("timeout"))))

		found := diagnose(ctx, m, diagnosis.TimeoutsAddUp)
		Expect(found.Message).To(And(ContainSubstring("slow-0.example.org of MutatingWebhookConfiguration "+name+" (10 s)"), ContainSubstring("slow-3.example.org"), ContainSubstring("40 s")))
		Expect(found.Remedy).To(ContainSubstring("lower timeoutSeconds, to 7 each, only where that is long enough"))
		for i := range c.Webhooks {
			c.Webhooks[i].TimeoutSeconds = new(int32(7))
		}
		Must(hooks.Update(ctx, c, metav1.UpdateOptions{}))
		expectWell(ctx, m, diagnosis.TimeoutsAddUp)
	}, SpecTimeout(5*patience))

	It("of a webhook that rewrites limits: the audit log names it, and Reinvoke gives the last word back", func(ctx SpecContext) {
		p, rewriter := newProgram(ctx, "drill"), newProgram(ctx, "rewriter") // which comes later in the alphabet
		p.run(ctx)
		rewriter.objects, rewriter.limit, rewriter.registers = p.objects, "1Gi", false
		rewriter.run(ctx)
		Expect(p.create(ctx)).To(Equal("1Gi"), "without a word to the user")
		Eventually(changedBy).WithArguments(p.objects).WithContext(ctx).Should(ContainElement(rewriter.configuration()))
		p.stop(ctx)
		p.settings.Reinvoke = admissionregistrationv1.IfNeededReinvocationPolicy
		p.run(ctx)

		By("which does not help against one that is called again, too")
		again := func(policy admissionregistrationv1.ReinvocationPolicyType) {
			rewriter.edit(ctx, func(w *admissionregistrationv1.MutatingWebhook) { w.ReinvocationPolicy = &policy })
		}
		again(admissionregistrationv1.IfNeededReinvocationPolicy)
		rewriter.expectLimit(ctx)
		again(admissionregistrationv1.NeverReinvocationPolicy)
		p.expectLimit(ctx)
	}, SpecTimeout(3*patience))

	It("of a webhook that blocks its own program's restart: the diagnosis names it, and registration prevents it", func(ctx SpecContext) {
		p := newProgram(ctx, "drill")
		p.registers = false
		p.run(ctx)
		p.edit(ctx, func(w *admissionregistrationv1.MutatingWebhook) { w.NamespaceSelector, w.ObjectSelector = nil, nil })
		p.stop(ctx)
		p.expectBlocked(ctx)
		laptop := p.manager(false)
		found := diagnose(ctx, laptop, diagnosis.BlocksItself)
		Expect(found.Severity).To(Equal(diagnosis.Problem))
		Expect(found.Object).To(ContainSubstring(p.configuration()))
		Expect(found.Message).To(ContainSubstring("none can start"))
		Expect(found.Remedy).To(ContainSubstring("call RegisterExtensions"))
		Expect(p.manager(true).RegisterExtensions()).To(Succeed())
		p.expectRestart(ctx)
		p.run(ctx)
		expectWell(ctx, laptop, diagnosis.BlocksItself)
	}, SpecTimeout(3*patience))

	It("of such a webhook that the program's own Settings ask for: the diagnosis names the field", func(ctx SpecContext) {
		p := newProgram(ctx, "drill")
		p.settings.AllowClusterCritical = true
		within := func(namespaces ...string) *metav1.LabelSelector {
			return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{
				Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpIn, Values: namespaces,
			}}}
		}
		p.settings.Namespaces = within(p.name, p.objects)
		p.run(ctx)
		p.stop(ctx)
		p.expectBlocked(ctx)
		found := diagnose(ctx, p.manager(false), diagnosis.BlocksItself)
		Expect(found.Severity).To(Equal(diagnosis.Warning), "it was asked for")
		Expect(found.Remedy).To(HavePrefix("leave Namespace " + p.name + " out in Settings.Namespaces of step limits, or except this program's pods with Settings.Conditions"))
		p.settings.AllowClusterCritical, p.settings.Namespaces = false, within(p.objects)
		Expect(p.manager(true).RegisterExtensions()).To(Succeed())
		p.expectRestart(ctx)
		expectWell(ctx, p.run(ctx), diagnosis.BlocksItself)
	}, SpecTimeout(3*patience))

	It("of another program's webhook that blocks the restart: the diagnosis names it", func(ctx SpecContext) {
		p, other := newProgram(ctx, "drill"), newProgram(ctx, "other")
		m := p.run(ctx)
		other.registers = false
		other.run(ctx)
		other.edit(ctx, func(w *admissionregistrationv1.MutatingWebhook) {
			w.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: p.name}}
		})
		other.stop(ctx)
		p.expectBlocked(ctx)
		found := diagnose(ctx, m, diagnosis.Shadowed)
		Expect(found.Message).To(And(ContainSubstring("MutatingWebhookConfiguration "+other.configuration()), ContainSubstring("pods that this program runs in")))
		Expect(found.Remedy).To(And(HavePrefix("repair it"), ContainSubstring("only if its program is gone for good")))
		Expect(admin.AdmissionregistrationV1().MutatingWebhookConfigurations().Delete(ctx, other.configuration(), metav1.DeleteOptions{})).To(Succeed())
		p.expectRestart(ctx)
		expectWell(ctx, m, diagnosis.Shadowed)
	}, SpecTimeout(3*patience))
})
