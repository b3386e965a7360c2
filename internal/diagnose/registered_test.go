package diagnose_test

// The registration: what is registered is compared with what this program wants, and with what exists in the cluster.

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"code.cloudfoundry.org/eirinix/diagnosis"
	"code.cloudfoundry.org/eirinix/internal/diagnose"
	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

var _ = Describe("An entry that is registered", func() {
	const foreign = "x509: certificate signed by unknown authority"
	url := webhookconf.Target{Host: "webhook.example.org", Port: 8443}
	service := webhookconf.Target{Service: "hooks", Namespace: "cf", Port: 443}
	entry := webhookconf.Group([]webhookconf.Step{podStep(false)})[0]
	bundle := newCA().CertificatePEM

	DescribeTable("is compared with the wanted one:",
		func(at webhookconf.Target, waits bool, edit func(*diagnose.Config, *admissionregistrationv1.MutatingWebhook), expected ...any) {
			c := diagnose.Config{Options: webhookconf.Options{Fingerprint: "x", Target: at, CABundle: bundle}}
			live := c.Options.Webhook(entry)
			edit(&c, &live)
			found := diagnose.Compared(c, live, entry, waits)
			Expect(found).To(HaveExactElements(expected...))
			for _, f := range found {
				Expect(f.Remedy).NotTo(BeEmpty())
			}
		},
		Entry("the same", url, false, func(c *diagnose.Config, _ *admissionregistrationv1.MutatingWebhook) {
			c.Verify = func([]byte) error { return nil }
		}),
		Entry("another host", url, false, func(c *diagnose.Config, _ *admissionregistrationv1.MutatingWebhook) {
			c.Options.Target.Host = "localhost"
		},
			And(HaveField("Code", diagnosis.WrongTarget), HaveField("Severity", diagnosis.Problem), HaveField("Object", "MutatingWebhookConfiguration x-mutating-hook"),
				HaveField("Message", ContainSubstring("call https://webhook.example.org:8443"+entry.Path+" instead of https://localhost:8443"+entry.Path)))),
		Entry("another path", url, false, func(_ *diagnose.Config, w *admissionregistrationv1.MutatingWebhook) { *w.ClientConfig.URL += "-x" },
			HaveField("Code", diagnosis.WrongTarget)),
		Entry("another port of the Service", service, false, func(_ *diagnose.Config, w *admissionregistrationv1.MutatingWebhook) { *w.ClientConfig.Service.Port = 1 },
			HaveField("Code", diagnosis.WrongTarget)),
		Entry("another port of the Service, of the version that is registered", service, true,
			func(_ *diagnose.Config, w *admissionregistrationv1.MutatingWebhook) { *w.ClientConfig.Service.Port = 1 }),
		Entry("another Service, of the version that is registered", service, true, func(_ *diagnose.Config, w *admissionregistrationv1.MutatingWebhook) {
			w.ClientConfig.Service.Name = "y"
		},
			And(HaveField("Code", diagnosis.WrongTarget), HaveField("Remedy", ContainSubstring("wait: the version that is registered repairs it")))),
		Entry("another selector", url, false, func(c *diagnose.Config, w *admissionregistrationv1.MutatingWebhook) {
			c.Registers = true
			w.ObjectSelector.MatchLabels = map[string]string{"a": "b"}
		}, And(HaveField("Code", diagnosis.Excluded), HaveField("Severity", diagnosis.Warning), HaveField("Remedy", ContainSubstring("wait: this process repairs it")),
			HaveField("Message", ContainSubstring(`the objectSelector of webhook `+entry.Name+`.x.eirinix.cloudfoundry.org of MutatingWebhookConfiguration x-mutating-hook is "a=b" instead of "<none>"`)))),
		Entry("no selector of namespaces", url, false, func(_ *diagnose.Config, w *admissionregistrationv1.MutatingWebhook) { w.NamespaceSelector = nil },
			And(HaveField("Code", diagnosis.Excluded), HaveField("Object", HaveSuffix(" namespaceSelector")))),
		Entry("a blank caBundle", url, false, func(_ *diagnose.Config, w *admissionregistrationv1.MutatingWebhook) {
			w.ClientConfig.CABundle = []byte(" \n")
		},
			HaveField("Code", diagnosis.BundleEmpty)),
		Entry("a caBundle without a certificate", url, false, func(_ *diagnose.Config, w *admissionregistrationv1.MutatingWebhook) {
			w.ClientConfig.CABundle = []byte("Cg==")
		},
			HaveField("Code", diagnosis.BundleUnreadable)),
		Entry("a caBundle that does not verify the certificate of this process", url, false, func(c *diagnose.Config, _ *admissionregistrationv1.MutatingWebhook) {
			c.Verify = func([]byte) error { return errors.New(foreign) }
		}, And(HaveField("Code", diagnosis.UnknownAuthority), HaveField("Evidence", foreign), HaveField("Remedy", ContainSubstring("RegisterExtensions")))),
	)
})

