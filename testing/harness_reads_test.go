package eirinixtest_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/offline"
	eirinixtest "code.cloudfoundry.org/eirinix/testing"

	. "code.cloudfoundry.org/eirinix/internal/spectest"
)

// reader is a step about pods that looks at other objects.
func reader(look func(context.Context, *eirinix.Call, *corev1.Pod) error, declared ...eirinix.Read) eirinix.Validation[*corev1.Pod] {
	return eirinix.Validation[*corev1.Pod]{ID: "under-test", Settings: eirinix.Settings{Reads: declared}, Create: look}
}

// limits is a step that warns with the data of a config map.
func limits(declared ...eirinix.Read) eirinix.Validation[*corev1.Pod] {
	return reader(func(ctx context.Context, c *eirinix.Call, pod *corev1.Pod) error {
		m := &corev1.ConfigMap{}
		if err := c.Reader().Get(ctx, client.ObjectKey{Namespace: pod.Namespace, Name: "limits"}, m); err != nil {
			return client.IgnoreNotFound(err)
		}
		c.Warn("limit %s", m.Data["limit"])
		return nil
	}, declared...)
}

var configMaps = eirinix.Read{Object: &corev1.ConfigMap{}}

// metadataOf is an empty object of a kind, of which only the metadata is read.
func metadataOf(kind schema.GroupVersionKind) *metav1.PartialObjectMetadata {
	o := &metav1.PartialObjectMetadata{}
	o.SetGroupVersionKind(kind)
	return o
}

func untypedOf(kind schema.GroupVersionKind) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(kind)
	return u
}

// having puts objects into the cluster of a Harness.
func having(objects ...client.Object) func(*eirinixtest.HarnessOptions) {
	return func(o *eirinixtest.HarnessOptions) { o.Objects = append(o.Objects, objects...) }
}

func labelled[T client.Object](key, value string, object T) T {
	object.SetLabels(map[string]string{key: value})
	return object
}

