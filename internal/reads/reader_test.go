package reads

// This file asks a Reader questions that clients answer in a particular way.

import (
	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

var _ = Describe("A Reader", func() {
	It("ignores the namespace of a question about objects that are in none, as other clients do", func(ctx SpecContext) {
		set, err := New(clientgoscheme.Scheme, []Step{{Name: "step", Reads: []Declaration{{
			Object: &corev1.Node{}, Kind: corev1.SchemeGroupVersion.WithKind("Node"),
			Index: map[string]client.IndexerFunc{"zone": func(o client.Object) []string { return []string{o.GetLabels()["zone"]} }},
		}}}}, logr.Discard(), nil)
		Expect(err).NotTo(HaveOccurred())
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker", Labels: map[string]string{"zone": "x"}}}
		listed(set.sources[0], node)
		r := set.Snapshot(ctx).Reader("step")
		var found corev1.Node
		Expect(r.Get(ctx, client.ObjectKey{Namespace: "shop", Name: "worker"}, &found)).To(Succeed())
		var list corev1.NodeList
		Expect(r.List(ctx, &list, client.InNamespace("shop"))).To(Succeed())
		Expect(list.Items).To(HaveLen(1))
		Expect(r.List(ctx, &list, client.InNamespace("shop"), client.MatchingFields{"zone": "x"})).To(Succeed())
		Expect(list.Items).To(HaveLen(1))
	})

	It("names an object that the step does not declare, with a kind only if it has one", func(ctx SpecContext) {
		set := setOf(Declaration{})
		listed(set.sources[0])
		get := func(o client.Object) error {
			return set.Snapshot(ctx).Reader("step").Get(ctx, client.ObjectKey{Namespace: "shop", Name: "keys"}, o)
		}
		Expect(get(&corev1.Secret{})).To(MatchError(ContainSubstring("reads v1.Secret in namespace shop with name keys, but")))
		job := &unstructured.Unstructured{}
		job.SetGroupVersionKind(batchv1.SchemeGroupVersion.WithKind("Job"))
		Expect(get(job)).To(MatchError(ContainSubstring("reads unstructured.Unstructured (batch/v1, Kind=Job) in namespace shop")))
	})

	It("serves a kind whose name ends with List, and not the kind without that end", func(ctx SpecContext) {
		kind := schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "AllowList"}
		of := func(name string) schema.GroupVersionKind { return kind.GroupVersion().WithKind(name) }
		untyped := &unstructured.Unstructured{}
		untyped.SetGroupVersionKind(kind)
		set, err := New(clientgoscheme.Scheme, []Step{{Name: "step", Reads: []Declaration{{Object: untyped, Kind: kind}}}}, logr.Discard(), nil)
		Expect(err).NotTo(HaveOccurred())
		listed(set.sources[0])
		r, all := set.Snapshot(ctx).Reader("step"), &unstructured.UnstructuredList{}
		for name, matches := range map[string]types.GomegaMatcher{"AllowListList": Succeed(), "AllowList": Succeed(), "Allow": HaveOccurred()} {
			all.SetGroupVersionKind(of(name))
			Expect(r.List(ctx, all)).To(matches, name)
		}
	})

	It("finds nothing with a selector that matches nothing", func(ctx SpecContext) {
		set := setOf(Declaration{})
		listed(set.sources[0], configMap("a", "one"))
		for _, nothing := range []client.ListOption{client.MatchingFieldsSelector{}, client.MatchingLabelsSelector{}} {
			var list corev1.ConfigMapList
			Expect(set.Snapshot(ctx).Reader("step").List(ctx, &list, nothing)).To(Succeed())
			Expect(list.Items).To(BeEmpty(), "%T", nothing)
		}
	})
})