var _ = Describe("A diagnosis of the registration", Label("api-server"), func() {
	var d *deployment
	BeforeEach(func(ctx SpecContext) { d = newDeployment(ctx) })

	It("reports that there is none, that an entry is missing, and does without the canary's", func(ctx SpecContext) {
		Expect(d.run(ctx)).To(haveOneProblem(diagnosis.NotRegistered, d.Options.Fingerprint+"-mutating-hook does not exist", "RegisterExtensions"))
		d.register(ctx)
		d.remove(ctx, d.isCanary)
		r := d.run(ctx)
		Expect(codes(r)).To(Equal([]diagnosis.Code{diagnosis.NotRegistered, diagnosis.ReachedFromHere}))
		Expect(r.Findings[0]).To(HaveField("Severity", diagnosis.Warning))
		d.remove(ctx, func(string) bool { return true })
		Expect(d.run(ctx)).To(haveOneProblem(diagnosis.NotRegistered, "does not hold "+d.entry()))
	}, SpecTimeout(patience))

	It("reports that the configuration is another deployment's, and that another address is registered", func(ctx SpecContext) {
		d.register(ctx)
		d.Owner = "other/secret"
		Expect(d.run(ctx)).To(haveOneProblem(diagnosis.OwnedElsewhere, d.Canary.Namespace+"/secret, not to this one (other/secret)", "OperatorFingerprint"))
		d.Owner, d.Options.Target.Host = d.Canary.Namespace+"/secret", "localhost"
		r := d.run(ctx)
		Expect(r).To(haveOneProblem(diagnosis.WrongTarget))
		Expect(codes(r)).To(ContainElement(diagnosis.Reached), "it is the right one by chance")
	}, SpecTimeout(patience))

	It("warns of an annotation that makes another tool write the caBundle", func(ctx SpecContext) {
		d.register(ctx)
		name := webhookconf.Mutating.ConfigurationName(d.Options.Fingerprint)
		must(admin().AdmissionregistrationV1().MutatingWebhookConfigurations().Patch(ctx, name, types.MergePatchType, []byte(`{"metadata":{"annotations":{"cert-manager.io/inject-ca-from":"a/b"}}}`), metav1.PatchOptions{}))
		r := d.run(ctx)
		Expect(r.Err()).NotTo(HaveOccurred())
		Expect(r.Findings).To(ContainElement(And(HaveField("Code", diagnosis.OtherInjector), HaveField("Object", ContainSubstring(name)), HaveField("Message", ContainSubstring("makes cert-manager write its caBundle")))))
	}, SpecTimeout(patience))

	DescribeTable("reports, with the API server's message, that the caBundle", func(ctx SpecContext, bundle []byte, code diagnosis.Code, message string) {
		d.register(ctx, func(w *admissionregistrationv1.MutatingWebhook) { w.ClientConfig.CABundle = bundle })
		Expect(d.run(ctx)).To(haveOneProblem(code, message))
	},
		Entry("is empty", nil, diagnosis.BundleEmpty, "signed by unknown authority", SpecTimeout(patience)),
		Entry("is garbage", []byte("Cg=="), diagnosis.BundleUnreadable, "unable to load root certificates", SpecTimeout(patience)),
	)

	It("reports that the API server admits without a call", func(ctx SpecContext) {
		d.Settle = 200 * time.Millisecond
		d.register(ctx, func(w *admissionregistrationv1.MutatingWebhook) {
			w.MatchConditions = []admissionregistrationv1.MatchCondition{{Name: "never", Expression: "false"}}
		})
		Expect(d.run(ctx)).To(haveOneProblem(diagnosis.NotCalled))
	}, SpecTimeout(patience))

	It("reports that the API server does not send the canary, because of an edited selector", func(ctx SpecContext) {
		d.Settle = 200 * time.Millisecond
		d.register(ctx, func(w *admissionregistrationv1.MutatingWebhook) {
			if d.isCanary(w.Name) {
				w.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
			}
		})
		Expect(d.run(ctx).String()).To(ContainSubstring(`the API server does not send the canary, because the namespaceSelector "a=b"`))
	}, SpecTimeout(patience))

	It("reports that the API server is too old", func(ctx SpecContext) {
		config := controlPlane.Config()
		config.Wrap(func(next http.RoundTripper) http.RoundTripper { return oldVersion{next} })
		d.Clients = clientsFor(config)
		d.register(ctx)
		Expect(d.run(ctx)).To(haveOneProblem(diagnosis.TooOld, "the API server is v1.29.7-eks", "v1.30"))
	}, SpecTimeout(patience))

	It("reports that this program's namespace is missing, or going", func(ctx SpecContext) {
		namespace := d.Canary.Namespace
		d.register(ctx)
		d.awaitCalls(ctx)
		Expect(admin().CoreV1().Namespaces().Delete(ctx, namespace, metav1.DeleteOptions{})).To(Succeed()) // no controller finishes it here
		Eventually(d.run).WithContext(ctx).Should(haveOneProblem(diagnosis.NamespaceMissing, "is being deleted"))
		d.Canary.Namespace = "no-" + namespace
		Expect(d.run(ctx).Findings).To(ContainElement(And(HaveField("Code", diagnosis.NamespaceMissing), HaveField("Remedy", ContainSubstring("WebhookNamespace")))))
	}, SpecTimeout(patience))

	It("reports that the selected namespaces do not exist", func(ctx SpecContext) {
		d.Options.Namespace = "no-" + d.Options.Namespace
		d.register(ctx)
		r := d.run(ctx)
		Expect(codes(r)).To(Equal([]diagnosis.Code{diagnosis.Excluded, diagnosis.Healthy}))
		Expect(r.String()).To(ContainSubstring("ManagerOptions.Namespace"))

		d = newDeployment(ctx)
		step := podStep(false)
		step.Namespaces = &metav1.LabelSelector{MatchLabels: map[string]string{"team": d.Options.Fingerprint}}
		d.Options.Namespace, d.Entries[0] = "", webhookconf.Group([]webhookconf.Step{step})[0]
		d.register(ctx)
		r = d.run(ctx)
		Expect(codes(r)).To(Equal([]diagnosis.Code{diagnosis.Excluded, diagnosis.Healthy}))
		Expect(r.String()).To(And(ContainSubstring("team="+d.Options.Fingerprint), ContainSubstring("matches none of the")))

		ns := must(admin().CoreV1().Namespaces().Get(ctx, d.Canary.Namespace, metav1.GetOptions{}))
		metav1.SetMetaDataLabel(&ns.ObjectMeta, "team", d.Options.Fingerprint)
		must(admin().CoreV1().Namespaces().Update(ctx, ns, metav1.UpdateOptions{}))
		Expect(codes(d.run(ctx))).To(Equal([]diagnosis.Code{diagnosis.Healthy}))
	}, SpecTimeout(patience))
})

// oldVersion makes the API server claim to be older than it is.
type oldVersion struct{ next http.RoundTripper }

func (o oldVersion) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := o.next.RoundTrip(r)
	if err == nil && r.URL.Path == "/version" {
		_ = resp.Body.Close()
		text := []byte(`{"major":"1","minor":"29+","gitVersion":"v1.29.7-eks"}`)
		resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(text)), int64(len(text))
	}
	return resp, err
}
