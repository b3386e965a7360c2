package eirinix_test

// This file specifies Conversions in a real API server: their registration, their rights, which replica answers, and the keys that
// sign what they keep: how replicas make, share, replace and lose them.

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

		mgr := Must(manager.New(controlPlane().Config(), manager.Options{Metrics: metricsserver.Options{BindAddress: "0"}, Controller: config.Controller{SkipNameValidation: new(true)}}))
		Must(mgr.GetCache().GetInformer(ctx, shop("v1beta1", ""), cache.BlockUntilSynced(false)))
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

// notedShops converts shops, of which v1beta1 lacks the note.
func notedShops(group string) conversion.Of[*unstructured.Unstructured] {
	return conversion.Of[*unstructured.Unstructured]{
		CRD: "shops." + group, Version: "v1",
		Spokes: []conversion.Spoke[*unstructured.Unstructured]{conversion.NewSpoke("v1beta1", unchanged,
			func(_ context.Context, from *unstructured.Unstructured) (*unstructured.Unstructured, error) {
				delete(from.Object, "note")
				return from, nil
			},
		)},
	}
}

// replica is one of the processes of a program, which a spec calls itself.
type replica struct {
	*eirinix.ExtensionManager
	client *http.Client
	path   string
}

// newReplica runs a replica with a Conversion until the spec ends.
func newReplica(ctx context.Context, namespace string, c conversion.Of[*unstructured.Unstructured], changes ...func(*eirinix.ManagerOptions)) replica {
	GinkgoHelper()
	o := urlOptions(namespace)
	o.Host, o.ServiceName, o.WebhookNamespace, o.DrainDelay = "", "shops", namespace, -1 // nothing balances calls of replicas here
	for _, change := range changes {
		change(&o)
	}
	r := replica{managerWith(o, c), &http.Client{
		Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}, Timeout: patience,
	}, "/convert/" + c.CRD}
	startManager(ctx, r.ExtensionManager) // it is not ready for a while, because no API server can call it
	Eventually(r.Addr).WithContext(ctx).WithTimeout(patience).ShouldNot(BeNil())
	Eventually(func() error { _, err := r.convert("v1", `{"apiVersion":"`+r.group()+`/v1","kind":"Shop"}`); return err }).WithContext(ctx).WithTimeout(patience).Should(Succeed())
	return r
}

// group is that of the kind that the replica converts.
func (r replica) group() string {
	_, group, _ := strings.Cut(r.path, ".")
	return group
}

// convert returns the object in another version, or the status and the text of an answer without it.
func (r replica) convert(version, object string) (string, error) {
	body := fmt.Sprintf(`{"kind":"ConversionReview","apiVersion":"apiextensions.k8s.io/v1","request":{"uid":"u","desiredAPIVersion":"%s/%s","objects":[%s]}}`,
		r.group(), version, object)
	response, err := r.client.Post("https://"+r.Addr().String()+r.path, "application/json", strings.NewReader(body))
	if err != nil {
		return "", err
	}
	defer response.Body.Close() //nolint:errcheck // it has been read
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return "", err
	}
	var answer struct {
		Response struct{ ConvertedObjects []json.RawMessage }
	}
	if err := json.Unmarshal(text, &answer); err == nil && len(answer.Response.ConvertedObjects) == 1 {
		return string(answer.Response.ConvertedObjects[0]), nil
	}
	return "", fmt.Errorf("%d%s: %s", response.StatusCode, map[bool]string{true: ", closing"}[response.Close], text)
}

