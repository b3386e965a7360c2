package eirinixtest_test

import (
	"context"
	"fmt"
	"strings"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/offline"
	eirinixtest "code.cloudfoundry.org/eirinix/testing"
)

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
			eirinixtest.NewHarness(t, looksAtCreation, stored, gadgets).CheckReads(eirinixtest.Request{Operation: "UPDATE", Object: example(), OldObject: example()})
		})).To(ContainSubstring("admitted the object at UPDATE"))
	})

	It("fails where no step that runs declares anything, and CheckProperties does not", func() {
		silent := labeller("seen", "yes")
		Expect(failure(silent)).To(Equal("eirinixtest: no step that ran for this object has Settings.Reads, so that there is nothing to check: give an object for which a step with Reads runs, or leave CheckReads out"))
		elsewhere := limits(configMaps)
		elsewhere.Settings.Objects = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "another"}}
		Expect(failure(silent, elsewhere)).To(ContainSubstring("no step that ran"))
		eirinixtest.NewHarness(GinkgoTB(), silent, elsewhere, unhurried).CheckProperties(example())
	})
})
