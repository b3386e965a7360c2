package reads

// This file plays what a source of objects can go through: lists, watches, interruptions, and functions that fail.

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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

// server is a client whose lists and watches a spec answers.
type server struct {
	client.WithWatch
	list  func(client.ObjectList) error
	watch func(context.Context, metav1.ListOptions) (watch.Interface, error)
}

func (server) Scheme() *runtime.Scheme { return clientgoscheme.Scheme }

func (server) IsObjectNamespaced(runtime.Object) (bool, error) { return true, nil }

func (s server) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	return s.list(list)
}

func (s server) Watch(ctx context.Context, _ client.ObjectList, options ...client.ListOption) (watch.Interface, error) {
	var o client.ListOptions
	o.ApplyOptions(options)
	return s.watch(ctx, *o.Raw)
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

var _ = Describe("An interrupted watch", func() {
	DescribeTable("is continued only if that cannot hide objects that are too old", func(ctx SpecContext, broken time.Duration, continues bool, stale ...time.Duration) {
		var declared []Declaration
		for _, age := range stale {
			declared = append(declared, Declaration{MaxStale: age})
		}
		src := setOf(declared...).sources[0]
		Expect(src.Replace(nil, "1")).To(Succeed())
		src.client = server{watch: func(context.Context, metav1.ListOptions) (watch.Interface, error) { return watch.NewFake(), nil }}
		src.failed(errors.New("connection refused"))
		src.since = time.Now().Add(-broken)

		w, err := src.watch(ctx, metav1.ListOptions{ResourceVersion: "1"})
		age, _ := src.broken()
		if !continues {
			Expect(err).To(MatchError(errOutdated))
			Expect(age).To(BeNumerically(">=", broken))
			w, err = src.watch(ctx, metav1.ListOptions{SendInitialEvents: new(true)}) // a list is another thing
		} else {
			Expect(age).To(BeZero())
		}
		Expect(err).NotTo(HaveOccurred())
		w.Stop()
	},
		Entry("after a short time", 20*time.Second, true, time.Hour, 30*time.Second),
		Entry("after a time that is too long for one step", 20*time.Second, false, time.Hour, 10*time.Second),
		Entry("after any time for steps that look at objects of any age", time.Hour, true, time.Duration(0)),
		Entry("after a long time for another step", time.Hour, false, time.Duration(0), time.Minute),
	)
})

func TestObjectsThatWereNeverListedAreAskedForEveryFiveSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		RegisterTestingT(t)
		src := setOf(Declaration{MaxStale: time.Minute}).sources[0]
		longest := func(within time.Duration, err error) (longest time.Duration) {
			var mu sync.Mutex // the reflector lists in a goroutine of its own
			last := time.Now()
			ask := func() error {
				mu.Lock()
				defer mu.Unlock()
				longest, last = max(longest, time.Since(last)), time.Now()
				return err
			}
			ctx, cancel := context.WithTimeout(t.Context(), within)
			defer cancel()
			src.run(ctx, server{list: func(client.ObjectList) error { return ask() }, watch: func(context.Context, metav1.ListOptions) (watch.Interface, error) {
				return nil, ask()
			}})
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			return longest
		}
		for _, err := range []error{apierrors.NewForbidden(corev1.Resource("configmaps"), "", nil), apierrors.NewInternalError(errors.New("broken")), errors.New("connection refused")} {
			Expect(longest(time.Hour, err)).To(BeNumerically("<=", 5*time.Second), "%v", err)
		}
		Expect(src.Replace(nil, "1")).To(Succeed())
		Expect(longest(time.Hour, errors.New("connection refused"))).To(BeNumerically(">", 15*time.Second), "once listed, it can wait")
	})
}

var _ = Describe("A call that finds the watch broken", func() {
	It("waits for it once, and not again in each step", func(ctx SpecContext) {
		set := setOf(Declaration{MaxStale: time.Minute})
		src := set.sources[0]
		Expect(src.Replace(nil, "1")).To(Succeed())
		src.failed(errors.New("connection refused"))
		src.since = time.Now().Add(-time.Hour)
		call := set.Snapshot(ctx)
		call.waited[0] = mostWait - time.Millisecond
		var list corev1.ConfigMapList
		Expect(call.Reader("step").List(ctx, &list)).To(MatchError(ContainSubstring("connection refused")))
		began := time.Now()
		Expect(call.Reader("step").List(ctx, &list)).To(MatchError(ContainSubstring("connection refused")))
		Expect(time.Since(began)).To(BeNumerically("<", mostWait))

		src.succeeded() // and has it back at once
		Expect(call.Reader("step").List(ctx, &list)).To(Succeed())
	})
})

var _ = Describe("A declaration whose function fails for an object", func() {
	DescribeTable("serves nothing until that object is in order again", func(ctx SpecContext, mend func(*source) error, namespaces ...string) {
		set := setOf(Declaration{Namespaces: namespaces, Keep: func(o client.Object) {
			if o.GetLabels()["odd"] != "" {
				panic("odd")
			}
		}})
		for _, src := range set.sources {
			Expect(src.Replace([]any{configMap(src.namespace, "one"), configMap(src.namespace, "two")}, "1")).To(Succeed())
		}
		src := set.sources[0]
		odd := configMap("a", "one")
		odd.Labels = map[string]string{"odd": "yes"}
		Expect(src.Update(odd.DeepCopy())).To(Succeed())
		_, err := namesIn(ctx, set)
		Expect(err).To(MatchError(ContainSubstring("a/one: Read.Keep panicked: odd")))
		Expect(src.Update(configMap("a", "two"))).To(Succeed()) // another one
		Expect(src.Replace([]any{odd, configMap("a", "two")}, "2")).To(Succeed())
		_, err = namesIn(ctx, set)
		Expect(err).To(HaveOccurred())
		Expect(mend(src)).To(Succeed())
		Expect(namesIn(ctx, set)).To(ContainElement("a/two"))
	},
		Entry("by a change", func(src *source) error { return src.Update(configMap("a", "one")) }, "a"),
		Entry("by its removal", func(src *source) error { return src.Delete(configMap("a", "one")) }, "a"),
		Entry("by a list", func(src *source) error { return src.Replace([]any{configMap("a", "two")}, "3") }, "a"),
		Entry("by a list of one of several namespaces", func(src *source) error { return src.Replace([]any{configMap("a", "two")}, "3") }, "a", "b"),
	)
})
