package conformance_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

// Discovery depends on no webhook, so there is one mode.
var _ = Describe("Discovery", Label("S1"), func() {
	It("lists the group, its version v1 and both kinds of webhook configuration", func(SpecContext) {
		group, version := admissionregistrationv1.GroupName, admissionregistrationv1.SchemeGroupVersion.String()
		groups, err := clients().Discovery().ServerGroups()
		Expect(err).NotTo(HaveOccurred())
		Expect(groups.Groups).To(ContainElement(And(
			HaveField("Name", group),
			HaveField("Versions", ContainElement(HaveField("GroupVersion", version))))))
		resources, err := clients().Discovery().ServerResourcesForGroupVersion(version)
		Expect(err).NotTo(HaveOccurred())
		Expect(resources.APIResources).To(ContainElements(
			HaveField("Name", "mutatingwebhookconfigurations"),
			HaveField("Name", "validatingwebhookconfigurations")))
	}, SpecTimeout(patience))
})
