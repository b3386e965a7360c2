package webhookconf_test

import (
	"context"
	"errors"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clienttesting "k8s.io/client-go/testing"

	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

var _ = Describe("Register", func() {
	var (
		time0    *clock
		webhooks []admissionregistrationv1.MutatingWebhook
	)

	BeforeEach(func() { time0, webhooks = &clock{now: noon}, build(urlOptions()) })

	start := func(in *cluster) *process { return time0.start(in, step("volumes", isolated)) }

	It("creates the configuration, marked as ours", func(ctx SpecContext) {
		c := newCluster()
		written := start(c).register(ctx)
		Expect(written).To(Equal(webhookconf.Written{
			Outcome: webhookconf.Created, Verdict: webhookconf.Verdict{Action: webhookconf.Write, Reason: "it does not exist"},
		}))
		Expect(c.verbs()).To(Equal([]string{"get", "create"}))
		Expect(c.stored().Webhooks).To(Equal(webhooks))
		Expect(c.stored().Annotations).To(HaveKeyWithValue(webhookconf.OwnerAnnotation, owner))
		Expect(c.stored().Labels).To(HaveKeyWithValue("app.kubernetes.io/managed-by", "eirinix"))
	})

	It("writes nothing when the configuration is as it should be", func(ctx SpecContext) {
		c := newCluster()
		p := start(c)
		p.register(ctx)
		for _, p := range []*process{p, start(c)} {
			c.ClearActions()
			written := p.register(ctx)
			Expect(written.Outcome).To(Equal(webhookconf.Unchanged))
			Expect(written.Action).To(Equal(webhookconf.Keep))
			Expect(c.verbs()).To(Equal([]string{"get"}))
			Expect(c.stored().Webhooks).To(Equal(webhooks))
		}
	})

	DescribeTable("updates in place, the version that it has compared, and keeps what is not ours to change",
		func(ctx SpecContext, before func(context.Context, *cluster)) {
			c := newCluster(configuration(nil))
			before(ctx, c)
			time0.pass(1)
			c.ClearActions()
			found := c.stored().DeepCopy()
			Expect(found.ResourceVersion).NotTo(BeEmpty())

			p := start(c)
			Expect(p.register(ctx).Outcome).To(Equal(webhookconf.Updated))
			Expect(c.verbs()).To(Equal([]string{"get", "update"}), "deleting to create anew would let pods slip past")
			update := c.Actions()[1].(clienttesting.UpdateAction)
			Expect(update.GetObject().(metav1.Object).GetResourceVersion()).To(Equal(found.ResourceVersion))

			after := c.stored()
			Expect(after.Webhooks).To(Equal(webhooks))
			Expect(after.Annotations).To(And(HaveKeyWithValue("note", "do not touch"), HaveKeyWithValue(webhookconf.OwnerAnnotation, owner)))
			Expect(webhookconf.ReadStamp(after.Annotations, noon).IsZero()).To(BeFalse())
			found.Webhooks, found.Annotations = after.Webhooks, after.Annotations
			found.ResourceVersion, found.ManagedFields = after.ResourceVersion, after.ManagedFields
			Expect(after).To(Equal(found))
			Expect(p.register(ctx).Outcome).To(Equal(webhookconf.Unchanged))
		},
		Entry("the steps of a process that started before", func(ctx context.Context, c *cluster) {
			time0.start(c, step("older", isolated), step("volumes", isolated, ignore)).register(ctx)
		}),
		Entry("other options", func(ctx context.Context, c *cluster) {
			o := urlOptions()
			o.Namespace, o.Target.Port = "workloads", 1
			p, _ := processes(time0.writer(o, step("volumes", isolated)), c)
			p.register(ctx)
		}),
		Entry("an older caBundle", func(ctx context.Context, c *cluster) {
			p := start(c)
			p.bundle = "older bundle"
			p.register(ctx)
		}),
		Entry("what was written before there were stamps", func(_ context.Context, c *cluster) {
			c.tamper(func(m *admissionregistrationv1.MutatingWebhookConfiguration) {
				m.Webhooks = build(urlOptions(), ignore)
			})
		}),
		Entry("no entries", func(context.Context, *cluster) {}),
	)

	DescribeTable("mends",
		func(ctx SpecContext, due bool, harm func(*admissionregistrationv1.MutatingWebhookConfiguration)) {
			c := newCluster()
			p := start(c)
			p.register(ctx)
			before := c.stored().DeepCopy()
			c.tamper(harm)
			c.ClearActions()
			Expect(p.survey(ctx).Due).To(Equal(due))
			Expect(p.register(ctx).Outcome).To(Equal(webhookconf.Updated))
			Expect(c.writes()).To(Equal([]string{"update"}))
			Expect(c.stored().Webhooks).To(Equal(before.Webhooks))
			Expect(c.stored().Labels).To(Equal(before.Labels))
			Expect(c.stored().Annotations).To(Equal(before.Annotations))
			Expect(p.register(ctx).Outcome).To(Equal(webhookconf.Unchanged))
		},
		Entry("a blanked caBundle, which Survey leaves to it", false, blank),
		Entry("a weakened failurePolicy", true, weaken),
		Entry("a narrowed namespaceSelector", true, func(m *admissionregistrationv1.MutatingWebhookConfiguration) {
			m.Webhooks[0].NamespaceSelector.MatchLabels = map[string]string{"kubernetes.io/metadata.name": "nowhere"}
		}),
		Entry("a URL that leads elsewhere", true, func(m *admissionregistrationv1.MutatingWebhookConfiguration) {
			m.Webhooks[0].ClientConfig.URL = new("https://elsewhere.example.org/")
		}),
		Entry("added matchConditions", true, func(m *admissionregistrationv1.MutatingWebhookConfiguration) {
			m.Webhooks[0].MatchConditions = []admissionregistrationv1.MatchCondition{{Name: "never", Expression: "false"}}
		}),
		Entry("entries that are gone", true, func(m *admissionregistrationv1.MutatingWebhookConfiguration) { m.Webhooks = nil }),
		Entry("an entry of ours that was removed long ago", true, func(m *admissionregistrationv1.MutatingWebhookConfiguration) {
			m.Webhooks = append(m.Webhooks, admissionregistrationv1.MutatingWebhook{Name: "removed.eirini-x.eirinix.cloudfoundry.org"})
		}),
		Entry("somebody else's entry", true, func(m *admissionregistrationv1.MutatingWebhookConfiguration) {
			m.Webhooks = append(m.Webhooks, admissionregistrationv1.MutatingWebhook{Name: "somebody.example.org"})
		}),
		Entry("a label that is gone", true, func(m *admissionregistrationv1.MutatingWebhookConfiguration) { m.Labels = nil }),
		Entry("an owner annotation that is gone", true, func(m *admissionregistrationv1.MutatingWebhookConfiguration) {
			delete(m.Annotations, webhookconf.OwnerAnnotation)
		}),
		Entry("annotations that are all gone", true, func(m *admissionregistrationv1.MutatingWebhookConfiguration) { m.Annotations = nil }),
		Entry("a stamp that is garbage", true, func(m *admissionregistrationv1.MutatingWebhookConfiguration) {
			m.Annotations[webhookconf.StartedAnnotation] = "garbage"
		}),
		Entry("a stamp from the future", true, func(m *admissionregistrationv1.MutatingWebhookConfiguration) {
			m.Annotations[webhookconf.StartedAnnotation] = "2130-03-01T12:00:00Z"
		}),
		Entry("a digest that is garbage", true, func(m *admissionregistrationv1.MutatingWebhookConfiguration) {
			m.Annotations[webhookconf.StepsAnnotation] = "garbage"
		}),
	)

	It("takes over EiriniX's own configuration in one update", func(ctx SpecContext) {
		c := newCluster(&admissionregistrationv1.MutatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: configurationName, UID: "upstream"},
			Webhooks:   []admissionregistrationv1.MutatingWebhook{{Name: "0.eirini-x.org"}},
		})
		p := start(c)
		Expect(p.survey(ctx)).To(And(HaveField("Due", true), HaveField("Bundles", BeEmpty()), HaveField("Missing", ConsistOf("volumes"))))
		Expect(p.register(ctx).Outcome).To(Equal(webhookconf.Updated))
		Expect(c.writes()).To(Equal([]string{"update"}))
		Expect(c.stored().UID).To(BeEquivalentTo("upstream"))
		Expect(c.stored().Webhooks).To(Equal(webhooks), "the old entry went in the same write")
		Expect(c.stored().Annotations).To(HaveKeyWithValue(webhookconf.OwnerAnnotation, owner))
	})

	Describe("without steps of its kind", func() {
		without := func(in *cluster) *process { return time0.start(in, step("v", validating)) }

		It("empties the configuration in one update, and then leaves it alone", func(ctx SpecContext) {
			c := newCluster(configuration(nil))
			start(c).register(ctx)
			time0.pass(1)
			c.ClearActions()
			before, p := c.stored().DeepCopy(), without(c)
			for _, expected := range []webhookconf.Outcome{webhookconf.Updated, webhookconf.Unchanged} {
				Expect(p.register(ctx).Outcome).To(Equal(expected))
			}
			Expect(c.writes()).To(Equal([]string{"update"}))
			Expect(c.stored().Webhooks).To(BeEmpty())
			Expect(c.stored().Labels).To(Equal(before.Labels))
			Expect(c.stored().UID).To(Equal(before.UID))
		})

		It("creates nothing, and needs no caBundle for that", func(ctx SpecContext) {
			c := newCluster()
			p := without(c)
			Expect(p.register(ctx).Outcome).To(Equal(webhookconf.Absent))
			Expect(c.writes()).To(BeEmpty())
			Expect(p.asked).To(BeZero())
		})

		It("is content when the configuration was deleted meanwhile", func(ctx SpecContext) {
			c := newCluster()
			start(c).register(ctx)
			time0.pass(1)
			c.once("update", func() error {
				c.lose()
				return apierrors.NewNotFound(groupResource, configurationName)
			})
			Expect(without(c).register(ctx).Outcome).To(Equal(webhookconf.Absent))
			Expect(c.holdsNothing()).To(BeTrue())
		})
	})

	DescribeTable("names the right that is missing",
		func(ctx SpecContext, verb string) {
			c := newCluster()
			if verb == "update" {
				c = newCluster(configuration(nil))
			}
			c.always(verb, forbidden())
			p := start(c)
			_, err := p.Register(ctx, p.trusts)
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
		p := start(c)
		_, err := p.Register(ctx, p.trusts)
		Expect(apierrors.IsServiceUnavailable(err)).To(BeTrue(), "%v", err)
		Expect(err).To(MatchError(ContainSubstring(configurationName)))
	})

	It("writes nothing while it is not known what is to be trusted", func(ctx SpecContext) {
		unknown := errors.New("no Secret")
		c := newCluster(configuration(nil))
		_, err := start(c).Register(ctx, func([][]byte) ([]byte, error) { return nil, unknown })
		Expect(err).To(MatchError(unknown))
		Expect(c.writes()).To(BeEmpty())
	})

	It("changes nothing in what it was given", func(ctx SpecContext) {
		c := newCluster(configuration(nil))
		steps := []webhookconf.Step{step("volumes", isolated, objects(labels1("a", "1")), conditions(condition("yes", "true")))}
		w, bundle := time0.writer(urlOptions(), steps...), []byte("bundle")
		_, err := w.Registrars(c.AdmissionregistrationV1(), owner)[0].Register(ctx, func([][]byte) ([]byte, error) { return bundle, nil })
		Expect(err).NotTo(HaveOccurred())
		same := time0.writer(urlOptions(), steps...)
		w.Now, same.Now = nil, nil // functions cannot be compared
		Expect(w).To(Equal(same))
		Expect(bundle).To(BeEquivalentTo("bundle"))
	})
})
