package webhookconf_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

// Two versions with steps of the same rules register the same webhooks, and still are two.
var _ = Describe("Versions whose steps share an entry", func() {
	const group = "pods-06856a3d"
	var (
		c     *cluster
		time0 *clock
	)
	BeforeEach(func() { c, time0 = newCluster(), &clock{now: noon} })

	It("say for each entry of the kind which steps it runs", func(ctx SpecContext) {
		time0.start(c, step("b"), step("a"), step("z", isolated), step("v", validating)).register(ctx)
		Expect(c.stored().Annotations).To(HaveKeyWithValue(webhookconf.SetsAnnotation, group+"=b+a,z=z"))
	})

	It("are told apart, though their webhooks are the same", func(ctx SpecContext) {
		old := time0.start(c, step("a"))
		old.register(ctx)
		before := c.stored().Webhooks
		time0.pass(time.Minute)
		nu := time0.start(c, step("a"), step("b"))
		Expect(nu.survey(ctx)).To(And(HaveField("Action", webhookconf.Write), HaveField("Due", true), HaveField("Other", true), HaveField("Missing", BeEmpty())))
		Expect(nu.register(ctx).Outcome).To(Equal(webhookconf.Updated))
		Expect(c.stored().Webhooks).To(Equal(before))
		Expect(c.stored().Annotations).To(HaveKeyWithValue(webhookconf.SetsAnnotation, group+"=a+b"))
		Expect(nu.survey(ctx)).To(And(HaveField("Action", webhookconf.Keep), HaveField("Other", false), HaveField("Passed", BeEmpty())))
		Expect(old.survey(ctx)).To(And(HaveField("Action", webhookconf.Yield), HaveField("Other", true), HaveField("Passed", ConsistOf("/mutate/"+group))))
		Expect(old.register(ctx).Outcome).To(Equal(webhookconf.Yielded))
	})

	DescribeTable("pass on the calls that are for others",
		func(ctx SpecContext, registered []webhookconf.Step, expected ...string) {
			p := time0.start(c, step("a"), step("z", isolated), step("y", isolated))
			time0.pass(time.Minute)
			time0.start(c, registered...).register(ctx)
			s := p.survey(ctx)
			Expect(s.Action).To(Equal(webhookconf.Yield))
			Expect(s.Passed).To(ConsistOf(expected))
		},
		Entry("of an entry with another set", []webhookconf.Step{step("b"), step("z", isolated)}, "/mutate/"+group),
		Entry("not of one with the same set", []webhookconf.Step{step("a"), step("x", isolated)}),
		Entry("not of one that is not registered", []webhookconf.Step{step("x", isolated)}),
	)

	It("mend what is said of them", func(ctx SpecContext) {
		p := time0.start(c, step("a"))
		p.register(ctx)
		for _, change := range []func(map[string]string){
			func(a map[string]string) { a[webhookconf.SetsAnnotation] = "garbage" },
			func(a map[string]string) { delete(a, webhookconf.SetsAnnotation) },
		} {
			c.tamper(func(m *admissionregistrationv1.MutatingWebhookConfiguration) { change(m.Annotations) })
			Expect(p.survey(ctx).Due).To(BeTrue())
			Expect(p.register(ctx).Outcome).To(Equal(webhookconf.Updated))
			Expect(c.stored().Annotations).To(HaveKeyWithValue(webhookconf.SetsAnnotation, group+"=a"))
			Expect(p.register(ctx).Outcome).To(Equal(webhookconf.Unchanged))
		}
	})

	It("leave nothing said of steps that are not there any more", func(ctx SpecContext) {
		time0.start(c, step("a")).register(ctx)
		time0.pass(time.Minute)
		nu := time0.start(c, step("v", validating))
		nu.register(ctx)
		Expect(c.stored().Webhooks).To(BeEmpty())
		Expect(c.stored().Annotations).NotTo(HaveKey(webhookconf.SetsAnnotation))
		Expect(nu.register(ctx).Outcome).To(Equal(webhookconf.Unchanged))
	})

	It("pass on nothing where it is not known for whom a call is", func(ctx SpecContext) {
		old := time0.start(c, step("a"))
		time0.pass(time.Minute)
		time0.start(c, step("a"), step("b")).register(ctx)
		for _, garbage := range []string{"", "garbage", group, "=," + group + ",x=y", "," + group + "=a,"} {
			c.tamper(func(m *admissionregistrationv1.MutatingWebhookConfiguration) {
				m.Annotations[webhookconf.SetsAnnotation] = garbage
			})
			Expect(old.survey(ctx)).To(And(HaveField("Action", webhookconf.Yield), HaveField("Passed", BeEmpty())), garbage)
		}
	})
})
