package webhookconf_test

// How a configuration is written: in one request, without a loss of what others have written, and only if it changes.

import (
	"encoding/json"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clienttesting "k8s.io/client-go/testing"

	. "code.cloudfoundry.org/eirinix/internal/spectest"
	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

var _ = Describe("Put", func() {
	older := func() *webhookconf.Desired {
		return desired(urlOptions(), step("older", isolated), step("volumes", isolated, ignore))
	}

	It("creates the configuration, marked as ours", func(ctx SpecContext) {
		c, d := newCluster(), volumes()
		Expect(registers(ctx, mutatingIn(c), d, "bundle")).To(Equal(webhookconf.Created))
		Expect(c.verbs()).To(Equal([]string{"get", "create"}))
		Expect(c.stored().Webhooks).To(Equal(build(urlOptions())))
		Expect(c.stored().Annotations).To(Equal(map[string]string{
			webhookconf.OwnerAnnotation: owner, webhookconf.VersionAnnotation: d.Version,
			webhookconf.StepsAnnotation: `{"version":"` + d.Version + `","steps":{"/mutate/volumes":["volumes@v1/Pod"]}}`,
		}), "without a CA there are no pins")
		Expect(c.stored().Labels).To(Equal(map[string]string{"app.kubernetes.io/managed-by": "eirinix"}))
	})

	It("sends no request when nothing changes", func(ctx SpecContext) {
		c := newCluster()
		change := webhookconf.Change{Entries: volumes(), Bundle: []byte(pem(0, 1)), Unneeded: map[string]time.Time{hash(0): noon.Add(time.Millisecond), hash(1): noon}}
		found, outcome := put(ctx, mutatingIn(c), change)
		Expect(outcome).To(Equal(webhookconf.Created))
		c.ClearActions()
		for _, again := range []webhookconf.Change{
			change, {}, {Entries: volumes()}, {Bundle: []byte(pem(0, 1))}, {Unneeded: map[string]time.Time{hash(0): noon, hash(1): noon.In(time.FixedZone("", 3600))}},
		} {
			var err error
			found, outcome, err = mutatingIn(c).Put(ctx, found, again)
			Expect(err).NotTo(HaveOccurred())
			Expect(outcome).To(Equal(webhookconf.Unchanged))
			Expect(found.Version).To(Equal(volumes().Version))
		}
		Expect(c.verbs()).To(BeEmpty())
	})

	DescribeTable("updates in place, the version that was found, and keeps labels, annotations and owners of others",
		func(ctx SpecContext, before func(*webhookconf.Desired) webhookconf.Change) {
			c := newCluster(configuration(nil))
			put(ctx, mutatingIn(c), before(older()))
			c.ClearActions()
			found := c.stored()

			Expect(registers(ctx, mutatingIn(c), volumes(), "bundle")).To(Equal(webhookconf.Updated))
			Expect(c.verbs()).To(Equal([]string{"get", "update"}), "pods would slip past between a deletion and a creation")
			update := c.Actions()[1].(clienttesting.UpdateAction).GetObject().(metav1.Object)
			Expect(update.GetResourceVersion()).To(Equal(found.ResourceVersion))
			Expect(update.GetUID()).To(Equal(found.UID))

			after := c.stored()
			Expect(after.Webhooks).To(Equal(build(urlOptions())), "nothing but the entries of now")
			Expect(after.Annotations).To(And(HaveKeyWithValue("note", "do not touch"), HaveKeyWithValue(webhookconf.OwnerAnnotation, owner), HaveKeyWithValue(webhookconf.VersionAnnotation, volumes().Version)))
			found.Webhooks, found.Annotations = after.Webhooks, after.Annotations
			found.ResourceVersion, found.ManagedFields = after.ResourceVersion, after.ManagedFields
			Expect(after).To(Equal(found))
			Expect(registers(ctx, mutatingIn(c), volumes(), "bundle")).To(Equal(webhookconf.Unchanged))
		},
		Entry("of another version", func(d *webhookconf.Desired) webhookconf.Change { return trusting(d, "bundle") }),
		Entry("with another caBundle", func(*webhookconf.Desired) webhookconf.Change { return trusting(volumes(), "older bundle") }),
		Entry("without entries", func(*webhookconf.Desired) webhookconf.Change { return webhookconf.Change{} }),
	)

	It("of entries alone keeps the caBundle of each entry, and the pins, and a new entry gets all CAs of the others", func(ctx SpecContext) {
		c := newCluster()
		registers(ctx, mutatingIn(c), older(), pem(0))
		c.tamper(func(m *admissionregistrationv1.MutatingWebhookConfiguration) {
			m.Webhooks[1].ClientConfig.CABundle = []byte(pem(1, 0) + "# edited")
		})
		put(ctx, mutatingIn(c), webhookconf.Change{Entries: desired(urlOptions(), step("volumes", isolated), step("older", isolated, ignore), step("nu", isolated))})
		Expect(c.bundles()).To(Equal([]string{pem(1, 0) + "# edited", pem(0), pem(0, 1)}))
		Expect(get(ctx, mutatingIn(c)).Pins).To(Equal([]string{hash(0)}))
	})

	Describe("of trust alone", func() {
		foreignEntry := func(m *admissionregistrationv1.MutatingWebhookConfiguration) {
			w := build(urlOptions())[0]
			w.Name, w.ClientConfig.CABundle = webhookconf.Options{Fingerprint: "another"}.WebhookName("a"), []byte("of another fingerprint")
			m.Webhooks = append(m.Webhooks, w)
		}

		It("changes the caBundles of the fingerprint's entries and the pins, and not one byte beside", func(ctx SpecContext) {
			c := newCluster(configuration(nil))
			registers(ctx, mutatingIn(c), older(), pem(0))
			c.tamper(foreignEntry)
			c.tamper(weaken)
			c.tamper(func(m *admissionregistrationv1.MutatingWebhookConfiguration) {
				m.Webhooks[1].ClientConfig.CABundle = nil
				m.Labels = map[string]string{"team": "x"}
				m.Annotations[webhookconf.UnneededAnnotation] = "garbage"
				delete(m.Annotations, webhookconf.OwnerAnnotation)
				m.OwnerReferences = nil
			})
			before := c.stored()
			c.ClearActions()

			after, outcome := put(ctx, mutatingIn(c), webhookconf.Change{Bundle: []byte(pem(0, 1))})
			Expect(outcome).To(Equal(webhookconf.Updated))
			Expect(c.verbs()).To(Equal([]string{"get", "update"}))
			Expect(c.bundles()).To(Equal([]string{pem(0, 1), pem(0, 1), "of another fingerprint"}))
			Expect(after.Pins).To(Equal([]string{hash(0), hash(1)}))
			Expect(c.stored().Annotations).To(HaveKeyWithValue(webhookconf.PinsAnnotation, hash(0)+","+hash(1)))

			before.Webhooks[0].ClientConfig.CABundle, before.Webhooks[1].ClientConfig.CABundle = []byte(pem(0, 1)), []byte(pem(0, 1))
			before.Annotations[webhookconf.PinsAnnotation] = hash(0) + "," + hash(1)
			before.ResourceVersion, before.ManagedFields = c.stored().ResourceVersion, c.stored().ManagedFields
			Expect(json.Marshal(c.stored())).To(Equal(Must(json.Marshal(before))))
		})

		DescribeTable("writes nothing",
			func(ctx SpecContext, expected webhookconf.Outcome, stored func(*cluster)) {
				c := newCluster()
				stored(c)
				for _, change := range []webhookconf.Change{
					{}, {Bundle: []byte(pem(0))}, {Unneeded: map[string]time.Time{hash(0): noon}}, {Bundle: []byte(pem(0)), Unneeded: map[string]time.Time{}},
				} {
					found, outcome := put(ctx, mutatingIn(c), change)
					Expect(outcome).To(Equal(expected))
					Expect(found.Exists).To(Equal(expected == webhookconf.Unchanged))
				}
				Expect(c.writes()).To(BeEmpty())
			},
			Entry("where there is no configuration", webhookconf.Absent, func(*cluster) {}),
			Entry("where it is empty", webhookconf.Unchanged, func(c *cluster) {
				c.behindTheScenes(func(t clienttesting.ObjectTracker) error { return t.Add(untyped(configuration(nil))) })
			}),
			Entry("where all entries are of others", webhookconf.Unchanged, func(c *cluster) {
				stored := configuration(nil)
				foreignEntry(stored)
				stored.Webhooks = append(stored.Webhooks, admissionregistrationv1.MutatingWebhook{Name: "0.eirini-x.org"})
				c.behindTheScenes(func(t clienttesting.ObjectTracker) error { return t.Add(untyped(stored)) })
			}),
		)
	})

	It("pins the certificates of the caBundle, once, in order, and mends the annotation", func(ctx SpecContext) {
		Expect(hash(0)).To(MatchRegexp("^[0-9a-f]{64}$"))
		c := newCluster()
		bundle := []byte(pem(2, 0) + "# a comment\n" + pem(2))
		found, _ := put(ctx, mutatingIn(c), webhookconf.Change{Entries: volumes(), Bundle: bundle})
		Expect(found.Pins).To(Equal([]string{hash(2), hash(0)}))
		c.tamper(func(m *admissionregistrationv1.MutatingWebhookConfiguration) {
			delete(m.Annotations, webhookconf.PinsAnnotation)
		})
		_, outcome := put(ctx, mutatingIn(c), webhookconf.Change{Entries: volumes()})
		Expect(outcome).To(Equal(webhookconf.Unchanged), "no bundle, no pins")
		found, outcome = put(ctx, mutatingIn(c), webhookconf.Change{Bundle: bundle})
		Expect(outcome).To(Equal(webhookconf.Updated))
		Expect(found.Pins).To(Equal([]string{hash(2), hash(0)}))
		put(ctx, mutatingIn(c), webhookconf.Change{Bundle: []byte("garbage")})
		Expect(c.stored().Annotations).NotTo(HaveKey(webhookconf.PinsAnnotation))
	})

	It("notes since when a CA is not needed, and keeps, replaces and removes the note", func(ctx SpecContext) {
		unneeded := func(m map[string]time.Time) webhookconf.Change { return webhookconf.Change{Unneeded: m} }
		c := newCluster()
		registers(ctx, mutatingIn(c), older(), pem(0, 1))
		before := c.stored()
		found, outcome := put(ctx, mutatingIn(c), unneeded(map[string]time.Time{hash(1): noon.In(time.FixedZone("", 3600)), hash(0): noon.Add(time.Hour)}))
		Expect(outcome).To(Equal(webhookconf.Updated))
		Expect(found.Unneeded).To(Equal(map[string]time.Time{hash(1): noon, hash(0): noon.Add(time.Hour)}))
		Expect(c.stored().Annotations[webhookconf.UnneededAnnotation]).To(MatchJSON(`{"` + hash(0) + `":"2030-03-01T13:00:00Z","` + hash(1) + `":"2030-03-01T12:00:00Z"}`))
		Expect(c.stored().Webhooks).To(Equal(before.Webhooks))

		registers(ctx, mutatingIn(c), volumes(), pem(2))
		Expect(get(ctx, mutatingIn(c)).Unneeded).To(HaveLen(2), "nil leaves the note")
		found, _ = put(ctx, mutatingIn(c), unneeded(map[string]time.Time{hash(2): noon}))
		Expect(found.Unneeded).To(Equal(map[string]time.Time{hash(2): noon}))
		_, outcome = put(ctx, mutatingIn(c), unneeded(map[string]time.Time{}))
		Expect(outcome).To(Equal(webhookconf.Updated))
		Expect(c.stored().Annotations).NotTo(HaveKey(webhookconf.UnneededAnnotation))
		_, outcome = put(ctx, mutatingIn(c), unneeded(map[string]time.Time{}))
		Expect(outcome).To(Equal(webhookconf.Unchanged))
	})

	It("without steps of its kind empties the configuration in one update, leaves it alone then, and creates none", func(ctx SpecContext) {
		c := newCluster(configuration(nil))
		registers(ctx, mutatingIn(c), volumes(), "bundle")
		c.ClearActions()
		before, without := c.stored(), volumes(validating)
		for _, expected := range []webhookconf.Outcome{webhookconf.Updated, webhookconf.Unchanged} {
			Expect(registers(ctx, mutatingIn(c), without, "bundle")).To(Equal(expected))
		}
		Expect(c.writes()).To(Equal([]string{"update"}))
		Expect(c.stored()).To(And(HaveField("Webhooks", BeEmpty()), HaveField("Labels", before.Labels), HaveField("UID", before.UID)))
		Expect(get(ctx, mutatingIn(c)).Intact(*without)).To(BeTrue())

		c = newCluster()
		found, outcome := put(ctx, mutatingIn(c), webhookconf.Change{Entries: without, Bundle: []byte(pem(0)), Unneeded: map[string]time.Time{hash(0): noon}})
		Expect(outcome).To(Equal(webhookconf.Absent))
		Expect(found.Exists).To(BeFalse())
		Expect(c.writes()).To(BeEmpty())
	})

	DescribeTable("returns a lost race as it is, after one request",
		func(ctx SpecContext, is func(error) bool, lose func(*cluster), unseen bool) {
			c := newCluster()
			registers(ctx, mutatingIn(c), older(), "bundle")
			found := get(ctx, mutatingIn(c))
			if unseen {
				found = webhookconf.Found{}
			}
			lose(c)
			c.ClearActions()
			for _, change := range []webhookconf.Change{trusting(volumes(), "bundle"), {Entries: volumes()}} {
				_, outcome, err := mutatingIn(c).Put(ctx, found, change)
				Expect(is(err)).To(BeTrue(), "%v", err)
				Expect(err).To(MatchError(ContainSubstring(configurationName)))
				Expect(outcome).To(BeEmpty())
			}
			Expect(c.verbs()).To(HaveLen(2))
		},
		Entry("of an edit", apierrors.IsConflict, func(c *cluster) { c.tamper(weaken) }, false),
		Entry("of a deletion", apierrors.IsNotFound, func(c *cluster) { c.lose() }, false),
		Entry("of a deletion and a creation", apierrors.IsConflict, func(c *cluster) {
			again := c.stored()
			c.lose()
			again.UID = "another"
			c.behindTheScenes(func(t clienttesting.ObjectTracker) error { return t.Add(untyped(again)) })
		}, false),
		Entry("of a creation", apierrors.IsAlreadyExists, func(*cluster) {}, true),
	)

	It("refuses the state of another configuration", func(ctx SpecContext) {
		c := newCluster(configuration(nil))
		_, validatingOne := both(c, urlOptions())
		o := urlOptions()
		o.Fingerprint = "another"
		another, _ := both(c, o)
		c.ClearActions()
		for _, other := range []webhookconf.Configuration{validatingOne, another} {
			_, _, err := other.Put(ctx, get(ctx, mutatingIn(c)), trusting(volumes(), "bundle"))
			Expect(err).To(MatchError(ContainSubstring("read from")))
		}
		Expect(c.writes()).To(BeEmpty())
	})

	It("has the fingerprint of the configuration, whatever the options are", func(ctx SpecContext) {
		c, d := newCluster(), volumes()
		d.Options.Fingerprint = "another"
		registers(ctx, mutatingIn(c), d, "bundle")
		Expect(c.names()).To(Equal([]string{"volumes.eirini-x.eirinix.cloudfoundry.org"}))
		Expect(get(ctx, mutatingIn(c)).Intact(*d)).To(BeTrue())
	})

	It("changes nothing that it was given", func(ctx SpecContext) {
		c := newCluster(configuration(nil))
		steps := []webhookconf.Step{step("volumes", isolated, objects(labels1("a", "1")), conditions(condition("yes", "true")))}
		d, bundle := desired(urlOptions(), steps...), []byte(pem(0))
		d.Options.CABundle = []byte("not this one")
		found := get(ctx, mutatingIn(c))
		_, _, err := mutatingIn(c).Put(ctx, found, webhookconf.Change{Entries: d, Bundle: bundle})
		Expect(err).NotTo(HaveOccurred())
		Expect(c.bundles()).To(Equal([]string{pem(0)}))
		d.Options.CABundle = nil
		Expect(d).To(Equal(desired(urlOptions(), steps...)))
		Expect(string(bundle)).To(Equal(pem(0)))
		bundle[0] = 'X'
		Expect(c.bundles()).To(Equal([]string{pem(0)}))
		Expect(found.Bundles).To(BeEmpty())
		Expect(found.Missing(*d)).To(ConsistOf("volumes"), "the state that was found is not changed")
	})
})

// An API server that is later than our Go types has fields that these do not know. A real one of today drops them.
var _ = Describe("A field that our Go types do not know", func() {
	type object = map[string]any

	// later gives every level of the first webhook such a field, and the configuration too.
	later := func(tree *unstructured.Unstructured) {
		tree.Object["later"] = object{"of": "the configuration"}
		w := tree.Object["webhooks"].([]any)[0].(object)
		w["later"] = []any{"of the webhook"}
		w["clientConfig"].(object)["later"] = "of the address"
		w["clientConfig"].(object)["service"].(object)["later"] = "of the Service"
		w["namespaceSelector"].(object)["later"] = "of the selector"
		w["rules"].([]any)[0].(object)["later"] = int64(3)
	}
	// without returns the tree without what each write changes.
	without := func(tree *unstructured.Unstructured) string {
		tree = tree.DeepCopy()
		unstructured.RemoveNestedField(tree.Object, "metadata")
		for _, w := range tree.Object["webhooks"].([]any) {
			unstructured.RemoveNestedField(w.(object), "clientConfig", "caBundle")
		}
		return string(marshal(tree.Object))
	}
	first := func(tree *unstructured.Unstructured) object { return tree.Object["webhooks"].([]any)[0].(object) }
	a := func(changes ...change) *webhookconf.Desired {
		return desired(serviceOptions(), step("a", append(changes, isolated)...), step("b", isolated))
	}

	DescribeTable("stays",
		func(ctx SpecContext, harm func(object), change webhookconf.Change, changed func(object)) {
			c := newCluster()
			registers(ctx, mutatingIn(c), a(), pem(0))
			tree := c.tree()
			later(tree)
			expected := tree.DeepCopy()
			changed(first(expected))
			harm(first(tree))
			c.replace(tree)

			found, outcome := put(ctx, mutatingIn(c), change)
			Expect(outcome).To(Equal(webhookconf.Updated))
			Expect(without(c.tree())).To(MatchJSON(without(expected)))
			if change.Entries != nil {
				Expect(found.Intact(*change.Entries)).To(BeTrue())
			}
			_, outcome = put(ctx, mutatingIn(c), change)
			Expect(outcome).To(Equal(webhookconf.Unchanged))
		},
		Entry("in a repair of the address", func(w object) { w["clientConfig"].(object)["service"].(object)["name"] = "elsewhere" }, webhookconf.Change{Entries: a()}, func(object) {}),
		Entry("in a rotation", func(object) {}, webhookconf.Change{Bundle: []byte(pem(1))}, func(object) {}),
		Entry("in a rotation that mends an emptied caBundle", func(w object) { delete(w["clientConfig"].(object), "caBundle") }, webhookconf.Change{Bundle: []byte(pem(0))}, func(object) {}),
		Entry("in a rollout", func(object) {}, webhookconf.Change{Entries: a(exact, ignore, objects(labels1("a", "1")))}, func(w object) {
			w["matchPolicy"], w["failurePolicy"], w["objectSelector"] = "Exact", "Ignore", object{"matchLabels": object{"a": "1"}}
		}),
	)

	It("does not stay in a rule that is replaced, and is no difference elsewhere", func(ctx SpecContext) {
		c := newCluster()
		registers(ctx, mutatingIn(c), a(), pem(0))
		tree := c.tree()
		later(tree)
		c.replace(tree)
		Expect(get(ctx, mutatingIn(c)).Intact(*a())).To(BeTrue())
		Expect(registers(ctx, mutatingIn(c), a(), pem(0))).To(Equal(webhookconf.Unchanged))
		registers(ctx, mutatingIn(c), a(updates), pem(0))
		Expect(first(c.tree())["rules"].([]any)[0]).NotTo(HaveKey("later"))
		Expect(first(c.tree())).To(HaveKey("later"))
	})
})
