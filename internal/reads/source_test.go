package reads

// This file plays what a source of objects can go through: lists, watches, interruptions, and functions that fail.

import (
	"context"

	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

var configMapKind = corev1.SchemeGroupVersion.WithKind("ConfigMap")

// setOf returns the Set of one step with these declarations of ConfigMaps.
func setOf(declared ...Declaration) *Set {
	GinkgoHelper()
	for i := range declared {
		declared[i].Object, declared[i].Kind = &corev1.ConfigMap{}, configMapKind
	}
	set, err := New(clientgoscheme.Scheme, []Step{{Name: "step", Reads: declared}}, logr.Discard(), nil)
	Expect(err).NotTo(HaveOccurred())
	return set
}

// configMap returns an object as a watch delivers it.
func configMap(namespace, name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
}

// namesIn returns the objects that the step sees now.
func namesIn(ctx context.Context, set *Set) (names []string, err error) {
	var list corev1.ConfigMapList
	err = set.Snapshot(ctx).Reader("step").List(ctx, &list)
	for _, o := range list.Items {
		names = append(names, o.Namespace+"/"+o.Name)
	}
	return names, err
}

var _ = Describe("The objects of several namespaces", func() {
	It("are served once all of them are there, and not while one list is being stored", func(ctx SpecContext) {
		apart := func(client.Object) {} // makes a view of its own
		set := setOf(Declaration{Namespaces: []string{"a"}}, Declaration{Namespaces: []string{"a"}, Keep: apart},
			Declaration{Namespaces: []string{"a", "b"}, Keep: apart})
		last := set.views[2]
		set.views[1].mu.Lock() // the list of a is stored in the first view, and not yet in the last
		stored := make(chan error, 1)
		go func() { stored <- set.sources[0].Replace([]any{configMap("a", "one")}, "1") }()
		Eventually(set.views[0].published.Load).ShouldNot(BeNil())
		Expect(set.sources[1].Replace([]any{configMap("b", "one")}, "1")).To(Succeed())
		Expect(last.published.Load()).To(BeNil())
		set.views[1].mu.Unlock()
		Eventually(stored).Should(Receive(BeNil()))
		Expect(last.published.Load().objects.Len()).To(Equal(2))
	})
})
