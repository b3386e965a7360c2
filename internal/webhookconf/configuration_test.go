package webhookconf_test

// How a configuration is read and deleted, and that one of another deployment is not touched. The specs are about the
// mutating kind; those of the validating one show what is its own.

import (
	"context"
	"crypto/x509"
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
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"code.cloudfoundry.org/eirinix/internal/list"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

var _ = Describe("A configuration that is read", func() {
	isolatedSteps := func(names ...string) []webhookconf.Step {
		return list.Of(names, func(name string) webhookconf.Step { return step(name, isolated) })
	}

	It("is no error where there is none, and costs one request", func(ctx SpecContext) {
		c := newCluster()
		found := get(ctx, mutatingIn(c))
		Expect(c.verbs()).To(Equal([]string{"get"}))
		Expect(found).To(And(HaveField("Exists", false), HaveField("ResourceVersion", ""), HaveField("Bundles", BeEmpty()), HaveField("Version", ""), HaveField("LastManager()", "")))
		Expect(found.Missing(*volumes())).To(ConsistOf("volumes"))
		Expect(found.Intact(*volumes())).To(BeFalse())
		Expect(found.Missing(*volumes(validating))).To(BeEmpty(), "of the other kind")
		Expect(found.Intact(*volumes(validating))).To(BeTrue(), "Put would not create it")
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
		found := Must(mutatingIn(c).Read(ctx, holding(cached)))
		Expect(c.verbs()).To(BeEmpty())
		Expect(found).To(Equal(get(ctx, mutatingIn(c))))
		Expect(found.Intact(*d)).To(BeTrue())

		found.Bundles[0][0] = 'X'
		_, _, err := mutatingIn(c).Put(ctx, found, webhookconf.Change{Entries: desired(urlOptions(), isolatedSteps("x")...), Bundle: []byte(pem(1)), Unneeded: map[string]time.Time{hash(0): noon}})
		Expect(err).NotTo(HaveOccurred())
		Expect(cached).To(Equal(before))
	})

	It("from a cache is none if the cache knows of none, and an error if the cache knows nothing, or holds another object", func(ctx SpecContext) {
		c, failure := mutatingIn(newCluster()), errors.New("not seen yet")
		found := Must(c.Read(ctx, func(context.Context, client.Object) error {
			return apierrors.NewNotFound(groupResource, configurationName)
		}))
		Expect(found.Exists).To(BeFalse())
		Expect(found.Missing(*volumes())).To(ConsistOf("volumes"))
		_, err := c.Read(ctx, func(context.Context, client.Object) error { return failure })
		Expect(err).To(BeIdenticalTo(failure))
		_, err = c.Read(ctx, holding(&unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "x"}}}))
		Expect(err).To(MatchError(And(ContainSubstring(configurationName), ContainSubstring(`read from "x"`))))
	})

	DescribeTable("names the configuration in an error, and the right that is missing", func(ctx SpecContext, verb, rights string, do func(context.Context, webhookconf.Configuration) error) {
		c := newCluster(configuration(nil))
		c.always(verb, forbidden())
		err := do(ctx, mutatingIn(c))
		Expect(apierrors.IsForbidden(err)).To(BeTrue(), "%v", err)
		Expect(err).To(MatchError(HavePrefix(`MutatingWebhookConfiguration "` + configurationName + `" (needs ` + rights + ` on mutatingwebhookconfigurations.admissionregistration.k8s.io in a ClusterRole): `)))
		c.always(verb, apierrors.NewServiceUnavailable("starting"))
		err = do(ctx, mutatingIn(c))
		Expect(apierrors.IsServiceUnavailable(err)).To(BeTrue(), "%v", err)
		Expect(err).To(MatchError(And(ContainSubstring(configurationName), Not(ContainSubstring("needs")))))
	},
		Entry("to get", "get", "get", func(ctx context.Context, c webhookconf.Configuration) error { _, err := c.Get(ctx); return err }),
		Entry("to create", "create", "get, create and update", func(ctx context.Context, c webhookconf.Configuration) error {
			_, _, err := c.Put(ctx, webhookconf.Found{}, trusting(volumes(), "bundle"))
			return err
		}),
		Entry("to update", "update", "get, create and update", func(ctx context.Context, c webhookconf.Configuration) error {
			_, _, err := c.Put(ctx, get(ctx, c), trusting(volumes(), "bundle"))
			return err
		}),
		Entry("to get before a deletion", "get", "get and delete", func(ctx context.Context, c webhookconf.Configuration) error { _, err := c.Delete(ctx, nil); return err }),
		Entry("to delete", "delete", "get and delete", func(ctx context.Context, c webhookconf.Configuration) error { _, err := c.Delete(ctx, nil); return err }),
	)

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
		Entry("each one", []string{"1", "2", "1"}, "1", "2"),
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
		Entry("other words about CAs", func(m *admissionregistrationv1.MutatingWebhookConfiguration) {
			m.Annotations[webhookconf.PinsAnnotation], m.Annotations[webhookconf.UnneededAnnotation] = "x", "x"
		}),
		Entry("foreign labels, annotations, finalizers and owners", func(m *admissionregistrationv1.MutatingWebhookConfiguration) {
			m.Labels["team"], m.Annotations["note"], m.Finalizers = "x", "x", []string{"example.org/guard"}
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
		Entry("a URL that leads elsewhere", func(m *admissionregistrationv1.MutatingWebhookConfiguration) {
			m.Webhooks[0].ClientConfig.URL = new("https://elsewhere.example.org/")
		}),
		Entry("entries that are gone", func(m *admissionregistrationv1.MutatingWebhookConfiguration) { m.Webhooks = nil }),
		Entry("a foreign entry", func(m *admissionregistrationv1.MutatingWebhookConfiguration) {
			m.Webhooks = append(m.Webhooks, admissionregistrationv1.MutatingWebhook{Name: "foreign.example.org"})
		}),
		Entry("a label of ours that is gone", func(m *admissionregistrationv1.MutatingWebhookConfiguration) { m.Labels = nil }),
		Entry("annotations that are gone", func(m *admissionregistrationv1.MutatingWebhookConfiguration) { m.Annotations = nil }),
		Entry("another version", func(m *admissionregistrationv1.MutatingWebhookConfiguration) {
			m.Annotations[webhookconf.VersionAnnotation] = "another"
		}),
	)

	It("is intact with the owner that is wanted, and with any if none is wanted", func(ctx SpecContext) {
		c := newCluster()
		registers(ctx, mutatingIn(c), volumes(), "bundle")
		namespace := metav1.OwnerReference{APIVersion: "v1", Kind: "Namespace", Name: "cf", UID: "an earlier one"}
		c.tamper(func(m *admissionregistrationv1.MutatingWebhookConfiguration) {
			m.OwnerReferences = []metav1.OwnerReference{namespace, namespace, namespace, namespace}
			m.OwnerReferences[0].APIVersion, m.OwnerReferences[1].Kind, m.OwnerReferences[2].Name = "v2", "Pod", "x"
		})
		owned := volumes()
		owned.Options.OwnedBy = webhookconf.OwnedByNamespace(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "cf", UID: "ns"}})
		Expect(get(ctx, mutatingIn(c)).Intact(*owned)).To(BeFalse())
		Expect(registers(ctx, mutatingIn(c), owned, "bundle")).To(Equal(webhookconf.Updated))
		Expect(c.stored().OwnerReferences).To(HaveExactElements(HaveField("APIVersion", "v2"), HaveField("Kind", "Pod"),
			HaveField("Name", "x"), HaveField("UID", BeEquivalentTo("ns"))))
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
		Entry("none, of a list", `["`+hash(0)+`"]`, map[string]time.Time{}),
		Entry("but no garbage", `{"`+hash(0)+`":"yesterday","`+hash(1)+`":1,"`+garbage+`":"2030-03-01T12:00:00Z","`+hash(2)+`":"2030-03-01T12:00:00Z"}`, map[string]time.Time{hash(2): noon}),
	)

	DescribeTable("outgrows a CA that is not needed", func(there, seen, stays, note bool) {
		now := time.Now().UTC().Truncate(time.Second)
		since := map[string]time.Time{hash(1): now.Add(-time.Hour)}
		found, noted := webhookconf.Found{Bundles: [][]byte{[]byte(pem(0, 1))}}, map[string]time.Time{}
		if there {
			found.Unneeded = since
		}
		if seen {
			noted = since
		}
		bundle, unneeded := found.Outgrow([]byte(pem(0)), nil, noted, func(*x509.Certificate) bool { return true }, time.Minute, now)
		Expect(strings.Contains(string(bundle), pem(1))).To(Equal(stays))
		Expect(unneeded).To(HaveLen(map[bool]int{true: 1}[note]))
	},
		Entry("not when the note is seen for the first time, whatever its time", true, false, true, true),
		Entry("not when the note has just gone, which is not made again", false, true, true, false),
		Entry("when the note has been there for long", true, true, false, false),
	)

	at := func(manager string, minute int) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Manager: manager, Time: new(metav1.NewTime(noon.Add(time.Duration(minute) * time.Minute)))}
	}
	DescribeTable("was last written by", func(ctx SpecContext, expected string, entries ...metav1.ManagedFieldsEntry) {
		stored := configuration(nil)
		stored.ManagedFields = entries
		Expect(Must(mutatingIn(newCluster()).Read(ctx, holding(untyped(stored)))).LastManager()).To(Equal(expected))
	},
		Entry("no other", "", at("eirinix", 2)),
		Entry("the last one", "kubectl", at("argocd", 1), at("kubectl", 3), at("helm", 2), at("eirinix", 4)),
		Entry("one with a time", "argocd", at("argocd", 1), metav1.ManagedFieldsEntry{Manager: "helm"}),
	)
})

