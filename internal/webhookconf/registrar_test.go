package webhookconf_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clienttesting "k8s.io/client-go/testing"

	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

// clock is the one on which all processes of a spec agree.
type clock struct{ now time.Time }

func (c *clock) Now() time.Time { return c.now }

func (c *clock) pass(d time.Duration) { c.now = c.now.Add(d) }

// process is one that registers mutating steps.
type process struct {
	webhookconf.Registrar
	bundle string
}

// start gives a process that starts now.
func (c *clock) start(in *cluster, changes []func(*webhookconf.Writer), steps ...webhookconf.Step) *process {
	w := webhookconf.Writer{Options: urlOptions(), Entries: webhookconf.Group(steps), Started: c.now, Now: c.Now}
	for _, change := range changes {
		change(&w)
	}
	return &process{Registrar: w.Registrars(in.AdmissionregistrationV1(), owner)[0], bundle: "bundle"}
}

func (p *process) register(ctx context.Context) webhookconf.Written {
	GinkgoHelper()
	written, err := p.Register(ctx, func([][]byte) ([]byte, error) { return []byte(p.bundle), nil })
	Expect(err).NotTo(HaveOccurred())
	return written
}

func (p *process) survey(ctx context.Context) webhookconf.Standing {
	GinkgoHelper()
	s, err := p.Survey(ctx)
	Expect(err).NotTo(HaveOccurred())
	return s
}

// tamper changes what stands in the cluster.
func (c *cluster) tamper(change func(*admissionregistrationv1.MutatingWebhookConfiguration)) {
	GinkgoHelper()
	found := c.stored().DeepCopy()
	change(found)
	c.behindTheScenes(func(t clienttesting.ObjectTracker) error {
		return t.Update(admissionregistrationv1.SchemeGroupVersion.WithResource(resourceName), found, "")
	})
}

func (c *cluster) lose() {
	GinkgoHelper()
	c.behindTheScenes(func(t clienttesting.ObjectTracker) error {
		return t.Delete(admissionregistrationv1.SchemeGroupVersion.WithResource(resourceName), "", configurationName)
	})
}

func (c *cluster) names() (all []string) {
	for _, w := range c.stored().Webhooks {
		all = append(all, w.Name)
	}
	return all
}

func (c *cluster) bundles() (all []string) {
	for _, w := range c.stored().Webhooks {
		all = append(all, string(w.ClientConfig.CABundle))
	}
	return all
}

func blank(m *admissionregistrationv1.MutatingWebhookConfiguration) {
	for i := range m.Webhooks {
		m.Webhooks[i].ClientConfig.CABundle = nil
	}
}

func weaken(m *admissionregistrationv1.MutatingWebhookConfiguration) {
	m.Webhooks[0].FailurePolicy = new(admissionregistrationv1.Ignore)
}

