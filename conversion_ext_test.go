package eirinix_test

// This file specifies Conversions in a real API server: their registration, their rights, and which replica answers.

import (
	"context"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/conversion"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
)

// unchanged is the conversion of an object that the other version holds as it is.
func unchanged(_ context.Context, o *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	return o, nil
}

// shopConversion converts shops between v1, with the price "12 EUR", and v1beta1, with an amount and a currency.
func shopConversion(group string) conversion.Of[*unstructured.Unstructured] {
	return conversion.Of[*unstructured.Unstructured]{
		CRD: "shops." + group, Version: "v1",
		Spokes: []conversion.Spoke[*unstructured.Unstructured]{conversion.NewSpoke("v1beta1",
			func(_ context.Context, from *unstructured.Unstructured) (*unstructured.Unstructured, error) {
				amount, _, _ := unstructured.NestedInt64(from.Object, "amount")
				currency, _, _ := unstructured.NestedString(from.Object, "currency")
				from.Object["price"] = fmt.Sprintf("%d %s", amount, currency)
				delete(from.Object, "amount")
				delete(from.Object, "currency")
				return from, nil
			},
			func(_ context.Context, from *unstructured.Unstructured) (*unstructured.Unstructured, error) {
				price, _, _ := unstructured.NestedString(from.Object, "price")
				var amount int64
				var currency string
				if price == "boom" {
					panic(price)
				}
				if _, err := fmt.Sscanf(price, "%d %s", &amount, &currency); err != nil {
					return nil, fmt.Errorf("price %q is no amount with a currency", price)
				}
				delete(from.Object, "price")
				from.Object["amount"], from.Object["currency"] = amount, currency
				return from, nil
			},
		)},
	}
}

// twoVersions is the definition of shops, which are stored in v1 and served in v1beta1 too.
func twoVersions(group string) *unstructured.Unstructured {
	crd := definition(group)
	versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	older := (&unstructured.Unstructured{Object: versions[0].(map[string]any)}).DeepCopy().Object
	older["name"], older["storage"] = "v1beta1", false
	Expect(unstructured.SetNestedSlice(crd.Object, append(versions, older), "spec", "versions")).To(Succeed())
	return crd
}