var _ = Describe("The objects of a Harness", func() {
	limit := func(value string) *corev1.ConfigMap {
		return inNamespace("default", configMap("limits", map[string]string{"limit": value}))
	}

	It("are as they are at each call, without a request", func(ctx SpecContext) {
		h := eirinixtest.NewHarness(GinkgoTB(), limits(configMaps), having(limit("3")))
		Expect(h.Create(podOf("p", nil))).To(eirinixtest.HaveWarned("limit 3"))
		Expect(h.API().Client().Update(ctx, limit("4"))).To(Succeed())
		Expect(h.Create(podOf("p", nil))).To(eirinixtest.HaveWarned("limit 4"))
		Expect(h.API().Client().Delete(ctx, limit("4"))).To(Succeed())
		Expect(h.Create(podOf("p", nil)).Warnings).To(BeEmpty())
		Expect(h.API().Client().Create(ctx, limit("5"))).To(Succeed())
		h.API().Forget()
		DeferCleanup(h.API().Stall())
		Expect(h.Create(podOf("p", nil))).To(eirinixtest.HaveWarned("limit 5"))
		Expect(h.API().Requests()).To(BeEmpty())
	})

	It("give their labels to namespaces, unless HarnessOptions.Namespaces does", func() {
		step := limits()
		step.Settings.Namespaces = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "a"}}
		step.Create = func(context.Context, *eirinix.Call, *corev1.Pod) error { return nil }
		namespace := func(name string) client.Object {
			return labelled("team", "a", &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
		}
		untyped := untypedOf(corev1.SchemeGroupVersion.WithKind("Namespace"))
		untyped.SetName("untyped")
		h := eirinixtest.NewHarness(GinkgoTB(), step, having(namespace("given"), namespace("overridden"), labelled("team", "a", untyped), labelled("team", "a", inNamespace("", configMap("none", nil)))),
			func(o *eirinixtest.HarnessOptions) {
				o.Namespaces = map[string]map[string]string{"overridden": {"team": "b"}}
			})
		for name, ran := range map[string]bool{"given": true, "untyped": true, "overridden": false, "other": false, "none": false} {
			Expect(h.Create(podOf("p", nil), eirinixtest.InNamespace(name)).Ran("under-test")).To(Equal(ran), name)
		}
	})

	Context("with Managers of their own connections", func() {
		holding := func(value string) *rest.Config {
			return eirinixtest.NewAPI(GinkgoTB(), func(o *eirinixtest.APIOptions) { o.Objects = []client.Object{limit(value)} }).RestConfig()
		}
		warnings := func(o eirinix.ManagerOptions) []string {
			GinkgoHelper()
			m := eirinix.NewManager(o)
			Expect(m.AddExtension(limits(configMaps))).To(Succeed())
			h := eirinixtest.NewHarness(GinkgoTB(), m, having(limit("of the harness")), func(o *eirinixtest.HarnessOptions) { o.API = eirinixtest.NewAPI(GinkgoTB()) })
			return h.Create(podOf("p", nil)).Warnings
		}

		It("are those of the API in memory that a Manager is connected to", func() {
			Expect(warnings(eirinix.ManagerOptions{RestConfig: holding("its own")})).To(ConsistOf("limit its own"))
			theirs := Must(manager.New(holding("of the KubeManager"), manager.Options{
				Metrics: metricsserver.Options{BindAddress: "0"}, MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return meta.NewDefaultRESTMapper(nil), nil },
			}))
			Expect(warnings(eirinix.ManagerOptions{KubeManager: theirs})).To(ConsistOf("limit of the KubeManager"))
		})

		It("are those of the Harness for a Manager that is connected elsewhere, or nowhere", func() {
			Expect(warnings(eirinix.ManagerOptions{RestConfig: &rest.Config{Host: "http://cluster.invalid"}})).To(ConsistOf("limit of the harness"))
			Expect(warnings(eirinix.ManagerOptions{})).To(ConsistOf("limit of the harness"))
		})
	})

	DescribeTable("of unknown kinds are errors with the remedy", func(o client.Object, remedy string, configure func(*eirinixtest.HarnessOptions)) {
		Expect(failureOf(func(t *fakeTest) {
			eirinixtest.NewHarness(t, limits(configMaps), configure, having(limit("3"), o))
		})).To(And(HavePrefix("eirinixtest: NewHarness: HarnessOptions.Objects[1]: "), HaveSuffix(remedy)))
	},
		Entry("without a plural", gadget("v1", "g"), "name it in HarnessOptions.Resources", func(*eirinixtest.HarnessOptions) {}),
		Entry("without a Go type", &widget{}, "set HarnessOptions.Manager.Scheme, or the Scheme of the ExtensionManager", func(*eirinixtest.HarnessOptions) {}),
		Entry("without a Go type in an API that the Manager brings", &widget{}, "set APIOptions.Scheme", func(o *eirinixtest.HarnessOptions) {
			o.Manager.RestConfig = eirinixtest.NewAPI(GinkgoTB()).RestConfig()
		}),
	)

	It("can lack a kind that a step declares", func() {
		scheme := runtime.NewScheme()
		Expect(corev1.AddToScheme(scheme)).To(Succeed())
		h := eirinixtest.NewHarness(GinkgoTB(), reader(func(ctx context.Context, c *eirinix.Call, _ *corev1.Pod) error {
			if err := c.Reader().Get(ctx, client.ObjectKey{Namespace: "default", Name: "g"}, untypedOf(gadgetKind("v1"))); !apierrors.IsNotFound(err) {
				return errors.New("found")
			}
			return nil
		}, eirinix.Read{Object: untypedOf(gadgetKind("v1"))}), func(o *eirinixtest.HarnessOptions) { o.Manager.Scheme = scheme })
		Expect(h.Create(podOf("p", nil))).To(eirinixtest.BeAllowed())
	})
})

