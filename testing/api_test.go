package eirinixtest_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"code.cloudfoundry.org/eirinix/offline"
	eirinixtest "code.cloudfoundry.org/eirinix/testing"
)

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
		var err error
		kube, err = kubernetes.NewForConfig(api.RestConfig())
		Expect(err).NotTo(HaveOccurred())
	})
	asked := func() []string {
		var all []string
		for _, r := range api.Requests() {
			all = append(all, r.String())
		}
		return all
	}

	It("serves the given objects to clients of every kind", func(ctx SpecContext) {
		settings, err := kube.CoreV1().ConfigMaps("apps").Get(ctx, "settings", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(settings.Data).To(HaveKeyWithValue("a", "1"))
		pods := &corev1.PodList{}
		Expect(api.Client().List(ctx, pods, client.MatchingLabels{"app": "web"})).To(Succeed())
		Expect(pods.Items).To(ConsistOf(HaveField("Name", "a")))
		Expect(api.Client().List(ctx, pods, client.MatchingLabels{"app": "db"})).To(Succeed())
		Expect(pods.Items).To(BeEmpty())
		named, err := kube.CoreV1().ConfigMaps("").List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=other"})
		Expect(err).NotTo(HaveOccurred())
		Expect(named.Items).To(ConsistOf(HaveField("Name", "other")))
		Expect(api.Client().Get(ctx, client.ObjectKey{Namespace: "default", Name: "g"}, gadget("v1", "g"))).To(Succeed())
		_, err = kube.CoreV1().Nodes().Get(ctx, "node", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		_, err = kube.CoreV1().ConfigMaps("apps").Get(ctx, "missing", metav1.GetOptions{})
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
		left, err := kube.CoreV1().ConfigMaps("apps").List(ctx, metav1.ListOptions{})
		Expect(err).NotTo(HaveOccurred())
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
		review, err := kube.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(review.Status.Allowed).To(BeTrue())
		Expect(api.Writes()).To(BeEmpty())
		_, err = kube.CoreV1().ConfigMaps("apps").Get(ctx, "settings", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		_, err = kube.CoreV1().ConfigMaps("apps").Get(ctx, "new", metav1.GetOptions{})
		Expect(apierrors.IsNotFound(err)).To(BeTrue())
		Expect(kube.PolicyV1().Evictions("default").Evict(ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "default"}})).To(Succeed())
		Expect(api.Writes()).To(ConsistOf(HaveField("Subresource", "eviction")))
	})

	It("refuses watches, and names the alternative", func(ctx SpecContext) {
		_, err := kube.CoreV1().Pods("").Watch(ctx, metav1.ListOptions{})
		Expect(err).To(MatchError(ContainSubstring("read directly, without a cache")))
	})

	It("leaves every client waiting while it is stalled", func(ctx SpecContext) {
		resume := api.Stall()
		short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
		defer cancel()
		_, err := kube.CoreV1().Pods("").List(short, metav1.ListOptions{})
		Expect(err).To(MatchError(context.DeadlineExceeded))
		resume()
		resume()
		_, err = kube.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
		Expect(err).NotTo(HaveOccurred())
	}, SpecTimeout(patience))
})
