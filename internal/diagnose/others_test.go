package diagnose_test

// What a diagnosis finds beside this program: webhooks of others that fail for the same objects, webhooks that were left
// behind, another version of the program, and rights that are missing.

import (
	"context"
	"net/http"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"code.cloudfoundry.org/eirinix/diagnosis"
	"code.cloudfoundry.org/eirinix/internal/diagnose"
	"code.cloudfoundry.org/eirinix/internal/reads"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
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
			Name:         "first.example.org",
			ClientConfig: admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{Namespace: d.Canary.Namespace, Name: "gone"}},
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
		Must(admin().AdmissionregistrationV1().MutatingWebhookConfigurations().Create(ctx, &admissionregistrationv1.MutatingWebhookConfiguration{
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
			"webhook first.example.org of MutatingWebhookConfiguration "+name, "connection refused", "only if its program is gone for good, remove it from MutatingWebhookConfiguration "+name))
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
				Must(admin().CoreV1().Services(d.Canary.Namespace).Create(ctx, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "gone"}, Spec: s}, metav1.CreateOptions{}))
			}
			name := register(ctx, onlyPods)
			if len(services) == 0 {
				admitsNoPod(ctx)
			}
			r := d.run(ctx)
			Expect(r).To(haveOneProblem(diagnosis.Shadowed, "MutatingWebhookConfiguration "+name, "its Service "+d.Canary.Namespace+"/gone, port 443 "+why))
			Expect(codes(r)).To(ContainElement(diagnosis.Reached), "and ours is well")
		},
		Entry("without Service", nil, "does not exist", SpecTimeout(2*patience)),
		Entry("without port", []corev1.ServiceSpec{clusterIP(8443, 8443)}, "does not exist on that Service", SpecTimeout(2*patience)),
		Entry("without endpoints", []corev1.ServiceSpec{clusterIP(443, 8443)}, "has no ready endpoint", SpecTimeout(2*patience)),
	)

	elsewhere := func(w *admissionregistrationv1.MutatingWebhook) {
		w.NamespaceSelector.MatchLabels[corev1.LabelMetadataName] = "nowhere"
	}
	DescribeTable("says nothing of one that",
		func(ctx SpecContext, edit func(*admissionregistrationv1.MutatingWebhook)) {
			register(ctx, func(w *admissionregistrationv1.MutatingWebhook) { onlyPods(w); edit(w) })
			Expect(codes(d.run(ctx))).To(Equal([]diagnosis.Code{diagnosis.Healthy}))
		},
		Entry("ignores failures", func(w *admissionregistrationv1.MutatingWebhook) {
			w.FailurePolicy = new(admissionregistrationv1.Ignore)
		}, SpecTimeout(patience)),
		Entry("is for other objects", func(w *admissionregistrationv1.MutatingWebhook) { w.Rules[0].Resources = []string{"secrets"} }, SpecTimeout(patience)),
		Entry("is for other namespaces", elsewhere, SpecTimeout(patience)),
	)

	slow := func(w *admissionregistrationv1.MutatingWebhook) {
		onlyPods(w)
		w.FailurePolicy, w.TimeoutSeconds = new(admissionregistrationv1.Ignore), new(int32(30))
	}

	It("adds up the timeouts of those that ignore failures, once, and of no other namespace", func(ctx SpecContext) {
		another := podStep(true)
		another.Name = "another" // with an entry of its own
		d.Entries = append(webhookconf.Group([]webhookconf.Step{podStep(false), another}), d.Canary.Entry())
		hooks := admin().AdmissionregistrationV1().MutatingWebhookConfigurations()
		two := Must(hooks.Get(ctx, register(ctx, slow), metav1.GetOptions{}))
		second := two.Webhooks[0].DeepCopy()
		second.Name = "second.example.org"
		elsewhere(second)
		two.Webhooks = append(two.Webhooks, *second)
		two = Must(hooks.Update(ctx, two, metav1.UpdateOptions{}))
		Expect(codes(d.run(ctx))).NotTo(ContainElement(diagnosis.TimeoutsAddUp), "30 s")
		two.Webhooks[1].NamespaceSelector = two.Webhooks[0].NamespaceSelector
		Must(hooks.Update(ctx, two, metav1.UpdateOptions{}))
		all := slices.DeleteFunc(d.run(ctx).Findings, func(f diagnosis.Finding) bool { return f.Code != diagnosis.TimeoutsAddUp })
		Expect(all).To(HaveExactElements(And(HaveField("Remedy", ContainSubstring("to 15 each")), HaveField("Message", And(
			ContainSubstring("webhook first.example.org"), ContainSubstring("webhook second.example.org"), ContainSubstring("60 s"))))), "both steps have the same reason")
	}, SpecTimeout(patience))

	It("only warns of one that may be for other objects", func(ctx SpecContext) {
		register(ctx, func(w *admissionregistrationv1.MutatingWebhook) {
			onlyPods(w)
			w.ObjectSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "theirs"}}
		})
		r := d.run(ctx)
		Expect(r.Err()).NotTo(HaveOccurred())
		Expect(codes(r)).To(Equal([]diagnosis.Code{diagnosis.Shadowed, diagnosis.Healthy}))
		d.Others = false
		Expect(codes(d.run(ctx))).To(Equal([]diagnosis.Code{diagnosis.Healthy}), "and looks for none unless it is asked to")
	}, SpecTimeout(patience))
})