var _ = Describe("The API in memory", func() {
	var (
		api  *eirinixtest.API
		kube kubernetes.Interface
	)
	BeforeEach(func() {
		api = eirinixtest.NewAPI(GinkgoTB(), func(o *eirinixtest.APIOptions) {
			o.Resources = []offline.Resource{{Kind: gadgetKind("v1")}}
			o.Objects = []client.Object{
				inNamespace("apps", configMap("settings", map[string]string{"a": "1"})),
				inNamespace("apps", configMap("other", nil)),
				podOf("a", map[string]string{"app": "web"}),
				gadget("v1", "g"),
				&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}},
			}
		})
		kube = Must(kubernetes.NewForConfig(api.RestConfig()))
	})
	asked := func() []string {
		var all []string
		for _, r := range api.Requests() {
			all = append(all, r.String())
		}
		return all
	}

	It("serves the given objects to clients of every kind", func(ctx SpecContext) {
		settings := Must(kube.CoreV1().ConfigMaps("apps").Get(ctx, "settings", metav1.GetOptions{}))
		Expect(settings.Data).To(HaveKeyWithValue("a", "1"))
		pods := &corev1.PodList{}
		Expect(api.Client().List(ctx, pods, client.MatchingLabels{"app": "web"})).To(Succeed())
		Expect(pods.Items).To(ConsistOf(HaveField("Name", "a")))
		Expect(api.Client().List(ctx, pods, client.MatchingLabels{"app": "db"})).To(Succeed())
		Expect(pods.Items).To(BeEmpty())
		named := Must(kube.CoreV1().ConfigMaps("").List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=other"}))
		Expect(named.Items).To(ConsistOf(HaveField("Name", "other")))
		Expect(api.Client().Get(ctx, client.ObjectKey{Namespace: "default", Name: "g"}, gadget("v1", "g"))).To(Succeed())
		Must(kube.CoreV1().Nodes().Get(ctx, "node", metav1.GetOptions{}))
		_, err := kube.CoreV1().ConfigMaps("apps").Get(ctx, "missing", metav1.GetOptions{})
		Expect(apierrors.IsNotFound(err)).To(BeTrue())
		Expect(asked()).To(Equal([]string{
			"get configmaps apps/settings", "list pods", "list pods", "list configmaps", "get gadgets.example.org default/g", "get nodes node", "get configmaps apps/missing",
		}))
		Expect(api.Writes()).To(BeEmpty())
	})

	It("accepts writes, and lists them", func(ctx SpecContext) {
		c := api.Client()
		m := inNamespace("apps", configMap("new", map[string]string{"a": "1"}))
		Expect(c.Create(ctx, m)).To(Succeed())
		Expect(apierrors.IsAlreadyExists(c.Create(ctx, inNamespace("apps", configMap("new", nil))))).To(BeTrue())
		m.Data["a"] = "2"
		Expect(c.Update(ctx, m)).To(Succeed())
		stale := m.DeepCopy()
		Expect(c.Patch(ctx, m, client.RawPatch(types.MergePatchType, []byte(`{"data": {"b": "3"}}`)))).To(Succeed())
		Expect(c.Patch(ctx, m, client.RawPatch(types.JSONPatchType, []byte(`[{"op": "add", "path": "/data/c", "value": "4"}]`)))).To(Succeed())
		Expect(c.Patch(ctx, m, client.RawPatch(types.StrategicMergePatchType, []byte(`{"data": {"a": null}}`)))).To(Succeed())
		Expect(m.Data).To(Equal(map[string]string{"b": "3", "c": "4"}))
		Expect(apierrors.IsConflict(c.Update(ctx, stale))).To(BeTrue())
		applied := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "applied", "namespace": "apps"}}}
		Expect(c.Apply(ctx, client.ApplyConfigurationFromUnstructured(applied), client.FieldOwner("me"))).To(Succeed())
		Expect(c.Delete(ctx, m)).To(Succeed())
		Expect(c.DeleteAllOf(ctx, &corev1.ConfigMap{}, client.InNamespace("apps"))).To(Succeed())
		left := Must(kube.CoreV1().ConfigMaps("apps").List(ctx, metav1.ListOptions{}))
		Expect(left.Items).To(BeEmpty())
		Expect(api.Writes()).To(HaveLen(10))
		Expect(asked()).To(ContainElements("create configmaps apps/", "patch configmaps apps/new", "deletecollection configmaps apps/"))
		api.Forget()
		Expect(api.Requests()).To(BeEmpty())
	})

	It("counts dry runs and reviews as no writes", func(ctx SpecContext) {
		dry := client.NewDryRunClient(api.Client())
		Expect(dry.Create(ctx, inNamespace("apps", configMap("new", nil)))).To(Succeed())
		Expect(dry.Delete(ctx, inNamespace("apps", configMap("settings", nil)))).To(Succeed())
		review := Must(kube.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{}, metav1.CreateOptions{}))
		Expect(review.Status.Allowed).To(BeTrue())
		Expect(api.Writes()).To(BeEmpty())
		Must(kube.CoreV1().ConfigMaps("apps").Get(ctx, "settings", metav1.GetOptions{}))
		_, err := kube.CoreV1().ConfigMaps("apps").Get(ctx, "new", metav1.GetOptions{})
		Expect(apierrors.IsNotFound(err)).To(BeTrue())
		Expect(kube.PolicyV1().Evictions("default").Evict(ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "default"}})).To(Succeed())
		Expect(api.Writes()).To(ConsistOf(HaveField("Subresource", "eviction")))
	})

	It("refuses watches, and names the alternative", func(ctx SpecContext) {
		_, err := kube.CoreV1().Pods("").Watch(ctx, metav1.ListOptions{})
		Expect(err).To(MatchError(ContainSubstring("read directly, without a cache")))
	})
})