var _ = Describe("Processes that write one configuration", func() {
	const older, newer = "old.eirini-x.eirinix.cloudfoundry.org", "new.eirini-x.eirinix.cloudfoundry.org"
	var (
		c                *cluster
		time0            *clock
		old, replica, nu *process
	)

	BeforeEach(func() {
		c, time0 = newCluster(), &clock{now: noon}
		old = time0.start(c, nil, step("old", isolated))
		time0.pass(time.Minute)
		replica = time0.start(c, nil, step("old", isolated))
		time0.pass(time.Hour)
		nu = time0.start(c, nil, step("new", isolated))
	})

	It("stamp it with their steps and their start", func(ctx SpecContext) {
		Expect(old.register(ctx).Outcome).To(Equal(webhookconf.Created))
		digest := webhookconf.Mutating.Digest(build(urlOptions(), func(s *webhookconf.Step) { s.Name = "old" }))
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
			for _, p := range []*process{replica, old, time0.start(c, nil, step("old", isolated))} {
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

	DescribeTable("heal what is said about the configuration, too",
		func(ctx SpecContext, harm func(*admissionregistrationv1.MutatingWebhookConfiguration)) {
			old.register(ctx)
			before := c.stored()
			c.tamper(harm)
			Expect(old.survey(ctx).Due).To(BeTrue())
			Expect(old.register(ctx).Outcome).To(Equal(webhookconf.Updated))
			Expect(c.stored().Labels).To(Equal(before.Labels))
			Expect(c.stored().Annotations).To(Equal(before.Annotations))
			Expect(old.register(ctx).Outcome).To(Equal(webhookconf.Unchanged))
		},
		Entry("the label", func(m *admissionregistrationv1.MutatingWebhookConfiguration) { m.Labels = nil }),
		Entry("all annotations", func(m *admissionregistrationv1.MutatingWebhookConfiguration) { m.Annotations = nil }),
		Entry("a stamp that is garbage", func(m *admissionregistrationv1.MutatingWebhookConfiguration) {
			m.Annotations[webhookconf.StartedAnnotation] = "garbage"
		}),
		Entry("a stamp from the future", func(m *admissionregistrationv1.MutatingWebhookConfiguration) {
			m.Annotations[webhookconf.StartedAnnotation] = "2130-03-01T12:00:00Z"
		}),
		Entry("a digest that is garbage", func(m *admissionregistrationv1.MutatingWebhookConfiguration) {
			m.Annotations[webhookconf.StepsAnnotation] = "garbage"
		}),
	)

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
		again := time0.start(c, nil, step("old", isolated))
		Expect(again.register(ctx).Outcome).To(Equal(webhookconf.Updated))
		Expect(nu.register(ctx).Outcome).To(Equal(webhookconf.Yielded))
		Expect(old.register(ctx).Outcome).To(Equal(webhookconf.Unchanged))
	})

	It("register by order, although another one started later", func(ctx SpecContext) {
		nu.register(ctx)
		ordered := &clock{now: noon}
		p := ordered.start(c, []func(*webhookconf.Writer){func(w *webhookconf.Writer) { w.Insists, w.Now = true, time0.Now }}, step("old", isolated))
		Expect(p.register(ctx).Outcome).To(Equal(webhookconf.Updated))
		Expect(c.names()).To(ConsistOf(older))
		Expect(nu.register(ctx).Outcome).To(Equal(webhookconf.Yielded))
		Expect(p.register(ctx).Outcome).To(Equal(webhookconf.Unchanged))
	})

	It("take away what a version without steps of this kind does not register", func(ctx SpecContext) {
		old.register(ctx)
		without := time0.start(c, nil, step("v", validating))
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

	It("decide again when another one was faster", func(ctx SpecContext) {
		old.register(ctx)
		time0.pass(time.Minute)
		elsewhere := newCluster()
		time0.start(elsewhere, nil, step("newest", isolated)).register(ctx)
		c.once("update", func() error {
			c.behindTheScenes(func(t clienttesting.ObjectTracker) error {
				return t.Update(admissionregistrationv1.SchemeGroupVersion.WithResource(resourceName), elsewhere.stored(), "")
			})
			return conflict()
		})
		Expect(nu.register(ctx).Outcome).To(Equal(webhookconf.Yielded))
		Expect(c.names()).To(ConsistOf("newest.eirini-x.eirinix.cloudfoundry.org"))
	})

	It("refuse the configuration of another deployment", func(ctx SpecContext) {
		foreign := configuration(nil)
		foreign.Annotations[webhookconf.OwnerAnnotation] = otherOwner
		c := newCluster(foreign)
		_, err := time0.start(c, nil, step("old", isolated)).Register(ctx, always([]byte("bundle")))
		Expect(err).To(MatchError(ContainSubstring(otherOwner)))
		Expect(c.writes()).To(BeEmpty())
	})

	It("take over EiriniX's own configuration in one update", func(ctx SpecContext) {
		c := newCluster(&admissionregistrationv1.MutatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: configurationName, UID: "upstream"},
			Webhooks:   []admissionregistrationv1.MutatingWebhook{{Name: "0.eirini-x.org"}},
		})
		p := time0.start(c, nil, step("old", isolated))
		Expect(p.survey(ctx)).To(And(HaveField("Due", true), HaveField("Bundles", BeEmpty())))
		Expect(p.register(ctx).Outcome).To(Equal(webhookconf.Updated))
		Expect(c.writes()).To(Equal([]string{"update"}))
		Expect(c.names()).To(ConsistOf(older))
		Expect(c.stored().UID).To(BeEquivalentTo("upstream"))
	})
})
