package webhookconf_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

var noon = time.Date(2030, time.March, 1, 12, 0, 0, 0, time.UTC)

var _ = Describe("A stamp", func() {
	const digest = "00112233445566778899aabbccddeeff"

	DescribeTable("counts only if it can be true",
		func(digest, started string, expected webhookconf.Stamp) {
			annotations := map[string]string{webhookconf.StepsAnnotation: digest, webhookconf.StartedAnnotation: started, "other": "x"}
			Expect(webhookconf.ReadStamp(annotations, noon)).To(Equal(expected))
			Expect(expected.IsZero()).To(Equal(expected == webhookconf.Stamp{}))
		},
		Entry("one of this morning", digest, "2030-03-01T08:00:00.123456789Z", webhookconf.Stamp{Digest: digest, Started: noon.Add(-4*time.Hour + 123456789)}),
		Entry("of another time zone", digest, "2030-03-01T09:00:00+01:00", webhookconf.Stamp{Digest: digest, Started: noon.Add(-4 * time.Hour)}),
		Entry("a little ahead, as clocks may be", digest, "2030-03-01T12:05:00Z", webhookconf.Stamp{Digest: digest, Started: noon.Add(5 * time.Minute)}),
		Entry("not from the future", digest, "2030-03-01T12:05:01Z", webhookconf.Stamp{}),
		Entry("not without a start", digest, "", webhookconf.Stamp{}),
		Entry("not with another format", digest, "1 March 2030", webhookconf.Stamp{}),
		Entry("not without a digest", "", "2030-03-01T08:00:00Z", webhookconf.Stamp{}),
		Entry("not with half a digest", digest[:16], "2030-03-01T08:00:00Z", webhookconf.Stamp{}),
		Entry("not with something else in its place", "zz"+digest[2:], "2030-03-01T08:00:00Z", webhookconf.Stamp{}),
	)

	It("is none where there are no annotations", func() {
		Expect(webhookconf.ReadStamp(nil, noon).IsZero()).To(BeTrue())
	})

	DescribeTable("outranks another",
		func(s, other webhookconf.Stamp, expected bool) {
			Expect(s.Outranks(other)).To(Equal(expected))
			Expect(other.Outranks(s)).To(Equal(!expected && s != other))
		},
		Entry("when it started later", webhookconf.Stamp{Digest: "a", Started: noon.Add(1)}, webhookconf.Stamp{Digest: "b", Started: noon}, true),
		Entry("not when it started before", webhookconf.Stamp{Digest: "b", Started: noon.Add(-1)}, webhookconf.Stamp{Digest: "a", Started: noon}, false),
		Entry("by its digest when both started in one moment", webhookconf.Stamp{Digest: "b", Started: noon}, webhookconf.Stamp{Digest: "a", Started: noon}, true),
		Entry("not when it is the same", webhookconf.Stamp{Digest: "a", Started: noon}, webhookconf.Stamp{Digest: "a", Started: noon}, false),
	)
})

var _ = Describe("The digest of steps", func() {
	digest := func(o webhookconf.Options, steps ...webhookconf.Step) string {
		return webhookconf.Mutating.Digest(o.Mutating(webhookconf.Group(steps)))
	}
	many := &metav1.LabelSelector{MatchLabels: map[string]string{"a": "1", "b": "2", "c": "3", "d": "4", "e": "5"}}

	It("is the same in each version of this library: an upgrade of it alone registers nothing anew", func() {
		Expect(digest(serviceOptions(), step("a"), step("b", isolated, objects(many), conditions(condition("yes", "true"))))).
			To(Equal("f54a15372a783ba31bd07c69828cd86c"))
		Expect(webhookconf.Validating.Digest(urlOptions().Validating(webhookconf.Group([]webhookconf.Step{step("a", validating)})))).To(Equal("27d689a470fac7bfdc02306fe7e5fba1"))
		Expect(digest(serviceOptions())).To(Equal(webhookconf.Mutating.Digest(nil)), "none")
	})

	It("depends on nothing that changes from run to run", func() {
		first := digest(serviceOptions(), step("a", objects(many), namespaces(many)))
		for range 50 {
			Expect(digest(serviceOptions(), step("a", objects(many.DeepCopy()), namespaces(many.DeepCopy())))).To(Equal(first))
		}
	})

	It("says nothing of the caBundle, and leaves it alone", func() {
		o := serviceOptions()
		webhooks := buildAll(o, step("a"))
		first := webhookconf.Mutating.Digest(webhooks)
		Expect(webhooks).To(Equal(buildAll(o, step("a"))))
		o.CABundle = []byte("another")
		Expect(digest(o, step("a"))).To(Equal(first))
	})

	DescribeTable("tells apart",
		func(change func(*webhookconf.Options), steps ...webhookconf.Step) {
			o := serviceOptions()
			change(&o)
			Expect(digest(o, steps...)).NotTo(Equal(digest(serviceOptions(), step("a"), step("b", isolated))))
		},
		Entry("another port", func(o *webhookconf.Options) { o.Target.Port++ }, step("a"), step("b", isolated)),
		Entry("another Service", func(o *webhookconf.Options) { o.Target.Service = "x" }, step("a"), step("b", isolated)),
		Entry("a URL", func(o *webhookconf.Options) { *o = urlOptions() }, step("a"), step("b", isolated)),
		Entry("another namespace", func(o *webhookconf.Options) { o.Namespace = "x" }, step("a"), step("b", isolated)),
		Entry("one step less", func(*webhookconf.Options) {}, step("a")),
		Entry("another name", func(*webhookconf.Options) {}, step("a"), step("c", isolated)),
		Entry("other rules", func(*webhookconf.Options) {}, step("a", updates), step("b", isolated)),
		Entry("another failurePolicy", func(*webhookconf.Options) {}, step("a", ignore), step("b", isolated)),
		Entry("another reinvocationPolicy", func(*webhookconf.Options) {}, step("a"), step("b", isolated, ifNeeded)),
		Entry("another order", func(*webhookconf.Options) {}, step("b", isolated), step("a")),
	)
})
