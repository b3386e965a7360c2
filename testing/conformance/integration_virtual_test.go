package conformance_test

// This file plays the resources that an API server answers and never stores.

import (
	"context"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"code.cloudfoundry.org/eirinix"
)

// virtualRelease is the minor release since which the API server calls no webhook for reviews of its callers (feature
// gate ExcludeAdmissionWebhookVirtualResources, beta).
const virtualRelease = 37

// virtual reports whether all resources of a group are such reviews: TokenReviews, SubjectAccessReviews and their kin.
func virtual(group string) bool {
	return slices.Contains([]string{"authentication.k8s.io", "authorization.k8s.io"}, group)
}

var _ = Describe("S23 A review that is never stored", Label("S23"), func() {
	// reviewed registers a step for SelfSubjectReviews by these rules. It returns the calls of the step for one review,
	// and the warnings with which the API server answered the registration.
	reviewed := func(ctx context.Context, group, resource string) (calls, warnings []string) {
		GinkgoHelper()
		heard, called := &overheard{}, &callLog{}
		serve(ctx, serviceMode, newNamespace(ctx), func(o *eirinix.ManagerOptions) {
			o.RestConfig = controlPlane().Config()
			o.RestConfig.WarningHandler = heard
		}, eirinix.Validation[*unstructured.Unstructured]{
			ID: "reviews",
			Settings: eirinix.Settings{
				Rules:         ruleFor(group, "v1", []string{resource}, admissionregistrationv1.Create),
				FailurePolicy: admissionregistrationv1.Ignore, AllowClusterCritical: true,
			},
			Create: func(context.Context, *eirinix.Call, *unstructured.Unstructured) error {
				called.add(resource)
				return nil
			},
		})
		_, err := clients().AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		for _, text := range heard.list() {
			if strings.Contains(text, "excluded from admission webhooks") {
				warnings = append(warnings, text)
			}
		}
		return called.list(), warnings
	}

	It("is sent before Kubernetes 1.37, and not since then: a rule that names it gets a warning", func(ctx SpecContext) {
		calls, warnings := reviewed(ctx, "authentication.k8s.io", "selfsubjectreviews")
		if !has(virtualRelease) {
			Expect(calls).To(ConsistOf("selfsubjectreviews"))
			Expect(warnings).To(BeEmpty())
			return
		}
		Expect(calls).To(BeEmpty())
		Expect(warnings).To(ContainElement("webhooks[0].rules[0]: selfsubjectreviews.authentication.k8s.io is excluded from admission webhooks; this rule will have no effect"))
	}, SpecTimeout(2*patience))

	It("is left out of wildcards since then, without a warning", func(ctx SpecContext) {
		calls, warnings := reviewed(ctx, "authentication.k8s.io", "*")
		Expect(warnings).To(BeEmpty())
		if has(virtualRelease) {
			Expect(calls).To(BeEmpty())
		} else {
			Expect(calls).To(ConsistOf("*"))
		}
	}, SpecTimeout(2*patience))
})