var _ = Describe("Delete", func() {
	It("deletes exactly the object that it has read, of any version", func(ctx SpecContext) {
		c := newCluster(configuration(build(urlOptions())))
		seen := c.stored()
		Expect(mutatingIn(c).Delete(ctx, nil)).To(Equal(webhookconf.Deleted))
		Expect(c.verbs()).To(Equal([]string{"get", "delete"}))
		Expect(c.Actions()[1].(clienttesting.DeleteActionImpl).DeleteOptions.Preconditions).To(HaveValue(And(
			HaveField("UID", HaveValue(Equal(seen.UID))), HaveField("ResourceVersion", HaveValue(Equal(seen.ResourceVersion))))))
		Expect(c.holdsNothing()).To(BeTrue())
		Expect(mutatingIn(c).Delete(ctx, nil)).To(Equal(webhookconf.Absent))
		Expect(c.writes()).To(Equal([]string{"delete"}))
	})

	It("deletes EiriniX's own configuration, which names no owner", func(ctx SpecContext) {
		upstream := configuration(nil)
		upstream.Annotations = nil
		Expect(mutatingIn(newCluster(upstream)).Delete(ctx, nil)).To(Equal(webhookconf.Deleted))
	})

	It("leaves the registration of a living version alone, also if that has come meanwhile", func(ctx SpecContext) {
		c, asked := newCluster(configuration(nil)), 0
		c.once("delete", conflict)
		Expect(mutatingIn(c).Delete(ctx, func(string) bool { asked++; return asked == 2 })).To(Equal(webhookconf.Absent))
		Expect(c.verbs()).To(Equal([]string{"get", "delete", "get"}))
	})

	It("is content when another was faster, and looks again when it was changed meanwhile", func(ctx SpecContext) {
		c := newCluster(configuration(nil))
		c.once("delete", conflict)
		Expect(mutatingIn(c).Delete(ctx, nil)).To(Equal(webhookconf.Deleted))
		Expect(c.verbs()).To(Equal([]string{"get", "delete", "get", "delete"}))

		c = newCluster(configuration(nil))
		c.always("delete", apierrors.NewNotFound(groupResource, configurationName))
		Expect(mutatingIn(c).Delete(ctx, nil)).To(Equal(webhookconf.Absent))
	})
})

