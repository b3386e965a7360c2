package diagnose_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"code.cloudfoundry.org/eirinix/diagnosis"
	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

var _ = Describe("A diagnosis of other webhooks", Label("api-server"), func() {
	var d *deployment
	BeforeEach(func(ctx SpecContext) {
		d = newDeployment(ctx)
		d.register(ctx)
		d.awaitCalls(ctx)
	})

	// register puts another program's webhook before ours, in our namespace alone.
	register := func(ctx context.Context, edit func(*admissionregistrationv1.MutatingWebhook)) string {
		GinkgoHelper()
		w := admissionregistrationv1.MutatingWebhook{
			Name: "first.example.org",
			ClientConfig: admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{
				Namespace: d.Canary.Namespace, Name: "gone",
			}},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.OperationAll},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"*"}},
			}},
			NamespaceSelector:       &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: d.Canary.Namespace}},
			SideEffects:             new(admissionregistrationv1.SideEffectClassNone),
			AdmissionReviewVersions: []string{"v1"},
		}
		edit(&w)
		name := "a-" + d.Canary.Namespace // configurations are called in the order of their names
		must(admin().AdmissionregistrationV1().MutatingWebhookConfigurations().Create(ctx, &admissionregistrationv1.MutatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Webhooks: []admissionregistrationv1.MutatingWebhook{w},
		}, metav1.CreateOptions{}))
		DeferCleanup(func(ctx context.Context) error {
			return admin().AdmissionregistrationV1().MutatingWebhookConfigurations().Delete(ctx, name, metav1.DeleteOptions{})
		})
		return name
	}
	onlyPods := func(w *admissionregistrationv1.MutatingWebhook) { w.Rules[0].Resources = []string{"pods"} }
	// admitsNoPod waits until the API server admits no pod, because of the other webhook.
	admitsNoPod := func(ctx context.Context) {
		GinkgoHelper()
		Eventually(func() error {
			_, err := admin().CoreV1().Pods(d.Canary.Namespace).Create(ctx, &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{GenerateName: "spec-"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "app:1"}}},
			}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			return err
		}).WithTimeout(patience).Should(MatchError(ContainSubstring("first.example.org")))
	}

	It("names the one that fails for the canary", func(ctx SpecContext) {
		dead := "https://127.0.0.1:" + itoa(freePort())
		name := register(ctx, func(w *admissionregistrationv1.MutatingWebhook) {
			w.ClientConfig = admissionregistrationv1.WebhookClientConfig{URL: &dead}
		})
		Eventually(d.run).WithContext(ctx).WithTimeout(patience).Should(haveOneProblem(diagnosis.Shadowed,
			ContainSubstring("webhook first.example.org of MutatingWebhookConfiguration "+name), ContainSubstring("connection refused"), ContainSubstring("only if its program is gone for good, remove it from MutatingWebhookConfiguration "+name)))
	}, SpecTimeout(2*patience))

	It("names the one that refuses the canary", func(ctx SpecContext) {
		policy := newDeployment(ctx) // which denies everything
		policy.serve(denyAll)
		url := "https://" + policy.listener.Addr().String()
		register(ctx, func(w *admissionregistrationv1.MutatingWebhook) {
			w.ClientConfig = admissionregistrationv1.WebhookClientConfig{URL: &url, CABundle: policy.authority.CertificatePEM}
		})
		var r diagnosis.Report
		Eventually(func() []diagnosis.Code { r = d.run(ctx); return codes(r) }).WithTimeout(patience).
			Should(Equal([]diagnosis.Code{diagnosis.Shadowed, diagnosis.ReachedFromHere}))
		Expect(r.Err()).NotTo(HaveOccurred())
		Expect(r.String()).To(And(ContainSubstring("first.example.org"), ContainSubstring("refuses the canary"), ContainSubstring("not today")))
	}, SpecTimeout(2*patience))

	DescribeTable("names the one that fails for the objects that ours is for",
		func(ctx SpecContext, services []corev1.ServiceSpec, why string) {
			for _, s := range services {
				must(admin().CoreV1().Services(d.Canary.Namespace).Create(ctx, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "gone"}, Spec: s}, metav1.CreateOptions{}))
			}
			name := register(ctx, onlyPods)
			if len(services) == 0 {
				admitsNoPod(ctx)
			}
			r := d.run(ctx)
			Expect(r).To(haveOneProblem(diagnosis.Shadowed, ContainSubstring("MutatingWebhookConfiguration "+name), ContainSubstring("its Service "+d.Canary.Namespace+"/gone, port 443 "+why)))
			Expect(codes(r)).To(ContainElement(diagnosis.Reached), "and ours is well")
		},
		Entry("without Service", nil, "does not exist", SpecTimeout(2*patience)),
		Entry("without port", []corev1.ServiceSpec{clusterIP(8443, 8443)}, "does not exist on that Service", SpecTimeout(2*patience)),
		Entry("without endpoints", []corev1.ServiceSpec{clusterIP(443, 8443)}, "has no ready endpoint", SpecTimeout(2*patience)),
	)

	DescribeTable("says nothing of one that",
		func(ctx SpecContext, edit func(*admissionregistrationv1.MutatingWebhook)) {
			register(ctx, func(w *admissionregistrationv1.MutatingWebhook) { onlyPods(w); edit(w) })
			Expect(codes(d.run(ctx))).To(Equal([]diagnosis.Code{diagnosis.Healthy}))
		},
		Entry("ignores failures", func(w *admissionregistrationv1.MutatingWebhook) {
			w.FailurePolicy = new(admissionregistrationv1.Ignore)
		}, SpecTimeout(patience)),
		Entry("is for other objects", func(w *admissionregistrationv1.MutatingWebhook) { w.Rules[0].Resources = []string{"secrets"} }, SpecTimeout(patience)),
		Entry("is for other operations", func(w *admissionregistrationv1.MutatingWebhook) {
			w.Rules[0].Operations = []admissionregistrationv1.OperationType{admissionregistrationv1.Delete}
		}, SpecTimeout(patience)),
		Entry("is for other namespaces", func(w *admissionregistrationv1.MutatingWebhook) {
			w.NamespaceSelector.MatchLabels[corev1.LabelMetadataName] = "nowhere"
		}, SpecTimeout(patience)),
	)

	// elsewhere is a change of a webhook to one that is for another namespace.
	elsewhere := func(w *admissionregistrationv1.MutatingWebhook) {
		w.NamespaceSelector.MatchLabels[corev1.LabelMetadataName] = "nowhere"
	}
	slow := func(w *admissionregistrationv1.MutatingWebhook) {
		onlyPods(w)
		w.FailurePolicy, w.TimeoutSeconds = new(admissionregistrationv1.Ignore), new(int32(16))
	}
	// two puts two webhooks of another program before ours, or after it.
	two := func(ctx context.Context, before bool, edits ...func(*admissionregistrationv1.MutatingWebhook)) {
		GinkgoHelper()
		name := register(ctx, edits[0])
		hooks := admin().AdmissionregistrationV1().MutatingWebhookConfigurations()
		c := must(hooks.Get(ctx, name, metav1.GetOptions{}))
		second := c.Webhooks[0].DeepCopy()
		second.Name = "second.example.org"
		edits[1](second)
		c.Webhooks = append(c.Webhooks, *second)
		if before {
			must(hooks.Update(ctx, c, metav1.UpdateOptions{}))
			return
		}
		later := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "z-" + d.Canary.Namespace}, Webhooks: c.Webhooks}
		must(hooks.Create(ctx, later, metav1.CreateOptions{}))
		DeferCleanup(func(ctx context.Context) error { return hooks.Delete(ctx, later.Name, metav1.DeleteOptions{}) })
	}

	It("adds up the timeouts of those that ignore failures, once, and of no other namespace", func(ctx SpecContext) {
		another := podStep(true)
		another.Name = "another" // with an entry of its own
		d.Entries = append(webhookconf.Group([]webhookconf.Step{podStep(false), another}), d.Canary.Entry())
		two(ctx, true, slow, func(w *admissionregistrationv1.MutatingWebhook) { slow(w); elsewhere(w) })
		Expect(codes(d.run(ctx))).NotTo(ContainElement(diagnosis.TimeoutsAddUp), "16 s")
		two := must(admin().AdmissionregistrationV1().MutatingWebhookConfigurations().Get(ctx, "a-"+d.Canary.Namespace, metav1.GetOptions{}))
		two.Webhooks[1].NamespaceSelector = two.Webhooks[0].NamespaceSelector
		must(admin().AdmissionregistrationV1().MutatingWebhookConfigurations().Update(ctx, two, metav1.UpdateOptions{}))
		var all []diagnosis.Finding
		for _, f := range d.run(ctx).Findings {
			if f.Code == diagnosis.TimeoutsAddUp {
				all = append(all, f)
			}
		}
		Expect(all).To(HaveLen(1), "both steps have the same reason")
		Expect(all[0].Message).To(And(ContainSubstring("webhook first.example.org"), ContainSubstring("webhook second.example.org"), ContainSubstring("32 s")))
		Expect(all[0].Remedy).To(ContainSubstring("to 15 each"))
	}, SpecTimeout(patience))

	It("looks for none unless it is asked to", func(ctx SpecContext) {
		register(ctx, onlyPods)
		d.Others = false
		Expect(codes(d.run(ctx))).To(Equal([]diagnosis.Code{diagnosis.Healthy}))
	}, SpecTimeout(patience))

	It("only warns of one that may be for other objects", func(ctx SpecContext) {
		register(ctx, func(w *admissionregistrationv1.MutatingWebhook) {
			onlyPods(w)
			w.ObjectSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "theirs"}}
		})
		r := d.run(ctx)
		Expect(r.Err()).NotTo(HaveOccurred())
		Expect(codes(r)).To(Equal([]diagnosis.Code{diagnosis.Shadowed, diagnosis.Healthy}))
	}, SpecTimeout(patience))

	It("does not take an entry of ours for another's", func(ctx SpecContext) {
		d := newDeployment(ctx)
		step := podStep(false)
		step.Name, step.Isolated, step.AllowClusterCritical = "all", true, true
		step.Namespaces = &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: d.Canary.Namespace}}
		step.Rules[0].Resources = []string{"configmaps"}
		d.Entries = append(webhookconf.Group([]webhookconf.Step{step}), d.Canary.Entry())
		d.register(ctx)
		Expect(d.server.Close()).To(Succeed())
		Eventually(d.run).WithContext(ctx).WithTimeout(patience).Should(haveOneProblem(diagnosis.NothingListens, ContainSubstring("connection refused")))
	}, SpecTimeout(2*patience))
})