// required is a declaration of objects without which a step must not admit anything.
func required(r eirinix.Read) eirinix.Read {
	r.Required = true
	return r
}

// limitsOf returns the config map that the steps below look at.
func limitsOf(ctx context.Context, r client.Reader) (*corev1.ConfigMap, error) {
	m := &corev1.ConfigMap{}
	return m, r.Get(ctx, client.ObjectKey{Namespace: "default", Name: "limits"}, m)
}

var _ = Describe("CheckReads", func() {
	stored := having(
		inNamespace("default", configMap("limits", map[string]string{"limit": "3"})),
		labelled("app", "web", &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s", Namespace: "default"}, Type: corev1.SecretTypeTLS}),
		gadget("v1", "g"),
		&corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default"}},
	)
	gadgets := func(o *eirinixtest.HarnessOptions) {
		o.Resources = []offline.Resource{{Kind: gadgetKind("v1")}}
	}
	secrets := eirinix.Read{Object: metadataOf(corev1.SchemeGroupVersion.WithKind("Secret"))}
	// looksAtCreation does not look at the objects that it requires when a pod is updated.
	looksAtCreation := eirinix.Validation[*corev1.Pod]{
		ID: "under-test", Settings: eirinix.Settings{Reads: []eirinix.Read{required(configMaps)}},
		Create: func(ctx context.Context, c *eirinix.Call, _ *corev1.Pod) error {
			_, err := limitsOf(ctx, c.Reader())
			return err
		},
		Update: func(context.Context, *eirinix.Call, *corev1.Pod, *corev1.Pod) error { return nil },
	}
	check := func(t eirinixtest.TB, parts ...any) {
		eirinixtest.NewHarness(t, append(parts, stored, gadgets)...).CheckReads(example())
	}
	failure := func(parts ...any) string {
		GinkgoHelper()
		return failureOf(func(t *fakeTest) { check(t, parts...) })
	}

	DescribeTable("catches a step", func(step any, fault, remedy string) {
		Expect(failure(step)).To(And(
			HavePrefix("eirinixtest: not prepared for the loss of objects: step under-test "+fault), ContainSubstring("What to change: "+remedy)))
	},
		Entry("that writes to the nil map of a missing config map", reader(func(ctx context.Context, c *eirinix.Call, _ *corev1.Pod) error {
			m, err := limitsOf(ctx, c.Reader())
			if client.IgnoreNotFound(err) != nil {
				return err
			}
			m.Data["seen"] = "yes" // of a copy
			return nil
		}, configMaps), "panicked at CREATE while there was no object of eirinix.Read{Object: &v1.ConfigMap{}}: assignment to entry in nil map\n  at ", "return the errors of Call.Reader"),
		Entry("that panics while nothing has been listed yet", reader(func(ctx context.Context, c *eirinix.Call, _ *corev1.Pod) error {
			_, err := limitsOf(ctx, c.Reader())
			if err != nil && !apierrors.IsNotFound(err) {
				_ = err.(apierrors.APIStatus).Status() //nolint:errorlint,forcetypeassert // that is the fault
			}
			return err
		}, configMaps), "panicked at CREATE while the objects of eirinix.Read{Object: &v1.ConfigMap{}} had never been listed: interface conversion", "return the errors"),
		Entry("that panics while the objects are too old", reader(func(ctx context.Context, c *eirinix.Call, _ *corev1.Pod) error {
			_, err := limitsOf(ctx, c.Reader())
			if err != nil && strings.Contains(err.Error(), "are known as they were 1m1s ago, and the step allows 1m0s") {
				panic("too old") //nolint:forbidigo // that is the fault
			}
			return err
		}, configMaps), "panicked at CREATE while the objects of eirinix.Read{Object: &v1.ConfigMap{}} were too old: too old", "return the errors"),
		Entry("that panics even with all objects", reader(func(context.Context, *eirinix.Call, *corev1.Pod) error {
			panic("always") //nolint:forbidigo // that is the fault
		}, configMaps), "panicked at CREATE with all objects in the cluster: always", "return the errors"),
		Entry("that keeps Required objects from one call to another", func() any {
			var mu sync.Mutex
			var known *corev1.ConfigMap
			return reader(func(ctx context.Context, c *eirinix.Call, _ *corev1.Pod) error {
				mu.Lock()
				defer mu.Unlock()
				if known != nil {
					return nil
				}
				m, err := limitsOf(ctx, c.Reader())
				if err == nil {
					known = m
				}
				return err
			}, required(configMaps))
		}(), "admitted the object at CREATE while there was no object of eirinix.Read{Object: &v1.ConfigMap{}}, which are Required\n  allowed\n", "look at them in every call"),
		Entry("that never looks at Required objects of an update", eirinix.Validation[*corev1.Pod]{
			ID: "under-test", Settings: eirinix.Settings{Reads: []eirinix.Read{required(configMaps)}},
			Update: func(context.Context, *eirinix.Call, *corev1.Pod, *corev1.Pod) error { return nil },
		}, "admitted the object at UPDATE while there was no object", "look at them in every call"),
	)

	It("catches a step that reads on a goroutine which continues after it", func() {
		var mu sync.Mutex
		var pending func()
		starts := reader(func(ctx context.Context, c *eirinix.Call, _ *corev1.Pod) error {
			mu.Lock()
			defer mu.Unlock()
			r := c.Reader()
			pending = func() { _, _ = limitsOf(ctx, r) }
			return nil
		}, configMaps)
		awaits := eirinix.Validation[*corev1.Pod]{ID: "awaits", Create: func(context.Context, *eirinix.Call, *corev1.Pod) error {
			mu.Lock()
			defer mu.Unlock()
			pending()
			return nil
		}}
		Expect(failure(starts, awaits)).To(And(
			ContainSubstring("step under-test admitted the object at CREATE while the objects of eirinix.Read{Object: &v1.ConfigMap{}} had never been listed, although it read them"),
			ContainSubstring("not on a goroutine that continues after it")))
	})

	DescribeTable("passes a step", func(step any) { check(GinkgoTB(), step) },
		Entry("that returns all errors", reader(func(ctx context.Context, c *eirinix.Call, _ *corev1.Pod) error {
			_, err := limitsOf(ctx, c.Reader())
			return err
		}, required(configMaps))),
		Entry("that drops errors, because the library fails it", reader(func(ctx context.Context, c *eirinix.Call, _ *corev1.Pod) error {
			_, _ = limitsOf(ctx, c.Reader())
			return nil
		}, required(configMaps))),
		Entry("whose failures are ignored", func() any {
			s := limits(required(configMaps))
			s.Settings.FailurePolicy = "Ignore"
			return s
		}()),
		Entry("that only warns", func() any {
			s := limits(required(configMaps))
			s.Settings.Mode = eirinix.ModeWarn
			return s
		}()),
		Entry("that does not look at objects which are not Required", reader(func(context.Context, *eirinix.Call, *corev1.Pod) error { return nil }, configMaps)),
		Entry("that does not look at Required objects for an update without a change", looksAtCreation),
		Entry("for which objects of any age will do", reader(func(ctx context.Context, c *eirinix.Call, _ *corev1.Pod) error {
			_, err := limitsOf(ctx, c.Reader())
			if err != nil && strings.Contains(err.Error(), "MaxStale") {
				panic("stale") //nolint:forbidigo // it must not happen
			}
			return err
		}, eirinix.Read{Object: &corev1.ConfigMap{}, MaxStale: eirinix.AnyAge, Required: true})),
	)

	It("passes steps that share their declarations", func() {
		shared := []eirinix.Read{required(configMaps), secrets}
		looks := reader(func(ctx context.Context, c *eirinix.Call, _ *corev1.Pod) error {
			_, err := limitsOf(ctx, c.Reader())
			return err
		}, shared...)
		mutates := labeller("seen", "yes")
		mutates.Settings.Reads = shared
		Expect(failure(mutates)).To(ContainSubstring("step label-yes admitted the object"), "alone it decides without them")
		check(GinkgoTB(), looks, mutates)
	})

	It("takes the objects of one declaration at a time, in every Go type and by every selector", func() {
		var mu sync.Mutex
		worlds := map[string]bool{}
		read := func(ctx context.Context, c *eirinix.Call) string {
			state := func(list client.ObjectList, options ...client.ListOption) string {
				switch err := c.Reader().List(ctx, list, options...); {
				case err == nil:
					all := meta.LenList(list)
					return fmt.Sprint(all)
				case strings.Contains(err.Error(), "have not been listed yet"):
					return "-"
				case strings.Contains(err.Error(), "MaxStale"):
					return "~"
				default:
					return err.Error()
				}
			}
			u, s := &unstructured.UnstructuredList{}, &metav1.PartialObjectMetadataList{}
			u.SetGroupVersionKind(schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "GadgetList"})
			s.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("SecretList"))
			return state(&corev1.ConfigMapList{}, client.MatchingFields{"limit": "3"}) + state(u) + state(s) + state(&corev1.ServiceList{})
		}
		check(GinkgoTB(), reader(func(ctx context.Context, c *eirinix.Call, _ *corev1.Pod) error {
			seen := read(ctx, c)
			mu.Lock()
			defer mu.Unlock()
			worlds[seen] = true
			return nil
		},
			eirinix.Read{
				Object: &corev1.ConfigMap{}, Namespaces: []string{"default"}, Transform: func(client.Object) {},
				Index: map[string]client.IndexerFunc{"limit": func(o client.Object) []string { return []string{o.(*corev1.ConfigMap).Data["limit"]} }},
			},
			eirinix.Read{Object: untypedOf(gadgetKind("v1"))},
			eirinix.Read{Object: metadataOf(corev1.SchemeGroupVersion.WithKind("Secret")), Labels: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}},
			eirinix.Read{Object: &corev1.Service{}, Fields: fields.OneTermEqualSelector("metadata.name", "web")},
		))
		Expect(worlds).To(HaveLen(13))
		for _, world := range []string{"1111", "0111", "-111", "~111", "1011", "1-11", "1~11", "1101", "11-1", "11~1", "1110", "111-", "111~"} {
			Expect(worlds).To(HaveKey(world))
		}
	})

	It("leaves the objects of other programs alone", func() {
		var other []string
		managed := func(fingerprint string, step any) *eirinix.ExtensionManager {
			api := eirinixtest.NewAPI(GinkgoTB(), func(o *eirinixtest.APIOptions) {
				o.Objects = []client.Object{inNamespace("default", configMap("limits", map[string]string{"limit": fingerprint}))}
			})
			m := eirinix.NewManager(eirinix.ManagerOptions{OperatorFingerprint: fingerprint, RestConfig: api.RestConfig()})
			Expect(m.AddExtension(step)).To(Succeed())
			return m
		}
		first := managed("a", eirinix.Mutation[*corev1.Pod]{ID: "first", Settings: eirinix.Settings{Reads: []eirinix.Read{configMaps}}, Apply: func(ctx context.Context, c *eirinix.Call, _ *corev1.Pod) error {
			_, err := limitsOf(ctx, c.Reader())
			return client.IgnoreNotFound(err)
		}})
		second := managed("b", eirinix.Mutation[*corev1.Pod]{ID: "second", Settings: eirinix.Settings{Reads: []eirinix.Read{configMaps}, FailurePolicy: "Ignore"}, Apply: func(ctx context.Context, c *eirinix.Call, _ *corev1.Pod) error {
			m, err := limitsOf(ctx, c.Reader())
			other = append(other, m.Data["limit"])
			return client.IgnoreNotFound(err)
		}})
		eirinixtest.NewHarness(GinkgoTB(), first, second).CheckReads(podOf("p", nil))
		// One request finds the steps that run, and one more reads. The first step loses its objects in three ways, and the
		// second runs in one of them. Then it loses its own in three ways.
		Expect(other).To(Equal([]string{"b", "b", "b", "", "", ""}))
	})

	It("holds an update against a step if it is the only request", func() {
		Expect(failureOf(func(t *fakeTest) {
			before := example()
			before.SetFinalizers([]string{"example.org/before"})
			eirinixtest.NewHarness(t, looksAtCreation, stored, gadgets).CheckReads(eirinixtest.Request{Operation: "UPDATE", Object: example(), OldObject: before})
		})).To(ContainSubstring("admitted the object at UPDATE"))
	})

	It("fails where no step that runs declares anything", func() {
		silent := labeller("seen", "yes")
		Expect(failure(silent)).To(Equal("eirinixtest: no step that ran for this object has Settings.Reads, so that there is nothing to check: give an object for which a step with Reads runs, or leave CheckReads out"))
		elsewhere := limits(configMaps)
		elsewhere.Settings.Objects = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "another"}}
		Expect(failure(silent, elsewhere)).To(ContainSubstring("no step that ran"))
	})
})
