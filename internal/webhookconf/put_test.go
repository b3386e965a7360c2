package webhookconf_test

import (
	"encoding/json"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

	It("goes on from its own result", func(ctx SpecContext) {
		c := newCluster()
		found, _ := put(ctx, mutatingIn(c), trusting(older(), pem(0)))
		c.ClearActions()
		for _, change := range []webhookconf.Change{{Entries: volumes()}, {Bundle: []byte(pem(0, 1))}, {Unneeded: map[string]time.Time{hash(0): noon}}} {
			var err error
			var outcome webhookconf.Outcome
			found, outcome, err = mutatingIn(c).Put(ctx, found, change)
			Expect(err).NotTo(HaveOccurred())
			Expect(outcome).To(Equal(webhookconf.Updated))
		}
		Expect(c.verbs()).To(Equal([]string{"update", "update", "update"}))
		Expect(found.ResourceVersion).To(Equal(c.stored().ResourceVersion))
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
		Entry("with other options", func(*webhookconf.Desired) webhookconf.Change {
			o := urlOptions()
			o.Namespace, o.Target.Port = "workloads", 1
			return trusting(desired(o, step("volumes", isolated)), "bundle")
		}),
		Entry("with another caBundle", func(*webhookconf.Desired) webhookconf.Change { return trusting(volumes(), "older bundle") }),
		Entry("without entries", func(*webhookconf.Desired) webhookconf.Change { return webhookconf.Change{} }),
	)

	It("takes over EiriniX's own configuration in one update", func(ctx SpecContext) {
		c := newCluster(&admissionregistrationv1.MutatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: configurationName, UID: "upstream", ResourceVersion: "7"},
			Webhooks:   []admissionregistrationv1.MutatingWebhook{{Name: "0.eirini-x.org"}},
		})
		Expect(get(ctx, mutatingIn(c))).To(And(HaveField("Exists", true), HaveField("Bundles", BeEmpty()), HaveField("Version", "")))
		Expect(registers(ctx, mutatingIn(c), volumes(), "bundle")).To(Equal(webhookconf.Updated))
		Expect(c.writes()).To(Equal([]string{"update"}))
		Expect(c.stored().UID).To(BeEquivalentTo("upstream"))
		Expect(c.stored().Webhooks).To(Equal(build(urlOptions())), "the old entry went in the same write")
		Expect(c.stored().Annotations).To(HaveKeyWithValue(webhookconf.OwnerAnnotation, owner))
	})

	Describe("of entries alone", func() {
		It("keeps the caBundle of each entry, and the pins", func(ctx SpecContext) {
			c := newCluster()
			registers(ctx, mutatingIn(c), older(), pem(0))
			c.tamper(func(m *admissionregistrationv1.MutatingWebhookConfiguration) {
				m.Webhooks[1].ClientConfig.CABundle = []byte(pem(1) + "# edited")
			})
			_, outcome := put(ctx, mutatingIn(c), webhookconf.Change{Entries: desired(urlOptions(), step("volumes", isolated), step("older", isolated, ignore))})
			Expect(outcome).To(Equal(webhookconf.Updated))
			Expect(c.bundles()).To(Equal([]string{pem(1) + "# edited", pem(0)}))
			Expect(get(ctx, mutatingIn(c)).Pins).To(Equal([]string{hash(0)}))
		})

		It("adds all CAs of the others to a new entry", func(ctx SpecContext) {
			c := newCluster()
			registers(ctx, mutatingIn(c), older(), pem(0))
			c.tamper(func(m *admissionregistrationv1.MutatingWebhookConfiguration) {
				m.Webhooks[1].ClientConfig.CABundle = []byte(pem(1, 0))
			})
			put(ctx, mutatingIn(c), webhookconf.Change{Entries: desired(urlOptions(), step("nu", isolated))})
			Expect(c.bundles()).To(Equal([]string{pem(0, 1)}))
		})
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

	Describe("pins", func() {
		It("the certificates of the caBundle, in order, and mends the annotation", func(ctx SpecContext) {
			c := newCluster()
			change := webhookconf.Change{Entries: volumes(), Bundle: []byte(pem(2, 0) + "# a comment\n" + pem(2))}
			found, _ := put(ctx, mutatingIn(c), change)
			Expect(found.Pins).To(Equal([]string{hash(2), hash(0)}))
			for _, harm := range []func(*admissionregistrationv1.MutatingWebhookConfiguration){
				func(m *admissionregistrationv1.MutatingWebhookConfiguration) {
					m.Annotations[webhookconf.PinsAnnotation] = hash(2) + "," + hash(0) + ",x"
				},
				func(m *admissionregistrationv1.MutatingWebhookConfiguration) {
					delete(m.Annotations, webhookconf.PinsAnnotation)
				},
			} {
				c.tamper(harm)
				_, outcome := put(ctx, mutatingIn(c), webhookconf.Change{Entries: volumes()})
				Expect(outcome).To(Equal(webhookconf.Unchanged), "no bundle, no pins")
				found, outcome = put(ctx, mutatingIn(c), webhookconf.Change{Bundle: change.Bundle})
				Expect(outcome).To(Equal(webhookconf.Updated))
				Expect(found.Pins).To(Equal([]string{hash(2), hash(0)}))
			}
			found, _ = put(ctx, mutatingIn(c), webhookconf.Change{Bundle: []byte("garbage")})
			Expect(found.Pins).To(BeEmpty())
			Expect(c.stored().Annotations).NotTo(HaveKey(webhookconf.PinsAnnotation))
		})
	})

	Describe("notes since when a CA is not needed", func() {
		unneeded := func(m map[string]time.Time) webhookconf.Change { return webhookconf.Change{Unneeded: m} }

		It("and keeps, replaces and removes the note", func(ctx SpecContext) {
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
	})

	Describe("without steps of its kind", func() {
		It("empties the configuration in one update, and then leaves it alone", func(ctx SpecContext) {
			c := newCluster(configuration(nil))
			registers(ctx, mutatingIn(c), volumes(), "bundle")
			c.ClearActions()
			before, without := c.stored(), volumes(validating)
			for _, expected := range []webhookconf.Outcome{webhookconf.Updated, webhookconf.Unchanged} {
				Expect(registers(ctx, mutatingIn(c), without, "bundle")).To(Equal(expected))
			}
			Expect(c.writes()).To(Equal([]string{"update"}))
			Expect(c.stored().Webhooks).To(BeEmpty())
			Expect(c.stored().Labels).To(Equal(before.Labels))
			Expect(c.stored().UID).To(Equal(before.UID))
			Expect(get(ctx, mutatingIn(c)).Intact(*without)).To(BeTrue())
		})

		It("creates nothing", func(ctx SpecContext) {
			c := newCluster()
			found, outcome := put(ctx, mutatingIn(c), webhookconf.Change{Entries: volumes(validating), Bundle: []byte(pem(0)), Unneeded: map[string]time.Time{hash(0): noon}})
			Expect(outcome).To(Equal(webhookconf.Absent))
			Expect(found.Exists).To(BeFalse())
			Expect(c.writes()).To(BeEmpty())
		})
	})

	DescribeTable("returns a lost race as it is, after one request",
		func(ctx SpecContext, is func(error) bool, lose func(*cluster), from func(webhookconf.Found) webhookconf.Found) {
			c := newCluster()
			registers(ctx, mutatingIn(c), older(), "bundle")
			found := from(get(ctx, mutatingIn(c)))
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
		Entry("of an edit", apierrors.IsConflict, func(c *cluster) { c.tamper(weaken) }, same),
		Entry("of a deletion", apierrors.IsNotFound, func(c *cluster) { c.lose() }, same),
		Entry("of a deletion and a creation", apierrors.IsConflict, func(c *cluster) {
			again := c.stored()
			c.lose()
			again.UID = "another"
			c.behindTheScenes(func(t clienttesting.ObjectTracker) error { return t.Add(untyped(again)) })
		}, same),
		Entry("of a creation", apierrors.IsAlreadyExists, func(*cluster) {}, func(webhookconf.Found) webhookconf.Found { return webhookconf.Found{} }),
	)

	DescribeTable("names the right that is missing",
		func(ctx SpecContext, verb string) {
			c := newCluster()
			if verb == "update" {
				c = newCluster(configuration(nil))
			}
			c.always(verb, forbidden())
			_, _, err := mutatingIn(c).Put(ctx, get(ctx, mutatingIn(c)), trusting(volumes(), "bundle"))
			Expect(apierrors.IsForbidden(err)).To(BeTrue(), "%v", err)
			Expect(err).To(MatchError(And(
				ContainSubstring(configurationName),
				ContainSubstring("needs get, create and update on mutatingwebhookconfigurations.admissionregistration.k8s.io in a ClusterRole"),
			)))
		},
		Entry("to create", "create"),
		Entry("to update", "update"),
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

func same(f webhookconf.Found) webhookconf.Found { return f }