var _ = Describe("A diagnosis of orphans", Label("api-server"), func() {
	var d *deployment
	BeforeEach(func(ctx SpecContext) {
		d = newDeployment(ctx)
		d.ListsAll = true
	})

	// left makes the configuration of another fingerprint, with a webhook for each of these addresses.
	left := func(ctx context.Context, calls ...admissionregistrationv1.WebhookClientConfig) string {
		GinkgoHelper()
		c := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "old-" + d.Options.Fingerprint}}
		for i, call := range calls {
			c.Webhooks = append(c.Webhooks, admissionregistrationv1.ValidatingWebhook{
				Name: "w" + itoa(int32(i)) + ".old.example.org", ClientConfig: call, SideEffects: new(admissionregistrationv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
				NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"no": "namespace"}}, Rules: podStep(true).Rules,
			})
		}
		hooks := admin().AdmissionregistrationV1().ValidatingWebhookConfigurations()
		Must(hooks.Create(ctx, c, metav1.CreateOptions{}))
		DeferCleanup(func(ctx context.Context) error { return hooks.Delete(ctx, c.Name, metav1.DeleteOptions{}) })
		return c.Name
	}
	It("names a configuration that calls this program, and how to remove it", func(ctx SpecContext) {
		d.register(ctx)
		name := left(ctx, d.Options.ClientConfig("/validate/old"), d.Options.ClientConfig("/validate/older"))
		Expect(d.run(ctx)).To(haveOneProblem(diagnosis.Orphaned, "ValidatingWebhookConfiguration "+name+" calls this program at https://127.0.0.1:"+itoa(d.port())+" for w0.old.example.org, w1.old.example.org",
			"runs, kubectl delete validatingwebhookconfiguration "+name))
	}, SpecTimeout(patience))

	It("finds one that calls the same Service, and none that calls another port of it", func(ctx SpecContext) {
		d.behind(ctx, toLoopback())
		d.register(ctx)
		left(ctx, d.Options.ClientConfig("/mutate/old"))
		Expect(d.run(ctx)).To(haveOneProblem(diagnosis.Orphaned))
		d.Options.Target.Port++
		Expect(codes(d.run(ctx))).NotTo(ContainElement(diagnosis.Orphaned))
	}, SpecTimeout(patience))

	It("asks the server about paths that are not below its own", func(ctx SpecContext) {
		handler := http.NewServeMux()
		handler.Handle("/mine/", http.StripPrefix("/mine", d.handler()))
		handler.HandleFunc("/validate/other", func(http.ResponseWriter, *http.Request) {})
		d.Canary.Prefix = "/mine"
		d.Entries[1] = d.Canary.Entry()
		Expect(d.server.Close()).To(Succeed())
		d.serve(handler)
		d.Options.Target.Port, d.Listen = d.port(), d.listener.Addr().String()
		d.register(ctx)
		name := left(ctx, d.Options.ClientConfig("/validate/other"), d.Options.ClientConfig("/old/validate/pods"), d.Options.ClientConfig("/mine/validate/old"))
		r := d.run(ctx)
		Expect(r).To(haveOneProblem(diagnosis.Orphaned, "remove w1.old.example.org, w2.old.example.org from ValidatingWebhookConfiguration "+name))
		Expect(r.String()).NotTo(ContainSubstring("w0.old"))
		d.Listen = ""
		Expect(d.run(ctx)).To(haveOneProblem(diagnosis.Orphaned, "remove w2.old.example.org from"), "what is not known is not reported")
	}, SpecTimeout(patience))

	It("is skipped without the right to list, with a note and without a line in the log", func(ctx SpecContext) {
		d.register(ctx)
		left(ctx, d.Options.ClientConfig("/validate/old"))
		d.as(ctx, d.createsConfigMaps())
		Eventually(func() []diagnosis.Code { return codes(d.run(ctx)) }).WithTimeout(patience).Should(Equal([]diagnosis.Code{diagnosis.Healthy, diagnosis.CheckSkipped}))
		f, _ := d.run(ctx).Find(diagnosis.CheckSkipped)
		Expect(f.Remedy).To(And(ContainSubstring("list validatingwebhookconfigurations"), HavePrefix("to look there too, call Diagnose as an account that may ")))
		n := newNotes()
		diagnose.Watch(ctx, func() diagnose.Config { return d.Config }, n.logger())
		Expect(n.read()).To(HaveExactElements(HaveSuffix(" info the API server calls this program")))
	}, SpecTimeout(2*patience))
})

