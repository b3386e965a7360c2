package webhookconf_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

var _ = Describe("Processes that write one configuration", func() {
	const older, newer = "old.eirini-x.eirinix.cloudfoundry.org", "new.eirini-x.eirinix.cloudfoundry.org"
	var (
		c                *cluster
		time0            *clock
		old, replica, nu *process
	)

	BeforeEach(func() {
		c, time0 = newCluster(), &clock{now: noon}
		old = time0.start(c, step("old", isolated))
		time0.pass(time.Minute)
		replica = time0.start(c, step("old", isolated))
		time0.pass(time.Hour)
		nu = time0.start(c, step("new", isolated))
	})

	It("stamp it with their steps and their start", func(ctx SpecContext) {
		Expect(old.register(ctx).Outcome).To(Equal(webhookconf.Created))
		const digest = "0960880147fc834fab2a56506883a945" // the same in each version of this library
		Expect(c.stored().Annotations).To(And(
			HaveKeyWithValue(webhookconf.StepsAnnotation, digest),
			HaveKeyWithValue(webhookconf.StartedAnnotation, "2030-03-01T12:00:00Z"),
			HaveKeyWithValue(webhookconf.OwnerAnnotation, owner),
		))
		Expect(webhookconf.ReadStamp(c.stored().Annotations, time0.now)).To(Equal(webhookconf.Stamp{Digest: digest, Started: noon}))
	})

	It("write nothing when they have the same steps, whoever started later", func(ctx SpecContext) {
		old.register(ctx)
		c.ClearActions()
		for range 3 {
			for _, p := range []*process{replica, old, time0.start(c, step("old", isolated))} {
				Expect(p.survey(ctx)).To(And(HaveField("Action", webhookconf.Keep), HaveField("Due", false), HaveField("Missing", BeEmpty()), HaveField("Exists", true)))
				Expect(p.register(ctx).Outcome).To(Equal(webhookconf.Unchanged))
				time0.pass(time.Hour)
			}
		}
		Expect(c.writes()).To(BeEmpty())
	})

	It("are replaced by one that started later, and leave its steps alone", func(ctx SpecContext) {
		old.register(ctx)
		Expect(nu.survey(ctx)).To(And(HaveField("Due", true), HaveField("Missing", ConsistOf("new")), HaveField("Reason", ContainSubstring("started before"))))
		Expect(nu.register(ctx).Outcome).To(Equal(webhookconf.Updated))
		Expect(c.names()).To(ConsistOf(newer))
		c.ClearActions()

		for _, p := range []*process{old, replica} {
			Expect(p.survey(ctx)).To(And(
				HaveField("Action", webhookconf.Yield), HaveField("Due", false), HaveField("At", time0.now.Add(10*time.Minute)),
				HaveField("Missing", BeEmpty()), HaveField("Exists", true), HaveField("Bundles", Equal([][]byte{[]byte("bundle")})),
			), "what is not registered is not missing")
			written := p.register(ctx)
			Expect(written).To(And(HaveField("Outcome", webhookconf.Yielded), HaveField("Reason", ContainSubstring("2030-03-01T13:01:00Z"))))
		}
		Expect(c.writes()).To(BeEmpty())
	})

	It("look after the caBundle of steps that are not theirs, and after nothing else", func(ctx SpecContext) {
		nu.register(ctx)
		c.tamper(func(m *admissionregistrationv1.MutatingWebhookConfiguration) {
			weaken(m)
			m.Webhooks = append(m.Webhooks, admissionregistrationv1.MutatingWebhook{Name: "somebody.example.org"})
			m.Labels, m.Annotations["note"] = nil, "x"
		})
		before := c.stored().DeepCopy()
		Expect(old.register(ctx).Outcome).To(Equal(webhookconf.Yielded))
		c.tamper(blank)
		Expect(old.survey(ctx).Bundles).To(ConsistOf(BeEmpty()))
		Expect(old.register(ctx)).To(And(HaveField("Outcome", webhookconf.Updated), HaveField("Action", webhookconf.Yield)))
		Expect(c.bundles()).To(Equal([]string{"bundle", ""}), "of the fingerprint's entries alone")
		before.ResourceVersion, before.ManagedFields = c.stored().ResourceVersion, c.stored().ManagedFields
		Expect(c.stored()).To(Equal(before))

		old.bundle = "a rotation's"
		Expect(old.register(ctx).Outcome).To(Equal(webhookconf.Updated))
		Expect(c.bundles()).To(Equal([]string{"a rotation's", ""}))

		nu.bundle = old.bundle
		Expect(nu.register(ctx).Outcome).To(Equal(webhookconf.Updated), "whose steps they are heals them")
		Expect(c.names()).To(ConsistOf(newer))
		Expect(c.stored().Webhooks[0].FailurePolicy).To(HaveValue(Equal(admissionregistrationv1.Fail)))
	})

	It("heal what was edited, whichever replica registered it", func(ctx SpecContext) {
		replica.register(ctx)
		c.tamper(weaken)
		Expect(old.survey(ctx)).To(And(HaveField("Due", true), HaveField("Reason", "it was edited"), HaveField("Missing", BeEmpty()), HaveField("Contest", BeNil())))
		Expect(old.register(ctx).Outcome).To(Equal(webhookconf.Updated))
		Expect(c.stored().Annotations).To(HaveKeyWithValue(webhookconf.StartedAnnotation, "2030-03-01T12:01:00Z"), "the replica's stamp stays")
		Expect(replica.survey(ctx).Action).To(Equal(webhookconf.Keep))
		c.tamper(func(m *admissionregistrationv1.MutatingWebhookConfiguration) { m.Webhooks = nil })
		Expect(old.survey(ctx)).To(And(HaveField("Due", true), HaveField("Missing", ConsistOf("old"))))
	})

	It("create it anew when it is deleted, with the steps of whoever sees it first", func(ctx SpecContext) {
		old.register(ctx)
		nu.register(ctx)
		Expect(old.survey(ctx).Action).To(Equal(webhookconf.Yield))
		c.lose()
		Expect(old.survey(ctx)).To(And(HaveField("Exists", false), HaveField("Due", true), HaveField("Missing", ConsistOf("old")), HaveField("Bundles", BeEmpty())))
		Expect(old.register(ctx).Outcome).To(Equal(webhookconf.Created))
		Expect(nu.survey(ctx).Due).To(BeTrue())
		Expect(nu.register(ctx).Outcome).To(Equal(webhookconf.Updated))
		Expect(c.names()).To(ConsistOf(newer))
	})

	It("come back when the one that replaced them is gone, once for all of them", func(ctx SpecContext) {
		old.register(ctx)
		nu.register(ctx)
		for range 10 {
			Expect(old.survey(ctx).Action).To(Equal(webhookconf.Yield))
			Expect(replica.survey(ctx).Action).To(Equal(webhookconf.Yield))
			time0.pass(time.Minute)
		}
		c.ClearActions()
		Expect(old.survey(ctx)).To(And(HaveField("Due", true), HaveField("Missing", ConsistOf("old"))))
		Expect(old.register(ctx).Outcome).To(Equal(webhookconf.Updated))
		Expect(replica.register(ctx).Outcome).To(Equal(webhookconf.Unchanged))
		Expect(c.names()).To(ConsistOf(older))
		Expect(c.writes()).To(HaveLen(1))

		Expect(nu.register(ctx).Outcome).To(Equal(webhookconf.Updated), "but it lives")
		Expect(old.survey(ctx).At).To(Equal(time0.now.Add(20 * time.Minute)))
		Expect(replica.survey(ctx).At).To(Equal(time0.now.Add(20 * time.Minute)))
	})

	It("are started again after a rollback, and win at once", func(ctx SpecContext) {
		old.register(ctx)
		nu.register(ctx)
		time0.pass(time.Minute)
		again := time0.start(c, step("old", isolated))
		Expect(again.register(ctx).Outcome).To(Equal(webhookconf.Updated))
		Expect(nu.register(ctx).Outcome).To(Equal(webhookconf.Yielded))
		Expect(old.register(ctx).Outcome).To(Equal(webhookconf.Unchanged))
	})

	It("register by order, although another one started later", func(ctx SpecContext) {
		nu.register(ctx)
		w := (&clock{now: noon}).writer(urlOptions(), step("old", isolated))
		w.Insists, w.Now = true, time0.Now
		p, _ := processes(w, c)
		Expect(p.register(ctx).Outcome).To(Equal(webhookconf.Updated))
		Expect(c.names()).To(ConsistOf(older))
		Expect(nu.register(ctx).Outcome).To(Equal(webhookconf.Yielded))
		Expect(p.register(ctx).Outcome).To(Equal(webhookconf.Unchanged))
	})

	It("take away what a version without steps of this kind does not register", func(ctx SpecContext) {
		old.register(ctx)
		without := time0.start(c, step("v", validating))
		Expect(without.Holds(webhookconf.Group([]webhookconf.Step{step("v", validating)}))).To(BeFalse())
		Expect(without.survey(ctx)).To(And(HaveField("Due", true), HaveField("Missing", BeEmpty())))
		Expect(without.register(ctx).Outcome).To(Equal(webhookconf.Updated))
		Expect(c.names()).To(BeEmpty())
		Expect(old.survey(ctx)).To(And(HaveField("Action", webhookconf.Yield), HaveField("Bundles", BeEmpty())))
		Expect(old.register(ctx).Outcome).To(Equal(webhookconf.Yielded))
		c.lose()
		Expect(without.survey(ctx)).To(And(HaveField("Action", webhookconf.Keep), HaveField("Due", false)))
		Expect(without.register(ctx).Outcome).To(Equal(webhookconf.Absent))
		Expect(c.holdsNothing()).To(BeTrue())
	})
})
