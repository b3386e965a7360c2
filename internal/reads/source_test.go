package reads

// This file plays what a source of objects can go through: lists, watches, interruptions, and functions that fail.

import (
	"context"

	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
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

// listed makes a source store these objects, as after a list and the begin of a watch.
func listed(src *source, objects ...client.Object) {
	src.pending = [][]incoming{}
	for _, o := range objects {
		src.pending = append(src.pending, src.transform(o))
	}
	src.succeeded()
}

// server is a client whose lists and watches a spec answers.
type server struct {
	client.WithWatch
	list  func(context.Context, metav1.ListOptions, client.ObjectList) error
	watch func(context.Context, metav1.ListOptions) (watch.Interface, error)
}

func (server) Scheme() *runtime.Scheme { return clientgoscheme.Scheme }

func (server) IsObjectNamespaced(runtime.Object) (bool, error) { return true, nil }

func (s server) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	var o client.ListOptions
	o.ApplyOptions(options)
	return s.list(ctx, *o.Raw, list)
}

func (s server) Watch(ctx context.Context, _ client.ObjectList, options ...client.ListOption) (watch.Interface, error) {
	var o client.ListOptions
	o.ApplyOptions(options)
	return s.watch(ctx, *o.Raw)
}

var _ = Describe("The objects of several namespaces", func() {
	It("are served once all of them are there, and not while one list is being stored", func(ctx SpecContext) {
		apart := func(client.Object) {} // makes a view of its own
		set := setOf(Declaration{Namespaces: []string{"a"}}, Declaration{Namespaces: []string{"a"}, Transform: apart},
			Declaration{Namespaces: []string{"a", "b"}, Transform: apart})
		last := set.views[2]
		set.views[1].mu.Lock() // the list of a is stored in the first view, and not yet in the last
		stored := make(chan struct{})
		go func() {
			defer close(stored)
			listed(set.sources[0], configMap("a", "one"))
		}()
		Eventually(set.views[0].published.Load).ShouldNot(BeNil())
		listed(set.sources[1], configMap("b", "one"))
		Expect(last.published.Load()).To(BeNil())
		set.views[1].mu.Unlock()
		Eventually(stored).Should(BeClosed())
		Expect(last.published.Load().objects.Len()).To(Equal(2))
	})
})

var _ = Describe("A declaration whose function fails for an object", func() {
	DescribeTable("serves nothing until that object is in order again", func(ctx SpecContext, mend func(*source), namespaces ...string) {
		set := setOf(Declaration{Namespaces: namespaces, Transform: func(o client.Object) {
			if o.GetLabels()["odd"] != "" {
				panic("odd")
			}
		}})
		for _, src := range set.sources {
			listed(src, configMap(src.namespace, "one"), configMap(src.namespace, "two"))
		}
		src := set.sources[0]
		odd := configMap("a", "one")
		odd.Labels = map[string]string{"odd": "yes"}
		src.update(odd.DeepCopy())
		_, err := namesIn(ctx, set)
		Expect(err).To(MatchError(ContainSubstring("a/one: Read.Transform panicked: odd")))
		src.update(configMap("a", "two")) // another one
		listed(src, odd, configMap("a", "two"))
		_, err = namesIn(ctx, set)
		Expect(err).To(HaveOccurred())
		mend(src)
		Expect(namesIn(ctx, set)).To(ContainElement("a/two"))
	},
		Entry("by a change", func(src *source) { src.update(configMap("a", "one")) }, "a"),
		Entry("by its removal", func(src *source) { src.remove(configMap("a", "one")) }, "a"),
		Entry("by a list", func(src *source) { listed(src, configMap("a", "two")) }, "a"),
		Entry("by a list of one of several namespaces", func(src *source) { listed(src, configMap("a", "two")) }, "a", "b"),
	)
})
