package webhookconf_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

var _ = Describe("The digest of a version", func() {
	digest := func(o webhookconf.Options, steps ...webhookconf.Step) string {
		return webhookconf.Digest(webhookconf.Desired{Options: o, Entries: webhookconf.Group(steps)})
	}
	many := &metav1.LabelSelector{MatchLabels: map[string]string{"a": "1", "b": "2", "c": "3", "d": "4", "e": "5"}}

	It("is the same in each version of this library: an upgrade of it alone is no rollout", func() {
		Expect(digest(serviceOptions(), step("a"), step("b", isolated, objects(many), conditions(condition("yes", "true"))), step("v", validating))).
			To(Equal("5fa5b2de89e462a0fe873900aabcbd99"))
		Expect(digest(serviceOptions())).To(Equal("8035265d15b5d31a15786ffabb62f60a"))
	})

	It("depends on nothing that changes from run to run", func() {
		first := digest(serviceOptions(), step("a", objects(many), namespaces(many)))
		Expect(first).To(MatchRegexp("^[0-9a-f]{32}$"))
		for range 50 {
			Expect(digest(serviceOptions(), step("a", objects(many.DeepCopy()), namespaces(many.DeepCopy())))).To(Equal(first))
		}
	})

	It("depends neither on the caBundle, nor on the owner, nor on the version, and leaves them alone", func() {
		o := serviceOptions()
		o.CABundle, o.OwnedBy = []byte("another"), webhookconf.OwnedByNamespace(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "cf", UID: "ns"}})
		d := webhookconf.Desired{Options: o, Entries: webhookconf.Group([]webhookconf.Step{step("a")}), Version: "x"}
		Expect(webhookconf.Digest(d)).To(Equal(digest(serviceOptions(), step("a"))))
		Expect(d.Options).To(Equal(o))
	})

	DescribeTable("distinguishes",
		func(change func(*webhookconf.Options), steps ...webhookconf.Step) {
			o := serviceOptions()
			change(&o)
			Expect(digest(o, steps...)).NotTo(Equal(digest(serviceOptions(), step("a"), step("b", isolated))))
		},
		Entry("another port", func(o *webhookconf.Options) { o.Target.Port++ }, step("a"), step("b", isolated)),
		Entry("another Service", func(o *webhookconf.Options) { o.Target.Service = "x" }, step("a"), step("b", isolated)),
		Entry("a URL", func(o *webhookconf.Options) { *o = urlOptions() }, step("a"), step("b", isolated)),
		Entry("another namespace", func(o *webhookconf.Options) { o.Namespace = "x" }, step("a"), step("b", isolated)),
		Entry("another fingerprint", func(o *webhookconf.Options) { o.Fingerprint = "x" }, step("a"), step("b", isolated)),
		Entry("one step less", func(*webhookconf.Options) {}, step("a")),
		Entry("another name", func(*webhookconf.Options) {}, step("a"), step("c", isolated)),
		Entry("another name behind the same webhook", func(*webhookconf.Options) {}, step("x"), step("b", isolated)),
		Entry("one step more behind the same webhook", func(*webhookconf.Options) {}, step("a"), step("x"), step("b", isolated)),
		Entry("other rules", func(*webhookconf.Options) {}, step("a", updates), step("b", isolated)),
		Entry("another failurePolicy", func(*webhookconf.Options) {}, step("a", ignore), step("b", isolated)),
		Entry("another reinvocationPolicy", func(*webhookconf.Options) {}, step("a"), step("b", isolated, ifNeeded)),
		Entry("another configuration", func(*webhookconf.Options) {}, step("a"), step("b", isolated, validating)),
		Entry("another kind behind the same webhook", func(*webhookconf.Options) {}, step("a"), step("b", isolated, kind("", "v1", "Other"))),
		Entry("another order", func(*webhookconf.Options) {}, step("b", isolated), step("a")),
	)

	It("distinguishes paths", func() {
		d := *desired(serviceOptions(), step("a"))
		first := webhookconf.Digest(d)
		d.Entries[0].Path = "/prefix" + d.Entries[0].Path
		Expect(webhookconf.Digest(d)).NotTo(Equal(first))
	})

	It("distinguishes the order of steps in one entry", func() {
		Expect(digest(serviceOptions(), step("a"), step("b"))).NotTo(Equal(digest(serviceOptions(), step("b"), step("a"))))
	})

	It("is also that of entries without steps, as the canary's", func() {
		d := *desired(serviceOptions(), step("a"))
		first := webhookconf.Digest(d)
		canary := d.Entries[0]
		canary.Name, canary.Path, canary.Steps = "canary", "/canary", nil
		d.Entries = append(d.Entries, canary)
		Expect(webhookconf.Digest(d)).NotTo(Equal(first))
	})
})

var _ = Describe("The hash of a CA", func() {
	It("is the SHA-256 of its DER, for each certificate of a bundle once, in order", func() {
		Expect(webhookconf.HashOf(authorities()[0])).To(MatchRegexp("^[0-9a-f]{64}$"))
		Expect(webhookconf.HashesOf([]byte("# comment\n" + pem(1, 0, 1) + "garbage"))).To(Equal([]string{hash(1), hash(0)}))
		Expect(webhookconf.HashesOf([]byte("garbage"))).To(BeEmpty())
		Expect(webhookconf.HashesOf(nil)).To(BeEmpty())
	})
})
