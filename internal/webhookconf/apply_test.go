package webhookconf_test

import (
	"errors"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clienttesting "k8s.io/client-go/testing"

	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

var _ = Describe("Apply", func() {
	var webhooks, older []admissionregistrationv1.MutatingWebhook

	BeforeEach(func() {
		o := urlOptions()
		webhooks = build(o)
		o.CABundle = []byte("older bundle")
		older = build(o)
	})

	It("creates the configuration, marked as ours", func(ctx SpecContext) {
		c := newCluster()
		result, outcome, err := c.apply(ctx, webhooks)
		Expect(err).NotTo(HaveOccurred())
		Expect(outcome).To(Equal(webhookconf.Created))
		Expect(c.writes()).To(Equal([]string{"create"}))
		Expect(result.Webhooks).To(Equal(webhooks))
		Expect(c.stored().Webhooks).To(Equal(webhooks))
		Expect(c.stored().Annotations).To(HaveKeyWithValue(webhookconf.OwnerAnnotation, owner))
		Expect(c.stored().Labels).To(HaveKeyWithValue("app.kubernetes.io/managed-by", "eirinix"))
	})

	It("writes nothing when the configuration is as it should be", func(ctx SpecContext) {
		c := newCluster()
		_, _, err := c.apply(ctx, webhooks)
		Expect(err).NotTo(HaveOccurred())
		c.ClearActions()

		result, outcome, err := c.apply(ctx, build(urlOptions()))
		Expect(err).NotTo(HaveOccurred())
		Expect(outcome).To(Equal(webhookconf.Unchanged))
		Expect(c.verbs()).To(Equal([]string{"get"}))
		Expect(result.Webhooks).To(Equal(webhooks))
	})

	It("updates in place and keeps what is not ours to change", func(ctx SpecContext) {
		c := newCluster(configuration(older))
		before := c.stored()
		result, outcome, err := c.apply(ctx, webhooks)
		Expect(err).NotTo(HaveOccurred())
		Expect(outcome).To(Equal(webhookconf.Updated))
		Expect(c.writes()).To(Equal([]string{"update"}), "deleting to create anew would let pods slip past")
		Expect(result.Webhooks).To(Equal(webhooks))

		after := c.stored()
		Expect(after.Webhooks).To(Equal(webhooks))
		Expect(after.UID).To(Equal(before.UID))
		Expect(after.Labels).To(Equal(before.Labels))
		Expect(after.Annotations).To(Equal(before.Annotations))
		Expect(after.OwnerReferences).To(Equal(before.OwnerReferences))
		Expect(after.Finalizers).To(Equal(before.Finalizers))
	})

	It("updates the version that it has compared", func(ctx SpecContext) {
		c := newCluster(configuration(older))
		seen := c.stored().ResourceVersion
		Expect(seen).NotTo(BeEmpty())
		_, _, err := c.apply(ctx, webhooks)
		Expect(err).NotTo(HaveOccurred())
		update := c.Actions()[len(c.Actions())-1].(clienttesting.UpdateAction)
		Expect(update.GetObject().(metav1.Object).GetResourceVersion()).To(Equal(seen))
	})

	DescribeTable("mends", func(ctx SpecContext, harm func(*admissionregistrationv1.MutatingWebhookConfiguration)) {
		broken := configuration(build(urlOptions()))
		harm(broken)
		c := newCluster(broken)
		_, outcome, err := c.apply(ctx, webhooks)
		Expect(err).NotTo(HaveOccurred())
		Expect(outcome).To(Equal(webhookconf.Updated))
		Expect(c.writes()).To(Equal([]string{"update"}))
		healthy := configuration(webhooks)
		Expect(c.stored().Webhooks).To(Equal(healthy.Webhooks))
		Expect(c.stored().Labels).To(Equal(healthy.Labels))
		Expect(c.stored().Annotations).To(Equal(healthy.Annotations))
	},
		Entry("a blanked caBundle", func(m *admissionregistrationv1.MutatingWebhookConfiguration) {
			m.Webhooks[0].ClientConfig.CABundle = nil
		}),
		Entry("a weakened failurePolicy", func(m *admissionregistrationv1.MutatingWebhookConfiguration) {
			m.Webhooks[0].FailurePolicy = new(admissionregistrationv1.Ignore)
		}),
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
		Entry("a foreign entry", func(m *admissionregistrationv1.MutatingWebhookConfiguration) {
			m.Webhooks = append(m.Webhooks, admissionregistrationv1.MutatingWebhook{Name: "removed.eirini-x.eirinix.cloudfoundry.org"})
		}),
		Entry("a label that is gone", func(m *admissionregistrationv1.MutatingWebhookConfiguration) {
			delete(m.Labels, "app.kubernetes.io/managed-by")
		}),
		Entry("an owner annotation that is gone", func(m *admissionregistrationv1.MutatingWebhookConfiguration) {
			delete(m.Annotations, webhookconf.OwnerAnnotation)
		}),
	)

	It("takes over EiriniX's own configuration in one update", func(ctx SpecContext) {
		c := newCluster(&admissionregistrationv1.MutatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: configurationName, UID: "upstream"},
			Webhooks:   []admissionregistrationv1.MutatingWebhook{{Name: "0.eirini-x.org"}},
		})
		_, outcome, err := c.apply(ctx, webhooks)
		Expect(err).NotTo(HaveOccurred())
		Expect(outcome).To(Equal(webhookconf.Updated))
		Expect(c.writes()).To(Equal([]string{"update"}))
		Expect(c.stored().UID).To(BeEquivalentTo("upstream"))
		Expect(c.stored().Webhooks).To(Equal(webhooks), "the old entry went in the same write")
		Expect(c.stored().Annotations).To(HaveKeyWithValue(webhookconf.OwnerAnnotation, owner))
	})

	Describe("losing a race", func() {
		It("reads again and writes again after a conflict", func(ctx SpecContext) {
			c := newCluster(configuration(older))
			c.once("update", conflict)
			_, outcome, err := c.apply(ctx, webhooks)
			Expect(err).NotTo(HaveOccurred())
			Expect(outcome).To(Equal(webhookconf.Updated))
			Expect(c.verbs()).To(Equal([]string{"get", "update", "get", "update"}))
			Expect(c.stored().Webhooks).To(Equal(webhooks))
		})

		It("keeps what the winner of the conflict wrote", func(ctx SpecContext) {
			c := newCluster(configuration(older))
			c.once("update", func() error {
				winner := c.stored().DeepCopy()
				winner.Labels["winner"] = "was here"
				c.behindTheScenes(func(t clienttesting.ObjectTracker) error {
					return t.Update(admissionregistrationv1.SchemeGroupVersion.WithResource(resourceName), winner, "")
				})
				return conflict()
			})
			_, _, err := c.apply(ctx, webhooks)
			Expect(err).NotTo(HaveOccurred())
			Expect(c.stored().Labels).To(HaveKeyWithValue("winner", "was here"))
			Expect(c.stored().Webhooks).To(Equal(webhooks))
		})

		It("adopts what another replica has created meanwhile, without writing it again", func(ctx SpecContext) {
			c := newCluster()
			c.once("create", func() error {
				c.behindTheScenes(func(t clienttesting.ObjectTracker) error { return t.Add(configuration(webhooks)) })
				return apierrors.NewAlreadyExists(groupResource, configurationName)
			})
			result, outcome, err := c.apply(ctx, webhooks)
			Expect(err).NotTo(HaveOccurred())
			Expect(outcome).To(Equal(webhookconf.Unchanged))
			Expect(c.verbs()).To(Equal([]string{"get", "create", "get"}))
			Expect(result.Webhooks).To(Equal(webhooks))
		})

		It("creates what was deleted before the update arrived", func(ctx SpecContext) {
			c := newCluster(configuration(older))
			c.once("update", func() error {
				c.behindTheScenes(func(t clienttesting.ObjectTracker) error {
					return t.Delete(admissionregistrationv1.SchemeGroupVersion.WithResource(resourceName), "", configurationName)
				})
				return apierrors.NewNotFound(groupResource, configurationName)
			})
			_, outcome, err := c.apply(ctx, webhooks)
			Expect(err).NotTo(HaveOccurred())
			Expect(outcome).To(Equal(webhookconf.Created))
			Expect(c.stored().Webhooks).To(Equal(webhooks))
		})

		It("gives up with the conflict when it loses every time", func(ctx SpecContext) {
			c := newCluster(configuration(older))
			c.always("update", conflict())
			_, _, err := c.apply(ctx, webhooks)
			Expect(apierrors.IsConflict(err)).To(BeTrue(), "%v", err)
			Expect(err).To(MatchError(ContainSubstring(configurationName)))
		})
	})

	It("writes nothing to a configuration of another deployment, and says whose it is", func(ctx SpecContext) {
		foreign := configuration(older)
		foreign.Annotations[webhookconf.OwnerAnnotation] = otherOwner
		c := newCluster(foreign)
		_, _, err := c.apply(ctx, webhooks)
		owned, ok := errors.AsType[*webhookconf.OwnedElsewhereError](err)
		Expect(ok).To(BeTrue(), "%v", err)
		Expect(*owned).To(Equal(webhookconf.OwnedElsewhereError{Kind: "MutatingWebhookConfiguration", Configuration: configurationName, Owner: otherOwner, Us: owner}))
		Expect(err).To(MatchError(And(ContainSubstring(otherOwner), ContainSubstring("OperatorFingerprint"))))
		Expect(c.writes()).To(BeEmpty())
		Expect(c.stored().Webhooks).To(Equal(older))
	})

	DescribeTable("names the right that is missing",
		func(ctx SpecContext, verb string) {
			c := newCluster()
			if verb == "update" {
				c = newCluster(configuration(older))
			}
			c.always(verb, forbidden())
			_, _, err := c.apply(ctx, webhooks)
			Expect(apierrors.IsForbidden(err)).To(BeTrue(), "%v", err)
			Expect(err).To(MatchError(And(
				ContainSubstring(configurationName),
				ContainSubstring("needs get, create and update on mutatingwebhookconfigurations.admissionregistration.k8s.io in a ClusterRole"),
			)))
		},
		Entry("to get", "get"),
		Entry("to create", "create"),
		Entry("to update", "update"),
	)

	It("passes other errors on, with the object's name", func(ctx SpecContext) {
		c := newCluster()
		c.always("get", apierrors.NewServiceUnavailable("starting"))
		_, _, err := c.apply(ctx, webhooks)
		Expect(apierrors.IsServiceUnavailable(err)).To(BeTrue(), "%v", err)
		Expect(err).To(MatchError(ContainSubstring(configurationName)))
	})

	It("changes nothing in what it was given", func(ctx SpecContext) {
		c := newCluster(configuration(older))
		_, _, err := c.apply(ctx, webhooks)
		Expect(err).NotTo(HaveOccurred())
		Expect(webhooks).To(Equal(build(urlOptions())))
	})
})
