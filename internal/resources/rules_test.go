package resources_test

// The rules and operations of a step, and which requests a rule matches.

import (
	"errors"
	"fmt"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	apirules "k8s.io/apiserver/pkg/admission/plugin/webhook/predicates/rules"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"

	"code.cloudfoundry.org/eirinix/internal/mapper"
	"code.cloudfoundry.org/eirinix/internal/resources"
)

func TestResources(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "resources")
}

const (
	every    = admissionregistrationv1.OperationAll
	creates  = admissionregistrationv1.Create
	updates  = admissionregistrationv1.Update
	deletes  = admissionregistrationv1.Delete
	connects = admissionregistrationv1.Connect
)

type (
	operations = []admissionregistrationv1.OperationType
	rules      = []admissionregistrationv1.RuleWithOperations
)

var (
	pod        = schema.GroupVersionKind{Version: "v1", Kind: "Pod"}
	job        = schema.GroupVersionKind{Group: "batch", Version: "v1", Kind: "Job"}
	deployment = schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}
	namespace  = schema.GroupVersionKind{Version: "v1", Kind: "Namespace"}
	shop       = schema.GroupVersionKind{Group: "retail.example.org", Version: "v1", Kind: "Shop"}
	scale      = schema.GroupVersionKind{Group: "autoscaling", Version: "v1", Kind: "Scale"}
)

func offline() resources.Cluster {
	return resources.Cluster{Mapper: mapper.New(clientgoscheme.Scheme, nil)}
}

func rule(group, resource string, ops ...admissionregistrationv1.OperationType) admissionregistrationv1.RuleWithOperations {
	return admissionregistrationv1.RuleWithOperations{Operations: ops, Rule: admissionregistrationv1.Rule{
		APIGroups: []string{group}, APIVersions: []string{"v1"}, Resources: []string{resource},
	}}
}

