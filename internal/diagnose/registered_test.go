package diagnose_test

// The registration: what is registered is compared with what this program wants, and with what exists in the cluster. The
// conversion webhooks of CustomResourceDefinitions are compared in the form in which the API server stores them.

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"code.cloudfoundry.org/eirinix/diagnosis"
	"code.cloudfoundry.org/eirinix/internal/convert"
	"code.cloudfoundry.org/eirinix/internal/convert/stored"
	"code.cloudfoundry.org/eirinix/internal/diagnose"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
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

var _ = DescribeTable("While no call comes through, objects are held by", func(why string, settings func(*webhookconf.Settings), operations ...admissionregistrationv1.OperationType) {
	s := podStep(false)
	s.Rules[0].Operations = operations
	settings(&s.Settings)
	live := webhookconf.Options{Fingerprint: "x"}.Webhook(webhookconf.Group([]webhookconf.Step{s})[0])
	Expect(diagnose.Held(diagnose.Config{}, true, live, "ships.example.org")).To(BeEmpty(), "if calls come through")
	found := diagnose.Held(diagnose.Config{}, false, live, "ships.example.org")
	held := And(HaveField("Code", diagnosis.HoldsObjects), HaveField("Severity", diagnosis.Warning), HaveField("Remedy", Not(BeEmpty())))
	Expect(found).To(HaveEach(held))
	Expect(found[0].Object).To(HaveSuffix(" ships.example.org"), "a conversion")
	if why == "" {
		Expect(found).To(HaveLen(1))
		return
	}
	Expect(found).To(HaveExactElements(Not(BeZero()), HaveField("Message", And(ContainSubstring(live.Name), HaveSuffix(why)))))
},
	Entry("a step for DELETE", " is called for DELETE", func(*webhookconf.Settings) {}, admissionregistrationv1.Delete),
	Entry("a step for all operations", " is called for DELETE", func(*webhookconf.Settings) {}, admissionregistrationv1.OperationAll),
	Entry("a step for every update", " is called when a finalizer is removed (Settings.EveryUpdate)", func(s *webhookconf.Settings) { s.EveryUpdate = true }, admissionregistrationv1.Update),
	Entry("no step for other updates", "", func(*webhookconf.Settings) {}, admissionregistrationv1.Update),
	Entry("no step for creations", "", func(s *webhookconf.Settings) { s.EveryUpdate = true }, admissionregistrationv1.Create),
	Entry("no step for a subresource", "", func(s *webhookconf.Settings) { s.Rules[0].Resources = []string{"pods/status"} }, admissionregistrationv1.Update),
	Entry("no step that ignores failures", "", func(s *webhookconf.Settings) { s.FailurePolicy = admissionregistrationv1.Ignore }, admissionregistrationv1.Delete),
)

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
		Must(admin().AdmissionregistrationV1().MutatingWebhookConfigurations().Patch(ctx, name, types.MergePatchType, []byte(`{"metadata":{"annotations":{"cert-manager.io/inject-ca-from":"a/b"}}}`), metav1.PatchOptions{}))
		r := d.run(ctx)
		Expect(r.Err()).NotTo(HaveOccurred())
		Expect(r.Findings).To(ContainElement(And(HaveField("Code", diagnosis.OtherInjector), HaveField("Object", ContainSubstring(name)), HaveField("Message", ContainSubstring("makes cert-manager write its caBundle")))))
	}, SpecTimeout(patience))

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

		ns := Must(admin().CoreV1().Namespaces().Get(ctx, d.Canary.Namespace, metav1.GetOptions{}))
		metav1.SetMetaDataLabel(&ns.ObjectMeta, "team", d.Options.Fingerprint)
		Must(admin().CoreV1().Namespaces().Update(ctx, ns, metav1.UpdateOptions{}))
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

// definitions is the path of all CustomResourceDefinitions.
const definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

