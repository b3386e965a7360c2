package diagnose_test

// The conversion webhooks of CustomResourceDefinitions, in the form in which the API server stores them.

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"code.cloudfoundry.org/eirinix/diagnosis"
	"code.cloudfoundry.org/eirinix/internal/convert"
	"code.cloudfoundry.org/eirinix/internal/convert/stored"
	"code.cloudfoundry.org/eirinix/internal/diagnose"
	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

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
		Expect(client.Post().AbsPath(definitions).Body(must(json.Marshal(map[string]any{
			"apiVersion": "apiextensions.k8s.io/v1", "kind": webhookconf.CRD.Name, "metadata": map[string]any{"name": crd},
			"spec": map[string]any{
				"group": d.Options.Fingerprint + ".example.com", "scope": "Namespaced", "versions": all,
				"names": map[string]any{"plural": "shops", "kind": "Shop", "listKind": "ShopList", "singular": "shop"},
			},
		}))).Do(ctx).Error()).To(Succeed())
		DeferCleanup(func(ctx context.Context) error {
			return client.Delete().AbsPath(definitions, crd).Do(ctx).Error()
		})
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
	}, SpecTimeout(patience))

	It("reports that the caBundle is not ours", func(ctx SpecContext) {
		define(ctx, "v1", "v1beta1")
		register(ctx)
		foreign := fmt.Sprintf(`{"spec":{"conversion":{"webhook":{"clientConfig":{"caBundle":%s}}}}}`, must(json.Marshal(newCA().CertificatePEM)))
		patch(ctx, foreign)
		Expect(d.run(ctx)).To(haveOneProblem(diagnosis.UnknownAuthority, "does not verify against the caBundle of webhook spec.conversion of CustomResourceDefinition "+crd))

		d.Verify = nil
		Expect(d.run(ctx)).To(haveOneProblem(diagnosis.UnknownAuthority, "is not the one that this program has registered"))
		patch(ctx, `{"spec":{"conversion":{"webhook":{"clientConfig":{"caBundle":null}}}}}`)
		Expect(d.run(ctx)).To(haveOneProblem(diagnosis.BundleEmpty))
	}, SpecTimeout(patience))

	It("counts the objects that have lost values, if it is asked to look at others", func(ctx SpecContext) {
		define(ctx, "v1", "v1beta1")
		register(ctx)
		group := d.Options.Fingerprint + ".example.com"
		namespace := d.Options.Namespace
		create := func(name string, annotations map[string]string) {
			GinkgoHelper()
			body := must(json.Marshal(map[string]any{"apiVersion": group + "/v1", "kind": "Shop", "metadata": map[string]any{"name": name, "annotations": annotations}}))
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

	It("names the right that it lacks", func(ctx SpecContext) {
		define(ctx, "v1", "v1beta1")
		d.as(ctx)
		r := d.run(ctx)
		f, found := r.Find(diagnosis.CheckSkipped)
		Expect(found).To(BeTrue())
		Expect(f.Rights).To(ContainElement(diagnosis.Right{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions", Verb: "get", Name: crd}))
	}, SpecTimeout(patience))
})
