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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/diagnosis"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
)

var _ = Describe("A drill", func() {
	Describe("of a caBundle that is out of date", func() {
		// stale writes the CA of another time.
		stale := func(ctx context.Context, p *program) {
			GinkgoHelper()
			other := newProgram(ctx, "other")
			other.run(ctx)
			secrets := Must(admin.CoreV1().Secrets(other.name).List(ctx, metav1.ListOptions{})).Items
			Expect(secrets).To(HaveLen(1))
			old := secrets[0].Data["ca.crt"]
			Expect(string(old)).To(HavePrefix("-----BEGIN CERTIFICATE"))
			p.edit(ctx, func(w *admissionregistrationv1.MutatingWebhook) { w.ClientConfig.CABundle = old })
		}

		It("in a split deployment: calls fail, the diagnosis says why, and RegisterExtensions repairs it", func(ctx SpecContext) {
			p := newProgram(ctx, "drill")
			p.registers = false
			m := p.run(ctx)
			stale(ctx, p)
			Eventually(func() error { _, err := p.create(ctx); return err }).WithContext(ctx).Should(MatchError(ContainSubstring("x509")))
			found := diagnose(ctx, m, diagnosis.UnknownAuthority)
			Expect(found.Object).To(Equal("MutatingWebhookConfiguration " + p.configuration()))
			Expect(found.Message).To(ContainSubstring("caBundle"))
			Expect(found.Remedy).To(ContainSubstring("call RegisterExtensions"))
			Expect(p.manager(true).RegisterExtensions()).To(Succeed())
			p.expectLimit(ctx, p.limit)
			expectWell(ctx, m, diagnosis.UnknownAuthority)
		}, SpecTimeout(3*patience))

		It("in any other deployment: a replica repairs it", func(ctx SpecContext) {
			p := newProgram(ctx, "drill")
			m := p.run(ctx)
			stale(ctx, p)
			expectWell(ctx, m, diagnosis.UnknownAuthority)
			p.expectLimit(ctx, p.limit)
		}, SpecTimeout(3*patience))
	})

	It("of a Service without endpoints: calls fail until the pods are ready", func(ctx SpecContext) {
		p := newProgram(ctx, "drill")
		m := p.run(ctx)
		p.list(ctx)
		Eventually(func() error { _, err := p.create(ctx); return err }).WithContext(ctx).Should(MatchError(ContainSubstring("no endpoints available")))
		found := diagnose(ctx, m, diagnosis.NoReadyEndpoints)
		Expect(found.Object).To(ContainSubstring(p.name + "/" + serviceName))
		Expect(found.Remedy).To(ContainSubstring("start the pods"))
		p.list(ctx, p.address)
		p.expectLimit(ctx, p.limit)
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
		Eventually(func() error { _, err := p.create(ctx); return err }).WithContext(ctx).Should(MatchError(Or(ContainSubstring("deadline exceeded"), ContainSubstring("timeout"))))

		found := diagnose(ctx, m, diagnosis.TimeoutsAddUp)
		Expect(found.Message).To(And(ContainSubstring("slow-0.example.org of MutatingWebhookConfiguration "+name+" (10 s)"), ContainSubstring("slow-3.example.org"), ContainSubstring("40 s")))
		Expect(found.Remedy).To(ContainSubstring("lower timeoutSeconds, to 7 each, only where that is long enough"))
		for i := range c.Webhooks {
			c.Webhooks[i].TimeoutSeconds = new(int32(7))
		}
		Must(hooks.Update(ctx, c, metav1.UpdateOptions{}))
		p.expectLimit(ctx, p.limit)
		expectWell(ctx, m, diagnosis.TimeoutsAddUp)
	}, SpecTimeout(5*patience))

	DescribeTable("of such webhooks in one program: it does not start, and registers nothing",
		func(ctx SpecContext, edit func(i int, s *eirinix.Settings)) {
			p := newProgram(ctx, "drill")
			program := func(timeout time.Duration) *eirinix.ExtensionManager {
				m := p.manager(true)
				for i := range 4 {
					s := eirinix.Settings{Timeout: timeout, FailurePolicy: admissionregistrationv1.Ignore}
					edit(i, &s)
					Expect(m.AddExtension(eirinix.Mutation[*corev1.Pod]{
						ID: fmt.Sprintf("slow-%d", i), Settings: s, Apply: func(context.Context, *eirinix.Call, *corev1.Pod) error { return nil },
					})).To(Succeed())
				}
				return m
			}
			refused := MatchError(And(ContainSubstring(`"slow-0" (10s)`), ContainSubstring(`"slow-3" (10s)`), ContainSubstring("lower Settings.Timeout to 30 s together")))
			Expect(program(10 * time.Second).Validate()).To(refused)
			Expect(program(10 * time.Second).RegisterExtensions()).To(refused)
			_, err := admin.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(ctx, p.configuration(), metav1.GetOptions{})
			Expect(err).To(Satisfy(apierrors.IsNotFound))
			Expect(program(7 * time.Second).RegisterExtensions()).To(Succeed())
		},
		Entry("that share calls", func(int, *eirinix.Settings) {}, SpecTimeout(patience)),
		Entry("with calls of their own", func(_ int, s *eirinix.Settings) { s.Isolated = true }, SpecTimeout(patience)),
		Entry("that differ in a policy", func(i int, s *eirinix.Settings) {
			if i > 1 {
				s.Reinvoke, s.MatchPolicy = admissionregistrationv1.IfNeededReinvocationPolicy, admissionregistrationv1.Exact
			}
		}, SpecTimeout(patience)),
	)

	It("of a webhook that rewrites limits: the audit log names it, and Reinvoke gives the last word back", func(ctx SpecContext) {
		p, rewriter := newProgram(ctx, "drill"), newProgram(ctx, "rewriter") // which comes later in the alphabet
		p.run(ctx)
		rewriter.objects, rewriter.limit = p.objects, "1Gi"
		rewriter.run(ctx)
		Expect(p.create(ctx)).To(Equal("1Gi"), "without a word to the user")
		Eventually(func() []string { return changedBy(p.objects) }).WithContext(ctx).Should(ContainElement(rewriter.configuration()))
		p.stop()
		p.settings.Reinvoke = admissionregistrationv1.IfNeededReinvocationPolicy
		p.run(ctx)
		p.expectLimit(ctx, p.limit)
	}, SpecTimeout(3*patience))

	It("of a webhook that is also called again: Reinvoke does not help against it", func(ctx SpecContext) {
		p, rewriter := newProgram(ctx, "drill"), newProgram(ctx, "rewriter")
		p.settings.Reinvoke, rewriter.settings.Reinvoke = admissionregistrationv1.IfNeededReinvocationPolicy, admissionregistrationv1.IfNeededReinvocationPolicy
		p.run(ctx)
		rewriter.objects, rewriter.limit, rewriter.registers = p.objects, "1Gi", false
		rewriter.run(ctx)
		Expect(p.create(ctx)).To(Equal("1Gi"))
		rewriter.edit(ctx, func(w *admissionregistrationv1.MutatingWebhook) {
			w.ReinvocationPolicy = new(admissionregistrationv1.NeverReinvocationPolicy)
		})
		p.expectLimit(ctx, p.limit)
	}, SpecTimeout(3*patience))

	It("of a webhook that blocks its own program's restart: the diagnosis names it, and registration prevents it", func(ctx SpecContext) {
		p := newProgram(ctx, "drill")
		p.registers = false
		p.run(ctx)
		p.edit(ctx, func(w *admissionregistrationv1.MutatingWebhook) { w.NamespaceSelector, w.ObjectSelector = nil, nil })
		p.stop()
		p.list(ctx)
		Eventually(func() error { return p.restart(ctx, p.labels()) }).WithContext(ctx).Should(MatchError(ContainSubstring("no endpoints available")))
		laptop := p.manager(false)
		found := diagnose(ctx, laptop, diagnosis.BlocksItself)
		Expect(found.Severity).To(Equal(diagnosis.Problem))
		Expect(found.Object).To(ContainSubstring(p.configuration()))
		Expect(found.Message).To(ContainSubstring("none can start"))
		Expect(found.Remedy).To(ContainSubstring("call RegisterExtensions"))
		Expect(p.manager(true).RegisterExtensions()).To(Succeed())
		Eventually(func() error { return p.restart(ctx, p.labels()) }).WithContext(ctx).Should(Succeed())
		p.run(ctx)
		expectWell(ctx, laptop, diagnosis.BlocksItself)
	}, SpecTimeout(3*patience))

	It("of such a webhook that the program's own Settings ask for: the diagnosis names the field", func(ctx SpecContext) {
		p := newProgram(ctx, "drill")
		p.settings.AllowClusterCritical = true
		p.settings.Namespaces = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{
			Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpIn, Values: []string{p.name, p.objects},
		}}}
		p.run(ctx)
		p.stop()
		p.list(ctx)
		Eventually(func() error { return p.restart(ctx, p.labels()) }).WithContext(ctx).Should(MatchError(ContainSubstring("no endpoints available")))
		found := diagnose(ctx, p.manager(false), diagnosis.BlocksItself)
		Expect(found.Severity).To(Equal(diagnosis.Warning), "it was asked for")
		Expect(found.Remedy).To(HavePrefix("leave Namespace " + p.name + " out in Settings.Namespaces of step limits, or except this program's pods with Settings.Conditions"))
		p.settings.AllowClusterCritical = false
		Expect(p.manager(true).RegisterExtensions()).To(Succeed())
		Eventually(func() error { return p.restart(ctx, p.labels()) }).WithContext(ctx).Should(Succeed())
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
		other.stop()
		other.list(ctx)
		Eventually(func() error { return p.restart(ctx, p.labels()) }).WithContext(ctx).Should(MatchError(ContainSubstring("no endpoints available")))
		found := diagnose(ctx, m, diagnosis.Shadowed)
		Expect(found.Message).To(And(ContainSubstring("MutatingWebhookConfiguration "+other.configuration()), ContainSubstring("pods that this program runs in")))
		Expect(found.Remedy).To(And(HavePrefix("repair it"), ContainSubstring("only if its program is gone for good")))
		Expect(admin.AdmissionregistrationV1().MutatingWebhookConfigurations().Delete(ctx, other.configuration(), metav1.DeleteOptions{})).To(Succeed())
		Eventually(func() error { return p.restart(ctx, p.labels()) }).WithContext(ctx).Should(Succeed())
		expectWell(ctx, m, diagnosis.Shadowed)
	}, SpecTimeout(3*patience))
})