var _ = Describe("A Conversion", Label("api-server"), func() {
	var (
		namespace, group string
		cluster          client.Client
	)
	BeforeEach(func(ctx SpecContext) {
		namespace = newNamespace(ctx)
		group = namespace + ".example.com"
		cluster = anyClient()
	})

	define := func(ctx context.Context) {
		GinkgoHelper()
		Expect(cluster.Create(ctx, twoVersions(group))).To(Succeed())
		DeferCleanup(cluster.Delete, twoVersions(group))
	}
	damage := func(ctx context.Context, patch string) {
		GinkgoHelper()
		Expect(cluster.Patch(ctx, definition(group), client.RawPatch("application/merge-patch+json", []byte(patch)))).To(Succeed())
	}
	shop := func(version, name string) *unstructured.Unstructured {
		s := newShop(group, namespace, name)
		s.SetAPIVersion(group + "/" + version)
		return s
	}
	read := func(ctx context.Context, version, name string) (*unstructured.Unstructured, error) {
		s := shop(version, name)
		return s, cluster.Get(ctx, client.ObjectKeyFromObject(s), s)
	}
	// create waits until the API server serves the kind.
	create := func(ctx context.Context, name, price string) {
		GinkgoHelper()
		s := shop("v1", name)
		s.Object["price"] = price
		Eventually(func() error { return cluster.Create(ctx, s.DeepCopy()) }).WithContext(ctx).WithTimeout(patience).Should(Succeed())
	}
	registered := func(ctx context.Context) map[string]any {
		GinkgoHelper()
		crd := definition(group)
		Expect(cluster.Get(ctx, client.ObjectKeyFromObject(crd), crd)).To(Succeed())
		c, _, _ := unstructured.NestedMap(crd.Object, "spec", "conversion")
		return c
	}

	It("serves each version, fails with the name of an object that cannot be converted, and is repaired while the definition needs it", func(ctx SpecContext) {
		define(ctx)
		m := managerWith(urlOptions(namespace), shopConversion(group))
		runManager(ctx, m)
		create(ctx, "a", "12 EUR")
		Eventually(func(g Gomega) {
			older, err := read(ctx, "v1beta1", "a")
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(older.Object).To(And(HaveKeyWithValue("amount", int64(12)), HaveKeyWithValue("currency", "EUR"), Not(HaveKey("price"))))
		}).WithContext(ctx).WithTimeout(patience).Should(Succeed())
		written := shop("v1beta1", "b")
		written.Object["amount"], written.Object["currency"] = int64(7), "USD"
		Expect(cluster.Create(ctx, written)).To(Succeed())
		Expect(read(ctx, "v1", "b")).To(HaveField("Object", HaveKeyWithValue("price", "7 USD")))
		all := &unstructured.UnstructuredList{}
		all.SetAPIVersion(group + "/v1beta1")
		all.SetKind("ShopList")
		Expect(cluster.List(ctx, all, client.InNamespace(namespace))).To(Succeed())
		Expect(all.Items).To(And(HaveLen(2), HaveEach(HaveField("Object", HaveKey("amount")))))

		create(ctx, "odd", "a lot")
		_, err := read(ctx, "v1beta1", "odd")
		Expect(err).To(MatchError(And(ContainSubstring(namespace+"/odd"), ContainSubstring(`price "a lot" is no amount`))))
		create(ctx, "bad", "boom")
		_, err = read(ctx, "v1beta1", "bad")
		Expect(err).To(MatchError(ContainSubstring("the conversion panicked: boom")))
		_, err = read(ctx, "v1", "odd")
		Expect(err).NotTo(HaveOccurred(), "its own version needs no conversion")

		By("damaging the registration")
		whole := registered(ctx)
		Expect(whole).To(HaveKeyWithValue("strategy", "Webhook"))
		damage(ctx, `{"spec":{"conversion":{"webhook":{"clientConfig":{"url":"https://127.0.0.1:1/convert"}}}}}`)
		Eventually(registered).WithArguments(ctx).WithContext(ctx).WithTimeout(patience).Should(Equal(whole))
		Expect(m.Unregister(ctx)).To(MatchError(And(ContainSubstring("serves or stores v1, v1beta1"), ContainSubstring("first serve one version alone"))))
		Expect(registered(ctx)).To(Equal(whole))
	}, SpecTimeout(6*patience))

	It("is registered once a definition comes that did not exist at the start", func(ctx SpecContext) {
		o := urlOptions(namespace)
		logger, logs := Observed()
		o.Logger = logger
		runManager(ctx, managerWith(o, shopConversion(group)))
		Eventually(logs.FilterMessage).WithArguments("waiting for objects that this program does not create").WithContext(ctx).WithTimeout(patience).
			Should(HaveField("All()", ContainElement(HaveField("ContextMap()", HaveKeyWithValue("reason", "CustomResourceDefinition shops."+group)))))
		Expect(certificateMetrics(namespace)).To(HaveKeyWithValue("eirinix_registration_waiting definition", 1.))
		define(ctx)
		create(ctx, "a", "12 EUR")
		Eventually(func() error { _, err := read(ctx, "v1beta1", "a"); return err }).WithContext(ctx).WithTimeout(patience).Should(Succeed())
		Eventually(certificateMetrics).WithArguments(namespace).WithContext(ctx).WithTimeout(patience).Should(HaveKeyWithValue("eirinix_registration_waiting definition", 0.))
	}, SpecTimeout(3*patience))

	It("needs no more rights than manifests grant, and those on its definition alone", func(ctx SpecContext) {
		define(ctx)
		p := newPlay(ctx, func(p *play) { p.added = []any{shopConversion(group)} })
		runManager(ctx, p.manager(p.connect(ctx, false), func(o *eirinix.ManagerOptions) { o.ListenAddress = fmt.Sprint("127.0.0.1:", o.Port) }))
		Eventually(registered).WithArguments(ctx).WithTimeout(patience).Should(HaveKeyWithValue("strategy", "Webhook"))
		damage(ctx, `{"spec":{"conversion":{"strategy":"None","webhook":null}}}`)
		Eventually(registered).WithArguments(ctx).WithTimeout(patience).Should(HaveKeyWithValue("strategy", "Webhook"), "it watches the definition")
		Expect(p.used.refusals()).To(BeEmpty())
		Expect(p.used.rights()).To(ContainElements(right{"patch", "customresourcedefinitions"}, right{"watch", "customresourcedefinitions"}))

		var all, granted []rbacv1.PolicyRule
		for _, o := range Must(p.manifests()) {
			all = append(all, rulesOf(o)...)
		}
		Expect(all).To(ContainElement(HaveField("Resources", ConsistOf("customresourcedefinitions")), &granted))
		Expect(granted).To(ConsistOf(rbacv1.PolicyRule{
			APIGroups: []string{"apiextensions.k8s.io"}, Resources: []string{"customresourcedefinitions"},
			ResourceNames: []string{"shops." + group}, Verbs: []string{"get", "list", "patch", "watch"},
		}))
	}, SpecTimeout(4*patience))

	It("is served before the caches of a KubeManager are filled, which wait for it", func(ctx SpecContext) {
		define(ctx)
		o := urlOptions(namespace)
		o.Port = FreePort()
		o.ListenAddress = fmt.Sprint("127.0.0.1:", o.Port)
		create(ctx, "a", "12 EUR")
		Expect(managerWith(o, shopConversion(group)).RegisterExtensions()).To(Succeed())
		Eventually(func() error { _, err := read(ctx, "v1beta1", "a"); return err }).WithContext(ctx).WithTimeout(patience).
			Should(MatchError(ContainSubstring("conversion webhook for")), "as no program serves yet")

		mgr, err := manager.New(controlPlane().Config(), manager.Options{
			Metrics: metricsserver.Options{BindAddress: "0"}, Controller: config.Controller{SkipNameValidation: new(true)},
		})
		Expect(err).NotTo(HaveOccurred())
		_, err = mgr.GetCache().GetInformer(ctx, shop("v1beta1", ""), cache.BlockUntilSynced(false))
		Expect(err).NotTo(HaveOccurred())
		o.KubeManager, o.RestConfig = mgr, nil
		m := managerWith(o, shopConversion(group))
		running, stop := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- mgr.Start(running) }()
		DeferCleanup(func() { stop(); Eventually(ended).WithTimeout(patience).Should(Receive(BeNil())) })
		Eventually(func(g Gomega) {
			cached := shop("v1beta1", "a")
			g.Expect(mgr.GetCache().Get(ctx, client.ObjectKeyFromObject(cached), cached)).To(Succeed())
			g.Expect(cached.Object).To(HaveKeyWithValue("amount", int64(12)))
		}).WithContext(ctx).WithTimeout(patience).Should(Succeed())
		Eventually(m.Ready()).WithTimeout(patience).Should(BeClosed())
	}, SpecTimeout(4*patience))

	It("that a newer version of the program has is left to that version", func(ctx SpecContext) {
		define(ctx)
		older := newReplica(ctx, namespace, shopConversion(group))
		object := fmt.Sprintf(`{"apiVersion":"%s/v1","kind":"Shop","price":"1 EUR"}`, group)
		Expect(older.convert("v1beta1", object)).To(ContainSubstring(`"amount":1`))
		_, err := older.convert("v2", object)
		Expect(err).To(MatchError(And(HavePrefix("200: "), ContainSubstring("the webhook converts any kind of "+group))), "no other version is known")

		newer := shopConversion(group)
		newer.Spokes = append(newer.Spokes, conversion.NewSpoke("v2", unchanged, unchanged))
		other := newReplica(ctx, namespace, newer)
		Eventually(func() error { _, err := older.convert("v2", object); return err }).WithContext(ctx).WithTimeout(patience).
			Should(MatchError(And(HavePrefix("503, closing: "), ContainSubstring(group+"/v2 is converted by another version of the program"))))
		Expect(older.convert("v1beta1", object)).To(ContainSubstring(`"amount":1`))

		other.Stop()
		Eventually(func() error { _, err := older.convert("v2", object); return err }).WithContext(ctx).WithTimeout(patience).
			Should(MatchError(HavePrefix("200: ")), "no other replica can answer, so a retry would cost time alone")
	}, SpecTimeout(3*patience))
})