var _ = Describe("Resolve", func() {
	DescribeTable("gives a step the operations", func(s resources.Step, expected ...admissionregistrationv1.OperationType) {
		resolved, _, err := offline().Resolve(s)
		Expect(err).NotTo(HaveOccurred())
		Expect(resolved).To(HaveExactElements(HaveField("Operations", expected)))
	},
		Entry("of a Mutation", resources.Step{Kind: deployment, Mutates: true}, creates, updates),
		Entry("of a Mutation of pods: a pod on a node cannot be changed any more", resources.Step{Kind: pod, Mutates: true}, creates),
		Entry("of a Mutation of Jobs, whose template is immutable", resources.Step{Kind: job, Mutates: true}, creates),
		Entry("that a Mutation asks for", resources.Step{Kind: pod, Mutates: true, Asked: operations{updates}}, updates),
		Entry("that a Mutation can have of all", resources.Step{Kind: pod, Mutates: true, Asked: operations{every}}, creates, updates),
		Entry("that a Mutation can have of all in its rules", resources.Step{Kind: pod, Mutates: true, Rules: rules{rule("", "pods", every)}}, creates, updates),
		Entry("that a Validation has callbacks for", resources.Step{Kind: pod, Operations: operations{creates, deletes}}, creates, deletes),
		Entry("that a Validation asks for", resources.Step{Kind: pod, Operations: operations{creates, deletes}, Asked: operations{deletes}}, deletes),
		Entry("that a Validation has callbacks for, of all", resources.Step{Kind: pod, Operations: operations{creates, deletes}, Asked: operations{every}}, creates, deletes),
		Entry("of a Validation's rules as they are", resources.Step{Kind: pod, Operations: operations{creates}, Rules: rules{rule("", "pods", every)}}, every),
		Entry("of an Extension", resources.Step{Kind: pod, AnyRules: true, Operations: operations{creates}}, creates),
		Entry("of an Extension's rules for other kinds",
			resources.Step{Kind: pod, AnyRules: true, Rules: rules{rule("*", "*", every)}}, every),
		Entry("that a subresource has", subresource("pods", "exec", "PodExecOptions"), connects),
		Entry("that a Subresource asks for in its settings", resources.Step{
			Resource: schema.GroupVersionResource{Version: "v1", Resource: "pods"}, Subresource: "exec", Asked: operations{connects},
		}, connects),
	)

	DescribeTable("refuses", func(s resources.Step, parts ...string) {
		_, _, err := offline().Resolve(s)
		for _, part := range parts {
			Expect(err).To(MatchError(ContainSubstring(part)))
		}
		_, later := errors.AsType[*resources.NotServedError](err)
		Expect(later).To(BeFalse(), "it will be wrong for ever")
	},
		Entry("a Mutation on PATCH", resources.Step{Kind: pod, Mutates: true, Asked: operations{"PATCH"}}, "PATCH", "Settings.Operations"), Entry("a Mutation on DELETE", resources.Step{Kind: pod, Mutates: true, Asked: operations{creates, deletes}}, "DELETE", "use a Validation"),
		Entry("a Mutation on CONNECT", resources.Step{Kind: pod, Mutates: true, Rules: rules{rule("", "pods", connects)}}, "CONNECT", "a Subresource"),
		Entry("rules that can yield other kinds", resources.Step{Kind: pod, Rules: rules{rule("", "*", creates)}},
			`the rule for "*"`, "may yield another kind than Pod"),
		Entry("rules for another kind", resources.Step{Kind: job, Rules: rules{rule("", "pods", creates)}},
			"Settings.Rules select /v1, Kind=Pod", "a step for each kind"),
		Entry("a Validation on an operation without a callback", resources.Step{Kind: pod, Operations: operations{creates}, Asked: operations{updates}}, "UPDATE", "no callback"),
		Entry("operations twice", resources.Step{Kind: pod, Operations: operations{creates}, Asked: operations{creates}, Rules: rules{rule("", "pods", creates)}}, "leave out Settings.Operations"),
		Entry("a subresource that is misspelt", subresource("pods", "exce", "PodExecOptions"), `pods has no subresource "exce"`, "exec,", "eviction,"),
		Entry("a subresource that another resource has", subresource("services", "exec", ""), `services has no subresource "exec"`, "proxy, status"),
		Entry("an operation that a subresource never has", with(subresource("pods", "exec", "PodExecOptions"), func(s *resources.Step) { s.Asked = operations{creates} }), "CREATE", "CONNECT"),
		Entry("a kind that a subresource never sends", subresource("pods", "exec", "Pod"), "PodExecOptions", "T is Pod"),
		Entry("another kind than the resource's own", with(subresource("pods", "status", ""), func(s *resources.Step) { s.Kind = namespace }), "the kind of pods", "T is Namespace"),
		Entry("another version than that of the resource", resources.Step{
			Kind: schema.GroupVersionKind{Group: shop.Group, Version: "v2", Kind: "Shop"}, Resource: shop.GroupVersion().WithResource("shops"), Subresource: "status",
		}, "the kind of shops in retail.example.org/v1"),
		Entry("the singular in the place of a resource", subresource("pod", "exec", "PodExecOptions"), `"pod" is not a resource; did you mean "pods"?`),
		Entry("a kind in the place of a resource", resources.Step{Resource: deployment.GroupVersion().WithResource("Deployment"), Subresource: "scale"}, `"Deployment" is not a resource; did you mean "deployments"?`),
		Entry("the singular in rules, where only the cluster knows the plural", resources.Step{Rules: rules{rule("", "configmap", creates)}}, `"configmap" is not a resource; did you mean "configmaps"?`),
		Entry("the singular in rules", resources.Step{Rules: rules{rule("", "pod", creates)}}, `"pod" is not a resource; did you mean "pods"?`),
		Entry("a subresource that is only read", subresource("pods", "log", ""), "can only be read"),
		Entry("a subresource that is not known, without operations", resources.Step{Resource: shop.GroupVersion().WithResource("shops"), Subresource: "visit"}, "set Settings.Operations"),
		Entry("a built-in kind that there is not", resources.Step{Kind: schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deploymint"}}, "Deploymint", "does not serve"),
	)

	DescribeTable("knows the subresources that Kubernetes has", func(resource schema.GroupVersionResource, name string, kind schema.GroupVersionKind, expected admissionregistrationv1.OperationType) {
		Expect(resources.Subresource(resource, name, kind, nil)).To(Equal(operations{expected}))
	},
		Entry(nil, pods(), "eviction", schema.GroupVersionKind{Group: "policy", Version: "v1", Kind: "Eviction"}, creates),
		Entry(nil, pods(), "ephemeralcontainers", pod, updates),
		Entry(nil, shop.GroupVersion().WithResource("shops"), "scale", scale, updates),
		Entry(nil, shop.GroupVersion().WithResource("shops"), "status", shop, updates),
		Entry("whatever the type", pods(), "exec", schema.GroupVersionKind{}, connects),
	)

	It("holds back a step on a kind that only a CustomResourceDefinition can define", func() {
		for _, s := range []resources.Step{
			{Kind: shop, Mutates: true},
			{Rules: rules{rule(shop.Group, "shops", creates)}},
		} {
			_, _, err := offline().Resolve(s)
			_, later := errors.AsType[*resources.NotServedError](err)
			Expect(later).To(BeTrue(), "%v", err)
			Expect(err).To(MatchError(ContainSubstring(shop.Group)))
		}
		known := resources.Cluster{Mapper: mapper.New(clientgoscheme.Scheme, []resources.Resource{{Kind: shop}})}
		resolved, _, err := known.Resolve(resources.Step{Kind: shop, Mutates: true})
		Expect(err).NotTo(HaveOccurred())
		Expect(resolved).To(HaveExactElements(HaveField("Resources", []string{"shops"})))
	})

	Describe("with a cluster that lists subresources", func() {
		visit := resources.Step{
			Kind: schema.GroupVersionKind{Group: shop.Group, Version: "v1", Kind: "Visit"}, Operations: operations{creates},
			Resource: shop.GroupVersion().WithResource("shops"), Subresource: "visit",
		}
		cluster := func(served ...metav1.APIResource) resources.Cluster {
			c := offline()
			c.List = func(version string) (*metav1.APIResourceList, error) {
				Expect(version).To(Equal("retail.example.org/v1"))
				if served == nil {
					return nil, apierrors.NewNotFound(schema.GroupResource{}, version)
				}
				return &metav1.APIResourceList{APIResources: served}, nil
			}
			return c
		}

		It("takes one that is there, also one that sends a core kind", func() {
			Expect(cluster(metav1.APIResource{Name: "shops/visit", Kind: "Visit"}).Resolve(visit)).Error().NotTo(HaveOccurred())
			binds := with(visit, func(s *resources.Step) { s.Kind = core("Binding") })
			served := metav1.APIResource{Name: "shops/visit", Version: "v1", Kind: "Binding"}
			Expect(cluster(served).Resolve(binds)).Error().NotTo(HaveOccurred())
		})

		It("refuses one that sends another kind", func() {
			_, _, err := cluster(metav1.APIResource{Name: "shops/visit", Kind: "Tour"}).Resolve(visit)
			Expect(err).To(MatchError(And(ContainSubstring("sends Tour.retail.example.org"), ContainSubstring("T is Visit"))))
		})

		It("holds back one that is not there", func() {
			others := []metav1.APIResource{{Name: "shops", Kind: "Shop"}, {Name: "stores", Kind: "Store"}}
			for _, c := range []resources.Cluster{cluster(), cluster(others...)} {
				_, _, err := c.Resolve(visit)
				_, later := errors.AsType[*resources.NotServedError](err)
				Expect(later).To(BeTrue(), "%v", err)
				Expect(err).To(MatchError(HavePrefix("it is about shops/visit of")))
			}
		})

		It("names the resource in place of a kind or its singular", func() {
			for _, name := range []string{"shop", "Shop"} {
				s := resources.Step{Resource: shop.GroupVersion().WithResource(name), Subresource: "status"}
				_, _, err := cluster(metav1.APIResource{Name: "shops", Kind: "Shop"}, metav1.APIResource{Name: "shops/status", Kind: "Shop"}).Resolve(s)
				Expect(err).To(MatchError(fmt.Sprintf("%q is not a resource; did you mean \"shops\"?", name)))
			}
		})

		It("does not take a failure for absence", func() {
			c := offline()
			c.List = func(string) (*metav1.APIResourceList, error) { return nil, errors.New("down") }
			_, _, err := c.Resolve(visit)
			_, later := errors.AsType[*resources.NotServedError](err)
			Expect(err).To(MatchError(ContainSubstring("down")))
			Expect(later).To(BeFalse())
		})
	})
})

func core(kind string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Version: "v1", Kind: kind}
}

func pods() schema.GroupVersionResource {
	return schema.GroupVersionResource{Version: "v1", Resource: "pods"}
}

// subresource is a step about one of a core resource, of a core kind if one is given.
func subresource(resource, name, kind string) resources.Step {
	s := resources.Step{Resource: schema.GroupVersionResource{Version: "v1", Resource: resource}, Subresource: name}
	if kind != "" {
		s.Kind = core(kind)
	}
	return s
}

func with(s resources.Step, change func(*resources.Step)) resources.Step {
	change(&s)
	return s
}

// The API server's own code says which requests a rule matches.
var _ = Describe("Rules", func() {
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
})
