package diagnose_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"code.cloudfoundry.org/eirinix/diagnosis"
	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

var _ = Describe("A diagnosis of the registration", Label("api-server"), func() {
	var d *deployment
	BeforeEach(func(ctx SpecContext) { d = newDeployment(ctx) })

	It("reports that there is none", func(ctx SpecContext) {
		Expect(d.run(ctx)).To(haveOneProblem(diagnosis.NotRegistered, ContainSubstring(d.Options.Fingerprint+"-mutating-hook does not exist"), ContainSubstring("RegisterExtensions")))
	}, SpecTimeout(patience))

	It("reports that an entry is missing", func(ctx SpecContext) {
		d.register(ctx)
		d.remove(ctx, func(name string) bool { return !d.isCanary(name) })
		Expect(d.run(ctx)).To(haveOneProblem(diagnosis.NotRegistered, ContainSubstring("does not hold "+d.entry())))
	}, SpecTimeout(patience))

	It("does without the canary's entry, and reports this", func(ctx SpecContext) {
		d.register(ctx)
		d.remove(ctx, d.isCanary)
		r := d.run(ctx)
		Expect(r.Err()).NotTo(HaveOccurred())
		Expect(codes(r)).To(Equal([]diagnosis.Code{diagnosis.NotRegistered, diagnosis.ReachedFromHere}))
		Expect(r.Findings[0]).To(HaveField("Severity", diagnosis.Warning))
	}, SpecTimeout(patience))

	It("reports that the configuration is another deployment's", func(ctx SpecContext) {
		d.register(ctx)
		d.Owner = "other/secret"
		Expect(d.run(ctx)).To(haveOneProblem(diagnosis.OwnedElsewhere, ContainSubstring(d.Canary.Namespace+"/secret, not to this one (other/secret)"), ContainSubstring("OperatorFingerprint")))
		d.Owner = d.Canary.Namespace + "/secret" // for the removal
	}, SpecTimeout(patience))

	It("reports that another address is registered", func(ctx SpecContext) {
		d.register(ctx)
		d.Options.Target.Host = "localhost"
		r := d.run(ctx)
		Expect(r).To(haveOneProblem(diagnosis.WrongTarget, ContainSubstring("https://127.0.0.1:"+itoa(d.port())), ContainSubstring("instead of https://localhost:"+itoa(d.port()))))
		Expect(codes(r)).To(ContainElement(diagnosis.Reached), "it is the right one by chance")
	}, SpecTimeout(patience))

	It("warns of an annotation that makes another tool write the caBundle", func(ctx SpecContext) {
		d.register(ctx)
		hooks := admin().AdmissionregistrationV1().MutatingWebhookConfigurations()
		name := webhookconf.Mutating.ConfigurationName(d.Options.Fingerprint)
		must(hooks.Patch(ctx, name, types.MergePatchType, []byte(`{"metadata":{"annotations":{"cert-manager.io/inject-ca-from":"a/b"}}}`), metav1.PatchOptions{}))
		r := d.run(ctx)
		Expect(r.Err()).NotTo(HaveOccurred())
		f, found := r.Find(diagnosis.OtherInjector)
		Expect(found).To(BeTrue())
		Expect(f.Object).To(ContainSubstring(name))
	}, SpecTimeout(patience))

	It("reports that the caBundle is empty", func(ctx SpecContext) {
		d.register(ctx, func(w *admissionregistrationv1.MutatingWebhook) { w.ClientConfig.CABundle = nil })
		Expect(d.run(ctx)).To(haveOneProblem(diagnosis.BundleEmpty, ContainSubstring("signed by unknown authority")))
	}, SpecTimeout(patience))

	It("reports that the caBundle is garbage", func(ctx SpecContext) {
		d.register(ctx, func(w *admissionregistrationv1.MutatingWebhook) { w.ClientConfig.CABundle = []byte("Cg==") })
		Expect(d.run(ctx)).To(haveOneProblem(diagnosis.BundleUnreadable, ContainSubstring("unable to load root certificates")))
	}, SpecTimeout(patience))

	It("reports that the API server admits without a call", func(ctx SpecContext) {
		d.Settle = 200 * time.Millisecond
		d.register(ctx, func(w *admissionregistrationv1.MutatingWebhook) {
			w.MatchConditions = []admissionregistrationv1.MatchCondition{{Name: "never", Expression: "false"}}
		})
		Expect(d.run(ctx)).To(haveOneProblem(diagnosis.NotCalled))
	}, SpecTimeout(patience))

	It("reports that the API server is too old", func(ctx SpecContext) {
		config := controlPlane.Config()
		config.Wrap(func(next http.RoundTripper) http.RoundTripper { return oldVersion{next} })
		d.Clients = clientsFor(config)
		d.register(ctx)
		Expect(d.run(ctx)).To(haveOneProblem(diagnosis.TooOld, ContainSubstring("the API server is v1.29.7-eks"), ContainSubstring("v1.30")))
	}, SpecTimeout(patience))

	It("reports that this program's namespace is missing", func(ctx SpecContext) {
		d.Canary.Namespace = "no-" + d.Canary.Namespace
		d.Entries[1] = d.Canary.Entry()
		d.register(ctx)
		Expect(d.run(ctx)).To(haveOneProblem(diagnosis.NamespaceMissing, ContainSubstring("WebhookNamespace")))
	}, SpecTimeout(patience))

	It("reports that this program's namespace is going", func(ctx SpecContext) {
		d.register(ctx)
		d.awaitCalls(ctx)
		Expect(admin().CoreV1().Namespaces().Delete(ctx, d.Canary.Namespace, metav1.DeleteOptions{})).To(Succeed()) // no controller finishes it here
		Eventually(d.run).WithContext(ctx).Should(haveOneProblem(diagnosis.NamespaceMissing, ContainSubstring("is being deleted")))
	}, SpecTimeout(patience))

	Describe("of selected objects", func() {
		It("reports that a selector has been edited", func(ctx SpecContext) {
			d.register(ctx, func(w *admissionregistrationv1.MutatingWebhook) {
				if !d.isCanary(w.Name) {
					w.ObjectSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
				}
			})
			r := d.run(ctx)
			Expect(codes(r)).To(Equal([]diagnosis.Code{diagnosis.Excluded, diagnosis.Healthy}))
			Expect(r.String()).To(ContainSubstring(`the objectSelector of webhook ` + d.entry()))
			Expect(r.String()).To(ContainSubstring(`is "a=b" instead of "<none>"`))
		}, SpecTimeout(patience))

		It("reports that the canary itself is left out", func(ctx SpecContext) {
			d.Settle = 200 * time.Millisecond
			d.register(ctx, func(w *admissionregistrationv1.MutatingWebhook) {
				if d.isCanary(w.Name) {
					w.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
				}
			})
			Expect(d.run(ctx).String()).To(ContainSubstring(`the API server does not send the canary, because the namespaceSelector "a=b"`))
		}, SpecTimeout(patience))

		It("reports that the one namespace does not exist", func(ctx SpecContext) {
			d.Options.Namespace = "no-" + d.Options.Namespace
			d.register(ctx)
			r := d.run(ctx)
			Expect(codes(r)).To(Equal([]diagnosis.Code{diagnosis.Excluded, diagnosis.Healthy}))
			Expect(r.String()).To(ContainSubstring("ManagerOptions.Namespace"))
		}, SpecTimeout(patience))

		It("reports that no namespace has the labels", func(ctx SpecContext) {
			step := podStep(false)
			step.Namespaces = &metav1.LabelSelector{MatchLabels: map[string]string{"team": d.Options.Fingerprint}}
			d.Options.Namespace = ""
			d.Entries[0] = webhookconf.Group([]webhookconf.Step{step})[0]
			d.register(ctx)
			r := d.run(ctx)
			Expect(codes(r)).To(Equal([]diagnosis.Code{diagnosis.Excluded, diagnosis.Healthy}))
			Expect(r.String()).To(And(ContainSubstring("team="+d.Options.Fingerprint), ContainSubstring("matches none of the")))

			label(ctx, d.Canary.Namespace, "team", d.Options.Fingerprint)
			Expect(codes(d.run(ctx))).To(Equal([]diagnosis.Code{diagnosis.Healthy}))
		}, SpecTimeout(patience))
	})
})

// label puts a label on a namespace.
func label(ctx context.Context, namespace, key, value string) {
	GinkgoHelper()
	ns := must(admin().CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{}))
	metav1.SetMetaDataLabel(&ns.ObjectMeta, key, value)
	must(admin().CoreV1().Namespaces().Update(ctx, ns, metav1.UpdateOptions{}))
}

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