var _ = DescribeTable("The configuration of another deployment is not touched, and the error names its owner",
	func(ctx SpecContext, do func(context.Context, *cluster, webhookconf.Configuration) error) {
		before := configuration(build(urlOptions()))
		before.Annotations[webhookconf.OwnerAnnotation] = otherOwner
		c := newCluster(before.DeepCopy())
		err := do(ctx, c, mutatingIn(c))
		owned, ok := errors.AsType[*webhookconf.OwnedElsewhereError](err)
		Expect(ok).To(BeTrue(), "%v", err)
		Expect(*owned).To(Equal(webhookconf.OwnedElsewhereError{Kind: "MutatingWebhookConfiguration", Configuration: configurationName, Owner: otherOwner, Us: owner}))
		Expect(err).To(MatchError(And(ContainSubstring(otherOwner), ContainSubstring(owner), ContainSubstring("OperatorFingerprint"))))
		Expect(c.writes()).To(BeEmpty())
		Expect(c.stored()).To(Equal(before))
	},
	Entry("by Get", func(ctx context.Context, _ *cluster, ours webhookconf.Configuration) error {
		found, err := ours.Get(ctx)
		Expect(found).To(Equal(webhookconf.Found{}), "its caBundles are its own")
		return err
	}),
	Entry("by Read", func(ctx context.Context, c *cluster, ours webhookconf.Configuration) error {
		found, err := ours.Read(ctx, holding(c.tree()))
		Expect(found).To(Equal(webhookconf.Found{}))
		return err
	}),
	Entry("by Put", put1(webhookconf.Change{Entries: volumes(), Bundle: []byte("x")})),
	Entry("by Put of trust alone", put1(webhookconf.Change{Bundle: []byte("x")})),
	Entry("by Put of a note alone", put1(webhookconf.Change{Unneeded: map[string]time.Time{}})),
	Entry("by Put without steps of its kind", put1(webhookconf.Change{Entries: volumes(validating)})),
	Entry("by Delete", func(ctx context.Context, _ *cluster, ours webhookconf.Configuration) error {
		_, err := ours.Delete(ctx, nil)
		return err
	}),
)

