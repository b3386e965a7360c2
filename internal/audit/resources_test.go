package audit

// Specs of the resources that steps are asked about.

import (
	"context"
	"errors"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"

	"code.cloudfoundry.org/eirinix/internal/chain"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

type discovered struct {
	discovery.ServerResourcesInterfaceWithContext
	groups []*metav1.APIGroup
	lists  []*metav1.APIResourceList
	err    error
}

func (d *discovered) ServerGroupsAndResourcesWithContext(context.Context) ([]*metav1.APIGroup, []*metav1.APIResourceList, error) {
	return d.groups, d.lists, d.err
}

// newDiscovered serves the resources of a text: a line for each version, preferred ones with "!"; cluster-scoped
// resources in capitals; "-" for one that cannot be listed, "=" for one that cannot be written.
func newDiscovered(text string) *discovered {
	d := &discovered{}
	for line := range strings.SplitSeq(strings.TrimSpace(text), "\n") {
		words := strings.Fields(line)
		version, preferred := strings.CutPrefix(words[0], "!")
		list := &metav1.APIResourceList{GroupVersion: version}
		for _, name := range words[1:] {
			r := metav1.APIResource{Name: strings.ToLower(strings.Trim(name, "-=")), Namespaced: strings.ToLower(name) == name, Verbs: []string{"get", "list", "create", "update"}}
			r.Kind = "kind-of-" + r.Name
			switch {
			case strings.HasPrefix(name, "-"):
				r.Verbs = []string{"create"}
			case strings.HasPrefix(name, "="):
				r.Verbs = []string{"get", "list"}
			}
			list.APIResources = append(list.APIResources, r)
		}
		d.lists = append(d.lists, list)
		if preferred {
			group, v, found := strings.Cut(version, "/")
			if !found {
				group, v = "", version
			}
			d.groups = append(d.groups, &metav1.APIGroup{Name: group, PreferredVersion: metav1.GroupVersionForDiscovery{GroupVersion: version, Version: v}})
		}
	}
	return d
}

// cluster is an API server with several groups and versions.
const servedText = `
!v1 pods pods/exec configmaps NODES NAMESPACES -bindings =COMPONENTSTATUSES
apps/v1beta1 deployments controllerrevisions
!apps/v1 deployments deployments/scale
shop.example.org/v2 shops
!shop.example.org/v1 shops SHELVES
`

func ruleFor(groups, versions, resources string, operations ...admissionregistrationv1.OperationType) admissionregistrationv1.RuleWithOperations {
	list := func(s string) []string { return strings.Split(s, " ") }
	if len(operations) == 0 {
		operations = []admissionregistrationv1.OperationType{admissionregistrationv1.Create}
	}
	return admissionregistrationv1.RuleWithOperations{Operations: operations, Rule: admissionregistrationv1.Rule{APIGroups: list(groups), APIVersions: list(versions), Resources: list(resources)}}
}

func stepFor(rules ...admissionregistrationv1.RuleWithOperations) *step {
	return &step{Step: Step{Webhook: admissionregistrationv1.MutatingWebhook{Rules: rules}}, matcher: Must(chain.NewMatcher(rules, nil, nil))}
}

func scoped(scope admissionregistrationv1.ScopeType, r admissionregistrationv1.RuleWithOperations) admissionregistrationv1.RuleWithOperations {
	r.Scope = &scope
	return r
}

var _ = Describe("The resources of a step", func() {
	const (
		creates  = admissionregistrationv1.Create
		updates  = admissionregistrationv1.Update
		deletes  = admissionregistrationv1.Delete
		connects = admissionregistrationv1.Connect
		every    = admissionregistrationv1.OperationAll
	)
	found := func(namespace string, steps ...*step) string {
		GinkgoHelper()
		all, failed, err := served(context.Background(), newDiscovered(servedText))
		Expect(err).NotTo(HaveOccurred())
		Expect(failed).To(BeEmpty())
		var words []string
		for _, t := range targets(steps, all, namespace) {
			words = append(words, strings.TrimPrefix(t.Group+"/"+t.Version+"/"+t.Resource, "/"))
			Expect(t.kind.Kind).To(Equal("kind-of-" + t.Resource))
		}
		return strings.Join(words, " ")
	}

	DescribeTable("are those of its rules", func(expected string, rules ...admissionregistrationv1.RuleWithOperations) {
		Expect(found("", stepFor(rules...))).To(Equal(expected))
	},
		Entry("one by name", "v1/pods", ruleFor("", "v1", "pods")),
		Entry("one in its own version", "apps/v1beta1/deployments", ruleFor("apps", "v1beta1", "deployments")),
		Entry("one in the preferred version", "apps/v1/deployments", ruleFor("apps", "*", "deployments")),
		Entry("one in the preferred version of those that are named", "shop.example.org/v1/shops", ruleFor("shop.example.org", "v2 v1", "shops")),
		Entry("one that only another version has", "apps/v1beta1/controllerrevisions", ruleFor("apps", "*", "controllerrevisions")),
		Entry("every one of a group that is listed and written", "v1/configmaps v1/namespaces v1/nodes v1/pods", ruleFor("", "*", "*")),
		Entry("every one in namespaces", "v1/configmaps v1/pods", scoped(admissionregistrationv1.NamespacedScope, ruleFor("", "*", "*"))),
		Entry("every one without a namespace", "v1/namespaces v1/nodes", scoped(admissionregistrationv1.ClusterScope, ruleFor("", "*", "*"))),
		Entry("every one of all groups", "v1/configmaps v1/namespaces v1/nodes v1/pods apps/v1beta1/controllerrevisions apps/v1/deployments shop.example.org/v1/shelves shop.example.org/v1/shops", ruleFor("*", "*", "*/*")),
		Entry("one with its subresources", "v1/pods", ruleFor("", "v1", "pods/*")),
		Entry("no subresource alone", "", ruleFor("", "v1", "pods/exec */scale")),
		Entry("none that is only deleted", "", ruleFor("", "v1", "pods", deletes)),
		Entry("one of several rules", "v1/configmaps v1/pods", ruleFor("", "v1", "pods", deletes), ruleFor("", "v1", "pods configmaps", updates)),
		Entry("none that is not served", "", ruleFor("other.example.org", "v1", "pods")),
	)

	It("are listed once for all steps, in their order, and the mutating ones are asked first", func() {
		all, _, err := served(context.Background(), newDiscovered(servedText))
		Expect(err).NotTo(HaveOccurred())
		a, b, c := stepFor(ruleFor("", "v1", "pods")), stepFor(ruleFor("apps", "v1", "deployments")), stepFor(ruleFor("", "v1", "configmaps pods"))
		a.Registered = webhookconf.Step{Validating: true}
		both := targets([]*step{a, b, c}, all, "")
		Expect(both).To(HaveExactElements(HaveField("Resource", "pods"), HaveField("Resource", "deployments"), HaveField("Resource", "configmaps")))
		Expect(both[0].steps).To(HaveExactElements(BeIdenticalTo(c), BeIdenticalTo(a)))
	})

	It("are in namespaces if the audit is limited to one", func() {
		Expect(found("a", stepFor(ruleFor("", "*", "*")))).To(Equal("v1/configmaps v1/pods"))
	})

	DescribeTable("are listed in", func(resource, limit string, expected []string, selectors ...*metav1.LabelSelector) {
		all, _, err := served(context.Background(), newDiscovered(servedText))
		Expect(err).NotTo(HaveOccurred())
		var steps []*step
		for _, s := range selectors {
			one := stepFor(ruleFor("*", "*", resource))
			one.Webhook.NamespaceSelector = s
			steps = append(steps, one)
		}
		Expect(targets(steps, all, limit)[0].namespaces).To(Equal(expected))
	},
		Entry("all namespaces", "pods", "", []string{""}, &metav1.LabelSelector{}),
		Entry("all namespaces without a selector", "pods", "", []string{""}, (*metav1.LabelSelector)(nil)),
		Entry("the one that is audited", "pods", "x", []string{"x"}, byName("a")),
		Entry("those that are named", "pods", "", []string{"a", "b"}, byName("b"), byName("a")),
		Entry("those of an expression", "pods", "", []string{"a", "b"}, byNames(metav1.LabelSelectorOpIn, "b", "a")),
		Entry("all but some", "pods", "", []string{""}, byNames(metav1.LabelSelectorOpNotIn, "b")),
		Entry("all if one step wants that", "pods", "", []string{""}, byName("a"), &metav1.LabelSelector{MatchLabels: map[string]string{"team": "x"}}),
		Entry("no namespace, for objects without one", "nodes", "", []string{""}, byName("a")),
	)

	DescribeTable("that are not played are named", func(expected string, rules ...admissionregistrationv1.RuleWithOperations) {
		Expect(strings.Join(unplayed(rules), "; ")).To(Equal(expected))
	},
		Entry("none", "", ruleFor("", "v1", "pods", creates, updates)),
		Entry("deletions", "DELETE of pods, configmaps", ruleFor("", "v1", "pods configmaps", creates, deletes)),
		Entry("all operations", "DELETE of pods", ruleFor("", "v1", "pods", every)),
		Entry("connections", "pods/exec", ruleFor("", "v1", "pods/exec", connects)),
		Entry("subresources", "DELETE of pods; pods/*", ruleFor("", "v1", "pods/*", creates, deletes)),
		Entry("every one once", "DELETE of pods; pods/exec", ruleFor("", "v1", "pods pods/exec", deletes), ruleFor("", "v1", "pods pods/exec", deletes)),
	)

	It("can be unknown in part", func() {
		d := newDiscovered(servedText)
		d.err = &discovery.ErrGroupDiscoveryFailed{Groups: map[schema.GroupVersion]error{{Group: "metrics.example.org", Version: "v1"}: errors.New("down")}}
		all, failed, err := served(context.Background(), d)
		Expect(err).NotTo(HaveOccurred())
		Expect(all).NotTo(BeEmpty())
		Expect(failed).To(HaveLen(1))
		ended, end := context.WithCancel(context.Background())
		end()
		_, _, err = served(ended, d)
		Expect(err).To(MatchError(context.Canceled), "an audit that is interrupted meanwhile found nothing, and said so as if it had ended")
		d.err = errors.New("down")
		_, _, err = served(context.Background(), d)
		Expect(err).To(MatchError("down"))
	})
})

func byName(name string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": name}}
}

func byNames(operator metav1.LabelSelectorOperator, names ...string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "kubernetes.io/metadata.name", Operator: operator, Values: names}}}
}

var _ = DescribeTable("A condition about the user is found", func(expression string, found bool) {
	Expect(aboutUsers.MatchString(expression)).To(Equal(found))
},
	Entry("request.userInfo", `request.userInfo.username == "a"`, true),
	Entry("with white space", "request\n .\tuserInfo.groups.exists(g, g == 'a')", true),
	Entry("as an optional member", `request.?userInfo.username.orValue("") == ""`, true),
	Entry("the authorizer", `authorizer.group("").resource("pods").check("get").allowed()`, true),
	Entry("the authorizer of the resource", `authorizer.requestResource.check("x").allowed()`, true),
	Entry("not in another name", `object.spec.authorizers.size() > 0 && request.userInformation`, false),
	Entry("not elsewhere", `object.metadata.name != "a" && request.operation == "CREATE"`, false),
)
