package diagnose_test

import (
	"context"
	"net/http"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"code.cloudfoundry.org/eirinix/diagnosis"
	"code.cloudfoundry.org/eirinix/internal/diagnose"
	"code.cloudfoundry.org/eirinix/internal/reads"
	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

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
		must(hooks.Create(ctx, c, metav1.CreateOptions{}))
		DeferCleanup(func(ctx context.Context) error { return hooks.Delete(ctx, c.Name, metav1.DeleteOptions{}) })
		return c.Name
	}
	elsewhere := func() admissionregistrationv1.WebhookClientConfig {
		return webhookconf.Options{Target: webhookconf.Target{Host: "127.0.0.1", Port: d.port() - 1}}.ClientConfig("/validate/old")
	}

	It("names a configuration that calls this program, and how to remove it", func(ctx SpecContext) {
		d.register(ctx)
		name := left(ctx, d.Options.ClientConfig("/validate/old"), d.Options.ClientConfig("/validate/older"))
		Expect(d.run(ctx)).To(haveOneProblem(diagnosis.Orphaned, ContainSubstring("ValidatingWebhookConfiguration "+name+" calls this program at https://127.0.0.1:"+itoa(d.port())+" for w0.old.example.org, w1.old.example.org"),
			ContainSubstring("runs, kubectl delete validatingwebhookconfiguration "+name)))
	}, SpecTimeout(patience))

	It("names the webhook alone where the configuration has others", func(ctx SpecContext) {
		d.register(ctx)
		name := left(ctx, elsewhere(), d.Options.ClientConfig("/validate/old"))
		Expect(d.run(ctx)).To(haveOneProblem(diagnosis.Orphaned, ContainSubstring("remove w1.old.example.org from ValidatingWebhookConfiguration "+name), Not(ContainSubstring("kubectl delete"))))
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
		Expect(r).To(haveOneProblem(diagnosis.Orphaned, ContainSubstring("remove w1.old.example.org, w2.old.example.org from ValidatingWebhookConfiguration "+name)))
		Expect(r.String()).NotTo(ContainSubstring("w0.old"))
		d.Listen = ""
		Expect(d.run(ctx)).To(haveOneProblem(diagnosis.Orphaned, ContainSubstring("remove w2.old.example.org from")), "what is not known is not reported")
	}, SpecTimeout(patience))

	It("logs one error, and that the API server calls this program", func(ctx SpecContext) {
		d.register(ctx)
		left(ctx, d.Options.ClientConfig("/validate/old"))
		d.awaitRegistered(ctx)
		n := newNotes()
		diagnose.Watch(ctx, d.Config, n.logger())
		Expect(n.read()).To(HaveExactElements(MatchRegexp(`^[01] error ValidatingWebhookConfiguration old-.* calls this program`), HaveSuffix("info the API server calls this program")))
	}, SpecTimeout(patience))

	It("is skipped without the right to list, with a note and without a line in the log", func(ctx SpecContext) {
		d.register(ctx)
		left(ctx, d.Options.ClientConfig("/validate/old"))
		name := "user-" + d.Canary.Namespace
		apply(ctx, must(diagnose.Manifest(d.Canary.Namespace, diagnose.SubjectOf(name), []diagnosis.Right{{Resource: "configmaps", Verb: "create", Namespace: d.Canary.Namespace}})))
		d.Clients = clientsFor(must(controlPlane.User(name)))
		Eventually(func() []diagnosis.Code { return codes(d.run(ctx)) }).WithTimeout(patience).Should(Equal([]diagnosis.Code{diagnosis.Healthy, diagnosis.CheckSkipped}))
		f, _ := d.run(ctx).Find(diagnosis.CheckSkipped)
		Expect(f.Remedy).To(And(ContainSubstring("list validatingwebhookconfigurations"), HavePrefix("to look there too, call Diagnose as an account that may ")))
		n := newNotes()
		diagnose.Watch(ctx, d.Config, n.logger())
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
		diagnose.Watch(ctx, d.Config, n.logger())
		Expect(n.read()).To(HaveExactElements(HaveSuffix(" info the API server calls this program")))

		d.Versions = nil
		Expect(codes(d.run(ctx))).To(ContainElement(diagnosis.NotRegistered), "it is compared otherwise")
	}, SpecTimeout(2*patience))

	It("still checks the caBundle, the address and the owner", func(ctx SpecContext) {
		hooks := admin().AdmissionregistrationV1().MutatingWebhookConfigurations()
		live := must(hooks.Get(ctx, webhookconf.Mutating.ConfigurationName(d.Options.Fingerprint), metav1.GetOptions{}))
		for i := range live.Webhooks {
			live.Webhooks[i].ClientConfig.CABundle = newCA().CertificatePEM
		}
		live = must(hooks.Update(ctx, live, metav1.UpdateOptions{}))
		Expect(d.run(ctx)).To(haveOneProblem(diagnosis.UnknownAuthority, ContainSubstring("wait: the version that is registered repairs it")))
		d.Options.Target.Host = "localhost"
		Expect(problems(d.run(ctx))).To(ContainElement(diagnosis.WrongTarget))
		d.Options.Target.Host, d.Owner = "127.0.0.1", "other/secret"
		Expect(problems(d.run(ctx))).To(Equal([]diagnosis.Code{diagnosis.OwnedElsewhere}))
		d.Owner = d.Canary.Namespace + "/secret"

		live.Webhooks = nil
		must(hooks.Update(ctx, live, metav1.UpdateOptions{}))
		Expect(hooks.Delete(ctx, live.Name, metav1.DeleteOptions{})).To(Succeed())
		Expect(d.run(ctx)).To(haveOneProblem(diagnosis.NotRegistered, ContainSubstring("does not exist"), ContainSubstring("wait: the version that is registered repairs it")))
		must(hooks.Create(ctx, &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: live.Name}}, metav1.CreateOptions{})) // for the removal
	}, SpecTimeout(2*patience))
})

// awaitRegistered waits until API servers know the registration.
func (d *deployment) awaitRegistered(ctx context.Context) {
	GinkgoHelper()
	Eventually(func() []diagnosis.Code { return codes(d.run(ctx)) }).WithTimeout(patience).WithPolling(50 * time.Millisecond).Should(ContainElement(Or(Equal(diagnosis.Healthy), Equal(diagnosis.Reached))))
}