// put1 puts a change of the state that the other deployment found.
func put1(change webhookconf.Change) func(context.Context, *cluster, webhookconf.Configuration) error {
	return func(ctx context.Context, c *cluster, ours webhookconf.Configuration) error {
		theirs := webhookconf.Configurations(c, webhookconf.Options{Fingerprint: "eirini-x"}, otherOwner)[0]
		_, outcome, err := ours.Put(ctx, get(ctx, theirs), change)
		Expect(outcome).To(BeEmpty())
		return err
	}
}

var _ = Describe("The validating kind", func() {
	const name, resource = "eirini-x-validating-hook", "validatingwebhookconfigurations"
	steps := []webhookconf.Step{step("m", isolated), step("a", isolated, validating), step("b", isolated, validating)}

	It("holds entries of its own, and is written and read for them alone", func(ctx SpecContext) {
		c, d := newCluster(), desired(urlOptions(), steps...)
		m, v := both(c, urlOptions())
		Expect(v.Holds(webhookconf.Group(steps))).To(BeTrue())
		Expect(v.Holds(webhookconf.Group(steps[:1]))).To(BeFalse())
		Expect(m.Holds(webhookconf.Group(steps[1:]))).To(BeFalse())
		Expect(get(ctx, v).Missing(*d)).To(Equal([]string{"a", "b"}))

		Expect(registers(ctx, v, d, pem(0))).To(Equal(webhookconf.Created))
		Expect(registers(ctx, v, d, pem(0))).To(Equal(webhookconf.Unchanged))
		found, outcome := put(ctx, v, webhookconf.Change{Bundle: []byte(pem(1))})
		Expect(outcome).To(Equal(webhookconf.Updated))
		Expect(texts(found.Bundles)).To(Equal([]string{pem(1)}))
		Expect(found.Intact(*d)).To(BeTrue())
		Expect(c.Actions()).To(HaveEach(HaveField("GetResource().Resource", resource)))

		stored := Must(c.Tracker().Get(admissionregistrationv1.SchemeGroupVersion.WithResource(resource), "", name)).(*unstructured.Unstructured)
		o := urlOptions()
		o.CABundle = []byte(pem(1))
		expected := validatingOf(o, webhookconf.Group(steps))
		Expect(marshal(stored.Object["webhooks"])).To(MatchJSON(marshal(expected)))
		Expect(stored.GetAnnotations()).To(HaveKeyWithValue(webhookconf.StepsAnnotation, `{"version":"`+d.Version+`","steps":{"/validate/a":["a@v1/Pod"],"/validate/b":["b@v1/Pod"]}}`))
		Expect(v.Delete(ctx, nil)).To(Equal(webhookconf.Deleted))
	})
})
