package fakeapi_test

// This file specifies what a fake API lists of the objects that it stores.

import (
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"code.cloudfoundry.org/eirinix/internal/fakeapi"
	"code.cloudfoundry.org/eirinix/internal/mapper"
)

func TestFakeAPI(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "A Kubernetes API in memory")
}

var _ = Describe("The stored objects", func() {
	named := func(namespace, name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: name}
	}
	newAPI := func(objects ...client.Object) *fakeapi.API {
		GinkgoHelper()
		api, err := fakeapi.New(clientgoscheme.Scheme, mapper.New(clientgoscheme.Scheme, nil), objects...)
		Expect(err).NotTo(HaveOccurred())
		return api
	}
	names := func(api *fakeapi.API) (all []string) {
		for _, o := range api.Objects() {
			all = append(all, o.GetKind()+" "+o.GetNamespace()+"/"+o.GetName())
		}
		return all
	}

	It("come in the order of namespace, name and resource, with apiVersion and kind", func() {
		api := newAPI(
			&corev1.Secret{ObjectMeta: named("b", "x")}, &corev1.ConfigMap{ObjectMeta: named("b", "x")}, &corev1.Pod{ObjectMeta: named("a", "z")},
			&corev1.ConfigMap{ObjectMeta: named("", "y")}, &corev1.Node{ObjectMeta: named("", "n")},
		)
		for range 20 { // the order of a map would differ
			Expect(names(api)).To(Equal([]string{"Node /n", "Pod a/z", "ConfigMap b/x", "Secret b/x", "ConfigMap default/y"}))
		}
		Expect(api.Objects()[0].GetAPIVersion()).To(Equal("v1"))
	})

	It("are current, are no request, and are there while the API is stalled", func(ctx SpecContext) {
		api := newAPI(&corev1.ConfigMap{ObjectMeta: named("a", "first")})
		before := api.Objects()
		Expect(api.Client().Create(ctx, &corev1.ConfigMap{ObjectMeta: named("a", "second")})).To(Succeed())
		changed := &corev1.ConfigMap{ObjectMeta: named("a", "first"), Data: map[string]string{"a": "b"}}
		Expect(api.Client().Update(ctx, changed)).To(Succeed())
		api.Forget()
		DeferCleanup(api.Stall())
		Expect(names(api)).To(Equal([]string{"ConfigMap a/first", "ConfigMap a/second"}))
		Expect(api.Objects()[0].Object).To(HaveKeyWithValue("data", HaveKeyWithValue("a", "b")))
		Expect(before[0].Object).NotTo(HaveKey("data"), "an object does not change once it is stored")
		Expect(api.Requests()).To(BeEmpty())
	})

	It("are copies of the objects that were put there", func() {
		mine := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "m"}, "data": map[string]any{"a": "b"}}}
		api := newAPI(mine)
		Expect(mine.GetNamespace()).To(BeEmpty())
		Expect(mine.GetResourceVersion()).To(BeEmpty())
		mine.Object["data"] = nil
		Expect(api.Objects()[0].Object).To(HaveKeyWithValue("data", HaveKeyWithValue("a", "b")))
	})
})