var _ = Describe("The keys of conversions", Label("api-server"), func() {
	var namespace, group, secretName string
	BeforeEach(func(ctx SpecContext) {
		namespace = newNamespace(ctx)
		group, secretName = namespace+".example.com", namespace+"-conversions"
	})

	begin := func(ctx context.Context, changes ...func(*eirinix.ManagerOptions)) replica {
		GinkgoHelper()
		return newReplica(ctx, namespace, notedShops(group), changes...)
	}
	secret := func(ctx context.Context) *corev1.Secret {
		GinkgoHelper()
		return Must(clients().CoreV1().Secrets(namespace).Get(ctx, secretName, metav1.GetOptions{}))
	}
	shop := func(i int) string {
		return fmt.Sprintf(`{"apiVersion":"%s/v1","kind":"Shop","metadata":{"name":"a"},"note":"n%d"}`, group, i)
	}
	// travels converts an object there with one replica, and back with another.
	travels := func(i int, there, back replica) error {
		older, err := there.convert("v1beta1", shop(i))
		if err != nil {
			return err
		}
		newer, err := back.convert("v1", older)
		if err != nil {
			return err
		}
		if same, err := MatchJSON(shop(i)).Match(newer); err != nil || !same || strings.Contains(older, `"note":"`) {
			return fmt.Errorf("%s went to %s and came back as %s", shop(i), older, newer)
		}
		return nil
	}

	It("are made once by replicas that start at the same time", func(ctx SpecContext) {
		replicas := make([]replica, 3)
		var starting sync.WaitGroup
		for i := range replicas {
			starting.Go(func() {
				defer GinkgoRecover()
				replicas[i] = begin(ctx)
			})
		}
		starting.Wait()
		Expect(secret(ctx).Data).To(HaveLen(1))
		for i, there := range replicas {
			Expect(travels(1, there, replicas[(i+1)%3])).To(Succeed())
		}
	})

	It("stay in the memory of running replicas, and values under a key that is gone stay in the object until it is back", func(ctx SpecContext) {
		first := begin(ctx)
		old := secret(ctx)
		older := Must(first.convert("v1beta1", shop(1)))
		Expect(clients().CoreV1().Secrets(namespace).Delete(ctx, secretName, metav1.DeleteOptions{})).To(Succeed())
		Expect(travels(2, first, first)).To(Succeed())

		second := begin(ctx) // makes a Secret with a key of its own
		Expect(secret(ctx).Data).NotTo(Equal(old.Data))
		Expect(travels(3, second, first)).To(Succeed(), "the running replica looks for the key that it does not know")
		newer := Must(second.convert("v1", older))
		Expect(newer).To(And(Not(ContainSubstring(`"note":"n`)), ContainSubstring(`\".note\"`)), "the annotation stays, the value is not applied")

		restored := secret(ctx)
		for entry, key := range old.Data {
			restored.Data["0"+entry] = key // it signs no more
		}
		Must(clients().CoreV1().Secrets(namespace).Update(ctx, restored, metav1.UpdateOptions{}))
		third := begin(ctx)
		Expect(third.convert("v1", older)).To(MatchJSON(shop(1)))
		again, err := third.convert("v1beta1", newer) // the object was written without the value meanwhile
		Expect(err).NotTo(HaveOccurred())
		Expect(third.convert("v1", again)).To(MatchJSON(shop(1)))
	})

	It("are made by the half that registers", func(ctx SpecContext) {
		half := urlOptions(namespace)
		half.Host, half.ServiceName, half.WebhookNamespace = "", "shops", namespace
		registering := managerWith(half, notedShops(group))
		Expect(registering.RegisterExtensions()).To(Succeed())
		key := secret(ctx)
		Expect(registering.RegisterExtensions()).To(Succeed())
		Expect(secret(ctx).ResourceVersion).To(Equal(key.ResourceVersion), "the second run changes nothing")

		serves := func(o *eirinix.ManagerOptions) { o.RegisterWebHook = new(false) }
		serving := begin(ctx, serves)
		Expect(travels(1, serving, serving)).To(Succeed())

		Expect(clients().CoreV1().Secrets(namespace).Delete(ctx, secretName, metav1.DeleteOptions{})).To(Succeed())
		early := begin(ctx, serves)
		_, err := early.convert("v1beta1", shop(1))
		Expect(err).To(MatchError(And(ContainSubstring("there is no key to sign"), ContainSubstring(namespace+"/"+secretName))))
		_, err = early.convert("v1beta1", strings.Replace(shop(1), `,"note":"n1"`, "", 1))
		Expect(err).NotTo(HaveOccurred(), "nothing is lost of this one")
		Expect(registering.RegisterExtensions()).To(Succeed())
		Expect(travels(1, early, early)).To(Succeed())
	})

	DescribeTable("that cannot be used are an error with a remedy", func(ctx SpecContext, data map[string][]byte, reason string) {
		s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: secretName}, Data: data}
		Must(clients().CoreV1().Secrets(namespace).Create(ctx, s, metav1.CreateOptions{}))
		Expect(managerWith(urlOptions(namespace), notedShops(group)).Run(ctx)).To(MatchError(And(ContainSubstring(namespace+"/"+secretName), ContainSubstring(reason))))
	},
		Entry("because there are none", map[string][]byte{}, "delete it to have a new one made"),
		Entry("because one is short", map[string][]byte{"a": []byte("secret")}, `the key "a"`),
	)
})
