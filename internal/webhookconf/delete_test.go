package webhookconf_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clienttesting "k8s.io/client-go/testing"

	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

var _ = Describe("Delete", func() {
	It("deletes exactly the object that it has read, of any version", func(ctx SpecContext) {
		c := newCluster(configuration(build(urlOptions())))
		seen := c.stored()
		Expect(mutatingIn(c).Delete(ctx)).To(Equal(webhookconf.Deleted))
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
		Expect(mutatingIn(newCluster(upstream)).Delete(ctx)).To(Equal(webhookconf.Deleted))
	})

	It("is content when there is none", func(ctx SpecContext) {
		c := newCluster()
		Expect(mutatingIn(c).Delete(ctx)).To(Equal(webhookconf.Absent))
		Expect(c.writes()).To(BeEmpty())
	})

	It("is content when another was faster", func(ctx SpecContext) {
		c := newCluster(configuration(nil))
		c.always("delete", apierrors.NewNotFound(groupResource, configurationName))
		Expect(mutatingIn(c).Delete(ctx)).To(Equal(webhookconf.Absent))
	})

	It("looks again when it was changed meanwhile", func(ctx SpecContext) {
		c := newCluster(configuration(nil))
		c.once("delete", conflict)
		Expect(mutatingIn(c).Delete(ctx)).To(Equal(webhookconf.Deleted))
		Expect(c.verbs()).To(Equal([]string{"get", "delete", "get", "delete"}))
		Expect(c.holdsNothing()).To(BeTrue())
	})

	DescribeTable("names the right that is missing",
		func(ctx SpecContext, verb string) {
			c := newCluster(configuration(nil))
			c.always(verb, forbidden())
			_, err := mutatingIn(c).Delete(ctx)
			Expect(apierrors.IsForbidden(err)).To(BeTrue(), "%v", err)
			Expect(err).To(MatchError(ContainSubstring("needs get and delete on mutatingwebhookconfigurations")))
		},
		Entry("to get", "get"),
		Entry("to delete", "delete"),
	)
})
