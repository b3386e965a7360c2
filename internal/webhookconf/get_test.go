package webhookconf_test

import (
	"context"
	"errors"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

var _ = Describe("A configuration that is read", func() {
	isolatedSteps := func(names ...string) (steps []webhookconf.Step) {
		for _, name := range names {
			steps = append(steps, step(name, isolated))
		}
		return steps
	}

	Describe("and does not exist", func() {
		It("is no error, and costs one request", func(ctx SpecContext) {
			c := newCluster()
			found := get(ctx, mutatingIn(c))
			Expect(c.verbs()).To(Equal([]string{"get"}))
			Expect(found).To(And(HaveField("Exists", false), HaveField("ResourceVersion", ""), HaveField("UID", BeEmpty()), HaveField("Bundles", BeEmpty()),
				HaveField("Version", ""), HaveField("Pins", BeEmpty()), HaveField("Unneeded", BeNil())))
			Expect(found.LastManager()).To(BeEmpty())
			Expect(found.Missing(*volumes())).To(ConsistOf("volumes"))
			Expect(found.Intact(*volumes())).To(BeFalse())
			Expect(found.Missing(*volumes(validating))).To(BeEmpty(), "of the other kind")
			Expect(found.Intact(*volumes(validating))).To(BeTrue(), "Put would not create it")
		})
	})

	It("equals the result of Put", func(ctx SpecContext) {
		c, d := newCluster(), volumes()
		written, outcome := put(ctx, mutatingIn(c), webhookconf.Change{Entries: d, Bundle: []byte(pem(0, 1)), Unneeded: map[string]time.Time{hash(1): noon}})
		Expect(outcome).To(Equal(webhookconf.Created))
		for _, found := range []webhookconf.Found{written, get(ctx, mutatingIn(c))} {
			Expect(found).To(And(HaveField("Exists", true), HaveField("ResourceVersion", "1"), HaveField("UID", BeEquivalentTo("uid-1")),
				HaveField("Bundles", Equal([][]byte{[]byte(pem(0, 1))})), HaveField("Version", d.Version),
				HaveField("Pins", Equal([]string{hash(0), hash(1)})), HaveField("Unneeded", Equal(map[string]time.Time{hash(1): noon}))))
			Expect(found.Missing(*d)).To(BeEmpty())
			Expect(found.Intact(*d)).To(BeTrue())
			Expect(found.LastManager()).To(BeEmpty(), "no other wrote it")
		}
	})

	It("is the same from a cache, which keeps its object", func(ctx SpecContext) {
		c, d := newCluster(), volumes()
		put(ctx, mutatingIn(c), webhookconf.Change{Entries: d, Bundle: []byte(pem(0)), Unneeded: map[string]time.Time{}})
		cached := c.tree()
		before := cached.DeepCopy()
		c.ClearActions()
		found, err := mutatingIn(c).Read(ctx, holding(cached))
		Expect(err).NotTo(HaveOccurred())
		Expect(c.verbs()).To(BeEmpty())
		live := get(ctx, mutatingIn(c))
		Expect(found.Bundles).To(Equal(live.Bundles))
		Expect([]any{found.ResourceVersion, found.UID, found.Version, found.Pins}).To(Equal([]any{live.ResourceVersion, live.UID, live.Version, live.Pins}))
		Expect(found.Intact(*d)).To(BeTrue())
		Expect(found.Missing(*desired(urlOptions(), isolatedSteps("x")...))).To(ConsistOf("x"))

		found.Bundles[0][0] = 'X'
		_, _, err = mutatingIn(c).Put(ctx, found, webhookconf.Change{Entries: desired(urlOptions(), isolatedSteps("x")...), Bundle: []byte(pem(1)), Unneeded: map[string]time.Time{hash(0): noon}})
		Expect(err).NotTo(HaveOccurred())
		Expect(cached).To(Equal(before))
	})

	It("from a cache is none if the cache knows of none, and nothing if the cache knows nothing", func(ctx SpecContext) {
		c, failure := mutatingIn(newCluster()), errors.New("not seen yet")
		found, err := c.Read(ctx, func(context.Context, client.Object) error {
			return apierrors.NewNotFound(schema.GroupResource{}, configurationName)
		})
		Expect(err).NotTo(HaveOccurred())
		Expect(found.Exists).To(BeFalse())
		Expect(found.Missing(*volumes())).To(ConsistOf("volumes"))
		_, err = c.Read(ctx, func(context.Context, client.Object) error { return failure })
		Expect(err).To(BeIdenticalTo(failure))
	})

	DescribeTable("from a cache is",
		func(ctx SpecContext, object *unstructured.Unstructured, expected string) {
			_, err := mutatingIn(newCluster()).Read(ctx, holding(object))
			Expect(err).To(MatchError(And(ContainSubstring(configurationName), ContainSubstring(expected))))
		},
		Entry("refused, for another name", &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "x"}}}, `read from "x"`),
	)

	It("names the right that is missing", func(ctx SpecContext) {
		c := newCluster()
		c.always("get", forbidden())
		_, err := mutatingIn(c).Get(ctx)
		Expect(apierrors.IsForbidden(err)).To(BeTrue(), "%v", err)
		Expect(err).To(MatchError(ContainSubstring("needs get on mutatingwebhookconfigurations.admissionregistration.k8s.io in a ClusterRole")))
	})

	It("passes other errors on, with the object's name", func(ctx SpecContext) {
		c := newCluster()
		c.always("get", apierrors.NewServiceUnavailable("starting"))
		_, err := mutatingIn(c).Get(ctx)
		Expect(apierrors.IsServiceUnavailable(err)).To(BeTrue(), "%v", err)
		Expect(err).To(MatchError(ContainSubstring(configurationName)))
	})

	DescribeTable("lacks entries",
		func(ctx SpecContext, held []string, fingerprint string, wanted, expected []string) {
			stored := configuration(buildAll(urlOptions(), isolatedSteps(held...)...))
			stored.Name = webhookconf.Mutating.ConfigurationName(fingerprint)
			o := urlOptions()
			o.Fingerprint = fingerprint
			c, _ := both(newCluster(stored), o)
			Expect(get(ctx, c).Missing(*desired(o, isolatedSteps(wanted...)...))).To(Equal(expected))
		},
		Entry("none", []string{"a", "b"}, "eirini-x", []string{"b", "a"}, nil),
		Entry("some, in the order of the entries", []string{"b"}, "eirini-x", []string{"c", "b", "a"}, []string{"c", "a"}),
		Entry("all, of another fingerprint", []string{"a"}, "another", []string{"a"}, []string{"a"}),
		Entry("all, of an empty configuration", nil, "eirini-x", []string{"a"}, []string{"a"}),
	)

	DescribeTable("has each caBundle of the fingerprint once",
		func(ctx SpecContext, bundles []string, expected ...string) {
			c := newCluster()
			registers(ctx, mutatingIn(c), desired(urlOptions(), isolatedSteps("a", "b", "c")...), "bundle")
			c.tamper(func(m *admissionregistrationv1.MutatingWebhookConfiguration) {
				for i, bundle := range bundles {
					m.Webhooks[i].ClientConfig.CABundle = []byte(bundle)
				}
				m.Webhooks = append(m.Webhooks, admissionregistrationv1.MutatingWebhook{
					Name:         webhookconf.Options{Fingerprint: "another"}.WebhookName("a"),
					ClientConfig: admissionregistrationv1.WebhookClientConfig{CABundle: []byte("of another fingerprint")},
				})
			})
			Expect(texts(get(ctx, mutatingIn(c)).Bundles)).To(Equal(expected))
		},
		Entry("one for all", []string{"1", "1", "1"}, "1"),
		Entry("two", []string{"1", "1", "2"}, "1", "2"),
		Entry("two, interleaved", []string{"1", "2", "1"}, "1", "2"),
		Entry("three", []string{"1", "2", "3"}, "1", "2", "3"),
		Entry("an empty one is one too", []string{"", "1", "1"}, "", "1"),
	)

	type harm = func(*admissionregistrationv1.MutatingWebhookConfiguration)

	DescribeTable("is intact with",
		func(ctx SpecContext, change harm) {
			c := newCluster()
			registers(ctx, mutatingIn(c), volumes(), pem(0))
			c.tamper(change)
			Expect(get(ctx, mutatingIn(c)).Intact(*volumes())).To(BeTrue())
		},
		Entry("blanked caBundles", blank),
		Entry("other pins", func(m *admissionregistrationv1.MutatingWebhookConfiguration) {
			m.Annotations[webhookconf.PinsAnnotation] = "x"
		}),
		Entry("no pins", func(m *admissionregistrationv1.MutatingWebhookConfiguration) {
			delete(m.Annotations, webhookconf.PinsAnnotation)
		}),
		Entry("another word about unneeded CAs", func(m *admissionregistrationv1.MutatingWebhookConfiguration) {
			m.Annotations[webhookconf.UnneededAnnotation] = "x"
		}),
		Entry("foreign labels", func(m *admissionregistrationv1.MutatingWebhookConfiguration) { m.Labels["team"] = "x" }),
		Entry("foreign annotations", func(m *admissionregistrationv1.MutatingWebhookConfiguration) { m.Annotations["note"] = "x" }),
		Entry("finalizers and other owners", func(m *admissionregistrationv1.MutatingWebhookConfiguration) {
			m.Finalizers = []string{"example.org/guard"}
			m.OwnerReferences = append(m.OwnerReferences, metav1.OwnerReference{APIVersion: "v1", Kind: "Namespace", Name: "x", UID: "x"})
		}),
		Entry("empty lists where Put leaves none", func(m *admissionregistrationv1.MutatingWebhookConfiguration) {
			m.Webhooks[0].MatchConditions = []admissionregistrationv1.MatchCondition{}
			m.Webhooks[0].ObjectSelector.MatchLabels = map[string]string{}
			m.OwnerReferences = []metav1.OwnerReference{}
		}),
	)

	DescribeTable("is not intact with, and Put mends,",
		func(ctx SpecContext, change harm) {
			c := newCluster()
			registers(ctx, mutatingIn(c), volumes(), pem(0))
			before := c.stored()
			c.tamper(change)
			Expect(get(ctx, mutatingIn(c)).Intact(*volumes())).To(BeFalse())
			after, outcome := put(ctx, mutatingIn(c), webhookconf.Change{Entries: volumes(), Bundle: []byte(pem(0))})
			Expect(outcome).To(Equal(webhookconf.Updated))
			Expect(after.Intact(*volumes())).To(BeTrue())
			Expect(c.stored().Webhooks).To(Equal(before.Webhooks))
			Expect(c.stored().Labels).To(Equal(before.Labels))
			Expect(c.stored().Annotations).To(Equal(before.Annotations))
			_, outcome = put(ctx, mutatingIn(c), webhookconf.Change{Entries: volumes(), Bundle: []byte(pem(0))})
			Expect(outcome).To(Equal(webhookconf.Unchanged))
		},
		Entry("a weakened failurePolicy", weaken),
		Entry("a narrowed namespaceSelector", func(m *admissionregistrationv1.MutatingWebhookConfiguration) {
			m.Webhooks[0].NamespaceSelector.MatchLabels = map[string]string{"kubernetes.io/metadata.name": "nowhere"}
		}),
		Entry("a URL that leads elsewhere", func(m *admissionregistrationv1.MutatingWebhookConfiguration) {
			m.Webhooks[0].ClientConfig.URL = new("https://elsewhere.example.org/")
		}),
		Entry("added matchConditions", func(m *admissionregistrationv1.MutatingWebhookConfiguration) {
			m.Webhooks[0].MatchConditions = []admissionregistrationv1.MatchCondition{{Name: "never", Expression: "false"}}
		}),
		Entry("entries that are gone", func(m *admissionregistrationv1.MutatingWebhookConfiguration) { m.Webhooks = nil }),
		Entry("an entry of ours that was removed long ago", func(m *admissionregistrationv1.MutatingWebhookConfiguration) {
			m.Webhooks = append(m.Webhooks, admissionregistrationv1.MutatingWebhook{Name: "removed.eirini-x.eirinix.cloudfoundry.org"})
		}),
		Entry("a foreign entry", func(m *admissionregistrationv1.MutatingWebhookConfiguration) {
			m.Webhooks = append(m.Webhooks, admissionregistrationv1.MutatingWebhook{Name: "foreign.example.org"})
		}),
		Entry("a label of ours that is gone", func(m *admissionregistrationv1.MutatingWebhookConfiguration) { m.Labels = nil }),
		Entry("an owner annotation that is gone", func(m *admissionregistrationv1.MutatingWebhookConfiguration) {
			delete(m.Annotations, webhookconf.OwnerAnnotation)
		}),
		Entry("annotations that are all gone", func(m *admissionregistrationv1.MutatingWebhookConfiguration) { m.Annotations = nil }),
		Entry("another version", func(m *admissionregistrationv1.MutatingWebhookConfiguration) {
			m.Annotations[webhookconf.VersionAnnotation] = "another"
		}),
	)

	It("is intact with the owner that is wanted, and with any if none is wanted", func(ctx SpecContext) {
		c := newCluster()
		registers(ctx, mutatingIn(c), volumes(), "bundle")
		owned := volumes()
		owned.Options.OwnedBy = webhookconf.OwnedByNamespace(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "cf", UID: "ns"}})
		Expect(get(ctx, mutatingIn(c)).Intact(*owned)).To(BeFalse())
		Expect(registers(ctx, mutatingIn(c), owned, "bundle")).To(Equal(webhookconf.Updated))
		Expect(get(ctx, mutatingIn(c)).Intact(*owned)).To(BeTrue())
		Expect(get(ctx, mutatingIn(c)).Intact(*volumes())).To(BeTrue())
	})

	garbage := strings.Repeat("z", 64)
	DescribeTable("has pins",
		func(ctx SpecContext, annotation string, expected []string) {
			stored := configuration(nil)
			stored.Annotations[webhookconf.PinsAnnotation] = annotation
			Expect(get(ctx, mutatingIn(newCluster(stored))).Pins).To(HaveExactElements(expected))
		},
		Entry("in order", hash(1)+","+hash(0), []string{hash(1), hash(0)}),
		Entry("none", "", nil),
		Entry("but no garbage", garbage+","+hash(0)+",,"+hash(1)[:62]+","+strings.ToUpper(hash(2)), []string{hash(0)}),
	)

	DescribeTable("has times of unneeded CAs",
		func(ctx SpecContext, annotation string, expected map[string]time.Time) {
			stored := configuration(nil)
			stored.Annotations[webhookconf.UnneededAnnotation] = annotation
			Expect(get(ctx, mutatingIn(newCluster(stored))).Unneeded).To(Equal(expected))
		},
		Entry("by hash", `{"`+hash(0)+`":"2030-03-01T12:00:00Z","`+hash(1)+`":"2030-03-01T14:00:00+01:00"}`, map[string]time.Time{hash(0): noon, hash(1): noon.Add(time.Hour)}),
		Entry("none", "", map[string]time.Time{}),
		Entry("none, of an empty object", "{}", map[string]time.Time{}),
		Entry("none, of garbage", "{", map[string]time.Time{}),
		Entry("none, of a list", `["`+hash(0)+`"]`, map[string]time.Time{}),
		Entry("none, of null", "null", map[string]time.Time{}),
		Entry("but no garbage", `{"`+hash(0)+`":"yesterday","`+hash(1)+`":1,"`+garbage+`":"2030-03-01T12:00:00Z","`+hash(2)+`":"2030-03-01T12:00:00Z"}`, map[string]time.Time{hash(2): noon}),
	)

	Describe("was last written by", func() {
		at := func(manager string, minute int) metav1.ManagedFieldsEntry {
			return metav1.ManagedFieldsEntry{Manager: manager, Time: new(metav1.NewTime(noon.Add(time.Duration(minute) * time.Minute)))}
		}
		DescribeTable("a manager",
			func(ctx SpecContext, expected string, entries ...metav1.ManagedFieldsEntry) {
				stored := configuration(nil)
				stored.ManagedFields = entries
				found, err := mutatingIn(newCluster()).Read(ctx, holding(untyped(stored)))
				Expect(err).NotTo(HaveOccurred())
				Expect(found.LastManager()).To(Equal(expected))
			},
			Entry("of none", ""),
			Entry("of one", "argocd", at("argocd", 1)),
			Entry("beside us", "argocd", at("argocd", 1), at("eirinix", 2)),
			Entry("the last one", "kubectl", at("argocd", 1), at("kubectl", 3), at("helm", 2)),
			Entry("with a time", "argocd", at("argocd", 1), metav1.ManagedFieldsEntry{Manager: "helm"}),
		)
	})
})