var _ = Describe("A diagnosis of a conversion", Label("api-server"), func() {
	var (
		d   *deployment
		crd string
	)
	BeforeEach(func(ctx SpecContext) {
		d = newDeployment(ctx)
		crd = "shops." + d.Options.Fingerprint + ".example.com"
		d.Entries = []webhookconf.Entry{{
			Name: crd, Path: "/convert/" + crd, Converts: crd,
			Steps: []webhookconf.Step{webhookconf.VersionStep("v1", crd), webhookconf.VersionStep("v1beta1", crd)},
		}}
		d.Canary, d.Stored = diagnose.Canary{}, stored.Check
	})
	patch := func(ctx context.Context, text string, subresource ...string) {
		GinkgoHelper()
		Expect(admin().Discovery().RESTClient().Patch(types.MergePatchType).AbsPath(definitions, crd).SubResource(subresource...).
			Body([]byte(text)).Do(ctx).Error()).To(Succeed())
	}
	// define creates the definition, of which v1 is stored.
	define := func(ctx context.Context, versions ...string) {
		GinkgoHelper()
		all := []any{}
		for i, v := range versions {
			all = append(all, map[string]any{
				"name": v, "served": true, "storage": i == 0,
				"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
			})
		}
		client := admin().Discovery().RESTClient()
		Expect(client.Post().AbsPath(definitions).Body(Must(json.Marshal(map[string]any{
			"apiVersion": "apiextensions.k8s.io/v1", "kind": webhookconf.CRD.Name, "metadata": map[string]any{"name": crd},
			"spec": map[string]any{
				"group": d.Options.Fingerprint + ".example.com", "scope": "Namespaced", "versions": all,
				"names": map[string]any{"plural": "shops", "kind": "Shop", "listKind": "ShopList", "singular": "shop"},
			},
		}))).Do(ctx).Error()).To(Succeed())
		DeferCleanup(func(ctx context.Context) error { return client.Delete().AbsPath(definitions, crd).Do(ctx).Error() })
	}
	register := func(ctx context.Context) {
		GinkgoHelper()
		c := webhookconf.Conversions(dynamic.New(admin().Discovery().RESTClient()), []string{crd}, d.Owner)[0]
		Eventually(func() error { // the API server writes the status of a new definition meanwhile
			found, err := c.Get(ctx)
			if err == nil {
				_, _, err = c.Put(ctx, found, webhookconf.Change{
					Entries: &webhookconf.Desired{Entries: d.Entries, Options: d.Options, Version: "a"}, Bundle: d.authority.CertificatePEM,
				})
			}
			return err
		}).WithContext(ctx).WithTimeout(patience).WithPolling(10 * time.Millisecond).Should(Succeed())
	}

	It("warns that the definition is missing, reports that it is not registered, and finds nothing wrong then", func(ctx SpecContext) {
		r := d.run(ctx)
		Expect(r.Err()).NotTo(HaveOccurred())
		Expect(r.Findings).To(ContainElement(And(HaveField("Code", diagnosis.DefinitionMissing), HaveField("Severity", diagnosis.Warning),
			HaveField("Message", ContainSubstring(crd+" does not exist")), HaveField("Remedy", ContainSubstring("conversion.Of.CRD")))))
		define(ctx, "v1", "v1beta1")
		Expect(d.run(ctx)).To(haveOneProblem(diagnosis.NotRegistered, `has the conversion strategy "None"`))
		register(ctx)
		Expect(codes(d.run(ctx))).To(Equal([]diagnosis.Code{diagnosis.ReachedFromHere}))
		patch(ctx, `{"spec":{"conversion":{"strategy":"None","webhook":null}}}`)
		Expect(d.run(ctx)).To(haveOneProblem(diagnosis.NotRegistered, `has the conversion strategy "None"`))
	}, SpecTimeout(patience))

	It("reports that another program has it, and another address or injector", func(ctx SpecContext) {
		define(ctx, "v1", "v1beta1")
		register(ctx)
		ours := d.Owner
		d.Owner = "other/secret"
		Expect(d.run(ctx)).To(haveOneProblem(diagnosis.OwnedElsewhere, "not to this one (other/secret)"))
		d.Owner = ours
		patch(ctx, `{"metadata":{"annotations":{"cert-manager.io/inject-ca-from":"a/b"}},"spec":{"conversion":{"webhook":{"clientConfig":{"url":"https://127.0.0.1:1/other"}}}}}`)
		r := d.run(ctx)
		Expect(r).To(haveOneProblem(diagnosis.WrongTarget, "https://127.0.0.1:1/other instead of https://127.0.0.1:"+itoa(d.port())+"/convert/"+crd))
		Expect(codes(r)).To(ContainElement(diagnosis.OtherInjector))

		d.Verify = nil // as in a process that serves nothing, but knows which bundle was registered
		holding := func(bundle []byte) []diagnosis.Code {
			text := string(Must(json.Marshal(bundle)))
			patch(ctx, `{"spec":{"conversion":{"webhook":{"clientConfig":{"caBundle":`+text+`}}}}}`)
			return codes(d.run(ctx))
		}
		Expect(holding(newCA().CertificatePEM)).To(ContainElement(diagnosis.UnknownAuthority))
		Expect(holding(nil)).To(And(ContainElement(diagnosis.BundleEmpty), Not(ContainElement(diagnosis.UnknownAuthority))))
	}, SpecTimeout(patience))

	It("names the versions in which objects may be stored, and follows their migration", func(ctx SpecContext) {
		define(ctx, "v1", "v1beta1")
		register(ctx)
		object := "CustomResourceDefinition " + crd
		found := func(storedVersions, condition string) (diagnosis.Finding, bool) {
			GinkgoHelper()
			patch(ctx, `{"status":{"storedVersions":`+storedVersions+`,"conditions":[`+condition+`]}}`, "status")
			return d.run(ctx).Find(diagnosis.StillStored)
		}
		still := func(storedVersions, condition string) diagnosis.Finding {
			GinkgoHelper()
			f, ok := found(storedVersions, condition)
			Expect(ok).To(BeTrue())
			Expect(f).To(And(HaveField("Object", object), HaveField("Remedy", ContainSubstring("examples/migrate@latest -resource "+crd))))
			return f
		}
		condition := func(status, reason, message string) string {
			return fmt.Sprintf(`{"type":"StorageMigrating","status":%q,"reason":%q,"message":%q,"lastTransitionTime":"2026-01-01T00:00:00Z"}`, status, reason, message)
		}
		const both = `["v1beta1","v1"]`
		failed := condition("False", "MigrationFailed", "The migration has failed")

		Expect(still(both, "")).To(And(HaveField("Severity", diagnosis.Note), HaveField("Evidence", BeEmpty()),
			HaveField("Message", ContainSubstring("may still be stored in v1beta1, so")), HaveField("Remedy", HavePrefix("before you remove a version or this webhook, migrate"))))
		Expect(still(both, condition("True", "MigrationRunning", "Migration m is running"))).To(And(
			HaveField("Remedy", HavePrefix("wait: once the migration has succeeded, status.storedVersions lists v1 alone")), HaveField("Evidence", "Migration m is running")))
		Expect(still(both, failed)).To(And(HaveField("Severity", diagnosis.Note), HaveField("Evidence", "The migration has failed"), HaveField("Remedy", HavePrefix("before"))))
		Expect(still(`["v1"]`, failed)).To(And(HaveField("Severity", diagnosis.Warning),
			HaveField("Message", ContainSubstring("may still be stored in v1beta1, although status.storedVersions does not list it")),
			HaveField("Remedy", HaveSuffix(`kubectl patch crd `+crd+` --subresource=status --type=merge -p '{"status":{"storedVersions":["v1","v1beta1"]}}'`))))
		_, ok := found(`["v1"]`, condition("False", "MigrationSucceeded", "The migration has succeeded"))
		Expect(ok).To(BeFalse())
		_, ok = found(`["v1"]`, "")
		Expect(ok).To(BeFalse())
	}, SpecTimeout(2*patience))

	It("counts the objects that have lost values, if it is asked to look at others", func(ctx SpecContext) {
		define(ctx, "v1", "v1beta1")
		register(ctx)
		group := d.Options.Fingerprint + ".example.com"
		namespace := d.Options.Namespace
		create := func(name string, annotations map[string]string) {
			GinkgoHelper()
			body := Must(json.Marshal(map[string]any{"apiVersion": group + "/v1", "kind": "Shop", "metadata": map[string]any{"name": name, "annotations": annotations}}))
			Eventually(func() error {
				return admin().Discovery().RESTClient().Post().AbsPath("/apis", group, "v1", "namespaces", namespace, "shops").Body(body).Do(ctx).Error()
			}).WithContext(ctx).WithTimeout(patience).Should(Succeed())
		}
		create("whole", map[string]string{convert.Prefix + "a": "x"})
		_, found := d.run(ctx).Find(diagnosis.Incomplete)
		Expect(found).To(BeFalse())

		for _, name := range []string{"a", "b", "c", "d"} {
			create(name, map[string]string{convert.Incomplete: `{"v1":[".spec"]}`})
		}
		f, found := d.run(ctx).Find(diagnosis.Incomplete)
		Expect(found).To(BeTrue())
		Expect(f).To(And(
			HaveField("Severity", diagnosis.Warning), HaveField("Object", "CustomResourceDefinition "+crd), HaveField("Remedy", ContainSubstring(convert.Incomplete)),
			HaveField("Message", fmt.Sprintf("4 objects of CustomResourceDefinition %s have lost values that their annotations could not hold, such as %s/a, %[2]s/b, %[2]s/c", crd, namespace)),
		))

		d.Others = false
		r := d.run(ctx)
		_, found = r.Find(diagnosis.Incomplete)
		Expect(found).To(BeFalse())
		Expect(r.Rights()).NotTo(ContainElement(HaveField("Resource", "shops")))
	}, SpecTimeout(2*patience))
})
