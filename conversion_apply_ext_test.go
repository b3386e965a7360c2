package eirinix_test

// This file holds the specs of server-side apply in several versions of a kind.

import (
	"context"
	"encoding/json"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"code.cloudfoundry.org/eirinix"
)

var _ = Describe("Server-side apply of a field that one version lacks", Label("api-server"), func() {
	var (
		namespace, group string
		cluster          client.Client
	)
	BeforeEach(func(ctx SpecContext) {
		namespace = newNamespace(ctx)
		group = namespace + ".example.com"
		cluster = anyClient()
	})

	apply := func(ctx context.Context, version, manager string, force bool, content string) error {
		s := newShop(group, namespace, "a")
		s.SetAPIVersion(group + "/" + version)
		var members map[string]any
		Expect(json.Unmarshal([]byte(content), &members)).To(Succeed())
		for name, value := range members {
			s.Object[name] = value
		}
		options := []client.ApplyOption{client.FieldOwner(manager)}
		if force {
			options = append(options, client.ForceOwnership)
		}
		return cluster.Apply(ctx, client.ApplyConfigurationFromUnstructured(s), options...)
	}
	content := func(ctx context.Context, version string) string {
		GinkgoHelper()
		s := newShop(group, namespace, "a")
		s.SetAPIVersion(group + "/" + version)
		Expect(cluster.Get(ctx, client.ObjectKeyFromObject(s), s)).To(Succeed())
		for _, name := range []string{"apiVersion", "kind", "metadata"} {
			delete(s.Object, name)
		}
		text, err := json.Marshal(s.Object)
		Expect(err).NotTo(HaveOccurred())
		return string(text)
	}

	DescribeTable("adds, keeps, refuses and removes it", func(ctx SpecContext, stored string) {
		crd := twoVersions(group)
		versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
		for _, v := range versions {
			v.(map[string]any)["storage"] = v.(map[string]any)["name"] == stored
		}
		Expect(unstructured.SetNestedSlice(crd.Object, versions, "spec", "versions")).To(Succeed())
		Expect(cluster.Create(ctx, crd)).To(Succeed())
		DeferCleanup(cluster.Delete, crd)
		m := eirinix.NewManager(urlOptions(namespace))
		Expect(m.AddExtension(notedShops(group))).To(Succeed())
		runManager(ctx, m)

		Eventually(func() error { return apply(ctx, "v1", "one", false, `{"note":"n","open":true}`) }).WithContext(ctx).WithTimeout(patience).Should(Succeed())
		Expect(content(ctx, "v1beta1")).To(MatchJSON(`{"open":true}`))
		Expect(apply(ctx, "v1beta1", "two", false, `{"size":1}`)).To(Succeed())
		Expect(content(ctx, "v1")).To(MatchJSON(`{"note":"n","open":true,"size":1}`))

		Expect(apply(ctx, "v1", "three", false, `{"note":"other"}`)).To(MatchError(ContainSubstring(`conflict with "one"`)))
		Expect(apply(ctx, "v1", "three", true, `{"note":"other"}`)).To(Succeed())
		Expect(content(ctx, "v1")).To(MatchJSON(`{"note":"other","open":true,"size":1}`))
		Expect(apply(ctx, "v1beta1", "two", false, `{"size":2}`)).To(Succeed())
		Expect(content(ctx, "v1")).To(MatchJSON(`{"note":"other","open":true,"size":2}`))

		By("giving it up while another manager writes the version that lacks it")
		Expect(apply(ctx, "v1", "three", false, `{}`)).To(Succeed())
		Expect(content(ctx, "v1")).To(MatchJSON(`{"open":true,"size":2}`), "no manager owns the note any more")
		Expect(apply(ctx, "v1beta1", "two", false, `{"size":3}`)).To(Succeed())
		Expect(content(ctx, "v1")).To(MatchJSON(`{"open":true,"size":3}`))
	},
		Entry("if objects are stored with it", "v1"),
		Entry("if objects are stored without it", "v1beta1"),
	)
})
