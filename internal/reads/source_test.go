package reads

// This file asks a Reader, and the metrics, about sources that are as a spec makes them.

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	"github.com/prometheus/client_golang/prometheus"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	. "code.cloudfoundry.org/eirinix/internal/spectest"
)

func TestReads(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(30 * time.Second) // of a busy machine
	RunSpecs(t, "reads")
}

// setOf returns the Set of one step with these declarations, which are of ConfigMaps where they do not say.
func setOf(declared ...Declaration) *Set { return newSet(logr.Discard(), nil, declared...) }

func newSet(log logr.Logger, metrics *Metrics, declared ...Declaration) *Set {
	GinkgoHelper()
	for i := range declared {
		if declared[i].Object == nil {
			declared[i].Object, declared[i].Kind = &corev1.ConfigMap{}, corev1.SchemeGroupVersion.WithKind("ConfigMap")
		}
	}
	return Must(New(clientgoscheme.Scheme, []Step{{Name: "step", Reads: declared}}, log, metrics))
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

var _ = Describe("A Reader", func() {
	It("ignores the namespace of a question about objects that are in none, as other clients do", func(ctx SpecContext) {
		set := setOf(Declaration{
			Object: &corev1.Node{}, Kind: corev1.SchemeGroupVersion.WithKind("Node"),
			Index: map[string]client.IndexerFunc{"zone": func(o client.Object) []string { return []string{o.GetLabels()["zone"]} }},
		})
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
		untyped := &unstructured.Unstructured{}
		untyped.SetGroupVersionKind(kind)
		set := setOf(Declaration{Object: untyped, Kind: kind})
		listed(set.sources[0])
		r, all := set.Snapshot(ctx).Reader("step"), &unstructured.UnstructuredList{}
		for name, matches := range map[string]types.GomegaMatcher{"AllowListList": Succeed(), "AllowList": Succeed(), "Allow": HaveOccurred()} {
			all.SetGroupVersionKind(kind.GroupVersion().WithKind(name))
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

var _ = DescribeTable("Two steps share the objects that both declare", func(views, sources int, change func(a, b *Declaration)) {
	a := Declaration{Object: &corev1.ConfigMap{}, Kind: corev1.SchemeGroupVersion.WithKind("ConfigMap"), Namespaces: []string{"a"}, Labels: labels.SelectorFromSet(labels.Set{"team": "x"})}
	b := a
	change(&a, &b)
	set := Must(New(clientgoscheme.Scheme, []Step{{"a", []Declaration{a}}, {"b", []Declaration{b}}}, logr.Discard(), nil))
	Expect(set.views).To(HaveLen(views))
	Expect(set.sources).To(HaveLen(sources))
},
	Entry("in the same way", 1, 1, func(_, _ *Declaration) {}),
	Entry("but not of another kind", 2, 2, func(_, b *Declaration) { b.Kind.Kind, b.Object = "Secret", &corev1.Secret{} }),
	Entry("but not in another form", 2, 2, func(_, b *Declaration) { b.Object = &metav1.PartialObjectMetadata{} }),
	Entry("but not in another namespace", 2, 2, func(_, b *Declaration) { b.Namespaces = []string{"b"} }),
	Entry("but not with other labels", 2, 2, func(_, b *Declaration) { b.Labels = nil }),
	Entry("but not with other fields", 2, 2, func(_, b *Declaration) { b.Fields = fields.OneTermEqualSelector("metadata.name", "x") }),
	Entry("in one watch, if one changes them", 2, 1, func(_, b *Declaration) { b.Transform = func(client.Object) {} }),
	Entry("in one watch, if the other changes them", 2, 1, func(a, _ *Declaration) { a.Transform = func(client.Object) {} }),
	Entry("with their index, if it is one declaration", 1, 1, func(a, b *Declaration) {
		a.Index, a.Same = map[string]client.IndexerFunc{"x": nil}, "one"
		b.Index, b.Same = a.Index, a.Same
	}),
	Entry("in one watch, if they are two declarations with an index", 2, 1, func(a, b *Declaration) {
		a.Index, a.Same = map[string]client.IndexerFunc{"x": nil}, "one"
		b.Index, b.Same = a.Index, "another"
	}),
)

var _ = DescribeTable("A list has failed so that only a change in the cluster helps", func(err error, expected bool) {
	Expect(refused(err)).To(Equal(expected))
},
	Entry("without a right", apierrors.NewForbidden(schema.GroupResource{}, "", nil), true),
	Entry("without a user", apierrors.NewUnauthorized(""), true),
	Entry("of what is not served", apierrors.NewNotFound(schema.GroupResource{}, ""), true),
	Entry("of what has no lists", apierrors.NewMethodNotSupported(schema.GroupResource{}, "list"), true),
	Entry("with a selector that is none", apierrors.NewBadRequest(""), true),
	Entry("of an unknown kind", &meta.NoKindMatchError{}, true),
	Entry("of a group that cannot be discovered", &apiutil.ErrResourceDiscoveryFailed{}, true),
	Entry("of a namespace, for objects that are in none", errScope, true),
	Entry("not if the API server is down", apierrors.NewServiceUnavailable(""), false),
	Entry("not if it has not failed", nil, false),
)

var _ = Describe("The metrics of a source", func() {
	var (
		registry *prometheus.Registry
		src      *source
	)
	value := func(name string) string {
		GinkgoHelper()
		_, v, found := strings.Cut(Shown(registry, name), name+`{objects="ConfigMap in namespace team-1"} `)
		Expect(found).To(BeTrue())
		return strings.TrimSpace(v)
	}
	BeforeEach(func() {
		registry = prometheus.NewRegistry()
		src = newSet(logr.Discard(), Must(NewMetrics(registry)), Declaration{Namespaces: []string{"team-1", "team-2"}}).sources[0]
	})

	It("count its own objects", func() {
		const objects = "eirinix_read_objects"
		listed(src, configMap("team-1", "a"), configMap("team-1", "b"))
		Expect(value(objects)).To(Equal("2"))
		for range 2 {
			src.update(configMap("team-1", "c"))
		}
		Expect(value(objects)).To(Equal("3"))
		for range 2 {
			src.remove(configMap("team-1", "a"))
		}
		Expect(value(objects)).To(Equal("2"))
		listed(src, configMap("team-1", "a"))
		Expect(value(objects)).To(Equal("1"))
	})

	It("have the time of an interruption, but not before the first list", func() {
		const interruption = "eirinix_read_interruption_timestamp_seconds"
		src.failed(time.Time{}, errors.New("refused"))
		Expect(value(interruption)).To(Equal("0"))
		listed(src)
		Expect(value(interruption)).To(Equal("0"))
		src.failed(time.Time{}, errors.New("refused"))
		Expect(value(interruption)).To(HaveSuffix("e+09"))
		src.succeeded()
		Expect(value(interruption)).To(Equal("0"))
	})
})

// hosts are the values of the index in specs.
func hosts(o client.Object) (all []string) {
	ingress, ok := o.(*networkingv1.Ingress)
	if !ok {
		return nil
	}
	for _, r := range ingress.Spec.Rules {
		all = append(all, r.Host)
	}
	return all
}

func hostOf(n int) string { return fmt.Sprintf("shop-%d.example.com", n) }

func newIngress(n int) *networkingv1.Ingress {
	return &networkingv1.Ingress{
		ObjectMeta: metav1.ObjectMeta{Namespace: fmt.Sprint("team-", n%100), Name: fmt.Sprint("shop-", n)},
		Spec:       networkingv1.IngressSpec{Rules: []networkingv1.IngressRule{{Host: hostOf(n)}}},
	}
}

// readerOfIngresses returns a Reader of that many Ingresses, with an index.
func readerOfIngresses(count int) *Reader {
	set := setOf(Declaration{
		Object: &networkingv1.Ingress{}, Kind: networkingv1.SchemeGroupVersion.WithKind("Ingress"), Index: map[string]client.IndexerFunc{"host": hosts},
	})
	all := make([]client.Object, 0, count)
	for n := range count {
		all = append(all, newIngress(n))
	}
	listed(set.sources[0], all...)
	return set.Snapshot(context.Background()).Reader("step")
}

// leastAllocations returns the allocations of the cheapest of many runs. A sync.Pool is emptied by the garbage collector,
// and under the race detector it drops a part of what it is given, at random.
func leastAllocations(f func()) float64 {
	least := testing.AllocsPerRun(1, f)
	for range 100 {
		least = min(least, testing.AllocsPerRun(1, f))
	}
	return least
}

var _ = Describe("A lookup", func() {
	It("takes no memory but that of its result", func() {
		r := readerOfIngresses(1000)
		var list networkingv1.IngressList
		ctx := context.Background()
		allocations := func(options ...client.ListOption) float64 {
			return leastAllocations(func() { _ = r.List(ctx, &list, options...) })
		}
		Expect(allocations(client.MatchingFields{"host": "none.example.com"})).To(BeZero())
		Expect(allocations(client.MatchingFields{"host": hostOf(7)}, client.InNamespace("team-8"))).To(BeZero())

		var one networkingv1.Ingress
		text := Must(newIngress(7).Marshal())
		decoding := leastAllocations(func() {
			one = networkingv1.Ingress{}
			_ = one.Unmarshal(text)
		})
		Expect(allocations(client.MatchingFields{"host": hostOf(7)})).To(Equal(decoding + 1)) // the list's Items
		Expect(list.Items).To(HaveExactElements(HaveField("Name", "shop-7")))
		Expect(leastAllocations(func() {
			_ = r.Get(ctx, client.ObjectKey{Namespace: "team-7", Name: "shop-7"}, &one)
		})).To(Equal(decoding))
	})
})

// Source is a source that a spec plays.
type Source = source

// NewList returns an empty list of the declared objects.
var NewList = newList

// Sources returns the sources that a spec can play.
func (s *Set) Sources() []*Source { return s.sources }

// Namespace is that of the objects; empty for all.
func (s *source) Namespace() string { return s.namespace }

// Listed stores these objects, as after a list and the begin of a watch.
func (s *source) Listed(objects ...client.Object) { listed(s, objects...) }

// Update is a change of an object.
func (s *source) Update(o client.Object) { s.update(o) }

// Remove is the removal of an object.
func (s *source) Remove(o client.Object) { s.remove(o) }
