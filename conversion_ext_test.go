package eirinix_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"

	"code.cloudfoundry.org/eirinix/conversion"

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
	. "code.cloudfoundry.org/eirinix/internal/spectest"
)

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
	create := func(ctx context.Context, s *unstructured.Unstructured) {
		GinkgoHelper()
		Eventually(func() error { return cluster.Create(ctx, s.DeepCopy()) }).WithContext(ctx).WithTimeout(patience).Should(Succeed())
	}
	priced := func(name, price string) *unstructured.Unstructured {
		s := shop("v1", name)
		s.Object["price"] = price
		return s
	}
	run := func(ctx context.Context) *eirinix.ExtensionManager {
		GinkgoHelper()
		m := eirinix.NewManager(urlOptions(namespace))
		Expect(m.AddExtension(shopConversion(group))).To(Succeed())
		runManager(ctx, m)
		return m
	}
	registered := func(ctx context.Context) map[string]any {
		GinkgoHelper()
		crd := definition(group)
		Expect(cluster.Get(ctx, client.ObjectKeyFromObject(crd), crd)).To(Succeed())
		c, _, _ := unstructured.NestedMap(crd.Object, "spec", "conversion")
		return c
	}

	It("is registered, and serves each version", func(ctx SpecContext) {
		define(ctx)
		run(ctx)
		create(ctx, priced("a", "12 EUR"))
		Eventually(func(g Gomega) {
			older, err := read(ctx, "v1beta1", "a")
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(older.Object).To(And(HaveKeyWithValue("amount", int64(12)), HaveKeyWithValue("currency", "EUR"), Not(HaveKey("price"))))
		}).WithContext(ctx).WithTimeout(patience).Should(Succeed())

		written := shop("v1beta1", "b")
		written.Object["amount"], written.Object["currency"] = int64(7), "USD"
		Expect(cluster.Create(ctx, written)).To(Succeed())
		newer, err := read(ctx, "v1", "b")
		Expect(err).NotTo(HaveOccurred())
		Expect(newer.Object).To(HaveKeyWithValue("price", "7 USD"))
		Expect(newer.GetUID()).To(Equal(written.GetUID()))

		all := &unstructured.UnstructuredList{}
		all.SetAPIVersion(group + "/v1beta1")
		all.SetKind("ShopList")
		Expect(cluster.List(ctx, all, client.InNamespace(namespace))).To(Succeed())
		Expect(all.Items).To(HaveLen(2))
		Expect(all.Items).To(HaveEach(HaveField("Object", HaveKey("amount"))))
	}, SpecTimeout(3*patience))

	It("fails for an object that cannot be converted, with its name", func(ctx SpecContext) {
		define(ctx)
		run(ctx)
		create(ctx, priced("odd", "a lot"))
		Eventually(func() error { _, err := read(ctx, "v1beta1", "odd"); return err }).WithContext(ctx).WithTimeout(patience).
			Should(MatchError(And(ContainSubstring(namespace+"/odd"), ContainSubstring(`price "a lot" is no amount`))))
		_, err := read(ctx, "v1", "odd")
		Expect(err).NotTo(HaveOccurred(), "its own version needs no conversion")
	}, SpecTimeout(2*patience))

	It("is registered once a definition comes that did not exist at the start", func(ctx SpecContext) {
		o := urlOptions(namespace)
		logger, logs := Observed()
		o.Logger = logger
		m := eirinix.NewManager(o)
		Expect(m.AddExtension(shopConversion(group))).To(Succeed())
		Expect(m.AddExtension(shopConversion("another." + group))).To(Succeed())
		runManager(ctx, m)
		waiting := func() (reasons []any) {
			for _, entry := range logs.FilterMessage("waiting for objects that this program does not create").All() {
				reasons = append(reasons, entry.ContextMap()["reason"])
			}
			return reasons
		}
		both := fmt.Sprintf("CustomResourceDefinition shops.%s, CustomResourceDefinition shops.another.%[1]s", group)
		Eventually(waiting).WithContext(ctx).WithTimeout(patience).Should(ContainElement(both))
		define(ctx)
		Eventually(waiting).WithContext(ctx).WithTimeout(patience).Should(ContainElement("CustomResourceDefinition shops.another." + group))
		Expect(certificateMetrics(namespace)).To(HaveKeyWithValue("eirinix_registration_waiting definition", 1.))
		create(ctx, priced("a", "12 EUR"))
		Eventually(func() error { _, err := read(ctx, "v1beta1", "a"); return err }).WithContext(ctx).WithTimeout(patience).Should(Succeed())
		Expect(cluster.Create(ctx, twoVersions("another."+group))).To(Succeed())
		DeferCleanup(cluster.Delete, twoVersions("another."+group))
		Eventually(func() map[string]float64 { return certificateMetrics(namespace) }).WithContext(ctx).WithTimeout(patience).
			Should(HaveKeyWithValue("eirinix_registration_waiting definition", 0.))
	}, SpecTimeout(3*patience))

	It("is repaired, with its caBundle", func(ctx SpecContext) {
		define(ctx)
		run(ctx)
		Eventually(registered).WithArguments(ctx).Should(HaveKeyWithValue("strategy", "Webhook"))
		whole := registered(ctx)
		for _, damage := range []string{
			`{"spec":{"conversion":{"strategy":"None","webhook":null}}}`,
			`{"spec":{"conversion":{"webhook":{"clientConfig":{"caBundle":null}}}}}`,
			`{"spec":{"conversion":{"webhook":{"clientConfig":{"url":"https://127.0.0.1:1/convert"}}}}}`,
		} {
			Expect(cluster.Patch(ctx, definition(group), client.RawPatch("application/merge-patch+json", []byte(damage)))).To(Succeed())
			Eventually(registered).WithArguments(ctx).WithContext(ctx).WithTimeout(patience).Should(Equal(whole), damage)
		}
	}, SpecTimeout(4*patience))

	It("fails no read while the CA is replaced", func(ctx SpecContext) {
		define(ctx)
		m := run(ctx)
		create(ctx, priced("a", "12 EUR"))
		Eventually(func() error { _, err := read(ctx, "v1beta1", "a"); return err }).WithContext(ctx).WithTimeout(patience).Should(Succeed())
		before := registered(ctx)

		var reads atomic.Int64
		reading, stop := context.WithCancel(ctx)
		failed := make(chan error, 1)
		go func() {
			for reading.Err() == nil {
				if _, err := read(reading, "v1beta1", "a"); err != nil && reading.Err() == nil {
					failed <- err
					return
				}
				reads.Add(1)
			}
			failed <- nil
		}()
		Expect(m.RotateCA(ctx, eirinix.RotateOptions{})).To(Succeed())
		seen := reads.Load()
		Eventually(reads.Load).WithContext(ctx).WithTimeout(patience).Should(BeNumerically(">", seen+20), "after the rotation too")
		stop()
		Expect(<-failed).NotTo(HaveOccurred())
		Expect(registered(ctx)).NotTo(Equal(before))
	}, SpecTimeout(4*patience))

	It("stays registered while the definition needs it", func(ctx SpecContext) {
		define(ctx)
		m := run(ctx)
		Eventually(registered).WithArguments(ctx).Should(HaveKeyWithValue("strategy", "Webhook"))
		Expect(m.Unregister(ctx)).To(MatchError(And(ContainSubstring("serves or stores v1, v1beta1"), ContainSubstring("first serve one version alone"))))
		Expect(registered(ctx)).To(HaveKeyWithValue("strategy", "Webhook"))
	}, SpecTimeout(2*patience))

	It("needs no more rights than manifests grant, and those on its definition alone", func(ctx SpecContext) {
		define(ctx)
		p, err := newPlay(ctx, func(p *play) { p.added = []any{shopConversion(group)} })
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(p.clear)
		connection, err := p.connect(ctx, false)
		Expect(err).NotTo(HaveOccurred())
		runManager(ctx, p.manager(connection, func(o *eirinix.ManagerOptions) { o.ListenAddress = fmt.Sprint("127.0.0.1:", o.Port) }))
		Eventually(registered).WithArguments(ctx).WithTimeout(patience).Should(HaveKeyWithValue("strategy", "Webhook"))
		Expect(cluster.Patch(ctx, definition(group), client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"conversion":{"strategy":"None","webhook":null}}}`)))).To(Succeed())
		Eventually(registered).WithArguments(ctx).WithTimeout(patience).Should(HaveKeyWithValue("strategy", "Webhook"), "it watches the definition")
		Expect(p.used.refusals()).To(BeEmpty())
		Expect(p.used.rights()).To(ContainElements(right{"patch", "customresourcedefinitions"}, right{"watch", "customresourcedefinitions"}))

		objects, err := p.manifests()
		Expect(err).NotTo(HaveOccurred())
		var granted []rbacv1.PolicyRule
		for _, o := range objects {
			for _, r := range rulesOf(o) {
				if resourceOf(r) == "customresourcedefinitions" {
					granted = append(granted, r)
				}
			}
		}
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
		earlier := eirinix.NewManager(o)
		Expect(earlier.AddExtension(shopConversion(group))).To(Succeed())
		create(ctx, priced("a", "12 EUR"))
		Expect(earlier.RegisterExtensions()).To(Succeed())
		Eventually(func() error { _, err := read(ctx, "v1beta1", "a"); return err }).WithContext(ctx).WithTimeout(patience).
			Should(MatchError(ContainSubstring("conversion webhook for")), "as no program serves yet")

		mgr, err := manager.New(controlPlane().Config(), manager.Options{
			Metrics: metricsserver.Options{BindAddress: "0"}, Controller: config.Controller{SkipNameValidation: new(true)},
		})
		Expect(err).NotTo(HaveOccurred())
		_, err = mgr.GetCache().GetInformer(ctx, shop("v1beta1", ""), cache.BlockUntilSynced(false))
		Expect(err).NotTo(HaveOccurred())
		o.KubeManager, o.RestConfig = mgr, nil
		m := eirinix.NewManager(o)
		Expect(m.AddExtension(shopConversion(group))).To(Succeed())
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
		version := func(c conversion.Of[*unstructured.Unstructured]) *eirinix.ExtensionManager {
			o := urlOptions(namespace)
			o.Host, o.ServiceName, o.WebhookNamespace = "", "hooks", namespace
			m := eirinix.NewManager(o)
			Expect(m.AddExtension(c)).To(Succeed())
			startManager(ctx, m)
			Eventually(m.Addr).WithTimeout(patience).ShouldNot(BeNil())
			return m
		}
		older := version(shopConversion(group))
		probe := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}, Timeout: patience}
		// ask has the replica convert a shop to a version, and returns the answer.
		ask := func(to string) (status int, closes bool, answer string) {
			resp, err := probe.Post(fmt.Sprintf("https://%s/convert/shops.%s", older.Addr(), group), "application/json", strings.NewReader(fmt.Sprintf(
				`{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","request":{"uid":"u","desiredAPIVersion":"%[1]s/%[2]s","objects":[{"apiVersion":"%[1]s/v1","kind":"Shop","price":"1 EUR"}]}}`,
				group, to)))
			if err != nil {
				return 0, false, err.Error()
			}
			defer resp.Body.Close()
			text, err := io.ReadAll(resp.Body)
			Expect(err).NotTo(HaveOccurred())
			return resp.StatusCode, resp.Close, string(text)
		}
		Eventually(func() string { _, _, answer := ask("v1beta1"); return answer }).WithTimeout(patience).Should(ContainSubstring(`"amount":1`))
		status, _, answer := ask("v2")
		Expect(status).To(Equal(http.StatusOK))
		Expect(answer).To(ContainSubstring("the webhook converts any kind of "+group), "no other version is known")

		newer := shopConversion(group)
		same := func(_ context.Context, o *unstructured.Unstructured) (*unstructured.Unstructured, error) {
			return o, nil
		}
		newer.Spokes = append(newer.Spokes, conversion.NewSpoke("v2", same, same))
		replica := version(newer)
		Eventually(func(g Gomega) {
			status, closes, answer := ask("v2")
			g.Expect(status).To(Equal(http.StatusServiceUnavailable))
			g.Expect(closes).To(BeTrue())
			g.Expect(answer).To(ContainSubstring(group + "/v2 is converted by another version of the program"))
		}).WithContext(ctx).WithTimeout(patience).Should(Succeed())
		_, _, answer = ask("v1beta1")
		Expect(answer).To(ContainSubstring(`"amount":1`))

		replica.Stop()
		Eventually(func() int { status, _, _ := ask("v2"); return status }).WithContext(ctx).WithTimeout(patience).
			Should(Equal(http.StatusOK), "no other replica can answer, so a retry would cost time alone")
	}, SpecTimeout(3*patience))

	It("is registered by a program that does not serve", func(ctx SpecContext) {
		define(ctx)
		o := urlOptions(namespace)
		o.ListenAddress, o.Port = "", 9443
		m := eirinix.NewManager(o)
		Expect(m.AddExtension(shopConversion(group))).To(Succeed())
		Expect(m.RegisterExtensions()).To(Succeed())
		Expect(registered(ctx)).To(HaveKeyWithValue("webhook", HaveKeyWithValue("clientConfig", HaveKeyWithValue("url", "https://127.0.0.1:9443/convert/shops."+group))))
	}, SpecTimeout(2*patience))
})
