package webhookconf_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

var _ = Describe("Survey", func() {
	time0 := &clock{now: noon}
	isolatedSteps := func(names ...string) (steps []webhookconf.Step) {
		for _, name := range names {
			steps = append(steps, step(name, isolated))
		}
		return steps
	}

	It("tells, without error, that there is no configuration", func(ctx SpecContext) {
		c := newCluster()
		Expect(time0.start(c, isolatedSteps("a")...).survey(ctx)).To(Equal(webhookconf.Standing{
			Missing: []string{"a"}, Due: true, Verdict: webhookconf.Verdict{Action: webhookconf.Write, Reason: "it does not exist"},
		}))
		Expect(c.verbs()).To(Equal([]string{"get"}))
	})

	It("finds nothing due in what Register wrote", func(ctx SpecContext) {
		p := time0.start(newCluster(), isolatedSteps("a")...)
		p.register(ctx)
		Expect(p.survey(ctx)).To(Equal(webhookconf.Standing{
			Exists: true, Bundles: [][]byte{[]byte("bundle")}, Verdict: webhookconf.Verdict{Action: webhookconf.Keep, Reason: "it holds these steps"},
		}))
	})

	It("names the right that is missing", func(ctx SpecContext) {
		c := newCluster()
		c.always("get", forbidden())
		_, err := time0.start(c, isolatedSteps("a")...).Survey(ctx)
		Expect(apierrors.IsForbidden(err)).To(BeTrue(), "%v", err)
		Expect(err).To(MatchError(ContainSubstring("needs get on mutatingwebhookconfigurations")))
	})

	DescribeTable("tells which entries are missing",
		func(ctx SpecContext, held []string, fingerprint string, wanted, expected []string) {
			found := configuration(buildAll(urlOptions(), isolatedSteps(held...)...))
			found.Name = webhookconf.Mutating.ConfigurationName(fingerprint)
			o := urlOptions()
			o.Fingerprint = fingerprint
			p, _ := processes(time0.writer(o, isolatedSteps(wanted...)...), newCluster(found))
			Expect(p.survey(ctx).Missing).To(Equal(expected))
		},
		Entry("none", []string{"a", "b"}, "eirini-x", []string{"b", "a"}, nil),
		Entry("some, in the order of the entries", []string{"b"}, "eirini-x", []string{"c", "b", "a"}, []string{"c", "a"}),
		Entry("all, of another fingerprint", []string{"a"}, "another", []string{"a"}, []string{"a"}),
		Entry("all, of an empty configuration", nil, "eirini-x", []string{"a"}, []string{"a"}),
	)

	DescribeTable("tells of each caBundle once, as does Register, which makes them all one",
		func(ctx SpecContext, bundles []string, expected ...string) {
			c := newCluster()
			p := time0.start(c, isolatedSteps("a", "b", "c")...)
			p.register(ctx)
			c.tamper(func(m *admissionregistrationv1.MutatingWebhookConfiguration) {
				for i, bundle := range bundles {
					m.Webhooks[i].ClientConfig.CABundle = []byte(bundle)
				}
				m.Webhooks = append(m.Webhooks, admissionregistrationv1.MutatingWebhook{
					Name:         webhookconf.WebhookName("a", "another"),
					ClientConfig: admissionregistrationv1.WebhookClientConfig{CABundle: []byte("of another fingerprint")},
				})
			})
			Expect(texts(p.survey(ctx).Bundles)).To(Equal(expected))
			p.register(ctx)
			Expect(p.live).To(Equal(expected))
			Expect(c.bundles()).To(Equal([]string{"bundle", "bundle", "bundle"}))
		},
		Entry("one for all", []string{"1", "1", "1"}, "1"),
		Entry("two", []string{"1", "1", "2"}, "1", "2"),
		Entry("two, interleaved", []string{"1", "2", "1"}, "1", "2"),
		Entry("three", []string{"1", "2", "3"}, "1", "2", "3"),
		Entry("an empty one is one too", []string{"", "1", "1"}, "", "1"),
	)

	It("tells of the caBundles of entries that are another version's, too", func(ctx SpecContext) {
		c := newCluster(configuration(buildAll(urlOptions(), isolatedSteps("a", "b")...)))
		c.tamper(func(m *admissionregistrationv1.MutatingWebhookConfiguration) {
			m.Webhooks[1].ClientConfig.CABundle = []byte("of b")
		})
		p := time0.start(c, isolatedSteps("a")...)
		Expect(texts(p.survey(ctx).Bundles)).To(Equal([]string{"bundle", "of b"}))
		p.register(ctx)
		Expect(p.live).To(Equal([]string{"bundle", "of b"}), "whoever serves them must go on being trusted")
	})
})