var _ = Describe("A diagnosis of a version that waits for another one", Label("api-server"), func() {
	var d *deployment
	BeforeEach(func(ctx SpecContext) {
		d = newDeployment(ctx)
		d.register(ctx)
		d.awaitRegistered(ctx)
		// This version has another step, another selector, and another path for the canary.
		step := podStep(true)
		step.Name, step.Objects = "new", &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
		d.Canary.Validating = true
		d.Entries = append(webhookconf.Group([]webhookconf.Step{step}), d.Canary.Entry())
		d.Versions = func() []diagnose.VersionInfo {
			return []diagnose.VersionInfo{{Version: "old", Registered: true}, {Version: "new", Ours: true, Steps: []string{"new"}}}
		}
		d.Registers = true
	})

	It("compares no entries, and says which version waits", func(ctx SpecContext) {
		d.Waiting = []diagnose.WaitingStep{{Name: "late", Why: "no kind"}, {Name: "reader", Why: "unlisted"}}
		d.Reads = func() []reads.Interruption {
			return []reads.Interruption{{Objects: "secrets", Steps: []string{"reader"}}}
		}
		r := d.run(ctx)
		Expect(codes(r)).To(Equal([]diagnosis.Code{diagnosis.ReadsNotListed, diagnosis.SeveralVersions, diagnosis.NotRegistered, diagnosis.Reached}))
		f, _ := r.Find(diagnosis.NotRegistered)
		Expect(f).To(And(HaveField("Severity", diagnosis.Warning), HaveField("Object", "step late"), HaveField("Evidence", "no kind")))
		Expect(r.String()).NotTo(ContainSubstring("call RegisterExtensions"))

		d.Waiting, d.Reads = nil, nil
		Expect(codes(d.run(ctx))).To(Equal([]diagnosis.Code{diagnosis.SeveralVersions, diagnosis.Healthy}))
		n := newNotes()
		diagnose.Watch(ctx, func() diagnose.Config { return d.Config }, n.logger())
		Expect(n.read()).To(HaveExactElements(HaveSuffix(" info the API server calls this program")))

		d.Owner = "other/secret"
		Expect(d.run(ctx)).To(haveOneProblem(diagnosis.OwnedElsewhere))
		d.Owner, d.Options.Target.Host = d.Canary.Namespace+"/secret", "localhost"
		Expect(d.run(ctx)).To(haveOneProblem(diagnosis.WrongTarget, "wait: the version that is registered repairs it"))
		d.Options.Target.Host, d.Versions = "127.0.0.1", nil
		Expect(codes(d.run(ctx))).To(ContainElement(diagnosis.NotRegistered), "it is compared otherwise")
	}, SpecTimeout(2*patience))
})

// awaitRegistered waits until API servers know the registration.
func (d *deployment) awaitRegistered(ctx context.Context) {
	GinkgoHelper()
	Eventually(func() []diagnosis.Code { return codes(d.run(ctx)) }).WithTimeout(patience).WithPolling(50 * time.Millisecond).Should(ContainElement(Or(Equal(diagnosis.Healthy), Equal(diagnosis.Reached))))
}

var _ = Describe("A diagnosis by a user with few rights", Label("api-server"), func() {
	It("names the looks that it could not take, and the rights for them", func(ctx SpecContext) {
		d := newDeployment(ctx)
		d.behind(ctx, toLoopback())
		d.register(ctx)
		d.awaitCalls(ctx)
		d.as(ctx)
		r := d.run(ctx)
		Expect(r.Err()).NotTo(HaveOccurred())
		Expect(codes(r)).To(Equal([]diagnosis.Code{diagnosis.CheckSkipped}))
		Expect(r.String()).To(And(ContainSubstring("create configmaps in namespace "+d.Canary.Namespace), ContainSubstring("get services "+d.Canary.Namespace+"/hooks")))

		grant(ctx, "user-"+d.Canary.Namespace, r.Rights()...)
		Eventually(func() []diagnosis.Code { return codes(d.run(ctx)) }).WithTimeout(patience).Should(Equal([]diagnosis.Code{diagnosis.Healthy}))
	}, SpecTimeout(2*patience))

	It("waits for an API server that has not noticed the registration yet", func(ctx SpecContext) {
		d := newDeployment(ctx)
		d.as(ctx, d.createsConfigMaps())
		d.Settle = time.Millisecond
		Eventually(func() string { return d.run(ctx).String() }).WithTimeout(patience).ShouldNot(ContainSubstring("create configmaps"))

		d.Settle = patience
		done := make(chan diagnosis.Report, 1)
		go func() { done <- d.run(ctx) }()
		d.register(ctx)
		var r diagnosis.Report
		Eventually(done).WithTimeout(patience).Should(Receive(&r))
		Expect(codes(r)).To(ContainElement(diagnosis.Healthy))
	}, SpecTimeout(3*patience))
})
