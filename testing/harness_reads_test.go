package eirinixtest_test

import (
	"context"
	"errors"
	"net/http"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"code.cloudfoundry.org/eirinix"
	eirinixtest "code.cloudfoundry.org/eirinix/testing"
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

	It("fail a step that reads what it does not declare, with the declaration that it needs", func() {
		h := eirinixtest.NewHarness(GinkgoTB(), limits(eirinix.Read{Object: &corev1.ConfigMap{}, Namespaces: []string{"apps"}}), having(limit("3")))
		result := h.Create(podOf("p", nil))
		Expect(result.Failure()).To(HaveOccurred())
		Expect(result.Steps[0].Err).To(MatchError(ContainSubstring("add eirinix.Read{Object: &v1.ConfigMap{}, Namespaces: []string{\"default\"}} to its Settings.Reads")))
	})

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
			theirs, err := manager.New(holding("of the KubeManager"), manager.Options{
				Metrics: metricsserver.Options{BindAddress: "0"}, MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return meta.NewDefaultRESTMapper(nil), nil },
			})
			Expect(err).NotTo(HaveOccurred())
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
