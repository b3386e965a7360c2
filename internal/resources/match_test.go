package resources_test

import (
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	apirules "k8s.io/apiserver/pkg/admission/plugin/webhook/predicates/rules"

	"code.cloudfoundry.org/eirinix/internal/resources"
)

// The API server's own code says which requests a rule matches.
var _ = Describe("Rules", func() {
	type rules = []admissionregistrationv1.RuleWithOperations
	newRule := func(operation, group, resource string) admissionregistrationv1.RuleWithOperations {
		return admissionregistrationv1.RuleWithOperations{
			Operations: operations{admissionregistrationv1.OperationType(operation)},
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{group}, APIVersions: []string{"*"}, Resources: []string{resource}},
		}
	}
	var all rules
	for _, operation := range []string{"*", "CREATE", "UPDATE"} {
		for _, group := range []string{"*", "", "apps"} {
			for _, resource := range []string{"*", "*/*", "pods", "pods/*", "pods/exec", "*/exec", "nodes"} {
				all = append(all, newRule(operation, group, resource))
			}
		}
	}

	// requests has each word that a rule names, and one that none does.
	var requests []*admissionv1.AdmissionRequest
	for _, operation := range []string{"CREATE", "UPDATE", "DELETE"} {
		for _, group := range []string{"", "apps", "other"} {
			for _, resource := range []string{"pods", "nodes", "namespaces"} {
				for _, subresource := range []string{"", "exec", "other"} {
					requests = append(requests, &admissionv1.AdmissionRequest{
						Operation: admissionv1.Operation(operation), Namespace: "x", SubResource: subresource,
						Resource: metav1.GroupVersionResource{Group: group, Version: "v1", Resource: resource},
					})
				}
			}
		}
	}
	sent := func(r admissionregistrationv1.RuleWithOperations, req *admissionv1.AdmissionRequest) bool {
		resource := schema.GroupVersionResource(req.Resource)
		return (&apirules.Matcher{Rule: r, Attr: admission.NewAttributesRecord(nil, nil, schema.GroupVersionKind{}, req.Namespace, "", resource, req.SubResource,
			admission.Operation(req.Operation), nil, false, nil)}).Matches()
	}

	It("overlap where there is a request that both match", func() {
		for _, a := range all {
			for _, b := range all {
				both := false
				for _, req := range requests {
					both = both || sent(a, req) && sent(b, req)
				}
				Expect(resources.Overlap(rules{a}, rules{b})).To(Equal(both), "%v %v", a, b)
			}
		}
		Expect(resources.Overlap(nil, all)).To(BeFalse())
		Expect(resources.Overlap(rules{newRule("UPDATE", "", "pods"), newRule("CREATE", "", "nodes")}, rules{newRule("CREATE", "", "pods"), newRule("CREATE", "*", "*")})).To(BeTrue())
	})

	It("match the requests that they match in an API server", func() {
		scopes := []*admissionregistrationv1.ScopeType{nil, new(admissionregistrationv1.AllScopes), new(admissionregistrationv1.NamespacedScope), new(admissionregistrationv1.ClusterScope)}
		for _, r := range all {
			for _, r.Scope = range scopes {
				for _, version := range []string{"*", "v1", "v2"} {
					r.APIVersions = []string{version}
					for _, req := range requests {
						for _, req.Namespace = range []string{"", "x"} {
							Expect(resources.Match(rules{r}, req)).To(Equal(sent(r, req)), "%v %v", r, req)
						}
					}
				}
			}
		}
	})

	DescribeTable("name a word", func(list string, expected bool) {
		Expect(resources.Names(strings.Split(list, ","), "a")).To(Equal(expected), fmt.Sprint(list))
	},
		Entry("alone", "a", true), Entry("beside others", "b,a", true), Entry("by the wildcard", "*", true),
		Entry("not another", "b", false), Entry("not by its part", "ab", false), Entry("nor in nothing", "", false),
	)
})
