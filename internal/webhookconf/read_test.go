package webhookconf_test

import (
	"errors"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clienttesting "k8s.io/client-go/testing"

	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

var _ = Describe("Delete", func() {
	It("deletes exactly what it has looked at", func(ctx SpecContext) {
		c := newCluster(configuration(nil))
		seen := c.stored()
		outcome, err := webhookconf.Mutating.Delete(ctx, c.client, configurationName, owner)
		Expect(err).NotTo(HaveOccurred())
		Expect(outcome).To(Equal(webhookconf.Deleted))
		Expect(c.writes()).To(Equal([]string{"delete"}))
		Expect(c.holdsNothing()).To(BeTrue())

		preconditions := c.Actions()[len(c.Actions())-1].(clienttesting.DeleteActionImpl).DeleteOptions.Preconditions
		Expect(preconditions).NotTo(BeNil())
		Expect(preconditions.UID).To(HaveValue(Equal(seen.UID)))
		Expect(preconditions.ResourceVersion).To(HaveValue(Equal(seen.ResourceVersion)))
	})

	It("deletes EiriniX's own configuration, which names no owner", func(ctx SpecContext) {
		upstream := configuration(nil)
		upstream.Annotations = nil
		c := newCluster(upstream)
		Expect(webhookconf.Mutating.Delete(ctx, c.client, configurationName, owner)).To(Equal(webhookconf.Deleted))
	})

	It("is content when there is none", func(ctx SpecContext) {
		c := newCluster()
		Expect(webhookconf.Mutating.Delete(ctx, c.client, configurationName, owner)).To(Equal(webhookconf.Absent))
		Expect(c.writes()).To(BeEmpty())
	})

	It("is content when another was faster", func(ctx SpecContext) {
		c := newCluster(configuration(nil))
		c.always("delete", apierrors.NewNotFound(groupResource, configurationName))
		Expect(webhookconf.Mutating.Delete(ctx, c.client, configurationName, owner)).To(Equal(webhookconf.Absent))
	})

	It("looks again when somebody changed it meanwhile", func(ctx SpecContext) {
		c := newCluster(configuration(nil))
		c.once("delete", conflict)
		Expect(webhookconf.Mutating.Delete(ctx, c.client, configurationName, owner)).To(Equal(webhookconf.Deleted))
		Expect(c.holdsNothing()).To(BeTrue())
	})

	It("refuses to delete the configuration of another deployment", func(ctx SpecContext) {
		foreign := configuration(nil)
		foreign.Annotations[webhookconf.OwnerAnnotation] = otherOwner
		c := newCluster(foreign)
		_, err := webhookconf.Mutating.Delete(ctx, c.client, configurationName, owner)
		_, ok := errors.AsType[*webhookconf.OwnedElsewhereError](err)
		Expect(ok).To(BeTrue(), "%v", err)
		Expect(c.writes()).To(BeEmpty())
		Expect(c.holdsNothing()).To(BeFalse())
	})

	DescribeTable("names the right that is missing",
		func(ctx SpecContext, verb string) {
			c := newCluster(configuration(nil))
			c.always(verb, forbidden())
			_, err := webhookconf.Mutating.Delete(ctx, c.client, configurationName, owner)
			Expect(apierrors.IsForbidden(err)).To(BeTrue(), "%v", err)
			Expect(err).To(MatchError(ContainSubstring("needs get and delete on mutatingwebhookconfigurations")))
		},
		Entry("to get", "get"),
		Entry("to delete", "delete"),
	)
})

var _ = Describe("Read", func() {
	It("gives the configuration", func(ctx SpecContext) {
		c := newCluster(configuration(build(urlOptions())))
		found, err := webhookconf.Mutating.Read(ctx, c.client, configurationName)
		Expect(err).NotTo(HaveOccurred())
		Expect(found).To(Equal(c.stored()))
	})

	It("gives nil, and no error, when there is none", func(ctx SpecContext) {
		found, err := webhookconf.Mutating.Read(ctx, newCluster().client, configurationName)
		Expect(err).NotTo(HaveOccurred())
		Expect(found).To(BeNil())
	})

	It("names the right that is missing", func(ctx SpecContext) {
		c := newCluster()
		c.always("get", forbidden())
		_, err := webhookconf.Mutating.Read(ctx, c.client, configurationName)
		Expect(apierrors.IsForbidden(err)).To(BeTrue(), "%v", err)
		Expect(err).To(MatchError(ContainSubstring("needs get on mutatingwebhookconfigurations")))
	})
})

var _ = Describe("What a configuration holds", func() {
	entry := func(names ...string) (entries []webhookconf.Entry) {
		for _, name := range names {
			entries = append(entries, webhookconf.Entry{Name: name, Path: "/mutate/" + name})
		}
		return entries
	}
	holding := func(names ...string) []admissionregistrationv1.MutatingWebhook {
		return urlOptions().Mutating(entry(names...))
	}

	DescribeTable("Missing tells which entries are not there",
		func(held []string, fingerprint string, wanted, expected []string) {
			c := configuration(holding(held...))
			Expect(webhookconf.Mutating.Missing(c, fingerprint, entry(wanted...))).To(Equal(expected))
		},
		Entry("none", []string{"a", "b"}, "eirini-x", []string{"b", "a"}, nil),
		Entry("some, in the order asked for", []string{"b"}, "eirini-x", []string{"c", "b", "a"}, []string{"c", "a"}),
		Entry("all, of another fingerprint", []string{"a"}, "another", []string{"a"}, []string{"a"}),
		Entry("all, of an empty configuration", nil, "eirini-x", []string{"a"}, []string{"a"}),
	)

	DescribeTable("Bundles gives each caBundle once",
		func(held []string, wanted string, expected ...string) {
			c := configuration(holding("a", "b", "c"))
			for i, bundle := range held {
				c.Webhooks[i].ClientConfig.CABundle = []byte(bundle)
			}
			var found []string
			var names []string
			for _, r := range wanted {
				names = append(names, string(r))
			}
			for _, bundle := range webhookconf.Mutating.Bundles(c, "eirini-x", entry(names...)) {
				found = append(found, string(bundle))
			}
			Expect(found).To(Equal(expected))
		},
		Entry("one for all", []string{"1", "1", "1"}, "abc", "1"),
		Entry("two", []string{"1", "1", "2"}, "abc", "1", "2"),
		Entry("two, interleaved", []string{"1", "2", "1"}, "abc", "1", "2"),
		Entry("of the entries asked for only", []string{"1", "2", "3"}, "b", "2"),
		Entry("leaving out entries that are not there", []string{"1", "1", "1"}, "axb", "1"),
		Entry("an empty one is one too", []string{"", "1", "1"}, "ab", "", "1"),
	)
})
